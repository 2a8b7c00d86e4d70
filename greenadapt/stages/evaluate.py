"""Scores of fine-tuned models on labelled files, computed as for the test set in fine-tuning."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from greenadapt.checkpoints.layout import SCORES, read_seeds
from greenadapt.config import Pool, ReadingOptions
from greenadapt.errors import InputError, UsageError, require
from greenadapt.inference.models import OpenedModel, check_reading, pool_of, require_one_process
from greenadapt.models.memory.choice import check_memories
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Progress
from greenadapt.store.files import Json
from greenadapt.tasks.base import Task
from greenadapt.tasks.metrics import groups_of, interval, over_seeds, resample

if TYPE_CHECKING:
    from greenadapt.training.evaluation import Evaluation


def evaluate(
    model: str,
    test: Sequence[str],
    task: str | None,
    reading: ReadingOptions,
    columns: tuple[str, ...],
    progress: Progress,
) -> list[Json]:
    """Score ``model``, a task's folder or a model from elsewhere that answers questions, on each of the labelled files
    or data sets ``test``, in their order; writes nothing.

    ``task`` is that of a model of several tasks. Every seed is scored unless ``reading`` names one. ``columns`` are
    those of CoNLL files, if they differ from training. Raises ``MissingError`` or ``InputError`` if the model or a file
    is missing or invalid, ``MissingError`` if the package that runs the model or, for the scores of classes,
    scikit-learn is not installed.

    Returns for each file ``file``, ``examples``; as in ``scores.json`` ``task``, ``main``, ``pool``, ``seeds`` (each
    with ``seed``, ``None`` if there is only one model, and ``test``), ``mean`` and ``std``; ``intervals``, by view the
    bounds of the 95 % interval of the main score; and ``resampled``, ``examples`` or ``contexts`` of questions. With a
    ``margin`` also ``read_twice``, the share of the examples that were read in both tokenizations.
    """
    if not test:
        raise UsageError("nothing to evaluate on", "give --test FILE")
    if repeated := next((source for source, n in Counter(test).items() if n > 1), None):
        raise UsageError(f"--test {repeated} is given twice", "give each file once")
    require_one_process("evaluate")
    folders = {seed: _with_columns(folder, columns) for seed, folder in _folders(model, task, reading.seed).items()}
    check_reading([*folders.values()], reading)
    check_memories(folders.values(), reading.memory)
    [*_, first] = folders.values()
    if first.task.main == "macro_f1":
        require("train", "sklearn", by="a score of classes", otherwise="install scikit-learn alone")
    sets = {}
    for source in test:
        sets[source] = first.task.read(source, progress)
        if not sets[source]:
            raise InputError(f"--test {source} has no examples", "give a file with examples")
    by_seed = {seed: _evaluations(folder, sets, reading, progress) for seed, folder in folders.items()}
    evaluated = []
    for source, examples in sets.items():
        evaluations = {seed: by_file[source] for seed, by_file in by_seed.items()}
        scores = {"file": source, "examples": len(examples), "pool": pool_of(first, reading)}
        scores |= _scores(first.task, examples, evaluations)
        if reading.margin is not None:
            scores["read_twice"] = fmean(evaluation.read_twice / len(examples) for evaluation in evaluations.values())
        evaluated.append(scores)
    return evaluated


def _folders(name: str, task: str | None, seed: int | None) -> dict[int | None, TaskFolder]:
    """The model under every requested seed; the key is ``None`` if there is only one model."""
    folder = TaskFolder.open(name, seed, task)
    if seed is not None:
        return {seed: folder}
    scored = folder.folder
    seeds = read_seeds(scored) if (scored / SCORES).is_file() else (None,)
    return {seed: TaskFolder.open(name, seed, task) for seed in seeds}


def _with_columns(folder: TaskFolder, columns: tuple[str, ...]) -> TaskFolder:
    if not columns:
        return folder
    if folder.task.name != "ner":
        raise UsageError(f"--columns is for NER, the model is for {folder.task.name}", "leave it out")
    task: Any = folder.task
    return replace(folder, task=replace(task, columns=columns))


def _evaluations(
    folder: TaskFolder, sets: Mapping[str, Sequence[Any]], reading: ReadingOptions, progress: Progress
) -> "dict[str, Evaluation]":
    """Evaluate one seed's model on each file; frees its memory on return."""
    from greenadapt.training.evaluation import POOLS, Evaluation

    opened = OpenedModel.open(folder, replace(reading, pool="mean"))  # "mean" needs both views
    pool = pool_of(folder, reading) if opened.encoder.has_words else None
    views: tuple[Pool, ...] = POOLS if reading.margin is None else ("mean", "expanded")
    evaluations = {}
    for source, examples in sets.items():
        counts = Counter[str]()
        label = source if folder.seed is None else f"{source}, seed {folder.seed}"
        with progress.bar(label, len(examples), "examples") as bar:
            outputs = opened.outputs(opened.inputs(examples, counts))
            evaluations[source] = Evaluation.of(folder.task, examples, outputs, pool, bar, views=views)
        if counts["cut"]:
            progress.warn(f"{label}: {counts['cut']:,} examples are too long and were cut")
    return evaluations


def _scores(task: Task[Any], examples: Sequence[Any], evaluations: "Mapping[int | None, Evaluation]") -> Json:
    """The scores of one file under every seed, see ``evaluate``."""
    test_scores = [evaluation.as_dict() for evaluation in evaluations.values()]
    groups, unit = groups_of(examples), "examples"
    intervals = {}
    for view in test_scores[0]["views"]:
        if all(scores["views"][view][task.main] is not None for scores in test_scores):
            sums = [task.statistics(examples, evaluation.view_predictions[view]) for evaluation in evaluations.values()]
            statistics, unit = resample(np.stack(sums), *groups)
            bounds = interval(statistics, task.main_score)
            intervals[view] = [bounds.low, bounds.high]
    seeds = [{"seed": seed, "test": scores} for seed, scores in zip(evaluations, test_scores, strict=True)]
    return {
        "task": task.name,
        "main": task.main,
        "seeds": seeds,
        **over_seeds(test_scores),
        "intervals": intervals,
        "resampled": unit,
    }
