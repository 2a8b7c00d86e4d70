"""Labelled examples and predictions in words, for each task."""

from collections.abc import Sequence
from typing import Any

from greenadapt.storage.files import Json
from greenadapt.tasks.classification import Text
from greenadapt.tasks.conll import entities
from greenadapt.tasks.questions import Question

_MOST = 600  # characters of a text


def described(example: Any) -> tuple[str, str]:
    """The text of a labelled example, shortened, and its label."""
    if isinstance(example, Question):
        text = f"{example.question} — {_around_answer(example)}"
        return text, " / ".join(answer.text for answer in example.answers) or "no answer"
    if isinstance(example, Text):
        return _short(" — ".join(filter(None, (example.text, example.second)))), str(example.label)
    return _short(" ".join(example.words)), _entities(example.words, example.tags or ())


def prediction_text(prediction: Json, example: Any) -> str:
    """A line of ``predictions.jsonl`` in words."""
    if "tags" in prediction:
        return _entities(example.words, prediction["tags"])
    if "answer" in prediction:
        return str(prediction["answer"]) or "no answer"
    return str(prediction.get("label", prediction.get("value")))


def _entities(words: Sequence[str], tags: Sequence[str]) -> str:
    found = [f"{' '.join(words[one.first : one.last + 1])} ({one.type})" for one in entities(tags)]
    return "; ".join(found) or "no entity"


def _around_answer(question: Question) -> str:
    begin = max(0, next((answer.start for answer in question.answers if answer.start >= 0), 0) - _MOST // 2)
    return ("… " if begin else "") + _short(question.context[begin:])


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]} …"
