"""Labelled sets, and the part of them that a run sees."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.config import TaskConfig
from greenadapt.errors import MissingError
from greenadapt.progress import Silent
from greenadapt.storage.files import Json
from greenadapt.tasks.base import load_task, make_task
from greenadapt.tasks.ner.sentences import Sentence

_FILES = {
    "ner": {"train": "train.tsv", "dev": "devel.tsv", "test": "test.tsv"},
    "classification": {"train": "train.txt", "dev": "dev.txt", "test": "test.txt"},
}
_FIXED_SEED = 0
"""Of the examples that are measured on, which are the same for all runs."""


@dataclass(frozen=True)
class LabelledSet:
    """A folder with training, development and test files."""

    name: str
    folder: Path
    kind: str
    """``ner``, sentences in CoNLL columns, or ``classification``, JSON lines with ``text`` and ``label``."""

    @classmethod
    def find(cls, data: Path, name: str) -> "LabelledSet":
        """The set ``name`` in ``data`` or in a folder below it, named after the task; raises ``MissingError``."""
        for kind, files in _FILES.items():
            for folder in (data / name, data / kind / name):
                if all((folder / file).is_file() for file in files.values()):
                    return cls(name, folder, kind)
        kinds = " or ".join(", ".join(files.values()) for files in _FILES.values())
        raise MissingError(f"{data} has no set {name}", f"give a folder with {kinds}")

    def config(self) -> TaskConfig:
        """The task."""
        return TaskConfig("ner") if self.kind == "ner" else TaskConfig("classification")

    def file(self, part: str) -> Path:
        """The whole file of ``part``: ``train``, ``dev`` or ``test``."""
        return self.folder / _FILES[self.kind][part]

    def drawn(self, part: str, n: int | None, folder: Path, seed: int = _FIXED_SEED) -> Path:
        """Write ``n`` examples drawn from ``part`` to a file in ``folder``; ``None`` is all of them."""
        file = folder / self.name / f"{part}-{'all' if n is None else f'{n}-{seed}'}{self.file(part).suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(draw(self._examples(part), n, seed)), "utf-8")
        return file

    def read(self, file: Path) -> list[Any]:
        """The labelled examples of a file."""
        return make_task(self.config()).read(str(file), Silent())

    def task(self, settings: Json) -> Any:
        """A trained model's task, with the classes of the whole set, so that statistics of all runs have one form."""
        return load_task(settings if self.kind == "ner" else {**settings, "labels": [*self._labels]})

    @cached_property
    def _labels(self) -> list[str]:
        parts = ("train", "dev", "test")
        return sorted({str(text.label) for part in parts for text in self.read(self.file(part))})

    def _examples(self, part: str) -> list[str]:
        """The text of each example as it stands in the file."""
        lines = self.file(part).read_text("utf-8").split("\n")
        if self.kind == "classification":
            return [f"{line}\n" for line in lines if line.strip()]
        groups = (list(group) for has_word, group in groupby(lines, key=lambda line: bool(line.strip())) if has_word)
        return ["\n".join(group) + "\n\n" for group in groups]


def draw(examples: Sequence[str], n: int | None, seed: int) -> list[str]:
    """``n`` of the examples in their order, without replacement; fewer are a part of more under the same seed."""
    if n is None or n >= len(examples):
        return list(examples)
    chosen = np.random.default_rng(seed).permutation(len(examples))[:n]
    return [examples[i] for i in sorted(chosen.tolist())]


def words_of(examples: Sequence[Sentence]) -> frozenset[str]:
    """The words of sentences, in lower case."""
    return frozenset(word.lower() for sentence in examples for word in sentence.words)
