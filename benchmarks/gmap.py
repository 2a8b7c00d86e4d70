"""Tables 1, 2, 4 and 5 of arXiv 2212.03613 on a folder of data sets, with the published figures beside.

    python benchmarks/gmap.py --data classification --general minilm --domain DIR --work DIR \\
        [--datasets citation_intent chemprot] [--seeds 5 2] [--epochs 15 14] [--methods fine-tuning dapt chunk]

``--data`` holds a folder a data set, each with ``train.txt``, ``dev.txt`` and ``test.txt``: JSON lines with ``text``
and ``label``. ``--general`` is the model that is the memory, ``--domain`` the folder of the same model once it was
trained on text of the domain. All methods run under one seed before the next one, so that what was stopped has a
balanced table. A finished run is a line of ``records.jsonl`` in ``--work`` and is not made again; one that was killed
goes on. Of a fine-tuned model only its scores and, where an ensemble needs them, its logits are kept.

As in the paper, the epoch with the best score on ``dev.txt`` is tested (here by macro F1, whatever the data set), and
scores are macro F1, but micro F1 for ChemProt and RCT.
"""

import argparse
import shutil
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path

from ensembles import KeptRun, score_ensemble
from gmap_tables import NAMES, Done, report
from records import Records, resumable
from trainings import add_cluster_options, finetune, train_first

from greenadapt.checkpoints.layout import LOGITS, SCORES, SEEDS, TASK_FILE
from greenadapt.checkpoints.provenance import adapted_input, starting_model
from greenadapt.config import (
    GMAP_PRETRAINING,
    InterpolateConfig,
    MemoryConfig,
    PretrainConfig,
    RunConfig,
    TaskConfig,
    TrainConfig,
)
from greenadapt.progress import Silent
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import read_scores
from greenadapt.stages.interpolate import interpolate
from greenadapt.stages.pretrain import PretrainRequest, pretrain
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json, hash_file, hash_json, plain
from greenadapt.storage.results import Result
from greenadapt.storage.workspace import Workspace

GENERAL, DOMAIN, BETWEEN = "general", "domain", "between"


@dataclass(frozen=True)
class Method:
    """One row of the tables: which model is fine-tuned, and with which memory; or an ensemble of other rows."""

    start: str = DOMAIN
    """``general``, ``domain``, or the model ``between`` both."""
    tapt: bool = False
    """Whether that is trained on the texts of the task first."""
    memory: MemoryConfig | None = None
    members: tuple[str, ...] = ()


METHODS = {
    "fine-tuning": Method(GENERAL),
    "dapt": Method(),
    "tapt": Method(GENERAL, tapt=True),
    "dapt+tapt": Method(tapt=True),
    "logits": Method(memory=MemoryConfig("logits")),
    "ensemble": Method(members=("fine-tuning", "dapt")),
    "interpolation": Method(BETWEEN),
    "single": Method(memory=MemoryConfig("single")),
    "multiple": Method(memory=MemoryConfig("multiple")),
    "gated": Method(memory=MemoryConfig("gated")),
    "chunk": Method(memory=MemoryConfig("chunk")),
    "g-map*": Method(tapt=True, memory=MemoryConfig("chunk")),
    "unfrozen": Method(memory=MemoryConfig("chunk", frozen=False)),
    "cross": Method(memory=MemoryConfig("chunk", attention="cross")),
    "gate": Method(memory=MemoryConfig("chunk", attention="gate")),
}
MEMBERS = {member for method in METHODS.values() for member in method.members}


@dataclass(frozen=True)
class Run:
    """One cell of a table under one seed."""

    dataset: str
    method: str
    seed: int

    def place(self, key: str) -> str:
        """The name of its folders; other settings are other runs, and stand beside each other."""
        return f"{self.dataset}-{self.method}-{self.seed}-{key[:8]}"

    def record(self, key: str, scores: Json, seconds: float) -> Json:
        """What is kept of it: of its scores on the test set all that are one number."""
        numbers = {name: value for name, value in scores.items() if isinstance(value, float)}
        return {**asdict(self), "key": key, "scores": numbers, "seconds": seconds}


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    options: argparse.Namespace
    session: Session
    records: Records

    def record(self, run: Run) -> Json:
        """The record of a run, made if it is missing."""
        if METHODS[run.method].members:
            return self._ensemble(run)
        request = self._request(run)
        asked = describe(request)
        key = hash_json([run.method, asked])
        kept = self._kept(run, key)
        if key in self.records.by_key and (kept.is_dir() or not request.save_logits):
            return self.records.by_key[key]
        self.session.progress.note(f"{run.dataset}, {run.method}, seed {run.seed}")
        result = finetune(replace(self.session, out=self.options.work / "runs" / run.place(key)), request)
        if request.save_logits:
            keep(result, kept)
        (scores,) = read_scores(result)["seeds"]
        made = run.record(key, scores["test"], result.manifest.cost["seconds"])
        made |= {"epoch": scores["epoch"], "dev": scores["dev"]["macro_f1"], "asked": asked}
        record = self.records.add(made)
        shutil.rmtree(result.folder)
        return record

    def _ensemble(self, run: Run) -> Json:
        """Of probabilities, as the paper has it; it takes the time that its members take."""
        members = [replace(run, method=method) for method in METHODS[run.method].members]
        records = [self.record(member) for member in members]
        key = hash_json([run.method, *(record["key"] for record in records)])
        if key in self.records.by_key:
            return self.records.by_key[key]
        runs = [KeptRun.open(self._kept(*pair)) for pair in zip(members, (one["key"] for one in records), strict=True)]
        examples = runs[0].model.task.read(str(self._file(run, "test")), Silent())
        (scored,) = score_ensemble(runs, examples, "probabilities")
        return self.records.add(run.record(key, scored.scores, sum(record["seconds"] for record in records)))

    def _kept(self, run: Run, key: str) -> Path:
        path: Path = self.options.work / "kept" / run.place(key)
        return path

    def _file(self, run: Run, name: str) -> Path:
        path: Path = self.options.data / run.dataset / f"{name}.txt"
        return path

    def _request(self, run: Run) -> FinetuneRequest:
        options, method = self.options, METHODS[run.method]
        is_frozen = method.memory is not None and method.memory.frozen
        return FinetuneRequest.of_one(
            model=self._model(run),
            train=(str(self._file(run, "train")),),
            dev=str(self._file(run, "dev")),
            test=str(self._file(run, "test")),
            task=TaskConfig("classification", label_kind="classes", max_length=options.max_length),
            training=TrainConfig(
                epochs=options.epochs[run.dataset],
                learning_rate=options.learning_rate,
                batch_size=options.batch_size,
                precision=options.precision,
                keep="best",
            ),
            run=RunConfig(max_tokens=options.max_tokens, cache_memory=options.cache_memory and is_frozen),
            seeds=(run.seed,),
            save_logits=run.method in MEMBERS,
            memory=None if method.memory is None else options.general,
            memory_config=method.memory or MemoryConfig(),
        )

    def _model(self, run: Run) -> str:
        """What the method fine-tunes; made where it is not there yet."""
        options, method = self.options, METHODS[run.method]
        models = options.work / "models"
        model: str = options.general if method.start == GENERAL else options.domain
        if method.start == BETWEEN:
            share = options.general_share
            session = replace(self.session, out=models / f"between-{share:g}")
            config = InterpolateConfig(share)
            model = str(interpolate(session, options.domain, options.general, config).path)
        if method.tapt:
            session = replace(self.session, out=models / f"{method.start}-{run.dataset}")
            model = str(pretrain(session, self._tapt(run, model)).path)
        return model

    def _tapt(self, run: Run, model: str) -> PretrainRequest:
        options = self.options
        training = replace(
            TrainConfig(**GMAP_PRETRAINING), epochs=options.tapt_epochs, learning_rate=options.tapt_learning_rate
        )
        return PretrainRequest(
            model,
            (str(self._file(run, "train")),),
            format="jsonl",
            fields=("text",),
            config=PretrainConfig(heldout=0),
            training=replace(training, precision=options.precision),
            run=RunConfig(max_tokens=options.max_tokens),
        )


def keep(result: Result, folder: Path) -> None:
    """Copy what an ensemble needs, whole or not at all."""
    part = folder.with_name(f".{folder.name}.part")
    for path in (part, folder):
        shutil.rmtree(path, ignore_errors=True)
    files = [result.folder / TASK_FILE, result.folder / SCORES, *result.folder.glob(f"{SEEDS}/*/{LOGITS}")]
    for file in files:
        target = part / file.relative_to(result.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    part.rename(folder)


def describe(request: FinetuneRequest) -> Json:
    """All that decides a run, the models and files by their content."""
    files = [hash_file(Path(source)) for source in request.sources().values()]
    settings = {
        "task": asdict(request.tasks[0].config),
        "training": asdict(request.training),
        "seeds": list(request.seeds),
    }
    asked: Json = {"model": _model_hash(request.model), "files": files, **settings}
    if request.memory is not None:
        asked |= {"memory": _model_hash(request.memory), "memory_config": asdict(request.memory_config)}
    return dict(plain(asked))


@cache
def _model_hash(model: str) -> str:
    return str(adapted_input(starting_model(model))["sha256"])


def main() -> None:
    """Run what is missing, and print the tables after each seed."""
    options = _options()
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    from greenadapt.cli.output.console import make_progress

    session = Session(Workspace(options.work / "workspace"), make_progress())
    bench = Bench(options, session, Records(options.work / "records.jsonl"))
    methods = [method for method in METHODS if method in options.methods]
    each = [
        Run(name, method, seed)
        for name in options.datasets
        for seed in range(options.seeds[name])
        for method in methods
    ]
    train_first(session, options, [partial(bench.record, one) for one in each])
    done: Done = {}
    for dataset in options.datasets:
        done[dataset] = {method: [] for method in methods}
        for seed in range(options.seeds[dataset]):
            for method, records in done[dataset].items():
                records.append(bench.record(Run(dataset, method, seed)))
            print(report(done), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of data sets")
    parser.add_argument("--general", default="minilm", help="general model, the memory")
    parser.add_argument("--domain", required=True, help="folder of the domain model")
    parser.add_argument("--work", type=Path, required=True, help="where all of it is kept")
    parser.add_argument("--datasets", nargs="+", help="names of folders in --data; all of them by default")
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=[*NAMES], metavar="METHOD", help=_choices())
    parser.add_argument("--seeds", type=int, nargs="+", default=[5], help="how many; one number, or one a data set")
    parser.add_argument("--epochs", type=int, nargs="+", default=[15], help="one number, or one a data set")
    parser.add_argument("--learning-rate", type=float, default=4e-5)
    parser.add_argument("--batch-size", type=int, default=TrainConfig.batch_size)
    parser.add_argument("--max-length", type=int, default=256, help="pieces that are read of a text")
    parser.add_argument("--precision", default=TrainConfig.precision, choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--max-tokens", type=int, default=RunConfig.max_tokens)
    parser.add_argument("--cache-memory", action="store_true", help="keep what the frozen general model gives on disk")
    parser.add_argument("--tapt-epochs", type=int, default=10)
    parser.add_argument("--tapt-learning-rate", type=float, default=4e-5)
    parser.add_argument("--general-share", type=float, default=0.3, help="of --general, for interpolation")
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    add_cluster_options(parser)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    (options.work / "kept").mkdir(exist_ok=True)
    options.datasets = options.datasets or sorted(path.parent.name for path in options.data.glob("*/test.txt"))
    for name in ("seeds", "epochs"):
        values = getattr(options, name)
        if len(values) not in (1, len(options.datasets)):
            parser.error(f"--{name} has {len(values)} numbers, give one, or one for each of {len(options.datasets)}")
        each = values * len(options.datasets) if len(values) == 1 else values
        setattr(options, name, dict(zip(options.datasets, each, strict=True)))
    return options


def _choices() -> str:
    return f"all of them by default: {', '.join(METHODS)}"


if __name__ == "__main__":
    resumable(main)
