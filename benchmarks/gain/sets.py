"""Labelled sets, and the parts of them that a run reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from greenadapt.config import TaskConfig
from greenadapt.errors import MissingError, UsageError
from greenadapt.progress import Silent
from greenadapt.store.arrays import Array
from greenadapt.store.files import Json
from greenadapt.tasks.base import load_task, make_task
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.metrics import sum_groups

_FILES = {
    "ner": {"train": "train.tsv", "dev": "devel.tsv", "test": "test.tsv"},
    "classification": {"train": "train.txt", "dev": "dev.txt", "test": "test.txt"},
}
DOMAINS: dict[str, tuple[str, tuple[str, ...]]] = {
    "biomedicine": ("biomedical.txt.gz", ("NCBI-disease", "BC5CDR-disease", "BC2GM")),
    "software": ("software.txt.gz", ("StackOverflow",)),
    "cyber security": ("cyber.txt.gz", ("AnnoCTR",)),
}
"""Name → the unlabelled text in ``corpora`` of the data folder, and sets."""
N_FOLDS = 5
_FIXED_SEED = 0
"""Of the examples that are measured on, which are the same for all runs."""


@dataclass(frozen=True)
class LabelledSet:
    """A folder with training, development and test files."""

    name: str
    folder: Path
    kind: str
    """``ner``, sentences in CoNLL columns, or ``classification``, JSON lines with ``text`` and ``label``."""

    def config(self) -> TaskConfig:
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
        return make_task(self.config()).read(str(file), Silent())

    def independent(self, statistics: Array, examples: Sequence[Any]) -> Array:
        """(n_examples, m) → (n, m): summed over examples that are no independent draws; here all are."""
        return statistics

    def task(self, settings: Json) -> Any:
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


@dataclass(frozen=True)
class QuestionFold:
    """The questions on a fifth of the papers in a SQuAD file; those on the other four fifths are for training.

    No paper is in two folds, and the folds are the same for all seeds. There is no development set.
    """

    name: str
    data: Path
    fold: int
    kind: ClassVar[str] = "qa"

    def config(self) -> TaskConfig:
        return TaskConfig("qa", negatives=1)

    def drawn(self, part: str, n: int | None, folder: Path, seed: int = _FIXED_SEED) -> Path:
        """Write ``n`` questions drawn from ``part`` to a file in ``folder``; ``None`` is all of them."""
        if part == "dev":
            raise UsageError(f"{self.name} has no development set", "give --learning-rate and --epochs")
        all_papers = papers(self.data)
        folds = split([len(paper["qas"]) for paper in all_papers], N_FOLDS, _FIXED_SEED)
        members = {
            i
            for fold, members_of_fold in enumerate(folds)
            if (fold == self.fold) == (part == "test")
            for i in members_of_fold
        }
        file = folder / self.name / f"{part}-{'all' if n is None else f'{n}-{seed}'}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_squad(file, drawn([paper for i, paper in enumerate(all_papers) if i in members], n, seed))
        return file

    def read(self, file: Path) -> list[Any]:
        return make_task(self.config()).read(str(file), Silent())

    def task(self, settings: Json) -> Any:
        return load_task(settings)

    def independent(self, statistics: Array, examples: Sequence[Any]) -> Array:
        """(n_questions, m) → (n_papers, m): questions on one paper are no independent draws."""
        return sum_groups(statistics, [question.context for question in examples])


def papers(file: Path) -> list[Json]:
    """The contexts of a SQuAD file, each with ``qas``, its questions; one that stands there twice is one paper."""
    by_context: dict[str, Json] = {}
    for article in json.loads(file.read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            first = by_context.setdefault(paragraph["context"], {**paragraph, "qas": []})
            first["qas"] += paragraph["qas"]
    return list(by_context.values())


def split(sizes: Sequence[int], n_folds: int, seed: int) -> list[list[int]]:
    """The papers of each fold, by the number of questions of each paper: the one with most goes first, each to the fold
    with fewest questions so far; which of several of a size comes first is drawn by the seed.
    """
    order = np.random.default_rng(seed).permutation(len(sizes)).tolist()
    order.sort(key=lambda paper: -sizes[paper])
    folds: list[list[int]] = [[] for _ in range(n_folds)]
    totals = [0] * n_folds
    for paper in order:
        fewest = min(range(n_folds), key=lambda fold: (totals[fold], len(folds[fold])))
        folds[fewest].append(paper)
        totals[fewest] += sizes[paper]
    return [sorted(fold) for fold in folds]


def drawn(chosen: Sequence[Json], n: int | None, seed: int) -> list[Json]:
    """The papers with ``n`` of their questions, drawn over all papers; a larger ``n`` adds questions."""
    places = [
        (paper, question) for paper, paper_content in enumerate(chosen) for question in range(len(paper_content["qas"]))
    ]
    if n is None or n >= len(places):
        return list(chosen)
    selected = {places[i] for i in np.random.default_rng(seed).permutation(len(places))[:n].tolist()}
    papers_left = []
    for paper, paper_content in enumerate(chosen):
        questions = [qa for question, qa in enumerate(paper_content["qas"]) if (paper, question) in selected]
        if questions:
            papers_left.append({**paper_content, "qas": questions})
    return papers_left


def write_squad(file: Path, chosen: Sequence[Json]) -> None:
    """Write SQuAD's JSON with an article for each paper."""
    file.write_text(json.dumps({"data": [{"paragraphs": [paper]} for paper in chosen]}, ensure_ascii=False), "utf-8")


def find_set(data: Path, name: str) -> LabelledSet | QuestionFold:
    """The set ``name`` in ``data`` or in a folder below it, named after the task; raises ``MissingError``.

    ``NAME:2`` is fold 2, of 0 to 4, of the questions in ``NAME.json``.
    """
    for kind, files in _FILES.items():
        for folder in (data / name, data / kind / name):
            if all((folder / file).is_file() for file in files.values()):
                return LabelledSet(name, folder, kind)
    stem, _, fold = name.rpartition(":")
    for file in (data / f"{stem}.json", data / "qa" / f"{stem}.json"):
        if file.is_file() and fold in map(str, range(N_FOLDS)):
            return QuestionFold(name, file, int(fold))
    kinds = " or ".join(", ".join(files.values()) for files in _FILES.values())
    raise MissingError(f"{data} has no set {name}", f"give a folder with {kinds}, or FILE:FOLD for questions")


def texts_in(data: Path) -> dict[str, Path]:
    """The unlabelled text of each set of ``DOMAINS`` that ``data`` has."""
    texts = {name: data / "corpora" / file for file, names in DOMAINS.values() for name in names}
    return {name: file for name, file in texts.items() if file.is_file()}


def domain_of(name: str) -> str:
    """The domain of a set; an unknown set is one of its own."""
    return next((domain for domain, (_, names) in DOMAINS.items() if name in names), name)


def draw(examples: Sequence[str], n: int | None, seed: int) -> list[str]:
    """``n`` of the examples in their order, without replacement; under the same seed, a larger ``n`` adds examples."""
    if n is None or n >= len(examples):
        return list(examples)
    chosen = np.random.default_rng(seed).permutation(len(examples))[:n]
    return [examples[i] for i in sorted(chosen.tolist())]


def words_of(examples: Sequence[Sentence]) -> frozenset[str]:
    """The words of sentences, in lower case."""
    return frozenset(word.lower() for sentence in examples for word in sentence.words)
