"""Split paragraphs and queries into the words that a search compares, and rank paragraphs by BM25."""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from greenadapt.errors import InputError
from greenadapt.tokenization.vocabulary import WordSplitter, load_tokenizer

if TYPE_CHECKING:
    import tantivy


_PLAIN = re.compile(r"\w+")
_ASCII = {ord(char): char.lower() if _PLAIN.match(char) else " " for char in map(chr, range(128))}
_CACHED, _CACHED_CHARACTERS = 1 << 17, 40
"""Pieces of text between spaces whose words are cached, and the longest of them: a server must not keep texts."""
Words = Callable[[str], str]
"""Returns the words of a text, with spaces between."""


def _raw_words(text: str) -> str:
    """Runs of letters, digits and underscores, in lower case."""
    return text.translate(_ASCII) if text.isascii() else " ".join(_PLAIN.findall(text.lower()))


def _model_words(tokenizer: Tokenizer) -> Words:
    """Splits text into the words of a model's tokenizer, in lower case, without words of punctuation alone.

    ``_raw_words`` for a tokenizer whose words are not known.
    """
    try:
        splitter = WordSplitter(tokenizer)
    except InputError:
        return _raw_words

    def join_lowercase(words: list[str]) -> str:
        return " ".join(word.lower() for word in words if any(map(str.isalnum, word)))

    if not splitter.chunkwise:
        return lambda text: join_lowercase(splitter.split(text))

    def split_chunk(chunk: str) -> str:
        return join_lowercase(splitter.split_chunk(chunk))

    cached = lru_cache(_CACHED)(split_chunk)
    return lambda text: " ".join(
        cached(chunk) if len(chunk) <= _CACHED_CHARACTERS else split_chunk(chunk) for chunk in text.split()
    )


def words_of(tokenizer: Path | None) -> Words:
    """Splits text into the words of a ``tokenizer``, its file or a model's folder, or without one into runs of letters
    and digits.

    Text is compared in Unicode's form NFC, in which é is one character, however it was written.
    """
    words = _raw_words if tokenizer is None else _model_words(load_tokenizer(tokenizer))
    return lambda text: words(unicodedata.normalize("NFC", text))


_FIELD, _ANALYZER, _OPTION = "words", "words", "freq"


def add_words(schema: "tantivy.SchemaBuilder") -> None:
    """A field ``words``: words separated by spaces, with their counts."""
    schema.add_text_field(_FIELD, tokenizer_name=_ANALYZER, index_option=_OPTION)


def prepare(index: "tantivy.Index") -> None:
    """Let ``index`` split the field; it forgets how when it is closed."""
    import tantivy

    index.register_tokenizer(_ANALYZER, tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build())


def find_best(
    index: "tantivy.Index", searcher: "tantivy.Searcher", words: str, top: int
) -> "list[tuple[float, tantivy.DocAddress]]":
    """The ``top`` best by Okapi BM25 with k1 1.2 and b 0.75, best first; each word counts once.

    What has none of the words is not among them.
    """
    import tantivy

    terms = [
        tantivy.Query.term_query(index.schema, _FIELD, word, _OPTION)
        for word in dict.fromkeys(words.split(" "))
        if word
    ]
    query = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
    top = min(top, max(1, searcher.num_docs))  # tantivy reserves memory for ``top`` hits
    return searcher.search(query, top, count=False).hits
