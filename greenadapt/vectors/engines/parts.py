"""The stream cut into parts that one thread trains on at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from greenadapt.storage.arrays import Array
from greenadapt.vectors.engines import Stream

_LONGEST = 9_999  # words of a line that are in one part; gensim's kernel has room for 10,000
_PART = 50_000  # words; a part takes less than a tenth of a second
_MAX_PARTS = 10_000


@dataclass(frozen=True, eq=False)
class Span:
    """A part of a stream: its lines' ``borders`` in the ids, (n_lines + 1,) int64, and its trained words."""

    number: int
    borders: Array
    before: int
    """Trained words in the parts before it."""
    words: int


def spans(stream: Stream) -> Iterator[Span]:
    """All parts with trained words, in order; each id is in one of them."""
    before = 0
    for number, (begin, end) in enumerate(cuts(stream)):
        first, last = np.searchsorted(stream.lines, [begin, end])
        borders = np.unique(np.concatenate([[begin], stream.lines[first:last], [end]]))
        words = int(np.count_nonzero(np.asarray(stream.ids[begin:end]) < stream.n_words))
        if words:
            yield Span(number, borders, before, words)
        before += words


def cuts(stream: Stream) -> Iterator[tuple[int, int]]:
    """Where the parts begin and end in ``stream.ids``: between lines, or where a long line is cut."""
    n_tokens = len(stream.ids)
    size = max(_PART, n_tokens // _MAX_PARTS)
    begin = 0
    for target in range(size, n_tokens, size):
        line = int(stream.lines[np.searchsorted(stream.lines, target, side="right") - 1])
        end = line + (target - line) // _LONGEST * _LONGEST
        if end > begin:
            yield begin, end
            begin = end
    yield begin, n_tokens
