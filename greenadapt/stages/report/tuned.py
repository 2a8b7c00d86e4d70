"""What a report says of fine-tuned models: their scores, and how they compare on their test set."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.checkpoints.layout import HISTORY, PREDICTIONS, SEEDS, TASK_FILE, is_multitask, read_described
from greenadapt.corpus.opening import source_input
from greenadapt.errors import GreenadaptError
from greenadapt.progress import Silent
from greenadapt.report.page.blocks import Example
from greenadapt.report.page.sections import TaskGroup, TunedModel, described, prediction_text
from greenadapt.report.tables import task_name
from greenadapt.stages.finetune.compare import read_predictions, statistics_of
from greenadapt.stages.finetune.train import read_scores
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json
from greenadapt.storage.own_json import read_own_lines
from greenadapt.storage.results import Result
from greenadapt.tasks.base import load_task
from greenadapt.tasks.metrics import contexts_of, interval, paired, resampled
from greenadapt.tokenization.added_words import WORDS_FILE

_N_EXAMPLES = 5


def task_groups(results: Sequence[Result], names: dict[Path, str]) -> list[TaskGroup]:
    """The fine-tuned models, those with the same task and test set together."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        test = result.manifest.inputs.get("test", {}).get("sha256")
        is_alone = is_multitask(result.folder) or test is None
        key = str(result.folder) if is_alone else f"{result.manifest.facts.get('task')} {test}"
        groups.setdefault(key, []).append(result)
    return [_group(own, names, number) for number, own in enumerate(groups.values(), 1)]


def read_history(folder: Path) -> list[Json]:
    """The epochs of a model's training, of each seed."""
    files = [folder / HISTORY, *sorted((folder / SEEDS).glob(f"*/{HISTORY}"))]
    return [row for file in files if file.is_file() for row in read_own_lines(file)]


def _group(results: list[Result], names: dict[Path, str], number: int) -> TaskGroup:
    # The base model first, which the others are compared with.
    results = sorted(results, key=lambda result: (result.folder / WORDS_FILE).is_file())
    models = [TunedModel(names[one.folder], read_scores(one), read_history(one.folder)) for one in results]
    first = results[0]
    if is_multitask(first.folder):
        return TaskGroup(f"Several tasks: {models[0].name}", str(number), models)
    test = first.manifest.inputs.get("test")
    title = task_name(first.manifest.facts["task"]) + (f" on {Path(_where(test)).name}" if test else ", not tested")
    if test is None:
        return TaskGroup(title, str(number), models, notes=["There was no test set (finetune --test)."])
    try:
        examples = _examples(first, test)
    except GreenadaptError as error:
        note = f"Intervals and examples need the test set: {error}"
        return TaskGroup(title, str(number), models, notes=[note])
    is_base = len(results) > 1 and not (first.folder / WORDS_FILE).is_file()
    return _compared(title, number, results, models, examples, is_base=is_base)


def _where(entry: Json) -> str:
    return str(entry.get("path") or entry.get("source"))


def _examples(result: Result, test: Json) -> list[Any]:
    """The test set; raises ``GreenadaptError`` if it is gone, or changed since."""
    where = _where(test)
    if "path" not in test:
        raise GreenadaptError(f"{where} is no file, and a report reads no network")
    if source_input(where)["sha256"] != test["sha256"]:
        raise GreenadaptError(f"{where} changed since")
    return list(load_task(read_described(result.folder / TASK_FILE)).read(where, Silent()))


def _compared(
    title: str, number: int, results: list[Result], models: list[TunedModel], examples: list[Any], *, is_base: bool
) -> TaskGroup:
    """The models with intervals, and where ``is_base`` each but the first compared with it."""
    compared, notes = [], []
    base: tuple[Result, Array] | None = None
    contexts = contexts_of(examples)
    for result, model in zip(results, models, strict=True):
        task = load_task(read_described(result.folder / TASK_FILE))
        seeds = tuple(int(one["seed"]) for one in model.scores["seeds"])
        statistics = statistics_of(task, examples, result, seeds)
        drawn, _ = resampled(statistics, contexts)
        found = interval(drawn, task.main_score)
        more: dict[str, Any] = {"low": found.low, "high": found.high}
        if base is not None and base[1].shape == statistics.shape:
            apart = paired(drawn, resampled(base[1], contexts)[0], task.main_score)
            more["difference"] = (apart.difference, apart.low, apart.high)
            more |= _changed(task, examples, (result, statistics), base, names=(model.name, models[0].name))
        elif base is not None:
            notes.append(f"{model.name} has other seeds or labels than {models[0].name}: they are not compared.")
        elif is_base:
            base = result, statistics
        compared.append(TunedModel(model.name, model.scores, model.history, **more))
    return TaskGroup(title, str(number), compared, models[0].name if is_base else None, notes)


def _changed(
    task: Any,
    examples: list[Any],
    ours: tuple[Result, Array],
    base: tuple[Result, Array],
    names: tuple[str, str],
) -> dict[str, list[Example]]:
    """The examples whose predictions, exchanged for the base model's, change the main score most; of the first seed."""
    (our_result, our_statistics), (base_result, base_statistics) = ours, base
    total = base_statistics[0].sum(axis=0)
    gains = task.main_score(total + our_statistics[0] - base_statistics[0]) - task.main_score(total)
    predicted = [read_predictions(_predictions(result)) for result in (our_result, base_result)]

    def shown(row: int) -> Example:
        text, right = described(examples[row])
        said = [prediction_text(each[row], examples[row]) for each in predicted]
        return Example(text, [("label", right), (names[1], said[1]), (names[0], said[0])])

    order = np.argsort(gains, kind="stable")
    worse = [shown(row) for row in order[:_N_EXAMPLES].tolist() if gains[row] < 0]
    better = [shown(row) for row in order[::-1][:_N_EXAMPLES].tolist() if gains[row] > 0]
    return {"better": better, "worse": worse}


def _predictions(result: Result) -> Path:
    seed = read_described(result.folder / "scores.json")["seeds"][0]["seed"]
    return result.folder / SEEDS / str(seed) / PREDICTIONS
