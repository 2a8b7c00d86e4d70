"""Candidate spans of a context, which of them are answers, and their scores as the SQuAD scorer counts them."""

import heapq
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from scipy.special import softmax

from greenadapt.config import WordUnit
from greenadapt.storage.arrays import Array, IntArray
from greenadapt.storage.files import Json

_UNITS = {
    "whitespace": re.compile(r"\S+"),
    "punct": re.compile(r"[!-/:-@\[-`{-~]+|[^\s!-/:-@\[-`{-~]+"),
}
_MOST_SPANS = 1000
"""A context that repeats itself has many spans of equal text; looking at more of them finds nothing worth showing."""


@dataclass(frozen=True)
class Candidate:
    """A possible answer: ``text`` is the context from character ``start`` to before ``end``; both ``None`` where the
    answer is that there is none.
    """

    text: str
    start: int | None
    end: int | None
    logit: float
    """Sum of the start and the end logit."""
    document: str = ""
    """Whose context it is from."""
    sentence: str = ""
    """The context around it, from its character ``sentence_start`` on."""
    sentence_start: int | None = None
    title: str = ""
    paragraph: str = ""
    """What the model read, of a document that a search was made in, from its character ``paragraph_start`` on."""
    paragraph_start: int | None = None

    def moved(self, document: str, begin: int) -> "Candidate":
        """The same in a document that has the context from its character ``begin`` on."""
        if self.start is None or self.end is None:
            return self
        return replace(self, document=document, start=self.start + begin, end=self.end + begin)

    def as_dict(self, score: float) -> Json:
        """``answer``, ``start``, ``end``, ``score`` and ``logit``."""
        logit = self.logit if np.isfinite(self.logit) else None
        return {"answer": self.text, "start": self.start, "end": self.end, "score": score, "logit": logit}

    def as_located(self, score: float) -> Json:
        """Beside those ``document``, ``sentence`` and ``sentence_start``; of a paragraph that a search found also its
        ``title``, ``paragraph`` and ``paragraph_start``.
        """
        where = {"document": self.document, "sentence": self.sentence, "sentence_start": self.sentence_start}
        if self.paragraph_start is not None:
            where |= {"title": self.title, "paragraph": self.paragraph, "paragraph_start": self.paragraph_start}
        return {**self.as_dict(score), **where}


@dataclass(frozen=True)
class Found:
    """What a model predicts for a question: the best candidates, best first, and the logit of "no answer", ``None`` if
    that is not possible.
    """

    candidates: tuple[Candidate, ...]
    null: float | None = None


@dataclass(frozen=True)
class Ranked:
    """A candidate and its probability among those that it was chosen from."""

    candidate: Candidate
    score: float


def together(found: Iterable[Found], n_best: int) -> Found:
    """What a model predicts for a question on several contexts, as if they were one: raw logits are compared, as those
    of the windows of one context are, and the logit of "no answer" is the lowest of all. Of equal texts in a document
    the best counts.
    """
    each = list(found)
    best: dict[tuple[str, str], Candidate] = {}
    for one in sorted((one for part in each for one in part.candidates), key=lambda one: -one.logit):
        best.setdefault((one.document, one.text), one)
    nulls = [part.null for part in each if part.null is not None]
    return Found(tuple(islice(best.values(), n_best)), min(nulls, default=None))


def ranked(found: Found, null_threshold: float = 0.0) -> list[Ranked]:
    """The candidates in order, each with the softmax of the logits over all of them, "no answer" included.

    "No answer" comes first if its logit exceeds the best candidate's by more than ``null_threshold``, as in the usual
    code for SQuAD 2. If nothing is possible it is the only one, with a score of 0.
    """
    if not found.candidates and found.null is None:
        return [Ranked(Candidate("", None, None, -np.inf), 0.0)]
    shifted = [(one.logit, one) for one in found.candidates]
    if found.null is not None:
        shifted.append((found.null - null_threshold, Candidate("", None, None, found.null)))
        shifted.sort(key=lambda pair: -pair[0])  # stable: of equals the span, which came first
    logits = np.array([one.logit for _, one in shifted])
    shares = softmax(logits).tolist()
    return [Ranked(one, share) for (_, one), share in zip(shifted, shares, strict=True)]


def word_units(context: str, unit: WordUnit = "punct") -> IntArray:
    """(n, 2) int64: first character of each word of ``context`` and the one after its last.

    ``whitespace`` takes runs of anything but white space; ``punct`` also cuts before and after each run of ASCII
    punctuation, as the authors' code does.
    """
    return np.array([match.span() for match in _UNITS[unit].finditer(context)], np.int64).reshape(-1, 2)


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


def furthest_words(sizes: IntArray, max_pieces: int) -> IntArray:
    """The last word of the longest span of at most ``max_pieces`` pieces from each word on, (n,), of words with
    ``sizes`` (n,) pieces; a word that has more of its own is one before itself.
    """
    before = np.concatenate([[0], np.cumsum(sizes)])
    return np.searchsorted(before[1:], before[:-1] + max_pieces, "right").astype(np.int64) - 1


def best_spans(units: IntArray, logits: Array, max_chars: int, last_words: IntArray | None = None) -> Iterator[Span]:
    """All spans of at most ``max_chars`` characters, the one of the highest logit first, found as they are asked for.

    With ``last_words`` (n,), see ``furthest_words``, a span also ends there at the latest.

    ``units`` (n, 2) as from ``word_units``; ``logits`` (n, 2), start and end of each word. Of equal ones that which
    starts first, then that which ends first, comes first. A word whose logit is not finite starts or ends none.
    """
    starts, ends = logits.astype(np.float64).T
    highest = _Highest(np.where(np.isfinite(ends), ends, -np.inf))
    furthest = np.searchsorted(units[:, 1], units[:, 0] + max_chars, "right") - 1
    if last_words is not None:
        furthest = np.minimum(furthest, last_words)
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


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True)
class AnswerScores:
    """Scores of one answer or their means; shares between 0 and 1."""

    em: float
    """Equal to a gold answer once both are normalised."""
    f1: float
    """Harmonic mean of precision and recall of its words, the highest over the gold answers."""
    substr: float
    """Part of a gold answer once both are normalised."""

    @classmethod
    def mean(cls, scores: "Sequence[AnswerScores]") -> "AnswerScores":
        """The means over at least one answer."""
        n = len(scores)
        return cls(sum(s.em for s in scores) / n, sum(s.f1 for s in scores) / n, sum(s.substr for s in scores) / n)


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation and the words a, an, the, runs of white space as one space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def f1(prediction: str, gold: str, *, is_second: bool) -> float:
    """Harmonic mean of the precision and recall of the words of two normalised texts; 0 where only one has words.

    Where neither has any it is 1 by the scorer of SQuAD 2 (``is_second``), whose empty answer says that there is none,
    and 0 by that of version 1, which counts the words in common.
    """
    predicted, wanted = prediction.split(), gold.split()
    if not predicted or not wanted:
        return float(is_second and predicted == wanted)
    common = sum((Counter(predicted) & Counter(wanted)).values())
    return 2 * common / (len(predicted) + len(wanted))


def score_answer(prediction: str, golds: Sequence[str], *, is_second: bool) -> AnswerScores:
    """Scores of one answer against its gold answers; of a question without answer the one gold answer is empty.

    The empty answer is a part only of the empty one. ``is_second`` is whether the questions are those of SQuAD 2, see
    ``f1``.
    """
    predicted = normalise(prediction)
    wanted = [normalise(gold) for gold in golds] or [""]
    return AnswerScores(
        em=float(predicted in wanted),
        f1=max(f1(predicted, gold, is_second=is_second) for gold in wanted),
        substr=float(any(predicted in gold and bool(predicted) == bool(gold) for gold in wanted)),
    )
