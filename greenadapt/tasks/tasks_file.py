"""TOML files that describe several tasks: their settings, data and metrics."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from greenadapt.checkpoints.layout import TASK_NAME, TASK_NAME_RULE
from greenadapt.config import CHOSEN_FOR_ENTITIES, FIELDS_OF_A_TASK, TableFormat, TaskConfig, TaskName
from greenadapt.corpus.opening import input_errors, is_hub_id
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.fields import option_fields
from greenadapt.store.files import Json, own_folder, read_toml
from greenadapt.tasks.base import Fold

_DATA = ("train", "dev", "test")
_PREFIX = re.compile(r"^(--|\w+\.)")


@dataclass(frozen=True)
class TaskEntry:
    """A task of several: its name, settings, data and metric."""

    name: str
    config: TaskConfig
    train: tuple[str, ...]
    """Files or data set ids, which are concatenated."""
    dev: Mapping[str, str]
    """Name of each development set → file or data set id; may be empty."""
    test: Mapping[str, str]
    """Name of each test set → file or data set id; may be empty."""
    metric: str | None
    """Path of a score, see ``metric_of``; ``None``: the task's main score."""
    fold: Fold | None = None
    """The part of the training examples that is held out in cross-validation."""
    automatic: Collection[str] = ()
    """The settings of ``config`` that the user left to greenadapt: a finished result keeps its own."""

    def choose_settings(self, automatic: Collection[str]) -> "TaskEntry":
        """The entry with those of the ``automatic`` settings chosen that greenadapt chooses for its kind of task."""
        chosen = {name: value for name, value in CHOSEN_FOR_ENTITIES.items() if name in automatic}
        if self.config.task != "ner" or not chosen:
            return self
        return replace(self, config=replace(self.config, **chosen), automatic=tuple(chosen))


def read_tasks_file(path: str | Path, *, is_paper: bool = False) -> tuple[TaskEntry, ...]:
    """The tasks of a TOML file, in order: ``[[task]]`` tables, and shared settings in ``[defaults]``.

    Defaults do not apply to kinds of tasks that do not have the setting. What the file does not set is chosen as for a
    single task or, where ``is_paper``, set as in the paper. Paths are relative to the file's folder.
    Raises ``MissingError`` if the file, or a file in it, does not exist, and ``InputError`` with the task if it is not
    TOML, a key is unknown, missing, repeated, or of the wrong type, or there is no such metric.
    """
    path = Path(path)
    with input_errors(str(path)):
        content = read_toml(path, f"see {own_folder('examples') / 'glue.toml'} for the format")
    _check_keys(content, ("defaults", "task"), str(path))
    defaults, tables = content.get("defaults", {}), content.get("task", [])
    if not isinstance(defaults, dict):
        raise InputError(f"{path}: defaults is not a table", "write [defaults], and a key a line below it")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{path}: task is not a list of tables", "write [[task]] above each task")
    if not tables:
        raise InputError(f"{path} has no tasks", "write [[task]], and name, kind and train below it")
    _check_options(defaults, ("kind",), f"{path}, defaults")
    entries = tuple(_entry(table, number, defaults, path, is_paper) for number, table in enumerate(tables, start=1))
    name, n = Counter(entry.name.lower() for entry in entries).most_common(1)[0]  # some file systems ignore case
    if n > 1:
        raise InputError(f"{path}: {n} tasks are named {name}", "give each a different name")
    return entries


_OF_TABLES = tuple(field.name for field in fields(TableFormat))


def _keys(kind: TaskName) -> dict[str, str]:
    """Key → field of ``TaskConfig``, or for classification of ``TableFormat``, of tasks of this kind."""
    names = [*FIELDS_OF_A_TASK[kind], "max_length"]
    names += _OF_TABLES if "table" in names else ()
    options = {name: field.option_name.removeprefix("--") for name, field in option_fields(TaskConfig).items()}
    return {options.get(name) or name.replace("_", "-"): name for name in names if name != "table"}


_KEYS = {kind: _keys(kind) for kind in FIELDS_OF_A_TASK}
_OPTIONS = tuple(dict.fromkeys(key for keys in _KEYS.values() for key in keys))


def _entry(table: Json, number: int, defaults: Json, path: Path, is_paper: bool) -> TaskEntry:
    name = table.get("name")
    if name is None:
        raise InputError(f"{path}: task number {number} has no name", TASK_NAME_RULE)
    _check_name(name, f"{path}: the name of task number {number}")
    where = f"{path}, task {name}"
    _check_options(table, ("name", "kind", *_DATA, "metric"), where)
    kind = table.get("kind", defaults.get("kind"))
    if kind is None:
        raise InputError(f"{where} has no kind", f"give one of {', '.join(get_args(TaskName))}")
    config = _config(kind, table, defaults, where)
    if "train" not in table or table["train"] == []:
        raise InputError(f"{where} has no training data", 'give a file, such as train = "train.tsv"')
    train = table["train"] if isinstance(table["train"], list) else [table["train"]]
    metric = table.get("metric")
    if not isinstance(metric, str | None):
        raise InputError(f"{where}: metric is {metric!r}", 'give the name of a score, such as "accuracy"')
    dev, test = (_sets(table.get(data, {}), data, path, where) for data in ("dev", "test"))
    entry = TaskEntry(name, config, tuple(_source(source, "train", path, where) for source in train), dev, test, metric)
    return entry if is_paper else entry.choose_settings(CHOSEN_FOR_ENTITIES.keys() - {*defaults, *table})


def _config(kind: TaskName, table: Json, defaults: Json, where: str) -> TaskConfig:
    keys = _KEYS[kind]
    for key in table:
        if key in _OPTIONS and key not in keys:
            kinds = [name for name, of_kind in _KEYS.items() if key in of_kind]
            raise InputError(f"{where}: {key} is for {' and '.join(kinds)}, this is {kind}", f"leave {key} out")
    settings: Json = {
        keys[key]: tuple(value) if isinstance(value, list) else value
        for key, value in {**defaults, **table}.items()
        if key in keys
    }
    if isinstance(text_field := settings.get("text_fields"), str):
        settings["text_fields"] = (text_field,)
    form = {name: settings.pop(name) for name in _OF_TABLES if kind == "classification" and name in settings}
    try:
        return TaskConfig(task=kind, table=TableFormat(**form) if form else None, **settings)
    except UsageError as error:  # its message has the command line's option or the class
        raise InputError(f"{where}: {_PREFIX.sub('', error.message)}", error.hint) from None


def _sets(value: Any, data: str, path: Path, where: str) -> dict[str, str]:
    sources = value if isinstance(value, dict) else {data: value}
    for name in sources:
        _check_name(name, f"{where}: the name of a set of {data}")
    return {name: _source(source, data, path, where) for name, source in sources.items()}


def _source(value: Any, data: str, path: Path, where: str) -> str:
    """The path of a file in the folder of the tasks file; ids of data sets are unchanged."""
    if not isinstance(value, str) or not value:
        expected = "a string, or a list of strings" if data == "train" else "a string, or a table of them"
        raise InputError(f"{where}: {data} is {value!r}, need {expected}", "give files or data sets of the hub")
    file = path.parent / value
    if file.exists():
        return str(file)
    if "://" in value or is_hub_id(value, path.parent):
        return str(value)
    raise MissingError(
        f"{where}: {data} file {file} does not exist", f"check the path: it is relative to {path.parent}"
    )


def _check_name(name: Any, description: str) -> None:
    if not isinstance(name, str) or not TASK_NAME.fullmatch(name):
        raise InputError(f"{description} is {name!r}", TASK_NAME_RULE)


def _check_options(table: Json, keys: tuple[str, ...], where: str) -> None:
    _check_keys(table, (*keys, *_OPTIONS), where)
    if "kind" in table and table["kind"] not in get_args(TaskName):
        raise InputError(f"{where}: kind is {table['kind']!r}", f"need one of {', '.join(get_args(TaskName))}")


def _check_keys(table: Json, keys: Iterable[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise InputError(f"{where}: unknown key {key!r}", f"the keys are {', '.join(keys)}")
