"""The ensemble of two fine-tuned models on a test set, from the logits that ``finetune --save-logits`` keeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.checkpoints.layout import LOGITS, SEEDS, read_seeds
from greenadapt.config import EnsembleRule
from greenadapt.errors import InputError, MissingError
from greenadapt.inference.models import check_alike, combined_units
from greenadapt.models.streaming import ViewOutputs, pooled
from greenadapt.models.task_folder import TaskFolder, pool_of_seed
from greenadapt.storage.arrays import Array, ArrayFile
from greenadapt.storage.files import Json


@dataclass(frozen=True)
class KeptRun:
    """What is kept of a fine-tuned model: what its task is, and for each seed the logits of the test set."""

    model: TaskFolder
    seeds: tuple[int, ...]

    @classmethod
    def open(cls, folder: Path) -> "KeptRun":
        """Read ``task.json`` and ``scores.json``; raises ``MissingError`` or ``InputError`` if there are none."""
        return cls(TaskFolder.without_model(folder), read_seeds(folder))

    def logits(self, seed: int) -> list[Array]:
        """(n_units, k) float32 of each example under ``seed``, of the view or the mean that the model is used with.

        Raises ``MissingError`` if they were not kept.
        """
        path = self.model.folder / SEEDS / str(seed) / LOGITS
        if not path.is_file():
            raise MissingError(f"{path} is not there", "fine-tune it with --test and --save-logits")
        file = ArrayFile(path)
        base, expanded = (file[view if view in file else "base"] for view in ("base", "expanded"))
        values = pooled(ViewOutputs(base, expanded), pool_of_seed(self.model.settings, seed))
        return np.split(values, file["offsets"][1:-1])


@dataclass(frozen=True)
class EnsembleScores:
    """An ensemble on a test set: the ``seeds`` of its members, its predictions and their scores."""

    seeds: tuple[int, ...]
    predictions: list[Json]
    scores: Json


def score_ensemble(runs: Sequence[KeptRun], examples: Sequence[Any], rule: EnsembleRule) -> list[EnsembleScores]:
    """Score the ensemble of the runs' first seeds on the labelled ``examples``, of their second ones, and so on.

    Raises ``InputError`` if the runs differ in task, labels or number of seeds, or were tested on other examples.
    """
    check_alike([run.model for run in runs])
    first, task = runs[0], runs[0].model.task
    for other in runs[1:]:
        if len(other.seeds) != len(first.seeds):
            raise InputError(
                f"{first.model.folder} has {len(first.seeds)} seeds, {other.model.folder} has {len(other.seeds)}",
                "fine-tune both with as many --seeds",
            )
    scored = []
    for seeds in zip(*(run.seeds for run in runs), strict=True):
        logits = [_checked(run, seed, len(examples)) for run, seed in zip(runs, seeds, strict=True)]
        together = [combined_units(each, rule, task.head) for each in zip(*logits, strict=True)]
        predictions = [task.decode(*pair) for pair in zip(examples, together, strict=True)]
        scored.append(EnsembleScores(seeds, predictions, task.score(examples, predictions)))
    return scored


def _checked(run: KeptRun, seed: int, n_examples: int) -> list[Array]:
    logits = run.logits(seed)
    if len(logits) != n_examples:
        raise InputError(
            f"{run.model.folder} was tested on {len(logits)} examples, here are {n_examples}", "test it on these"
        )
    return logits
