"""What fine-tuning one task and many have in common: what they begin with, their seeds, and these seeds' scores."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from greenadapt.config import MemoryConfig
from greenadapt.errors import UsageError
from greenadapt.features import Encoder
from greenadapt.model import PretrainedModel
from greenadapt.pipeline.adapted import starting_model
from greenadapt.pipeline.memory_choice import MemoryChoice
from greenadapt.progress import Progress
from greenadapt.store import Json
from greenadapt.training.layout import MEMORY_FILE, SCORES, SEEDS


@dataclass(frozen=True)
class Start:
    """What training begins with."""

    model: PretrainedModel
    memory: MemoryChoice | None

    @classmethod
    def of(cls, model: str, memory: str | None, config: MemoryConfig) -> "Start":
        """The model, and the general model that is its memory, by what the user called them."""
        found = starting_model(model)
        return cls(found, None if memory is None else MemoryChoice.find(memory, found, config))

    def tell(self, encoder: Encoder, progress: Progress) -> None:
        """Say what the model, which reads by ``encoder``, does not have."""
        if not encoder.has_words:
            progress.note(f"{self.model.name} has no added words: both tokenizations are the same")
        if self.memory is None and (self.model.folder / MEMORY_FILE).is_file():
            progress.warn(f"{self.model.source} was trained with a memory, and has none without --memory")


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise ``UsageError`` for no seeds, one that is there twice, or one that is too large."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError("need at least one seed, and each once", "give --seeds 1 or more")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise UsageError(f"--seed is {seed}, must be from 0 to {2**32 - 1}")


def train_seeds(
    seeds: Sequence[int], work: Path, train: Callable[[int, Path, list[Json]], None], *, is_first: bool
) -> list[Json]:
    """Call ``train`` for every seed that is not finished, and return the scores of each.

    It is given the seed, its folder and the scores of those before it, of which there are none for the first.
    """
    from greenadapt.training.state import remove_state

    finished: list[Json] = []
    for seed in seeds:
        folder = work / SEEDS / str(seed)
        if not (folder / SCORES).is_file():
            train(seed, folder, finished)
        if is_first:
            remove_state(folder)
        finished.append(json.loads((folder / SCORES).read_text("utf-8")))
    return finished


def mean_of(numbers: Sequence[float]) -> float:
    """Over the seeds."""
    return float(np.mean(numbers))


def deviation_of(numbers: Sequence[float]) -> float:
    """Over the seeds, of a sample (n - 1); there must be two."""
    return float(np.std(numbers, ddof=1))
