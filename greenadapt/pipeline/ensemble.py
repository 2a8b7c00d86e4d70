"""Ensembles of fine-tuned models: which may be one, and what two runs say together on a test set."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from greenadapt.arrays import Array, ArrayFile
from greenadapt.ensemble import Rule, combined
from greenadapt.errors import InputError, MissingError
from greenadapt.store import Json
from greenadapt.tasks import Task
from greenadapt.tasks.registry import load_task
from greenadapt.training.layout import LOGITS, SCORES, SEEDS, TASK_FILE

_SAVE = "fine-tune it with --test and --save-logits"


class Trained(Protocol):
    """A fine-tuned model's folder."""

    @property
    def folder(self) -> Path:
        """Where it lies."""

    @property
    def settings(self) -> Json:
        """``task.json``."""

    @property
    def task(self) -> Task[Any]:
        """What it was trained for."""


@dataclass(frozen=True)
class KeptRun:
    """What is kept of a fine-tuned model: its task, and for each seed the logits of the test set."""

    folder: Path
    settings: Json
    task: Task[Any]
    seeds: tuple[int, ...]

    @classmethod
    def open(cls, folder: Path) -> "KeptRun":
        """Read ``task.json`` and ``scores.json``; raises ``MissingError`` or ``InputError`` where there are none."""
        try:
            settings, scores = (json.loads((folder / name).read_text("utf-8")) for name in (TASK_FILE, SCORES))
            seeds = tuple(int(entry["seed"]) for entry in scores["seeds"])
            return cls(folder, settings, load_task(settings), seeds)
        except FileNotFoundError as error:
            name = Path(error.filename).name
            raise MissingError(f"{folder} is no fine-tuned model: it has no {name}", _SAVE) from None
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{folder}: {TASK_FILE} or {SCORES} is broken ({error!r})", _SAVE) from None

    def logits(self, seed: int) -> list[Array]:
        """(n_units, k) float32 of each example under ``seed``, of the view or the mean that the model is used with."""
        path = self.folder / SEEDS / str(seed) / LOGITS
        if not path.is_file():
            raise MissingError(f"{path} is not there", _SAVE)
        file = ArrayFile(path)
        pool = self.settings.get("pool", "mean") if "expanded" in file else "base"
        views = ("base", "expanded") if pool == "mean" else (pool,)
        values = sum(file[view] for view in views) / np.float32(len(views))
        return np.split(values, file["offsets"][1:-1])


@dataclass(frozen=True)
class SeedScores:
    """What an ensemble says on a test set: the ``seeds`` of its members, its predictions and their scores."""

    seeds: tuple[int, ...]
    predictions: list[Json]
    scores: Json


def score_ensemble(runs: Sequence[KeptRun], examples: Sequence[Any], rule: Rule) -> list[SeedScores]:
    """Score the ensemble of the runs' first seeds on the labelled ``examples``, of their second ones, and so on.

    Raises ``InputError`` where the runs differ in task, labels or number of seeds, or were tested on other examples.
    """
    check_alike(runs)
    first = runs[0]
    for other in runs[1:]:
        if len(other.seeds) != len(first.seeds):
            raise InputError(
                f"{first.folder} has {len(first.seeds)} seeds, {other.folder} has {len(other.seeds)}",
                "fine-tune both with as many --seeds",
            )
    scored = []
    for seeds in zip(*(run.seeds for run in runs), strict=True):
        logits = [_checked(run, seed, len(examples)) for run, seed in zip(runs, seeds, strict=True)]
        together = [combined_units(each, rule, first.task.head) for each in zip(*logits, strict=True)]
        predictions = [first.task.decode(*pair) for pair in zip(examples, together, strict=True)]
        scored.append(SeedScores(seeds, predictions, first.task.score(examples, predictions)))
    return scored


def combined_units(logits: Sequence[Array], rule: Rule, head: str) -> Array:
    """``combined`` of one example; raises ``InputError`` where the models do not read the same units."""
    if len({len(each) for each in logits}) > 1:
        raise InputError(
            "the models read a context in different numbers of windows, their logits have no mean",
            "give models of the same base model and --max-length",
        )
    is_alone = len(logits) == 1 or not len(logits[0])
    return logits[0] if is_alone else combined(logits, rule, head)


def check_alike(models: Sequence[Trained]) -> None:
    """Raise ``InputError`` where models are of different tasks or labels, and so can be no ensemble."""
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


def _checked(run: KeptRun, seed: int, n_examples: int) -> list[Array]:
    logits = run.logits(seed)
    if len(logits) != n_examples:
        raise InputError(
            f"{run.folder} was tested on {len(logits)} examples, here are {n_examples}", "test it on these"
        )
    return logits


def _labels(model: Trained) -> str:
    return ", ".join(model.task.head_config().get("id2label", {}).values()) or "none"
