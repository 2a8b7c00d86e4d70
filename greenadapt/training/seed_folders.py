"""What the folder of every fine-tuned model says of its seeds, and where the weights of each lie."""

from math import prod
from pathlib import Path

from greenadapt.arrays import ArrayFile
from greenadapt.errors import MissingError
from greenadapt.json_files import described_in, read_object
from greenadapt.store import Json
from greenadapt.training.layout import SCORES, SEEDS, WEIGHTS_FILE

_AGAIN = "train the model again"


def weights_of_seed(folder: Path, seed: int | None) -> Path:
    """Where the weights of ``seed`` lie: the first one's in the folder itself; raises ``MissingError`` for another."""
    if seed is None:
        return folder
    if not (folder / SCORES).is_file():
        raise MissingError(f"{folder} has one model, no seed {seed}", "leave out --seed")
    seeds = read_seeds(folder)
    if seed not in seeds:
        raise MissingError(f"{folder} has no seed {seed}", f"it has {', '.join(map(str, seeds))}")
    return folder if seed == seeds[0] else folder / SEEDS / str(seed)


def read_seeds(folder: Path) -> tuple[int, ...]:
    """The seeds under which a model was fine-tuned, in that order.

    Raises ``MissingError`` or ``InputError`` where the folder does not say so.
    """
    scores = read_described(folder / SCORES)
    with described_in(folder / SCORES, _AGAIN):
        return tuple(int(entry["seed"]) for entry in scores["seeds"])


def n_weights(folder: Path) -> int:
    """How many numbers the ``weights.safetensors`` in ``folder`` has; reads none of them.

    Raises ``MissingError`` where the folder has no such file.
    """
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise MissingError(f"{folder} has no {WEIGHTS_FILE}", _AGAIN)
    weights = ArrayFile(file)
    return sum(prod(weights.shape(name)) for name in weights.names)


def read_described(path: Path) -> Json:
    """The JSON object in a fine-tuned model's file; raises ``MissingError`` or ``InputError`` where it holds none."""
    return read_object(path, "fine-tuned model", "give the folder that finetune wrote, or train it again")
