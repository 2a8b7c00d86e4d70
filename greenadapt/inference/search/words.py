"""The words of paragraphs and queries that are compared in a search."""

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from greenadapt.errors import InputError
from greenadapt.tokenization.splitter import WordSplitter, load_tokenizer

_PLAIN = re.compile(r"\w+")
_KNOWN, _KNOWN_CHARACTERS = 1 << 17, 40
"""Pieces of text between spaces whose words are remembered, and the longest of them: a server must not keep texts."""
Words = Callable[[str], list[str]]


def plain_words(text: str) -> list[str]:
    """Runs of letters, digits and underscores, in lower case."""
    return _PLAIN.findall(text.lower())


def model_words(tokenizer: Tokenizer) -> Words:
    """The words that a model's tokenizer splits text into, in lower case, without those of punctuation alone.

    ``plain_words`` for a tokenizer whose words are not known.
    """
    try:
        splitter = WordSplitter(tokenizer)
    except InputError:
        return plain_words

    def kept(words: list[str]) -> list[str]:
        return [word.lower() for word in words if any(map(str.isalnum, word))]

    if not splitter.chunkwise:
        return lambda text: kept(splitter.split(text))

    def of_chunk(chunk: str) -> list[str]:
        return kept(splitter.split_chunk(chunk))

    known = lru_cache(_KNOWN)(of_chunk)
    return lambda text: [
        word for chunk in text.split() for word in (known if len(chunk) <= _KNOWN_CHARACTERS else of_chunk)(chunk)
    ]


def words_of(model: Path) -> Words:
    """``model_words`` of the tokenizer in a model's folder."""
    return model_words(load_tokenizer(model))
