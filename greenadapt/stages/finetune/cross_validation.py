"""Cross-validation of an adapted model and its base model on labelled examples."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from greenadapt.checkpoints.layout import TASK_FILE
from greenadapt.checkpoints.provenance import model_input, read_facts, starting_model
from greenadapt.checkpoints.source import PretrainedModel, find_local_model
from greenadapt.config import AssessConfig, Pool, ReadingOptions
from greenadapt.errors import InputError, UsageError, require_torch
from greenadapt.inference.models import OpenedModel, require_one_process
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Silent
from greenadapt.stages.finetune.compare import replace_model
from greenadapt.stages.finetune.on_cluster import train_on_cluster
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import Finetuning, check_finetune, count_following, run_together
from greenadapt.stages.session import EXPAND, Session
from greenadapt.store.arrays import Array
from greenadapt.store.files import Json
from greenadapt.store.results import MANIFEST, read_manifest
from greenadapt.tasks.base import Fold, Task, make_task
from greenadapt.tasks.metrics import groups_of, paired_bootstrap, resample
from greenadapt.tokenization.added_words import has_added_words

BASE = "base model"
VIEWS: tuple[Pool, ...] = get_args(Pool)
"""How an adapted model reads texts; the first decides the verdict, unless it is trained to read by another."""


def cross_validate(session: Session, request: FinetuneRequest, base: str | None, config: AssessConfig) -> Json:
    """For each fold of the training examples, fine-tune the adapted model of ``request`` and its ``base`` (``None``:
    the model that it was made from) on all other folds, and predict this fold.

    ``rows`` are the base model and, by each of ``VIEWS`` (or the only one that it is trained on), the adapted model:
    ``score``, for the adapted model the ``difference`` to the base model with its 95 % interval ``low`` to ``high`` (a
    paired bootstrap over seeds and the examples of all folds, or contexts of questions, as ``resampled`` says).
    ``verdict`` is ``helps``, ``unclear`` or ``hurts``, by the first of these intervals; ``None`` if ``max_steps`` ends
    the trainings early, since all steps may turn it round. No interval covers the choice of the training examples.

    The models of the folds are results in HOME, and are not trained again. Raises ``UsageError`` if the model has no
    added words or no known base, ``InputError`` if the base model changed since, and what ``finetune`` raises, before
    any training.
    """
    require_torch("cross-validation")
    require_one_process("assess")
    adapted = starting_model(request.model)
    if not has_added_words(adapted.folder):
        raise UsageError(f"{request.model} has no added words", "give an adapted model with --model")
    base = base or _base_of(adapted)
    [entry] = request.tasks
    task = make_task(entry.config)
    examples = [example for source in entry.train for example in task.read(source, Silent())]
    n_trained = round((1 - 1 / config.folds) * len(examples))
    request = request.choose_training(n_trained)
    task = task.fit(examples, session.progress)
    folds = [Fold(number, config.folds, config.seed) for number in range(config.folds)]
    left_out = [fold.split(examples)[1] for fold in folds]
    requests = {BASE: replace_model(request, base), "adapted model": request}
    names = [f"fold {fold.number + 1} of {fold.of}, {name}" for fold in folds for name in requests]
    in_folds = [replace(of, tasks=(replace(entry, fold=fold),)) for fold in folds for of in requests.values()]
    runs = count_following(
        [
            check_finetune(replace(session, out=None), request, None).with_prefix(name)
            for request, name in zip(in_folds, names, strict=True)
        ]
    )  # all are checked before the first one is trained
    train_on_cluster(session, runs, names)
    pairs = [runs[number : number + 2] for number in range(0, len(runs), 2)]
    measured = [[_measure(run, out) for run in pair] for pair, out in zip(pairs, left_out, strict=True)]
    ordered = [example for out in left_out for example in out]
    return {
        "model": request.model,
        "base": base,
        "task": entry.config.task,
        "examples": len(ordered),
        "folds": config.folds,
        "seeds": len(request.seeds),
        **_compare_views(task, ordered, measured, has_verdict=not request.is_capped(n_trained)),
    }


def _base_of(adapted: PretrainedModel) -> str:
    """The model that ``adapted`` was made from.

    Raises ``UsageError`` if it is unknown, ``InputError`` if it changed since.
    """
    facts = read_facts(adapted.folder)
    if facts is None and (adapted.folder / TASK_FILE).is_file():
        raise UsageError(f"{adapted.source} is fine-tuned already", "give the adapted model that it was made from")
    if facts is None:
        raise UsageError(f"{adapted.source} does not say which model it was made from", "name it with --base")
    base: str = facts["model"]["source"]
    base_model = find_local_model(base, adapted.folder, "--base")
    if not (adapted.folder / MANIFEST).is_file():
        return base
    manifest = read_manifest(adapted.folder)
    if manifest.stage != EXPAND:  # other stages record the adapted model
        return base
    if manifest.inputs["model"]["sha256"] != model_input(base_model)["sha256"]:
        raise InputError(
            f"{base} changed since {adapted.source} was made from it", "name the model to compare with by --base"
        )
    return base


def _measure(run: Finetuning, examples: Sequence[Any]) -> dict[str, Array]:
    """Train on all folds but one, whose ``examples`` the model then predicts under each seed.

    Returns its statistics by view, (n_seeds, n_examples, m), see ``Task.statistics``.
    """
    precision, max_tokens = run.request.training.precision, run.request.max_tokens
    result = run_together(run.session, run.job, precision, run.build)
    pool = run.request.training.pool
    views = VIEWS if pool == VIEWS[0] else (pool,)
    if not has_added_words(run.start.model.folder):
        views = VIEWS[1:2]
    statistics: dict[str, list[Array]] = {view: [] for view in views}
    for seed in run.request.seeds:
        reading = ReadingOptions(views[0], seed=seed, precision=precision, max_tokens=max_tokens)
        opened = OpenedModel.open(TaskFolder.open(str(result.path), seed), reading)
        for view in views:
            model = replace(opened, settings=replace(opened.settings, pool=view))
            predictions = []
            with run.session.progress.bar(f"seed {seed}, {view}", len(examples), "examples") as bar:
                for example, logits in model.logits(model.inputs(examples)):
                    predictions.append(model.task.decode(example, logits))
                    bar.advance(1)
            statistics[view].append(model.task.statistics(examples, predictions))
    return {view: np.stack(arrays) for view, arrays in statistics.items()}


def _compare_views(
    task: Task[Any], examples: Sequence[Any], pairs: Sequence[Sequence[dict[str, Array]]], *, has_verdict: bool
) -> Json:
    """``main``, ``resampled``, ``rows`` and ``verdict``, from the base model's and the adapted one's statistics on each
    fold.
    """
    groups = groups_of(examples)
    of_base, of_adapted = zip(*pairs, strict=True)
    base_draws, unit = resample(np.concatenate([next(iter(fold.values())) for fold in of_base], axis=1), *groups)
    rows: list[Json] = [{"read_by": BASE, "score": float(task.main_score(base_draws.sum(axis=1)).mean())}]
    for view in of_adapted[0]:
        draws, _ = resample(np.concatenate([fold[view] for fold in of_adapted], axis=1), *groups)
        gain = paired_bootstrap(draws, base_draws, task.main_score)
        row = {"read_by": view, "score": gain.ours, "difference": gain.difference, "low": gain.low, "high": gain.high}
        rows.append(row)
    decisive = rows[1]
    verdict = "helps" if decisive["low"] > 0 else "hurts" if decisive["high"] < 0 else "unclear"
    return {"main": task.main, "resampled": unit, "rows": rows, "verdict": verdict if has_verdict else None}
