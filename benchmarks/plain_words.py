"""The plain loop that splits text into words, with which greenadapt's splitter is compared."""

from collections.abc import Iterable, Iterator
from typing import Any


def plain(tokenizer: Any, lines: Iterable[str]) -> Iterator[list[str]]:
    """The words of each line, by the tokenizer's normalizer and pre-tokenizer."""
    normalize, split = tokenizer.normalizer.normalize_str, tokenizer.pre_tokenizer.pre_tokenize_str
    for line in lines:
        yield [word for word, _ in split(normalize(line))]
