"""Recipes of experiments: what a paper measured, with which models and settings, and the figures it published."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from greenadapt.config import (
    AdapterConfig,
    AlignConfig,
    ExpandConfig,
    ReadingOptions,
    RunConfig,
    TaskConfig,
    TaskName,
    TrainConfig,
    W2VConfig,
)
from greenadapt.corpus.recipes import check_keys
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.fields import by_option
from greenadapt.stages.reproduce.sets import DataSet, find_set
from greenadapt.storage.files import Json, own_folder, read_toml

Kind = Literal["ner", "qa", "memory", "tasks"]
FOLDER = "experiments"
_TABLES = (
    *("models", "corpora", "words", "training", "task", "run", "w2v", "align", "expand"),
    *("reading", "tapt", "adapters", "sampling", "shape", "own"),
)
_Config = TypeVar("_Config")


@dataclass(frozen=True)
class Column:
    """A column of a table, as the paper has it."""

    name: str
    set: str
    """The data set that is tested on."""
    score: str
    """The score that counts, see ``metric_of``."""
    variant: str = ""
    """What differs between columns of one set, such as the sampling of tasks."""


@dataclass(frozen=True)
class Row:
    """A row of a table: a method, and the published figures."""

    method: str
    name: str
    published: tuple[float | None, ...]
    """In points, one for each column; ``None``: there is none."""
    std: tuple[float | None, ...]
    """Their deviations over the seeds."""
    why: str = ""
    """Why it is not run here."""


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    name: str
    source: str
    """Where the published figures are from."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def cells(self) -> Iterator[tuple[int, Column, Row]]:
        """Column by column, each with its number; without those that the paper left out of a row that it has."""
        for number, column in enumerate(self.columns):
            alike = [n for n, one in enumerate(self.columns) if (one.set, one.variant) == (column.set, column.variant)]
            for row in self.rows:
                if not any(row.published) or any(row.published[n] for n in alike):
                    yield number, column, row


@dataclass(frozen=True)
class Recipe:
    """An experiment."""

    name: str
    kind: Kind
    title: str
    paper: str
    seeds: int
    sets: Mapping[str, DataSet]
    tables: tuple[Table, ...]
    about: str = ""
    gap: str = ""
    """What the paper says of the share of the reference's lead that is covered."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    """By the name of a TOML table, such as ``models`` and ``training``."""

    def table(self, name: str, dataset: str = "") -> Json:
        """The settings of a TOML table, with those that ``dataset`` has of its own."""
        own = self.settings.get("own", {}).get(dataset, {})
        return {**self.settings.get(name, {}), **own.get(name, {})}

    def config(self, kind: type[_Config], name: str, dataset: str = "", **others: Any) -> _Config:
        """``make_config`` of a TOML table, with what ``dataset`` has of its own."""
        return make_config(kind, self.table(name, dataset), f"recipe {self.name}, {name}", **others)


def make_config(kind: type[_Config], settings: Json, where: str, **others: Any) -> _Config:
    """The configuration with these ``settings``; ``others`` are further fields.

    ``whole-sentences``, as of ``finetune``, stands for no ``chunk``, and replaces one.

    Raises ``InputError`` for a key that the configuration does not have, or a value that it refuses.
    """
    given = {key.replace("-", "_"): _as_tuple(value) for key, value in settings.items()}
    if issubclass(kind, TaskConfig) and given.get("whole_sentences") in (True, False) and given.pop("whole_sentences"):
        given["chunk"] = None
    check_keys(given, {one.name for one in fields(kind)}, (), where)  # type: ignore[arg-type]
    try:
        return kind(**{**given, **others})
    except UsageError as error:
        raise InputError(f"{where}: {error.message}", error.hint) from None


def recipe_names() -> list[str]:
    """The experiments that come with greenadapt."""
    return sorted(path.stem for path in own_folder(FOLDER).glob("*.toml"))


def read_recipe(name_or_path: str) -> Recipe:
    """The recipe of that name, or in that TOML file.

    Raises ``MissingError`` if there is none, ``InputError`` naming the file and the key that is unknown, missing or of
    the wrong type.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = own_folder(FOLDER) / f"{name_or_path}.toml"
    if not path.is_file():
        raise MissingError(
            f"no experiment is called {name_or_path}", f"choose among {', '.join(recipe_names())}, or give a .toml file"
        )
    content = _read(path)
    keys = {"kind", "title", "paper", "seeds", "sets", "tables", "about", "gap", *_TABLES}
    check_keys(content, keys, ("kind", "title", "paper", "seeds", "sets", "tables"), str(path))
    _check_types(content, str(path))
    sets = {found.name: found for found in content["sets"]}
    tables = tuple(_table(one, sets, str(path)) for one in content["tables"])
    recipe = Recipe(
        path.stem,
        content["kind"],
        content["title"],
        content["paper"],
        content["seeds"],
        sets,
        tables,
        content.get("about", ""),
        content.get("gap", ""),
        {name: content[name] for name in _TABLES if name in content},
    )
    _check_settings(recipe)
    return recipe


def _check_settings(recipe: Recipe) -> None:
    """Raise ``InputError`` for settings that a run would refuse hours later."""
    for name, kind in (
        ("w2v", W2VConfig),
        ("align", AlignConfig),
        ("expand", ExpandConfig),
        ("reading", ReadingOptions),
    ):
        recipe.config(kind, name)
    for one in recipe.sets.values():
        recipe.config(TrainConfig, "training", one.name)
        recipe.config(RunConfig, "run", one.name)
        make_config(TrainConfig, recipe.table("tapt", one.name), f"recipe {recipe.name}, tapt")
        if one.kind in get_args(TaskName):
            recipe.config(TaskConfig, "task", one.name, task=one.kind)
    for method, settings in recipe.table("adapters").items():
        make_config(AdapterConfig, settings, f"recipe {recipe.name}, adapter {method}")


def _refuse_twice(table: Json, where: str) -> None:
    """Raise ``InputError`` for an option that a table of the file, or one within it, has with - and with _."""
    by_option(table, where)
    for name, value in table.items():
        if isinstance(value, dict):
            _refuse_twice(value, f"{where}, {name}")


def _read(path: Path) -> Json:
    """The content of a recipe upon that of the one that it ``extends``; its sets are found."""
    content = read_toml(path, f"see {own_folder(FOLDER) / 'README.md'} for the format")
    _refuse_twice(content, str(path))
    names = content.get("sets", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: sets is not a list of strings", 'write sets = ["..."]')
    if "sets" in content:
        content["sets"] = [find_set(name, path.parent) for name in names]
    base = content.pop("extends", None)
    if base is None:
        return content
    beside = path.parent / str(base)
    found = beside if beside.is_file() else own_folder(FOLDER) / f"{base}.toml"
    if not found.is_file() or found.resolve() == path.resolve():
        raise InputError(f"{path} extends {base!r}", f"give a file, or one of {', '.join(recipe_names())}")
    return _merged(_read(found), content)


def _merged(below: Json, above: Json) -> Json:
    """``above`` upon ``below``: tables key by key, everything else whole."""
    merged = {**below}
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(below.get(key), dict)
        merged[key] = _merged(below[key], value) if both else value
    return merged


def _check_types(content: Json, where: str) -> None:
    if content["kind"] not in get_args(Kind):
        raise InputError(f"{where}: kind is {content['kind']!r}", f"need one of {', '.join(get_args(Kind))}")
    for key in ("title", "paper", "about", "gap"):
        if not isinstance(content.get(key, ""), str):
            raise InputError(f"{where}: {key} is not a string", f'write {key} = "..."')
    if type(content["seeds"]) is not int or content["seeds"] < 1:
        raise InputError(f"{where}: seeds is {content['seeds']!r}", "need a whole number of at least 1")
    for key in _TABLES:
        if not isinstance(content.get(key, {}), dict):
            raise InputError(f"{where}: {key} is not a table", f"write [{key}], and a key a line below it")
    tables = content["tables"]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables) or not tables:
        raise InputError(f"{where}: tables is not a list of tables", "write [[tables]] above each")


def _table(table: Json, sets: Mapping[str, DataSet], where: str) -> Table:
    where = f"{where}, table {table.get('name', '')!r}"
    check_keys(table, ("name", "source", "columns", "rows"), ("name", "source", "columns", "rows"), where)
    columns, kept = [], []
    for number, each in enumerate(_tables(table["columns"], f"{where}, columns")):
        check_keys(each, (one.name for one in fields(Column)), ("name", "set", "score"), f"{where}, columns")
        if each["set"] in sets:  # a recipe that extends another may have fewer
            columns.append(Column(**each))
            kept.append(number)
    rows = [_row(each, len(table["columns"]), where) for each in _tables(table["rows"], f"{where}, rows")]
    chosen = tuple(
        replace(row, published=tuple(row.published[i] for i in kept), std=tuple(row.std[i] for i in kept))
        for row in rows
    )
    return Table(table["name"], table["source"], tuple(columns), chosen)


def _row(table: Json, n_columns: int, where: str) -> Row:
    known = ("method", "name", "published", "std", "why")
    check_keys(table, known, ("method", "name"), f"{where}, rows")
    where = f"{where}, row {table['name']!r}"
    figures = [_figures(table.get(key, []), n_columns, f"{where}: {key}") for key in ("published", "std")]
    return Row(table["method"], table["name"], figures[0], figures[1], table.get("why", ""))


def _figures(values: Any, n: int, where: str) -> tuple[float | None, ...]:
    """One for each column; "" is none, and so is a list without any."""
    if values == []:
        return (None,) * n
    if not isinstance(values, list) or not all(value == "" or isinstance(value, int | float) for value in values):
        raise InputError(f"{where} is not a list of numbers", 'write "" where the paper has none')
    if len(values) != n:
        raise InputError(f"{where} has {len(values)} numbers, there are {n} columns", 'write "" where there is none')
    return tuple(None if value == "" else float(value) for value in values)


def _tables(value: Any, where: str) -> Sequence[Json]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InputError(f"{where} is not a list of tables", "write each as {...}")
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
