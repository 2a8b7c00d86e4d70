"""Training under several seeds, one after the other."""

from collections.abc import Callable, Sequence
from pathlib import Path

from greenadapt.errors import UsageError
from greenadapt.store import Json
from greenadapt.training.layout import SCORES, SEEDS
from greenadapt.training.seed_folders import read_described


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
        finished.append(read_described(folder / SCORES))
    return finished
