"""Several tasks on one encoder (arXiv 1902.02671): separate models, shared ones, adapters, and ways of sampling.

    python benchmarks/pals.py --data DIR --work DIR [--model minilm] [--seeds 3] [--epochs 6] [--steps-per-epoch 300]
        [--methods pals low-rank] [--train-limit 500 --test-limit 200]

Tasks: ChemProt, ACL-ARC and SciCite in ``classification/chemprot``, ``citation_intent`` and ``sci-cite`` of ``--data``,
each with ``train.txt``, ``dev.txt`` and ``test.txt``: JSON lines with ``text`` and ``label``; and NCBI-disease in
``ner/NCBI-disease`` with ``train.tsv``, ``devel.tsv`` and ``test.tsv``: a word and its tag a line. Scores are those of
the test sets: micro F1 for ChemProt, macro F1 for the citations, F1 of entities for the diseases.

``separate`` trains a model a task, all of its weights; the others one encoder for all tasks, with nothing of a task's
own but the head (``shared``) or an adapter of the size that the paper's has in proportion. They sample by annealing but
where their names say otherwise. Separate models take as many steps together as one of the others: each its own
``--epochs``, or by its number of examples its share of ``--steps-per-epoch``. The epoch with the best average score on
the development sets is tested.

All methods run under one seed before the next one, so that what was stopped has a balanced table. A finished run is a
line of ``records.jsonl`` in ``--work`` and is not made again; one that was killed goes on. Of a model only its scores
are kept.
"""

import argparse
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from records import Records, resumable
from tables import aligned
from trainings import add_cluster_options, finetune, train_first

from greenadapt.checkpoints.provenance import adapted_input, starting_model
from greenadapt.config import AdapterConfig, AdapterName, RunConfig, Sampling, SamplingConfig, TaskConfig, TrainConfig
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import read_scores
from greenadapt.stages.session import Session
from greenadapt.storage.arrays import ArrayFile
from greenadapt.storage.files import Json, hash_file, hash_json, plain
from greenadapt.storage.results import Result
from greenadapt.storage.workspace import Workspace
from greenadapt.tasks.tasks_file import TaskEntry


@dataclass(frozen=True)
class Data:
    """A task's folder in ``--data``, its files for training, development and test, and its main score."""

    folder: str
    files: tuple[str, str, str]
    metric: str

    @property
    def config(self) -> TaskConfig:
        """What kind of task it is."""
        is_ner = self.folder.startswith("ner/")
        return TaskConfig("ner") if is_ner else TaskConfig("classification", label_kind="classes")


_TEXTS = ("train.txt", "dev.txt", "test.txt")
TASKS = {
    "chemprot": Data("classification/chemprot", _TEXTS, "micro_f1"),
    "acl-arc": Data("classification/citation_intent", _TEXTS, "macro_f1"),
    "scicite": Data("classification/sci-cite", _TEXTS, "macro_f1"),
    "ncbi-disease": Data("ner/NCBI-disease", ("train.tsv", "devel.tsv", "test.tsv"), "f1"),
}


@dataclass(frozen=True)
class Method:
    """One row of the table."""

    adapter: AdapterName = "none"
    sampling: Sampling = "anneal"
    is_separate: bool = False


METHODS = {
    "separate": Method(is_separate=True),
    "shared": Method(),
    "pals": Method("pals"),
    "low-rank": Method("low-rank"),
    "top-attention": Method("top-attention"),
    "pals-round-robin": Method("pals", "round-robin"),
    "pals-proportional": Method("pals", "proportional"),
    "pals-square-root": Method("pals", "square-root"),
}


@dataclass(frozen=True)
class Bench:
    """The options and the records of all runs."""

    options: argparse.Namespace
    session: Session
    records: Records
    entries: Mapping[str, TaskEntry]
    """By task."""

    def record(self, method: str, seed: int) -> Json:
        """The record of a method under one seed; of separate models all of them together."""
        records = [self.run(*training) for training in self.trainings(method, seed)]
        if not METHODS[method].is_separate:
            return records[0]
        return {
            "scores": {task: score for record in records for task, score in record["scores"].items()},
            **{name: sum(record[name] for record in records) for name in ("parameters", "steps", "seconds")},
        }

    def trainings(self, method: str, seed: int) -> list[tuple[str, tuple[str, ...], int]]:
        """The arguments of ``run`` for a method under one seed."""
        together = [(task,) for task in self.entries] if METHODS[method].is_separate else [tuple(self.entries)]
        return [(method, tasks, seed) for tasks in together]

    def run(self, method: str, tasks: tuple[str, ...], seed: int) -> Json:
        """The record of one training, made if it is missing."""
        request = self._request(method, tasks, seed)
        settings = describe(request)
        key = hash_json(settings)
        if key in self.records.by_key:
            return self.records.by_key[key]
        name = "-".join([method, *(tasks if METHODS[method].is_separate else ()), str(seed)])
        self.session.progress.note(name)
        result = finetune(replace(self.session, out=self.options.work / "runs" / f"{name}-{key[:8]}"), request)
        scores = read_scores(result.folder)
        fields: Json = {"method": method, "seed": seed, "key": key}
        fields["scores"] = {task: scores["tasks"][task]["test"]["test"]["mean"] for task in tasks}
        fields |= {"parameters": parameters(result), "steps": scores["seeds"][0]["steps"]}
        fields |= {"seconds": result.manifest.cost["seconds"], "asked": settings}
        record = self.records.add(fields)
        shutil.rmtree(result.folder)
        return record

    def _request(self, method: str, tasks: tuple[str, ...], seed: int) -> FinetuneRequest:
        options, chosen = self.options, METHODS[method]
        return FinetuneRequest(
            model=options.model,
            tasks=tuple(self.entries[task] for task in tasks),
            adapter=AdapterConfig(chosen.adapter),
            sampling=SamplingConfig(chosen.sampling, self._steps(tasks)),
            training=TrainConfig(
                epochs=options.epochs,
                learning_rate=options.learning_rate,
                batch_size=options.batch_size,
                weight_decay=options.weight_decay,
                precision=options.precision,
                keep="best",
            ),
            run=RunConfig(max_tokens=options.max_tokens),
            seeds=(seed,),
        )

    def _steps(self, tasks: Sequence[str]) -> int | None:
        """Steps of an epoch: of some tasks alone their share by training examples."""
        steps: int | None = self.options.steps_per_epoch
        if steps is None:
            return None
        sizes = {task: len(examples_in(Path(entry.train[0]))) for task, entry in self.entries.items()}
        return math.ceil(steps * sum(sizes[task] for task in tasks) / sum(sizes.values()))


def parameters(result: Result) -> int:
    """The number of weights of a model of several tasks."""
    files = [ArrayFile(path) for path in result.folder.glob("model.safetensors")]
    files += [ArrayFile(path) for path in result.folder.glob("tasks/*/weights.safetensors")]
    return sum(math.prod(file.shape(name)) for file in files for name in file.names)


def describe(request: FinetuneRequest) -> Json:
    """All that decides a run, the model and the files by their content."""
    files = {name: hash_file(Path(source)) for name, source in request.sources().items()}
    return dict(plain({"model": _model_hash(request.model), "config": request.config(), "files": files}))


@cache
def _model_hash(model: str) -> str:
    return str(adapted_input(starting_model(model))["sha256"])


def entries(options: argparse.Namespace) -> dict[str, TaskEntry]:
    """The tasks asked for, on the first examples of their files if there is a limit."""
    limits = (options.train_limit, options.test_limit, options.test_limit)
    tasks = {}
    for task in options.tasks:
        data = TASKS[task]
        paths = [options.data / data.folder / file for file in data.files]
        train, dev, test = (first(*pair, options.work / "data") for pair in zip(paths, limits, strict=True))
        config = replace(data.config, max_length=options.max_length)
        tasks[task] = TaskEntry(task, config, (train,), {"dev": dev}, {"test": test}, data.metric)
    return tasks


def first(source: Path, limit: int | None, folder: Path) -> str:
    """A file with the first examples of another one, or that file itself without a limit."""
    if limit is None:
        return str(source)
    target: Path = folder / f"{source.parent.name}-{source.stem}-{limit}{source.suffix}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_between(source).join(examples_in(source)[:limit]) + "\n", "utf-8")
    return str(target)


def examples_in(path: Path) -> list[str]:
    """The text of each example: a line of JSON, or the lines of a sentence with an empty one behind them."""
    parts = path.read_text("utf-8").split(_between(path))
    return [part.strip("\n") for part in parts if part.strip()]


def _between(path: Path) -> str:
    return "\n\n" if path.suffix == ".tsv" else "\n"


def table(records_of: Mapping[str, Sequence[Json]]) -> str:
    """Method → records of its seeds, as a line each: points, mean ± deviation over the seeds, and how many."""
    tasks = list(next(record["scores"] for records in records_of.values() for record in records))
    rows = [["", "parameters", *(f"{task}, {TASKS[task].metric}" for task in tasks), "average", "steps", "seconds"]]
    for method, records in records_of.items():
        if not records:
            continue
        scores = [[record["scores"][task] or 0.0 for task in tasks] for record in records]
        columns = [*zip(*scores, strict=True), [float(np.mean(values)) for values in scores]]
        row = [method, f"{records[0]['parameters']:,}", *map(_cell, columns)]
        rows.append([*row, f"{records[0]['steps']:,}", f"{np.mean([record['seconds'] for record in records]):.1f}"])
    return aligned(rows)


def _cell(scores: Sequence[float]) -> str:
    points = [100 * score for score in scores]
    deviation = f" ± {np.std(points, ddof=1):.1f}" if len(points) > 1 else ""
    return f"{np.mean(points):.1f}{deviation} ({len(points)})"


def main() -> None:
    """Do the missing runs, and print the table after each seed."""
    options = _options()
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    from greenadapt.cli.output.console import make_progress

    session = Session(Workspace(options.work / "workspace"), make_progress())
    bench = Bench(options, session, Records(options.work / "records.jsonl"), entries(options))
    trainings = [
        pair for seed in range(options.seeds) for method in options.methods for pair in bench.trainings(method, seed)
    ]
    train_first(session, options, [partial(bench.run, *training) for training in trainings])
    records_of: dict[str, list[Json]] = {method: [] for method in METHODS if method in options.methods}
    for seed in range(options.seeds):
        for method, records in records_of.items():
            records.append(bench.record(method, seed))
        print(table(records_of), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with classification/ and ner/")
    parser.add_argument("--work", type=Path, required=True, help="where all of it is kept")
    parser.add_argument("--model", default="minilm", help="name or folder")
    parser.add_argument("--tasks", nargs="+", default=[*TASKS], choices=[*TASKS])
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=[*METHODS], metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps-per-epoch", type=int, help="by default as many as it takes to read all examples")
    parser.add_argument("--train-limit", type=int, help="first training examples of each task; all by default")
    parser.add_argument("--test-limit", type=int, help="the same of development and test sets")
    parser.add_argument("--batch-size", type=int, default=TrainConfig.batch_size)
    parser.add_argument("--max-length", type=int, default=128, help="pieces that are read of a text")
    parser.add_argument("--learning-rate", type=float, default=TrainConfig.learning_rate)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--precision", default=TrainConfig.precision, choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--max-tokens", type=int, default=RunConfig.max_tokens)
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    add_cluster_options(parser)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    resumable(main)
