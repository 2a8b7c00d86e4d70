"""Candidate spans of a context, their ranking, and the scores of answers as in the SQuAD scorers."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from greenadapt.config import WordUnit
from greenadapt.store.arrays import Array, IntArray, offsets_of
from greenadapt.store.files import Json

_UNITS = {
    "whitespace": re.compile(r"\S+"),
    "punct": re.compile(r"[!-/:-@\[-`{-~]+|[^\s!-/:-@\[-`{-~]+"),
}
_MAX_SPANS = 1000
"""Number of spans to examine: in a context that repeats itself many have the same text, and these count once."""
_WORDS_AT_ONCE = 1 << 12


@dataclass(frozen=True)
class Candidate:
    """A possible answer: ``text`` is the context from character ``start`` to before ``end``, both ``None`` for "no
    answer".
    """

    text: str
    start: int | None
    end: int | None
    logit: float
    """Sum of the start and end logits."""
    document: str = ""
    """Name of the document of the context."""
    sentence: str = ""
    """The sentence around the answer, from character ``sentence_start`` of the document."""
    sentence_start: int | None = None
    title: str = ""
    paragraph: str = ""
    """The paragraph that the search found, from character ``paragraph_start`` of the document."""
    paragraph_start: int | None = None

    def as_dict(self, score: float) -> Json:
        """``answer``, ``start``, ``end``, ``score`` and ``logit``."""
        logit = self.logit if np.isfinite(self.logit) else None
        return {"answer": self.text, "start": self.start, "end": self.end, "score": score, "logit": logit}

    def as_located(self, score: float) -> Json:
        """The entries of ``as_dict``, ``document``, ``sentence`` and ``sentence_start``; if a search found the
        paragraph, also ``title``, ``paragraph`` and ``paragraph_start``.
        """
        where = {"document": self.document, "sentence": self.sentence, "sentence_start": self.sentence_start}
        if self.paragraph_start is not None:
            where |= {"title": self.title, "paragraph": self.paragraph, "paragraph_start": self.paragraph_start}
        return {**self.as_dict(score), **where}


@dataclass(frozen=True)
class AnswerCandidates:
    """The best candidates for a question, best first, and the logit of "no answer", ``None`` if that is not
    possible.
    """

    candidates: tuple[Candidate, ...]
    null: float | None = None


def merge_candidates(predictions: Iterable[AnswerCandidates], n_best: int) -> AnswerCandidates:
    """Merge the candidates for a question from several contexts.

    Logits are compared directly, as between the windows of a context; the logit of "no answer" is the lowest of all. Of
    candidates with equal text in a document only the best is kept.
    """
    parts = list(predictions)
    best: dict[tuple[str, str], Candidate] = {}
    for candidate in sorted(
        (candidate for part in parts for candidate in part.candidates), key=lambda candidate: -candidate.logit
    ):
        best.setdefault((candidate.document, candidate.text), candidate)
    nulls = [part.null for part in parts if part.null is not None]
    return AnswerCandidates(tuple(islice(best.values(), n_best)), min(nulls, default=None))


def rank(prediction: AnswerCandidates, null_threshold: float = 0.0) -> list[tuple[Candidate, float]]:
    """The candidates, best first, with the softmax of their logits, including "no answer", as scores.

    "No answer" is first if its logit exceeds the best candidate's by more than ``null_threshold``, as in common code
    for SQuAD 2. Without any candidate it is the only answer, with a score of 0.
    """
    from scipy.special import softmax

    if not prediction.candidates and prediction.null is None:
        return [(Candidate("", None, None, -np.inf), 0.0)]
    shifted = [(candidate.logit, candidate) for candidate in prediction.candidates]
    if prediction.null is not None:
        shifted.append((prediction.null - null_threshold, Candidate("", None, None, prediction.null)))
        shifted.sort(key=lambda pair: -pair[0])  # stable: spans precede "no answer" on ties
    in_order = [candidate for _, candidate in shifted]
    scores = softmax([candidate.logit for candidate in in_order]).tolist()
    return list(zip(in_order, scores, strict=True))


def word_units(context: str, unit: WordUnit = "punct") -> IntArray:
    """(n, 2) int64: the first character of each word of ``context``, and the character after its last.

    ``whitespace`` splits at white space; ``punct`` also splits before and after each run of ASCII punctuation, as in
    the authors' code.
    """
    return np.array([match.span() for match in _UNITS[unit].finditer(context)], np.int64).reshape(-1, 2)


def find_units(characters: IntArray, units: IntArray) -> IntArray:
    """(m,) int32: the index in ``units`` (n, 2) of the unit around each of ``characters`` (m,), -1 for none."""
    if not len(units):
        return np.full(len(characters), -1, np.int32)
    indices = np.searchsorted(units[:, 0], characters, "right") - 1
    return np.where((indices >= 0) & (characters < units[indices, 1]), indices, -1).astype(np.int32)


def carry_ends(units: IntArray, logits: Array) -> Array:
    """Move the end logits in ``logits`` (n, 2) of a piece that spans two adjacent units to the second unit.

    Pieces of byte-level BPE such as ``'s`` begin in a unit and end in the next: an answer can end after the second unit
    but not between the two. A unit without pieces that is not adjacent to another keeps -inf.
    """
    carried = logits.copy()
    for i in np.flatnonzero(~np.isfinite(logits[:, 1])).tolist():
        if i and units[i, 0] == units[i - 1, 1]:
            carried[i, 1], carried[i - 1, 1] = carried[i - 1, 1], -np.inf
    return carried


Span = tuple[int, int, float]
"""The first and the last word, and the sum of their start and end logits."""


def furthest_words(sizes: IntArray, max_pieces: int) -> IntArray:
    """The last word, (n,), of the longest span from each word on with at most ``max_pieces`` pieces.

    ``sizes`` (n,) are the pieces per word; for a word with more than ``max_pieces`` it is the word before.
    """
    before = np.concatenate([[0], np.cumsum(sizes)])
    return np.searchsorted(before[1:], before[:-1] + max_pieces, "right").astype(np.int64) - 1


def rank_spans(units: IntArray, logits: Array, max_chars: int, last_words: IntArray | None = None) -> Iterator[Span]:
    """The best ``_MAX_SPANS`` spans of at most ``max_chars`` characters, by descending logit.

    ``units`` (n, 2) are from ``word_units``; ``logits`` (n, 2) are the start and end logits of each word. Ties are
    ordered by start, then by end. A word with a logit that is not finite does not start or end a span. With
    ``last_words`` (n,), see ``furthest_words``, a span ends at that word at the latest.
    """
    starts, ends = logits.astype(np.float64).T
    furthest = np.searchsorted(units[:, 1], units[:, 0] + max_chars, "right") - 1
    if last_words is not None:
        furthest = np.minimum(furthest, last_words)
    words = np.flatnonzero(np.isfinite(starts))
    best: tuple[IntArray, IntArray, Array] = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    for begin in range(0, len(words), _WORDS_AT_ONCE):
        chosen = words[begin : begin + _WORDS_AT_ONCE]
        n_ends = np.maximum(furthest[chosen] - chosen + 1, 0)
        first = np.repeat(chosen, n_ends)
        last = first + np.arange(len(first)) - np.repeat(offsets_of(n_ends)[:-1], n_ends)
        block = first, last, starts[first] + ends[last]
        best = _highest(*map(np.concatenate, zip(best, block, strict=True)))
    return zip(*(values.tolist() for values in best), strict=True)


def _highest(first: IntArray, last: IntArray, scores: Array) -> tuple[IntArray, IntArray, Array]:
    """Of spans (n,), the ``_MAX_SPANS`` with the highest finite scores, in descending order; ties in their order."""
    least = np.partition(scores, -_MAX_SPANS)[-_MAX_SPANS] if len(scores) > _MAX_SPANS else -np.inf
    candidates = np.flatnonzero((scores >= least) & np.isfinite(scores))
    order = candidates[np.argsort(-scores[candidates], kind="stable")[:_MAX_SPANS]]
    return first[order], last[order], scores[order]


def candidates(context: str, units: IntArray, spans: Iterable[Span], n_best: int) -> list[Candidate]:
    """The first ``n_best`` of ``spans`` with different texts, in order."""
    by_text: dict[str, Candidate] = {}
    for first, last, logit in spans:
        start, end = int(units[first, 0]), int(units[last, 1])
        by_text.setdefault(context[start:end], Candidate(context[start:end], start, end, logit))
        if len(by_text) == n_best:
            break
    return list(by_text.values())


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True)
class AnswerScores:
    """Scores of an answer, or their means; from 0 to 1."""

    em: float
    """Whether it equals a gold answer, both normalized."""
    f1: float
    """Harmonic mean of the precision and recall of its words, the maximum over the gold answers."""
    substr: float
    """Whether it is part of a gold answer, both normalized."""

    @classmethod
    def mean(cls, scores: "Sequence[AnswerScores]") -> "AnswerScores":
        """The means over at least one answer."""
        n = len(scores)
        return cls(sum(s.em for s in scores) / n, sum(s.f1 for s in scores) / n, sum(s.substr for s in scores) / n)


def normalise(text: str) -> str:
    """Lower-case ``text``, and remove ASCII punctuation, the words a, an, the, and repeated white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def f1(prediction: str, gold: str, *, is_second: bool) -> float:
    """Harmonic mean of the precision and recall of the words of two normalized texts; 0 if only one has words.

    If both are empty, it is 1 in the scorer of SQuAD 2 (``is_second``), where an empty answer means "no answer", and 0
    in that of version 1.
    """
    words, gold_words = prediction.split(), gold.split()
    if not words or not gold_words:
        return float(is_second and words == gold_words)
    common = sum((Counter(words) & Counter(gold_words)).values())
    return 2 * common / (len(words) + len(gold_words))


def score_answer(prediction: str, golds: Sequence[str], *, is_second: bool) -> AnswerScores:
    """Scores of an answer against its gold answers; a question without answer has an empty gold answer.

    An empty answer is a part only of an empty gold answer. ``is_second``: the questions are those of SQuAD 2, see
    ``f1``.
    """
    predicted = normalise(prediction)
    normalized_golds = [normalise(gold) for gold in golds] or [""]
    return AnswerScores(
        em=float(predicted in normalized_golds),
        f1=max(f1(predicted, gold, is_second=is_second) for gold in normalized_golds),
        substr=float(any(predicted in gold and bool(predicted) == bool(gold) for gold in normalized_golds)),
    )
