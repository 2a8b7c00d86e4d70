"""Entity recognition with the base model, the adapted one by several recipes of rows, and the control of equal cost.

    python benchmarks/green_ner.py --data ner --corpus biomedical.txt.gz --work DIR \\
        [--sets NCBI-disease BC2GM] [--train-sentences 600] [--epochs 15] [--seeds 3] [--arms base control map norm]

``--data`` holds a folder a set, each with ``train.tsv``, ``devel.tsv`` and ``test.tsv``. The adapted models are made
first, from ``--corpus``; then every arm is fine-tuned, all arms under one seed before the next seed, so that a run that
was stopped has a balanced table. Whatever was finished is kept in ``--work``, and a later call goes on from there. Of a
fine-tuned model only its scores, predictions and logits are kept. With ``--cluster`` all that is missing is trained on
the nodes of a Ray cluster first.

Averaging two passes helps by itself. ``control`` is therefore the base model at the same cost: the mean of the logits
of two models fine-tuned under different seeds. The arms are those of ``benchmarks/gain``, which compares them over
label budgets, too, with rate and epochs chosen for each.
"""

import argparse
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path

import numpy as np
from gain.arms import ARMS, BASE, CONTROL, adapted_model, with_base
from records import resumable
from tables import points_with_interval
from trainings import add_cluster_options, finetune, train_first

from greenadapt.checkpoints.layout import LOGITS, PREDICTIONS, SCORES, SEEDS, TASK_FILE
from greenadapt.config import RunConfig, TaskConfig, TrainConfig
from greenadapt.inference.models import averaged_over_seeds
from greenadapt.progress import Silent
from greenadapt.report.tables import figure, signed
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.session import Session
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json, hash_file, hash_json, plain, read_own_lines, write_json
from greenadapt.storage.workspace import Workspace
from greenadapt.tasks.base import Task, load_task
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.metrics import Difference, paired
from greenadapt.tasks.ner import NerTask

PAPER_ARMS = [BASE, CONTROL, "map", "norm", "pieces", "identity", "random"]
VIEWS = ("mean", "base", "expanded")
NOTE = """
Differences are in points, with their 95 % interval (paired bootstrap over sentences and seeds). The control is the base
model averaged over two seeds; its averages share models, so its intervals are narrower than they should be.
"""
REQUEST = "request.json"


@dataclass(frozen=True)
class Record:
    """The files of one fine-tuned model: scores, predictions, task and, for the base, logits."""

    folder: Path

    @property
    def is_finished(self) -> bool:
        return (self.folder / REQUEST).is_file()

    @cached_property
    def task(self) -> Task[Sentence]:
        return load_task(json.loads((self.folder / TASK_FILE).read_text("utf-8")))

    @cached_property
    def f1(self) -> dict[str, float]:
        """Of the mean and, where they differ, of each tokenization alone."""
        (scores,) = json.loads((self.folder / SCORES).read_text("utf-8"))["seeds"]
        return {view: values["f1"] for view, values in scores["test"]["views"].items()}

    def predictions(self) -> list[Json]:
        return [*read_own_lines(self.folder / PREDICTIONS)]


@dataclass(frozen=True)
class Runs:
    """The runs of one arm: F1 by tokenization (n_seeds,), and additive statistics (n_seeds, n_sentences, 3)."""

    seeds: tuple[int, ...]
    f1: dict[str, Array]
    statistics: Array

    def under(self, seeds: Sequence[int]) -> Array:
        return self.statistics[[self.seeds.index(seed) for seed in seeds]]


def main() -> None:
    """Make the models, do the missing runs, and print the table after each seed."""
    options = _options()
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    from greenadapt.cli.output.console import make_progress

    session = Session(Workspace(options.work / "workspace"), make_progress(), workers=options.workers)
    models = adapted_models(session, options)
    arms = trained_arms(options.arms)
    trainings = [(name, arm, seed) for name in options.sets for seed in range(options.seeds) for arm in arms]
    train_first(
        session, options, [partial(run, session, options, models[training[1]], training) for training in trainings]
    )
    all_records: dict[str, dict[str, dict[int, Record]]] = {}
    for name in options.sets:
        all_records[name] = {arm: {} for arm in arms}
        for seed in range(options.seeds):
            for arm in arms:
                all_records[name][arm][seed] = run(session, options, models[arm], (name, arm, seed))
            print_report(options, all_records)


def adapted_models(session: Session, options: argparse.Namespace) -> dict[str, str]:
    """The model of each arm that is trained, made if it is missing."""
    arms, folder = trained_arms(options.arms), options.work / "models"
    return {arm: adapted_model(session, options.corpus, options.model, ARMS[arm], folder) for arm in arms}


def trained_arms(arms: Iterable[str]) -> list[str]:
    """The arms that are fine-tuned; the control needs the base model's runs."""
    return [arm for arm in with_base(arms) if arm != CONTROL]


def run(session: Session, options: argparse.Namespace, model: str, cell: tuple[str, str, int]) -> Record:
    """Fine-tune one arm on one set under one seed, unless its record is finished."""
    name, arm, seed = cell
    request = _request(options, model, cell)
    settings = _describe(request)
    # Other settings are other runs, and stand beside each other.
    folder = Path(name) / f"{arm}-{seed}-{hash_json(settings)[:8]}"
    record = Record(options.work / "records" / folder)
    if not record.is_finished:
        session.progress.note(f"{name}, {arm}, seed {seed}")
        result = finetune(replace(session, out=options.work / "runs" / folder), request)
        keep(result.folder, seed, record.folder, settings)
        shutil.rmtree(result.folder)
    return record


def keep(result: Path, seed: int, folder: Path, settings: Json) -> None:
    """Copy the files for the table; ``request.json`` comes last, as a mark that the copy is complete."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seed_folder = result / SEEDS / str(seed)
    for file in (result / SCORES, result / TASK_FILE, seed_folder / PREDICTIONS, seed_folder / LOGITS):
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    write_json(folder / REQUEST, settings)


def _request(options: argparse.Namespace, model: str, cell: tuple[str, str, int]) -> FinetuneRequest:
    name, arm, seed = cell
    folder = options.data / name
    training = TrainConfig(epochs=options.epochs, learning_rate=options.learning_rate, precision=options.precision)
    train = [folder / "train.tsv", folder / "devel.tsv"]
    if options.train_sentences:
        train = [options.work / "sets" / name / f"train-{options.train_sentences}.tsv"]
        train[0].parent.mkdir(parents=True, exist_ok=True)
        text = (folder / "train.tsv").read_text("utf-8")
        train[0].write_text(first_sentences(text, options.train_sentences), "utf-8")
    return FinetuneRequest.of_one(
        model=model,
        train=tuple(map(str, train)),
        test=str(folder / "test.tsv"),
        task=TaskConfig(),
        training=replace(training, **ARMS[arm].training),
        run=RunConfig(max_tokens=options.max_tokens),
        seeds=(seed,),
        save_logits=arm == BASE,
    )


def _describe(request: FinetuneRequest) -> Json:
    """All that decides a run, the files by their content."""
    files = [hash_file(Path(source)) for source in request.sources().values()]
    model = Path(request.model) / "manifest.json"
    named = hash_file(model) if model.is_file() else request.model
    settings = {
        "task": asdict(request.tasks[0].config),
        "training": asdict(request.training),
        "seeds": list(request.seeds),
    }
    return dict(plain({"model": named, "files": files, **settings}))


def first_sentences(text: str, n: int) -> str:
    """The first ``n`` sentences of a CoNLL file."""
    groups = (
        list(lines) for is_text, lines in groupby(text.split("\n"), key=lambda line: bool(line.strip())) if is_text
    )
    return "".join("\n".join(lines) + "\n\n" for lines, _ in zip(groups, range(n), strict=False))


def arm_runs(records: dict[int, Record], test: list[Sentence]) -> Runs:
    """The runs of one arm, by seed."""
    f1 = {view: np.array([record.f1.get(view, record.f1["base"]) for record in records.values()]) for view in VIEWS}
    statistics = np.stack([record.task.statistics(test, record.predictions()) for record in records.values()])
    return Runs(tuple(records), f1, statistics)


def control_runs(base: dict[int, Record], test: list[Sentence]) -> Runs:
    """The base model at the cost of two passes, under as many seeds."""
    task = next(iter(base.values())).task
    averages = averaged_over_seeds(task, test, [record.folder / LOGITS for record in base.values()])
    f1 = [task.score(test, predictions)["f1"] for predictions in averages]
    statistics = np.stack([task.statistics(test, predictions) for predictions in averages])
    return Runs(tuple(base), {"mean": np.array(f1)}, statistics)


def set_rows(runs: dict[str, Runs]) -> list[Json]:
    """A row an arm: mean F1 of each tokenization, deviation of the pooled one, difference to base and to control."""
    rows = []
    for arm, runs_of_arm in runs.items():
        row: Json = {"arm": arm, "seeds": len(runs_of_arm.seeds)}
        row |= {view: float(values.mean()) for view, values in runs_of_arm.f1.items()}
        # The averages of the control share models, so they say nothing of how runs vary.
        row["std"] = (
            float(runs_of_arm.f1["mean"].std(ddof=1)) if len(runs_of_arm.seeds) > 1 and arm != CONTROL else None
        )
        for reference in (BASE, CONTROL):
            if reference in runs and reference != arm and arm != BASE:
                row[f"to_{reference}"] = asdict(difference(runs_of_arm, runs[reference]))
        rows.append(row)
    return rows


def difference(ours: Runs, theirs: Runs) -> Difference:
    """The difference under the seeds that both arms have."""
    seeds = [seed for seed in ours.seeds if seed in theirs.seeds]
    return paired(ours.under(seeds), theirs.under(seeds), NerTask().main_score)


def mean_rows(by_set: dict[str, list[Json]]) -> list[Json]:
    """The mean over sets of the arms that all sets have; differences have no interval."""
    rows = []
    for arm in [row["arm"] for row in next(iter(by_set.values()))]:
        rows_of_arm = [row for rows_of_set in by_set.values() for row in rows_of_set if row["arm"] == arm]
        if len(rows_of_arm) == len(by_set):
            row: Json = {"arm": arm, "seeds": min(row_of_set["seeds"] for row_of_set in rows_of_arm), "std": None}
            row |= {
                view: float(np.mean([row_of_set[view] for row_of_set in rows_of_arm]))
                for view in VIEWS
                if view in rows_of_arm[0]
            }
            for name in ("to_base", "to_control"):
                if all(name in row_of_set for row_of_set in rows_of_arm):
                    row[name] = {
                        "difference": float(np.mean([row_of_set[name]["difference"] for row_of_set in rows_of_arm]))
                    }
            rows.append(row)
    return rows


def table(title: str, rows: list[Json]) -> str:
    """Markdown; F1 and differences in points."""
    lines = [
        f"### {title}",
        "",
        "| rows | seeds | F1 pooled | base view | expanded view | to base | to control |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        f1 = figure(row["mean"])
        f1 += f" ± {figure(row['std'])}" if row["std"] is not None else ""
        views = [figure(row.get(view)) if row["arm"] != BASE else "" for view in VIEWS[1:]]
        differences = [_points(row.get(f"to_{reference}")) for reference in (BASE, CONTROL)]
        cells = [row["arm"], str(row["seeds"]), f1, *views, *differences]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _points(difference: Json | None) -> str:
    if difference is None:
        return ""
    if "low" not in difference:  # the mean over sets
        return signed(difference["difference"])
    return points_with_interval(difference["difference"], difference["low"], difference["high"])


def print_report(options: argparse.Namespace, all_records: dict[str, dict[str, dict[int, Record]]]) -> None:
    """Print the tables of what is finished, and write them to ``--table`` and beside it as JSON."""
    by_set = {}
    for name, records in all_records.items():
        test = NerTask().read(str(options.data / name / "test.tsv"), Silent())
        runs = {arm: arm_runs(of_arm, test) for arm, of_arm in records.items()}
        if CONTROL in options.arms and len(records[BASE]) > 1:
            runs = {BASE: runs.pop(BASE), CONTROL: control_runs(records[BASE], test), **runs}
        by_set[name] = set_rows(runs)
    mean = mean_rows(by_set)
    tables = [table(name, rows) for name, rows in by_set.items()]
    if len(by_set) > 1:
        tables.append(table(f"Mean of {len(by_set)} sets", mean))
    text = "\n".join(tables) + NOTE
    print(text, flush=True)
    file = options.table or options.work / "table.md"
    file.write_text(text, "utf-8")
    settings = {name: Path(value).name if isinstance(value, Path) else value for name, value in vars(options).items()}
    write_json(file.with_suffix(".json"), {"settings": settings, "sets": by_set, "mean": mean})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of NER sets")
    parser.add_argument("--corpus", type=Path, required=True, help="unlabelled text of the domain")
    parser.add_argument("--work", type=Path, required=True, help="where all of it is kept")
    parser.add_argument("--sets", nargs="+", help="names of folders in --data; all of them by default")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--arms", nargs="+", default=PAPER_ARMS, choices=[*ARMS])
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--train-sentences", type=int, help="train on the first so many; train and devel by default")
    parser.add_argument("--epochs", type=int, default=TrainConfig.epochs)
    parser.add_argument("--learning-rate", type=float, default=TrainConfig.learning_rate)
    parser.add_argument("--precision", default=TrainConfig.precision, choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--max-tokens", type=int, default=RunConfig.max_tokens)
    parser.add_argument("--workers", type=int, default=2, help="processes for corpus and vectors")
    parser.add_argument("--table", type=Path, help="file for the table; table.md in --work by default")
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    add_cluster_options(parser)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    options.sets = options.sets or sorted(path.parent.name for path in options.data.glob("*/test.tsv"))
    return options


if __name__ == "__main__":
    resumable(main)
