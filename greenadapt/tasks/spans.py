"""The words of a context, and which span of them answers a question."""

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np

from greenadapt.arrays import Array
from greenadapt.config import WordUnit
from greenadapt.sequence_table import IntArray
from greenadapt.tasks.answers import Candidate

_UNITS = {
    "whitespace": re.compile(r"\S+"),
    "punct": re.compile(r"[!-/:-@\[-`{-~]+|[^\s!-/:-@\[-`{-~]+"),
}
# A context that repeats itself has many spans of equal text; looking at more of them finds nothing worth showing.
_MOST_SPANS = 1000


@lru_cache(maxsize=8)
def word_units(context: str, unit: WordUnit = "punct") -> IntArray:
    """(n, 2) int64, read-only: first character of each word of ``context`` and the one after its last.

    ``whitespace`` takes runs of anything but white space; ``punct`` also cuts before and after each run of ASCII
    punctuation, as the authors' code does.
    """
    units = np.array([match.span() for match in _UNITS[unit].finditer(context)], np.int64).reshape(-1, 2)
    units.flags.writeable = False
    return units


def unit_of_each(places: IntArray, units: IntArray) -> IntArray:
    """(m,) int32: which of ``units`` (n, 2) holds each character of ``places`` (m,), -1 for none."""
    if not len(units):
        return np.full(len(places), -1, np.int32)
    at = np.searchsorted(units[:, 0], places, "right") - 1
    return np.where((at >= 0) & (places < units[at, 1]), at, -1).astype(np.int32)


def with_carried_ends(units: IntArray, logits: Array) -> Array:
    """``logits`` (n, 2) where a unit that no piece begins in ends with the piece of the unit before it.

    Byte-level BPE has pieces such as ``'s``, which begins in one unit and ends in the next: an answer may end behind
    the second, and none between the two. A unit that stands alone and has no piece stays -inf.
    """
    carried = logits.copy()
    for i in np.flatnonzero(~np.isfinite(logits[:, 1])).tolist():
        if i and units[i, 0] == units[i - 1, 1]:
            carried[i, 1], carried[i - 1, 1] = carried[i - 1, 1], -np.inf
    return carried


@dataclass(frozen=True)
class Span:
    """The words ``first`` to ``last``, both included, and the sum of their start and end logit."""

    first: int
    last: int
    logit: float


def best_spans(units: IntArray, logits: Array, max_chars: int) -> Iterator[Span]:
    """All spans of at most ``max_chars`` characters, the one of the highest logit first, found as they are asked for.

    ``units`` (n, 2) as from ``word_units``; ``logits`` (n, 2), start and end of each word. Of equal ones that which
    starts first, then that which ends first, comes first. A word whose logit is not finite starts or ends none.
    """
    starts, ends = logits.astype(np.float64).T
    highest = _Highest(np.where(np.isfinite(ends), ends, -np.inf))
    furthest = np.searchsorted(units[:, 1], units[:, 0] + max_chars, "right") - 1
    first = np.flatnonzero(np.isfinite(starts) & (furthest >= np.arange(len(units))))
    last = highest.within(first, furthest[first])
    scores = -(starts[first] + highest.values[last])
    order = np.argsort(scores, kind="stable")[: np.isfinite(scores).sum()]
    # Entries: negated logit, first word, last word, and the range of last words that it is the best of.
    heap: list[tuple[float, int, int, int, int]] = []
    n_seen = 0  # the best spans of so many first words are or were in the heap: all that may be the next one
    while heap or n_seen < len(order):
        while n_seen < len(order) and (not heap or scores[order[n_seen]] <= heap[0][0]):
            i = order[n_seen]
            begin = int(first[i])
            heapq.heappush(heap, (float(scores[i]), begin, int(last[i]), begin, int(furthest[begin])))
            n_seen += 1
        score, begin, end, low, high = heapq.heappop(heap)
        yield Span(begin, end, -score)
        for a, b in ((low, end - 1), (end + 1, high)):
            if a <= b:
                best = int(highest.within(np.array([a]), np.array([b]))[0])
                if np.isfinite(highest.values[best]):
                    heapq.heappush(heap, (-(starts[begin] + highest.values[best]).item(), begin, best, a, b))


def candidates(context: str, units: IntArray, spans: Iterator[Span], n_best: int) -> list[Candidate]:
    """The first ``n_best`` different texts of ``spans``, in order."""
    found: dict[str, Candidate] = {}
    for span in islice(spans, _MOST_SPANS):
        start, end = int(units[span.first, 0]), int(units[span.last, 1])
        found.setdefault(context[start:end], Candidate(context[start:end], start, end, span.logit))
        if len(found) == n_best:
            break
    return list(found.values())


class _Highest:
    """The first highest of ``values`` (n,) within any range: places of the highest within 1, 2, 4 … from each on."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self._levels: list[IntArray] = [np.arange(len(values))]

    def within(self, low: IntArray, high: IntArray) -> IntArray:
        """The place of the first highest value from ``low`` (m,) to ``high`` (m,), both included."""
        levels = np.frexp(high - low + 1)[1] - 1  # floor of the binary logarithm
        self._grow(int(levels.max(initial=0)))
        found = np.empty_like(low)
        for level in np.unique(levels).tolist():
            at = levels == level
            places = self._levels[level]
            found[at] = self._higher(places[low[at]], places[high[at] - (1 << level) + 1])
        return found

    def _grow(self, level: int) -> None:
        while len(self._levels) <= level:
            places, step = self._levels[-1], 1 << (len(self._levels) - 1)
            self._levels.append(self._higher(places[:-step], places[step:]))

    def _higher(self, left: IntArray, right: IntArray) -> IntArray:
        return np.where(self.values[right] > self.values[left], right, left)
