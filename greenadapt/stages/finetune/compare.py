"""Fine-tune models and compare them on a test set, with confidence intervals of their differences."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from greenadapt.checkpoints.layout import PREDICTIONS, SEEDS, TASK_FILE, WORD_VECTORS_FILE, read_described
from greenadapt.checkpoints.provenance import starting_model
from greenadapt.config import MemoryConfig
from greenadapt.corpus.opening import source_input
from greenadapt.errors import InputError, UsageError, require_torch
from greenadapt.progress import Silent
from greenadapt.stages.finetune.on_cluster import train_on_cluster
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import check_finetune, count_following, run_together
from greenadapt.stages.session import RUNS, Session
from greenadapt.store.arrays import Array
from greenadapt.store.files import Json, read_own_lines
from greenadapt.store.results import Result
from greenadapt.tasks.base import load_task
from greenadapt.tasks.metrics import gap_covered, groups_of, interval, paired_bootstrap, resample


@dataclass(frozen=True)
class Comparison:
    """The fine-tuned models, and one row per model with the comparison of the first to it."""

    results: list[Result]
    rows: list[Json]
    """``model``, ``folder``, ``score`` and ``std`` (over the seeds) of the main score, if a single task has a test set.

    The first row also has the 95 % ``interval`` of its score, the number of ``examples``, and what was ``resampled`` of
    them: ``examples``, ``contexts`` of questions or ``documents`` of sentences. The others have the ``difference`` of
    the first model to theirs and its 95 % interval ``low`` to ``high``. With a reference, the first row has
    ``gap_covered``.
    """


def compare(session: Session, request: FinetuneRequest, models: Sequence[str] = ()) -> Comparison:
    """Fine-tune the model of ``request``, then ``models`` (the base model and perhaps a reference) in the same way, but
    without a memory, and without what needs two tokenizations if a model has only one.
    """
    if models and request.test is None:
        raise UsageError("nothing to compare on", "give --test FILE")
    require_torch("fine-tuning")
    request = request.choose_training()
    plain = replace(request, memory=None, memory_config=MemoryConfig())
    requests = [request, *(replace_model(plain, model) for model in models)]
    # Only the first model goes to --out; the others lie beside it, and are trained once for all comparisons.
    folder = RUNS if session.out is None else session.out.parent
    sessions = [session, *(replace(session, out=None) for _ in models)]
    runs = [check_finetune(at, of, folder) for at, of in zip(sessions, requests, strict=True)]
    names = [run.start.model.name for run in runs]
    # Of models with the same name, messages name the folders of results.
    names = [run.folder.name if names.count(name) > 1 else name for name, run in zip(names, runs, strict=True)]
    if models:
        runs = [run.with_prefix(name) for name, run in zip(names, runs, strict=True)]
    runs = count_following(runs)
    train_on_cluster(session, runs, names if models else ())
    results = [run_together(run.session, run.job, run.request.training.precision, run.build) for run in runs]
    return Comparison(results, _rows(request, results) if request.is_plain and request.test is not None else [])


def finetune(session: Session, request: FinetuneRequest) -> Result:
    """Train, score and write a model for each seed; does nothing if up to date, resumes a killed run."""
    return compare(session, request).results[0]


def replace_model(request: FinetuneRequest, model: str) -> FinetuneRequest:
    """The request for another ``model``, without word vectors if it has none."""
    if not (starting_model(model).folder / WORD_VECTORS_FILE).is_file():
        request = replace(request, training=replace(request.training, word_vectors=False))
    return replace(request, model=model)


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
    groups = groups_of(examples)
    first, unit = resample(statistics[0], *groups)
    bounds = interval(first, task.main_score)
    rows[0] |= {"interval": [bounds.low, bounds.high], "resampled": unit, "examples": len(examples)}
    for row, sums in zip(rows[1:], statistics[1:], strict=True):
        row |= asdict(paired_bootstrap(first, resample(sums, *groups)[0], task.main_score)) | {"resampled": unit}
    if len(rows) == 3:
        rows[0]["gap_covered"] = gap_covered(rows[1]["score"], rows[0]["score"], rows[2]["score"])
    return rows


def statistics_of(task: Any, examples: list[Any], result: Result, seeds: tuple[int, ...]) -> Array:
    """Additive statistics of a fine-tuned model on its test examples (n_seeds, n_examples, m), from its predictions."""
    files = [result.folder / SEEDS / str(seed) / PREDICTIONS for seed in seeds]
    return np.stack([task.statistics(examples, [*read_own_lines(file)]) for file in files])
