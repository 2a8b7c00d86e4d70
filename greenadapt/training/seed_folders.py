"""What the folder of every fine-tuned model says of its seeds, and where the weights of each lie."""

import json
from math import prod
from pathlib import Path

from greenadapt.arrays import ArrayFile
from greenadapt.errors import InputError, MissingError
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
    try:
        return tuple(int(entry["seed"]) for entry in read_object(folder / SCORES)["seeds"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / SCORES} is broken ({error!r})", _AGAIN) from None


def n_weights(folder: Path) -> int:
    """How many numbers the ``weights.safetensors`` in ``folder`` has; reads none of them.

    Raises ``MissingError`` where the folder has no such file.
    """
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise MissingError(f"{folder} has no {WEIGHTS_FILE}", _AGAIN)
    weights = ArrayFile(file)
    return sum(prod(weights.shape(name)) for name in weights.names)


def read_object(path: Path) -> Json:
    """The JSON object in a fine-tuned model's file; raises ``MissingError`` or ``InputError`` where it holds none."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise MissingError(
            f"{path.parent} is no fine-tuned model: it has no {path.name}", "give the folder that finetune wrote"
        ) from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})", _AGAIN) from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object", _AGAIN)
    return content
