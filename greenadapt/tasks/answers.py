"""The possible answers to a question, from one context or from many, and which of them are told."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Json = dict[str, Any]


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

    def as_dict(self, score: float) -> Json:
        """``answer``, ``start``, ``end``, ``score`` and ``logit``."""
        logit = self.logit if np.isfinite(self.logit) else None
        return {"answer": self.text, "start": self.start, "end": self.end, "score": score, "logit": logit}

    def as_located(self, score: float) -> Json:
        """Beside those ``document``, ``sentence`` and ``sentence_start``."""
        where = {"document": self.document, "sentence": self.sentence, "sentence_start": self.sentence_start}
        return {**self.as_dict(score), **where}


@dataclass(frozen=True)
class Found:
    """What a model says about a question: the best candidates, best first, and the logit that there is no answer,
    ``None`` where that is no choice.
    """

    candidates: tuple[Candidate, ...]
    null: float | None = None


@dataclass(frozen=True)
class Ranked:
    """A candidate and its probability among those that it was chosen from."""

    candidate: Candidate
    score: float


def together(found: Iterable[Found], n_best: int) -> Found:
    """What a model says about a question on several contexts, as if they were one: raw logits are compared, as the
    windows of one context are, and that there is no answer has the lowest logit of all.
    """
    each = list(found)
    candidates = sorted((one for part in each for one in part.candidates), key=lambda one: -one.logit)
    nulls = [part.null for part in each if part.null is not None]
    return Found(tuple(candidates[:n_best]), min(nulls, default=None))


def ranked(found: Found, null_threshold: float = 0.0) -> list[Ranked]:
    """The candidates in order, each with the softmax of the logits over all of them, that there is no answer included.

    There is none where its logit is higher than the best candidate's by more than ``null_threshold``, as in the usual
    code for SQuAD 2. Where nothing is possible it is the one answer, with a score of 0.
    """
    if not found.candidates and found.null is None:
        return [Ranked(Candidate("", None, None, -np.inf), 0.0)]
    shifted = [(one.logit, one) for one in found.candidates]
    if found.null is not None:
        shifted.append((found.null - null_threshold, Candidate("", None, None, found.null)))
        shifted.sort(key=lambda pair: -pair[0])  # stable: of equals the span, which came first
    logits = np.array([one.logit for _, one in shifted])
    weights = np.exp(logits - logits.max())
    shares = (weights / weights.sum()).tolist()
    return [Ranked(one, share) for (_, one), share in zip(shifted, shares, strict=True)]
