"""Scores of answers to questions, as the published SQuAD scorer counts them."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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
