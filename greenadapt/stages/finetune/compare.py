"""Fine-tune models with the same settings, with confidence intervals of their differences."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.checkpoints.layout import PREDICTIONS, SEEDS, TASK_FILE, read_described
from greenadapt.checkpoints.provenance import starting_model
from greenadapt.checkpoints.source import find_model
from greenadapt.config import MemoryConfig, UnlabelledConfig
from greenadapt.corpus.opening import source_input
from greenadapt.errors import InputError, UsageError
from greenadapt.progress import Named, Progress, Silent
from greenadapt.stages.finetune.on_cluster import Failures, train_on_cluster
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import check_finetune, default_out, finetune, has_added_words
from greenadapt.stages.session import Session
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json
from greenadapt.storage.own_json import read_own_lines
from greenadapt.storage.results import Result
from greenadapt.tasks.base import load_task
from greenadapt.tasks.metrics import contexts_of, gap_covered, paired, resampled


@dataclass(frozen=True)
class Comparison:
    """The fine-tuned models, the first compared with the others, and one row per model."""

    results: list[Result]
    rows: list[Json]
    """``model``, ``folder``, ``score`` and ``std`` (over the seeds) of the main score; of all but the first also the
    ``difference`` of the first to it, its 95 % interval ``low`` to ``high``, and what was ``resampled`` for that,
    ``examples`` or ``contexts`` of questions; ``gap_covered`` of the first.
    """


def compare(session: Session, request: FinetuneRequest, others: Sequence[str]) -> Comparison:
    """Fine-tune the model of ``request`` and ``others`` (the base model, then perhaps a reference) in the same way, but
    for a memory, which only the first has, and what needs two tokenizations if a model has only one.
    """
    if others and request.test is None:
        raise UsageError("nothing to compare on", "give --test FILE")
    plain = replace(request, memory=None, memory_config=MemoryConfig(), run=replace(request.run, cache_memory=False))
    requests = [request, *(for_model(plain, model) for model in others)]
    outs = _outs(session, requests)
    names = _names(requests, outs)
    runs = [
        check_finetune(replace(session, out=out, progress=_named(session.progress, name, bool(others))), each)
        for out, name, each in zip(outs, names, requests, strict=True)
    ]
    failures = Failures() if session.cluster is None else train_on_cluster(session, runs, names if others else ())
    results = session.run_each(
        partial(finetune, replace(run.session, cluster=None), run.request)
        for number, run in enumerate(runs)
        if number not in failures.runs
    )
    failures.require_all()
    return Comparison(results, _rows(request, results) if others else [])


def for_model(request: FinetuneRequest, model: str) -> FinetuneRequest:
    """The request for another model, without what needs two tokenizations if that has one."""
    if not has_added_words(starting_model(model)):
        training = replace(request.training, agreement=0.0)
        request = replace(request, training=training, unlabelled=None, unlabelled_config=UnlabelledConfig())
    return replace(request, model=model)


def _outs(session: Session, requests: list[FinetuneRequest]) -> list[Path]:
    """The folder of each model: its own, except for a model given twice, in its usual place."""
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


def _names(requests: Sequence[FinetuneRequest], outs: Sequence[Path]) -> list[str]:
    """What messages call each model: its name or, where several are called alike, its folder of results."""
    names = [find_model(request.model).name for request in requests]
    return [out.name if names.count(name) > 1 else name for name, out in zip(names, outs, strict=True)]


def _named(progress: Progress, name: str, is_one_of_several: bool) -> Progress:
    return Named(progress, name) if is_one_of_several else progress


def _rows(request: FinetuneRequest, results: list[Result]) -> list[Json]:
    task = load_task(read_described(results[0].folder / TASK_FILE))
    _check_test(request, results)
    examples = task.read(request.test or "", Silent())
    rows: list[Json] = []
    statistics = []
    for result in results:
        statistics.append(statistics_of(task, examples, result, request.seeds))
        # Not from scores.json, where an undefined correlation has no value; here it is 0.
        each = task.main_score(statistics[-1].sum(axis=1))
        row: Json = {"model": result.manifest.facts["model"]["name"], "folder": str(result.path)}
        row |= {"score": float(each.mean()), "std": float(each.std(ddof=1)) if len(each) > 1 else None}
        rows.append(row)
    contexts = contexts_of(examples)
    ours, drawn = resampled(statistics[0], contexts)
    for row, theirs in zip(rows[1:], statistics[1:], strict=True):
        row |= asdict(paired(ours, resampled(theirs, contexts)[0], task.main_score)) | {"resampled": drawn}
    if len(rows) == 3:
        rows[0]["gap_covered"] = gap_covered(rows[1]["score"], rows[0]["score"], rows[2]["score"])
    return rows


def _check_test(request: FinetuneRequest, results: list[Result]) -> None:
    """Check that the test set has not changed since the models were trained."""
    now = source_input(request.test or "")["sha256"]
    if any(result.manifest.inputs["test"]["sha256"] != now for result in results):
        raise InputError(f"{request.test} changed while the models were trained", "run the command again")


def statistics_of(task: Any, examples: list[Any], result: Result, seeds: tuple[int, ...]) -> Array:
    """Additive statistics of a fine-tuned model on its test examples (n_seeds, n_examples, m), from its predictions."""
    files = [result.folder / SEEDS / str(seed) / PREDICTIONS for seed in seeds]
    return np.stack([task.statistics(examples, read_predictions(file)) for file in files])


def read_predictions(path: Path) -> list[Json]:
    """The predictions of one seed on the test set, in its order."""
    return list(read_own_lines(path))
