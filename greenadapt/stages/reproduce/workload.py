"""How many words the runs of a data set read, as far as that is known before."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from greenadapt.config import SamplingConfig, TaskConfig, TaskName, TrainConfig
from greenadapt.stages.reproduce.recipe import Recipe
from greenadapt.stages.reproduce.sets import DataSet, SetFiles

_PIECES = 128
"""The longest text of many tasks, in pieces."""


@dataclass(frozen=True)
class Workload:
    """What one run reads."""

    words: float
    """In all epochs."""
    basis: str
    """How that is known."""


def workload(recipe: Recipe, dataset: DataSet, files: SetFiles | None) -> Workload | None:
    """Of a run on a data set: counted in its files if they are here, else as its recipe states; ``None`` if it states
    too little.
    """
    if dataset.kind == "tasks":
        return _of_tasks(recipe, files)
    if recipe.kind == "qa":
        words = _of_questions(files) if files is not None else dataset.words
        return Workload(words, f"{words:,} words of contexts") if words else None
    epochs = recipe.config(TrainConfig, "training", dataset.name).epochs
    said = f", {epochs} epochs"
    if words := _counted(files, dataset.kind) if files is not None else dataset.words:
        return Workload(words * epochs, f"{words:,} words{said}")
    task: TaskName = "classification"
    length = recipe.config(TaskConfig, "task", dataset.name, task=task).max_length if dataset.kind == task else None
    if dataset.examples and length is not None:
        at_most = f"{dataset.examples:,} texts of at most {length} words{said}"
        return Workload(dataset.examples * length * epochs, at_most)
    return None


def _of_tasks(recipe: Recipe, files: SetFiles | None) -> Workload | None:
    """Steps of a size, each for a text of any task."""
    training, sampling = recipe.config(TrainConfig, "training"), recipe.config(SamplingConfig, "sampling")
    counts = [_examples(Path(source)) for entry in (files.tasks if files else ()) for source in entry.train]
    if sampling.steps_per_epoch is None:
        words = sum(words for _, words in counts)
        return Workload(words * training.epochs, f"{words:,} words, {training.epochs} epochs") if words else None
    texts = sampling.steps_per_epoch * training.epochs * training.batch_size
    if not counts:
        return Workload(texts * _PIECES, f"{texts:,} texts of at most {_PIECES} words")
    mean = sum(words / max(n, 1) for n, words in counts) / len(counts)
    return Workload(texts * mean, f"{texts:,} texts of {mean:.0f} words on average")


def _of_questions(files: SetFiles) -> int:
    """The words of each question's context."""
    articles = json.loads(Path(files.test or "").read_text("utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    return sum(len(one["context"].split()) * len(one["qas"]) for one in paragraphs)


def _counted(files: SetFiles, kind: str) -> int:
    """The words that are trained on: a line each in CoNLL columns."""
    counts = [_examples(Path(source)) for source in files.train]
    return sum(n if kind == "ner" else words for n, words in counts)


def _examples(path: Path) -> tuple[int, int]:
    """Lines that are not empty, and the words in them."""
    lines = [len(line.split()) for line in _lines(path) if line.strip()]
    return len(lines), sum(lines)


def _lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        yield from file
