"""Compare fine-tuned models on a test set or by cross-validation, with confidence intervals of their differences."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from greenadapt.checkpoints.layout import PREDICTIONS, SEEDS, TASK_FILE, read_described
from greenadapt.checkpoints.provenance import model_input, read_facts, starting_model
from greenadapt.checkpoints.source import PretrainedModel, find_local_model, find_model
from greenadapt.config import AssessConfig, MemoryConfig, Pool, ReadingOptions
from greenadapt.corpus.opening import source_input
from greenadapt.errors import ConflictError, InputError, UsageError, require_torch
from greenadapt.inference.models import OpenedModel, require_one_process
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import PrefixedProgress, Silent
from greenadapt.stages.finetune.on_cluster import train_on_cluster
from greenadapt.stages.finetune.request import FinetuneRequest, has_added_words
from greenadapt.stages.finetune.train import Finetuning, check_finetune, default_out, run_together
from greenadapt.stages.plan import run_each
from greenadapt.stages.session import EXPAND, FINETUNE, Session
from greenadapt.storage.arrays import Array, ArrayFile, write_arrays
from greenadapt.storage.files import Json, beside, parse_own, plain, read_own_lines, sync_file
from greenadapt.storage.jobs import Place
from greenadapt.storage.locks import lock
from greenadapt.storage.ownership import remove_if_own
from greenadapt.storage.results import Manifest, Result, refuse_overlap
from greenadapt.tasks.base import Fold, Task, load_task, make_task
from greenadapt.tasks.metrics import contexts_of, gap_covered, paired, resampled


@dataclass(frozen=True)
class Comparison:
    """The fine-tuned models, and one row per model with the comparison of the first to it."""

    results: list[Result]
    rows: list[Json]
    """``model``, ``folder``, ``score`` and ``std`` (over the seeds) of the main score. All rows but the first also have
    the ``difference`` of the first model to theirs, its 95 % interval ``low`` to ``high``, and what was ``resampled``
    for it, ``examples`` or ``contexts`` of questions. With a reference, the first row has ``gap_covered``.
    """


def compare(session: Session, request: FinetuneRequest, models: Sequence[str] = ()) -> Comparison:
    """Fine-tune the model of ``request``, then ``models`` (the base model and perhaps a reference) in the same way, but
    without a memory, and without what needs two tokenizations if a model has only one.
    """
    if models and request.test is None:
        raise UsageError("nothing to compare on", "give --test FILE")
    require_torch("fine-tuning")
    request = request.with_chosen_training()
    plain = replace(request, memory=None, memory_config=MemoryConfig())
    requests = [request, *(for_model(plain, model) for model in models)]
    outs = _outs(session, requests)
    names = [starting_model(model_request.model).name for model_request in requests]
    # Of models with the same name, messages name the folders of results.
    names = [out.name if names.count(name) > 1 else name for name, out in zip(names, outs, strict=True)]
    runs = []
    for out, name, model_request in zip(outs, names, requests, strict=True):
        progress = PrefixedProgress(session.progress, name) if models else session.progress
        runs.append(check_finetune(replace(session, out=out, progress=progress), model_request))
    failures = train_on_cluster(session, runs, names if models else ())
    results = run_each(partial(run_together, run) for number, run in enumerate(runs) if number not in failures.runs)
    failures.require_all()
    return Comparison(results, _rows(request, results) if models else [])


def finetune(session: Session, request: FinetuneRequest) -> Result:
    """Train, score and write a model for each seed; does nothing if up to date, resumes a killed run."""
    return compare(session, request).results[0]


def for_model(request: FinetuneRequest, model: str) -> FinetuneRequest:
    """The request for another ``model``, without self-training if it has no added words: that gains nothing there."""
    if not has_added_words(starting_model(model).folder):
        request = replace(request, unlabelled=None)
    return replace(request, model=model)


def _outs(session: Session, requests: list[FinetuneRequest]) -> list[Path]:
    taken: dict[Path, Path] = {}
    outs: list[Path] = []
    for request in requests:
        chosen = starting_model(request.model)
        name = find_model(request.model).name
        out = session.out or default_out(request, chosen)
        if session.out and outs:
            out = out.with_name(f"{out.name}-{name}")
        if taken.setdefault(out, chosen.folder) != chosen.folder:  # adapted to the same corpus in two ways
            out = out.with_name(f"{out.name}-{name}")
        outs.append(out)
    return outs


def _rows(request: FinetuneRequest, results: list[Result]) -> list[Json]:
    task = load_task(read_described(results[0].folder / TASK_FILE))
    test = request.test or ""
    digest = source_input(test)["sha256"]
    if any(result.manifest.inputs["test"]["sha256"] != digest for result in results):
        raise InputError(f"{test} changed while the models were trained", "run the command again")
    examples = task.read(test, Silent())
    rows: list[Json] = []
    statistics = []
    for result in results:
        statistics.append(statistics_of(task, examples, result, request.seeds))
        # Not from scores.json, where an undefined correlation has no value; here it is 0.
        scores = task.main_score(statistics[-1].sum(axis=1))
        std = float(scores.std(ddof=1)) if len(scores) > 1 else None
        model = result.manifest.facts["model"]["name"]
        rows.append({"model": model, "folder": str(result.path), "score": float(scores.mean()), "std": std})
    contexts = contexts_of(examples)
    first, unit = resampled(statistics[0], contexts)
    for row, sums in zip(rows[1:], statistics[1:], strict=True):
        row |= asdict(paired(first, resampled(sums, contexts)[0], task.main_score)) | {"resampled": unit}
    if len(rows) == 3:
        rows[0]["gap_covered"] = gap_covered(rows[1]["score"], rows[0]["score"], rows[2]["score"])
    return rows


def statistics_of(task: Any, examples: list[Any], result: Result, seeds: tuple[int, ...]) -> Array:
    """Additive statistics of a fine-tuned model on its test examples (n_seeds, n_examples, m), from its predictions."""
    files = [result.folder / SEEDS / str(seed) / PREDICTIONS for seed in seeds]
    return np.stack([task.statistics(examples, [*read_own_lines(file)]) for file in files])


BASE = "base model"
VIEWS: tuple[Pool, ...] = get_args(Pool)
"""How an adapted model reads texts; the first, its default, decides the verdict."""
_RUNNING = "running"
_OURS = re.compile(rf"{_RUNNING}|[0-9a-f]{{16}}\.(safetensors|part)|\..*")
"""Names in the folder of finished folds; hidden files are locks, or the system's."""


def cross_validate(session: Session, request: FinetuneRequest, base: str | None, config: AssessConfig) -> Json:
    """For each fold of the training examples, fine-tune the adapted model of ``request`` and its ``base`` (``None``:
    the model that it was made from) on all other folds, and predict this fold.

    ``rows`` are the base model and, by each of ``VIEWS``, the adapted model: ``score``, for the adapted model the
    ``difference`` to the base model with its 95 % interval ``low`` to ``high`` (a paired bootstrap over seeds and the
    examples of all folds, or contexts of questions, as ``resampled`` says), and the seconds of ``training`` and
    ``predicting`` over all folds. ``verdict`` is ``helps``, ``unclear`` or ``hurts``, by the interval of ``mean``. No
    interval covers the choice of the training examples.

    Each finished fold is kept in ``session.out``, or in the workspace, and not computed again. Raises ``UsageError`` if
    the model has no added words or no known base, ``InputError`` if the base model changed since, ``ConflictError`` if
    ``session.out`` has other files, and what ``finetune`` raises, before any training.
    """
    require_torch("cross-validation")
    require_one_process("assess")
    work = session.out or session.workspace.folds()
    refuse_overlap(work, {**request.sources(), "model": request.model}, is_replaced=False)
    if session.out is not None:
        _refuse_foreign(session.out)
    adapted = starting_model(request.model)
    if not has_added_words(adapted.folder):
        raise UsageError(f"{request.model} has no added words", "give an adapted model with --model")
    base = base or _base_of(adapted)
    [entry] = request.tasks
    task = make_task(entry.config)
    examples = [example for source in entry.train for example in task.read(source, Silent())]
    request = request.with_chosen_training(round((1 - 1 / config.folds) * len(examples)))
    task = task.fit(examples, session.progress)
    folds = [Fold(number, config.folds, config.seed) for number in range(config.folds)]
    left_out = [fold.split(examples)[1] for fold in folds]
    requests = {BASE: for_model(request, base), "adapted model": request}
    runs = [
        [
            _Run.of(
                session,
                replace(model_request, tasks=(replace(entry, fold=fold),)),
                f"fold {fold.number + 1} of {fold.of}, {name}",
            )
            for name, model_request in requests.items()
        ]
        for fold in folds
    ]  # all are checked before the first one is trained
    unfinished = [run for pair in runs for run in pair if not run.is_finished]
    train_on_cluster(session, [run.finetuning for run in unfinished], [run.name for run in unfinished]).require_all()
    measured = [[run.measure(out) for run in pair] for pair, out in zip(runs, left_out, strict=True)]
    ordered = [example for out in left_out for example in out]
    return {
        "model": request.model,
        "base": base,
        "task": entry.config.task,
        "examples": len(ordered),
        "folds": config.folds,
        "seeds": len(request.seeds),
        **_compared(task, ordered, measured),
    }


def _refuse_foreign(out: Path) -> None:
    """Raise ``ConflictError`` if ``out`` is a file, or a folder with anything but finished folds."""
    if out.exists() and not out.is_dir():
        raise ConflictError(f"{out} is not a folder", "give another --out")
    foreign = sorted(path.name for path in out.iterdir() if not _OURS.fullmatch(path.name)) if out.is_dir() else []
    if foreign:
        raise ConflictError(f"{out} has files of something else, such as {foreign[0]}", "give an empty or new folder")


def _base_of(adapted: PretrainedModel) -> str:
    """The model that ``adapted`` was made from.

    Raises ``UsageError`` if it is unknown, ``InputError`` if it changed since.
    """
    facts = read_facts(adapted.folder)
    if facts is None:
        raise UsageError(f"{adapted.source} does not say which model it was made from", "name it with --base")
    base: str = facts["model"]["source"]
    base_model = find_local_model(base, adapted.folder, "--base")
    result = Place(adapted.folder).current()
    if result is None or result.manifest.stage != EXPAND:  # other stages record the adapted model
        return base
    if result.manifest.inputs["model"]["sha256"] != model_input(base_model)["sha256"]:
        raise InputError(
            f"{base} changed since {adapted.source} was made from it", "name the model to compare with by --base"
        )
    return base


@dataclass(frozen=True)
class _Run:
    """One model, trained on all folds but one, which it predicts."""

    finetuning: Finetuning
    views: tuple[Pool, ...]
    file: Path
    """The result of the finished run, see ``_Measured``."""
    name: str
    """In messages."""

    @classmethod
    def of(cls, session: Session, request: FinetuneRequest, name: str) -> "_Run":
        """A run that messages call ``name``; raises what ``finetune`` raises before any work."""
        work = session.out or session.workspace.folds()
        session = replace(session, progress=PrefixedProgress(session.progress, name), remembers=False)
        # The run's key, which names its folder, is only known now.
        checked = check_finetune(replace(session, out=work / _RUNNING / "unnamed"), request)
        key = Manifest(FINETUNE, plain(checked.config()), checked.inputs()).key[:16]
        model = checked.start.model
        views = VIEWS if has_added_words(model.folder) else VIEWS[1:2]
        session = replace(session, out=work / _RUNNING / key, cluster=None)
        finetuning = replace(checked, session=session, place=session.place("", model.name, FINETUNE))
        return cls(finetuning, views, work / f"{key}.safetensors", name)

    @property
    def session(self) -> Session:
        return self.finetuning.session

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to do."""
        return self.file.is_file() and not self.session.force

    def measure(self, examples: Sequence[Any]) -> "_Measured":
        """Train, and predict the ``examples`` of the fold; or read the result of the finished run."""
        with lock(beside(self.file, "lock"), self.file, self.session.command):
            measured = self._read() if self.is_finished else None
            if measured is None:
                # Imported here, since the first run's seconds would include it.
                import transformers.modeling_utils  # noqa: F401

                import greenadapt.training.finetune  # noqa: F401

                measured = self._predict(run_together(self.finetuning), examples)
                measured.write(self.file)
            remove_if_own(self.file.parent / _RUNNING / self.file.stem)
            return measured

    def _read(self) -> "_Measured | None":
        """Read the result of the finished run; warns and returns ``None`` if it is broken."""
        try:
            return _Measured.read(self.file, self.views)
        except (InputError, OSError):
            self.session.progress.warn(f"{self.file} cannot be read: computing it again")
            return None

    def _predict(self, result: Result, examples: Sequence[Any]) -> "_Measured":
        statistics: dict[str, list[Array]] = {view: [] for view in self.views}
        seconds: dict[str, float] = dict.fromkeys(self.views, 0.0)
        request = self.finetuning.request
        precision, max_tokens = request.training.precision, request.run.max_tokens
        for seed in request.seeds:
            reading = ReadingOptions(self.views[0], seed=seed, precision=precision, max_tokens=max_tokens)
            opened = OpenedModel.open([TaskFolder.open(str(result.path), seed)], reading)
            for view in self.views:
                model = replace(opened, settings=replace(opened.settings, pool=view))
                begin, predictions = time.perf_counter(), []
                with self.session.progress.bar(f"seed {seed}, {view}", len(examples), "examples") as bar:
                    for example, logits in model.logits(model.inputs(examples)):
                        predictions.append(model.task.decode(example, logits))
                        bar.advance(1)
                seconds[view] += time.perf_counter() - begin
                statistics[view].append(model.task.statistics(examples, predictions))
        stacked = {view: np.stack(arrays) for view, arrays in statistics.items()}
        return _Measured(stacked, _Seconds(result.manifest.cost["seconds"], seconds))


@dataclass(frozen=True)
class _Seconds:
    """The seconds of one model on a fold."""

    training: float
    predicting: dict[str, float]
    """By view."""


@dataclass(frozen=True)
class _Measured:
    """The statistics of one model on the examples of a fold, and its seconds."""

    statistics: dict[str, Array]
    """By view, (n_seeds, n_examples, m), see ``Task.statistics``."""
    seconds: _Seconds

    def write(self, file: Path) -> None:
        """Write the file atomically."""
        part = file.with_suffix(".part")
        write_arrays(part, self.statistics, {"seconds": json.dumps(asdict(self.seconds))})
        sync_file(part)
        part.replace(file)

    @classmethod
    def read(cls, path: Path, views: Sequence[str]) -> "_Measured":
        """Read what ``write`` wrote; raises ``InputError`` if the file is broken."""
        file = ArrayFile(path)
        if lacking := [view for view in views if view not in file]:
            raise InputError(f"{path} has no {lacking[0]}", "remove it")
        seconds = parse_own(file.metadata.get("seconds", ""), _Seconds, path)
        return cls({view: np.asarray(file[view]) for view in views}, seconds)


def _compared(task: Task[Any], examples: Sequence[Any], pairs: Sequence[Sequence[_Measured]]) -> Json:
    """``main``, ``resampled``, ``rows`` and ``verdict``, from the base model and the adapted one on each fold."""
    contexts = contexts_of(examples)

    def over_folds(folds: Sequence[_Measured], view: str) -> tuple[Array, str, Json]:
        joined = np.concatenate([fold.statistics[view] for fold in folds], axis=1)
        seconds = {
            "training": sum(fold.seconds.training for fold in folds),
            "predicting": sum(fold.seconds.predicting[view] for fold in folds),
        }
        return *resampled(joined, contexts), seconds

    of_base, of_adapted = zip(*pairs, strict=True)
    base_draws, unit, seconds = over_folds(of_base, next(iter(of_base[0].statistics)))
    score = float(task.main_score(base_draws.sum(axis=1)).mean())
    rows: list[Json] = [{"read_by": BASE, "score": score, **seconds}]
    for view in VIEWS:
        draws, _, seconds = over_folds(of_adapted, view)
        gain = paired(draws, base_draws, task.main_score)
        row = {"read_by": view, "score": gain.ours, "difference": gain.difference, "low": gain.low, "high": gain.high}
        rows.append({**row, **seconds})
    decisive = rows[1]
    verdict = "helps" if decisive["low"] > 0 else "hurts" if decisive["high"] < 0 else "unclear"
    return {"main": task.main, "resampled": unit, "rows": rows, "verdict": verdict}
