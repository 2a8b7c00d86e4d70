"""Predictions of several models, or of the seeds of one, combined.

Among them the control of equal cost, one model's logits averaged over two seeds: reading a text in two tokenizations
takes two passes, and averaging helps by itself. What the second tokenization is worth shows only beside a model that
takes two passes without it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

from greenadapt.config import EnsembleRule
from greenadapt.errors import InputError
from greenadapt.models.task_folder import TaskFolder
from greenadapt.storage.arrays import Array, ArrayFile
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Task


def combined(logits: Sequence[Array], rule: EnsembleRule, head: str) -> Array:
    """The logits of an ensemble of models for one example, (n_units, k) float32, from those of each, (n_units, k).

    ``logits`` takes their mean; ``probabilities`` the logarithm of the mean of their probabilities (arXiv 2212.03613,
    section 4, "Ensemble LMs"), so that its softmax is that mean. The probabilities are over the classes, of
    ``QuestionAnswering`` over the units, of start and end each. A ``head`` of one output has no classes, it gives a
    number, and the mean is taken. A unit that no piece speaks for has the logit -inf, and probability 0 in that model.
    """
    values = np.stack(logits).astype(np.float64)
    if rule == "probabilities" and values.size and values.shape[-1] > 1:
        values = _log_softmax(values, axis=1 if head == "QuestionAnswering" else 2)
        return np.asarray(logsumexp(values, axis=0) - np.log(len(logits)), np.float32)
    return np.asarray(values.mean(axis=0), np.float32)


def _log_softmax(values: Array, axis: int) -> Array:
    """-inf where all along ``axis`` are -inf, for which scipy's has NaN: nothing is known there."""
    total = logsumexp(values, axis=axis, keepdims=True)
    return np.asarray(values - np.where(np.isneginf(total), 0, total))


def combined_units(logits: Sequence[Array], rule: EnsembleRule, head: str) -> Array:
    """``combined`` of one example: (n_units, k) float32 from those of each model, (n_units, k).

    Raises ``InputError`` if the models do not read the same units.
    """
    if len({len(each) for each in logits}) > 1:
        raise InputError(
            "the models read a context in different numbers of windows, their logits have no mean",
            "give models of the same base model and --max-length",
        )
    is_alone = len(logits) == 1 or not len(logits[0])
    return logits[0] if is_alone else combined(logits, rule, head)


def check_alike(models: Sequence[TaskFolder]) -> None:
    """Raise ``InputError`` if models differ in task or labels, and so cannot be an ensemble."""
    first = models[0]
    for other in models[1:]:
        if other.task.name != first.task.name:
            raise InputError(
                f"{first.folder} is for {first.task.name}, {other.folder} for {other.task.name}",
                "give models of one task",
            )
        if other.task.head_config() != first.task.head_config():
            raise InputError(
                f"{first.folder} has the labels {_labels(first)}, {other.folder} has {_labels(other)}",
                "give models that were trained on the same labels",
            )
        if other.settings.get("has_null") != first.settings.get("has_null"):
            raise InputError(
                f"one of {first.folder} and {other.folder} was trained on questions without answer, the other not",
                "give models that were trained alike",
            )


def _labels(model: TaskFolder) -> str:
    return ", ".join(model.task.head_config().get("id2label", {}).values()) or "none"


def averaged_over_seeds(task: Task[Any], examples: Sequence[Any], logits: Sequence[Path]) -> list[list[Json]]:
    """Predictions of each seed's model averaged with the next one's, of the last with the first.

    ``logits`` has one file per seed, as fine-tuning keeps them; the base tokenization's are taken. There are as many
    averages as seeds, so that they can be paired with the seeds' own runs; they share models, and vary less than
    as many independent ones would. Two seeds have one average, which is given twice.
    """
    arrays = [ArrayFile(path) for path in logits]
    averages = []
    for first, second in zip(arrays, [*arrays[1:], arrays[0]], strict=True):
        mean: Array = (first["base"] + second["base"]) / 2
        each = np.split(mean, first["offsets"][1:-1])
        averages.append([task.decode(example, one) for example, one in zip(examples, each, strict=True)])
    return averages
