"""A sentence as its words, how raw text becomes one, and where it is cut into what a model reads at once."""

import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from greenadapt.storage.arrays import IntArray, offsets_of

Split = Literal["whitespace", "punctuation"]
Spans = tuple[tuple[int, int], ...]

_CHUNK = re.compile(r"\S+")
_CLINGING = frozenset(",;:.()")
_CLINGING_SHARE = 0.01


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, with an IOB2 tag each where it is labelled.

    Where its ``text`` is kept, as it is for what has no tags, ``spans`` has the first character of each word in it and
    the one after the word's last.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    spans: Spans | None = None
    text: str | None = None


def split_text(text: str, split: Split) -> Sentence:
    """Raw text as a sentence: cut at white space, and with ``punctuation`` every punctuation character is a word."""
    spans: list[tuple[int, int]] = []
    for match in _CHUNK.finditer(text):
        begin, end = match.span()
        if split == "whitespace" or match.group().isalnum():
            spans.append((begin, end))
        else:
            spans += _split_chunk(text, begin, end)
    return Sentence(tuple(text[begin:end] for begin, end in spans), None, tuple(spans), text)


def joined(words: Sequence[str]) -> Sentence:
    """A sentence that is split already, its text the words with a space between them."""
    ends = [*accumulate(len(word) + 1 for word in words)]
    spans = tuple((end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True))
    return Sentence(tuple(words), None, spans, " ".join(words))


def usual_split(words: Iterable[str]) -> Split:
    """How the text that ``words`` come from was split.

    It is ``punctuation`` where under 1 % of the words with a letter or digit begin or end with one of ``,;:.()``: in
    text that is cut at white space only, every tenth word or so does.
    """
    n_words = n_clinging = 0
    for word in words:
        if any(map(str.isalnum, word)):
            n_words += 1
            n_clinging += word[0] in _CLINGING or word[-1] in _CLINGING
    return "punctuation" if n_clinging < _CLINGING_SHARE * n_words else "whitespace"


def _split_chunk(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    spans = []
    for position in range(begin, end):
        if _is_punctuation(text[position]):
            if begin < position:
                spans.append((begin, position))
            spans.append((position, position + 1))
            begin = position + 1
    if begin < end:
        spans.append((begin, end))
    return spans


def _is_punctuation(character: str) -> bool:
    """As BERT's tokenizer has it: ASCII's symbols count, too."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


@dataclass(frozen=True)
class Limits:
    """What a chunk may hold: ``words`` (``None``: any number), and ``pieces`` in each tokenization."""

    words: int | None
    pieces: int


def cut(sizes: Sequence[IntArray], tags: Sequence[str] | None, limits: Limits) -> list[tuple[int, int]]:
    """Chunks of a sentence, each its first word and the one after its last; end to end they are the sentence.

    ``sizes`` are the pieces of each word, (n,) for each tokenization and none above ``limits.pieces``. A chunk is as
    long as the limits allow; given IOB2 ``tags`` (n,), it ends earlier where the next word's tag is I, unless the
    entity began with the chunk and is longer than one (Poerner et al. 2020, section 4.2: chunks that cut no span).
    """
    n_words = len(sizes[0])
    if (limits.words is None or n_words <= limits.words) and all(one.sum() <= limits.pieces for one in sizes):
        return [(0, n_words)] if n_words else []
    reach = _reach(sizes, limits).tolist()
    chunks = []
    begin = 0
    while begin < n_words:
        end = reach[begin]
        chunks.append((begin, _step_back(tags, begin, end) if tags is not None and end < n_words else end))
        begin = chunks[-1][1]
    return chunks


def _reach(sizes: Sequence[IntArray], limits: Limits) -> IntArray:
    """The furthest end of a chunk from each word, (n,)."""
    n_words = len(sizes[0])
    words = n_words if limits.words is None else limits.words
    reach: np.ndarray[Any, np.dtype[np.int64]] = np.minimum(np.arange(n_words) + words, n_words)
    for one in sizes:
        before = offsets_of(one)
        reach = np.minimum(reach, np.searchsorted(before, before[:-1] + limits.pieces, "right") - 1)
    return reach


def _step_back(tags: Sequence[str], begin: int, end: int) -> int:
    """``end``, or the begin of the entity that goes on there, if a chunk is left before it."""
    back = end
    while back > begin and tags[back].startswith("I-"):
        back -= 1
    return back if back > begin else end
