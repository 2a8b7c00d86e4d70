"""Recipes: an experiment's data sets, models and settings, and the figures that its paper published (README.md)."""

import json
import shutil
import tarfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Annotated, Any, Literal

from annotated_types import Ge, MinLen
from pydantic import ConfigDict

from greenadapt import config as configs
from greenadapt.corpus.download import fetch, local_path
from greenadapt.corpus.recipes import Source
from greenadapt.errors import InputError, MissingError, UsageError, byte_size, pluralize
from greenadapt.progress import Progress
from greenadapt.store.files import Json, own_folder, parse_own, read_toml
from greenadapt.store.outputs import writing
from greenadapt.tasks.tasks_file import TaskEntry, read_tasks_file

FOLDER = Path(__file__).parent
_HINT = f"see {FOLDER / 'README.md'} for the format"
_CONFIGS: Mapping[str, Any] = {
    "task": configs.TaskConfig,
    "training": configs.TrainConfig,
    "run": configs.SessionOptions,
    "tapt": configs.TrainConfig,
    "sampling": configs.SamplingConfig,
    "reading": configs.ReadingOptions,
    "w2v": configs.W2VConfig,
    "align": configs.AlignConfig,
    "expand": configs.ExpandConfig,
}
"""Table of settings → what it is for."""
_Figures = tuple[float | Literal[""], ...]


@dataclass(frozen=True)
class Published:
    """A file of a data set at ``url``, or the ``member`` of an archive (tar or zip) there; a size of 0 is unknown."""

    name: str
    url: str
    member: str = ""
    sha256: str = ""
    size: int = 0


@dataclass(frozen=True)
class DataSet:
    """A labelled data set; ``folder`` has its files if they lie beside its TOML file."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    folder: Path | None
    title: str
    licence: str
    kind: Literal["ner", "classification", "qa", "tasks"]
    train: str = ""
    dev: str = ""
    test: str = ""
    tasks: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    development: Mapping[str, str] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    bring: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a paper's table: what is tested on ``set``, and counted by ``score`` (see ``metric_of``).

    ``variant`` is what differs between columns of one set, such as the sampling of tasks.
    """

    name: str
    set: str
    score: str
    variant: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table: a method, the published figures in points, by column, and their deviations over the seeds.

    ``why`` says why it is not run here.
    """

    method: str
    name: str
    published: _Figures = ()
    std: _Figures = ()
    why: str = ""

    def figures(self, column: int) -> tuple[float | None, float | None]:
        """The published figure of a column, and its deviation."""
        mean, std = (numbers[column] if numbers else "" for numbers in (self.published, self.std))
        return (None if mean == "" else mean), (None if std == "" else std)


@dataclass(frozen=True)
class Table:
    """A table of the paper; ``source`` is where the published figures are from."""

    name: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        """Raise ``InputError`` if a row has more or fewer figures than there are columns."""
        for row in self.rows:
            for n in map(len, (row.published, row.std)):
                if n not in (0, len(self.columns)):
                    raise InputError(f"row {row.name!r} has {n} figures, there are {len(self.columns)} columns")


@dataclass(frozen=True)
class Recipe:
    """An experiment; models and corpora are by role, and empty where the user has to name one."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    title: str
    paper: str
    seeds: Annotated[int, Ge(1)]
    sets: Mapping[str, DataSet]
    tables: Annotated[tuple[Table, ...], MinLen(1)]
    about: str = ""
    gap: str = ""
    models: Mapping[str, str] = field(default_factory=dict)
    corpora: Mapping[str, str] = field(default_factory=dict)
    task: Json = field(default_factory=dict)
    training: Json = field(default_factory=dict)
    run: Json = field(default_factory=dict)
    tapt: Json = field(default_factory=dict)
    sampling: Json = field(default_factory=dict)
    reading: Json = field(default_factory=dict)
    w2v: Json = field(default_factory=dict)
    align: Json = field(default_factory=dict)
    expand: Json = field(default_factory=dict)
    adapters: Mapping[str, Json] = field(default_factory=dict)
    own: Mapping[str, Json] = field(default_factory=dict)

    def cells(self, methods: Collection[str], sets: Collection[str]) -> Iterator[tuple[Table, int, Column, Row]]:
        """The cells of these methods and sets, table by table, each with the number of its column.

        A cell is left out if the paper has figures in its row, but none for its set and variant.
        """
        for table in self.tables:
            cells = [(column.set, column.variant) for column in table.columns]
            for number, column in enumerate(table.columns):
                for row in table.rows:
                    figures = zip(row.published, cells, strict=False)
                    has_figures = any(figure for figure, cell in figures if cell == cells[number])
                    if column.set in sets and row.method in methods and (has_figures or not any(row.published)):
                        yield table, number, column, row

    def config(self, name: str, dataset: str = "", **fixed: Any) -> Any:
        """The configuration of a table of settings, changed by those of ``dataset``, with the fields ``fixed``."""
        settings = {**getattr(self, name), **self.own.get(dataset, {}).get(name, {})}
        return _config(_CONFIGS[name], settings, f"recipe {self.name}, {name}", **fixed)

    def adapter(self, method: str) -> configs.AdapterConfig:
        """What a method adds to the encoder."""
        location = f"recipe {self.name}, adapter {method}"
        return _config(configs.AdapterConfig, self.adapters[method], location)

    def check(self) -> None:
        """Raise ``InputError`` for settings that a run would refuse hours later."""
        for dataset in self.sets.values():
            for name in _CONFIGS:
                is_task = name == "task" and dataset.kind != "tasks"
                self.config(name, dataset.name, **({"task": dataset.kind} if is_task else {}))
        for method in self.adapters:
            self.adapter(method)


def _config(kind: Any, settings: Json, location: str, **fixed: Any) -> Any:
    """``kind`` with ``settings`` named as options; ``whole-sentences`` is no ``chunk``, which TOML cannot say."""
    values = {
        key.replace("-", "_"): tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    if kind is configs.TaskConfig and values.pop("whole_sentences", False):
        values["chunk"] = None
    names = {setting.name for setting in fields(kind)}
    if unknown := sorted(values.keys() - names):
        raise InputError(f"{location}: unknown key {unknown[0]}", f"the keys are {', '.join(sorted(names))}")
    try:
        return kind(**{**values, **fixed})
    except UsageError as error:
        raise InputError(f"{location}: {error.message}", error.hint) from None


def read_recipe(file: Path) -> Recipe:
    """The recipe in a TOML file; raises ``InputError`` naming the file and the key that is unknown or wrong."""
    content = _read(file)
    if isinstance(content.get("sets"), list):
        content["sets"] = {path.stem: _dataset(path) for path in content["sets"]}
    recipe = parse_own(json.dumps({"name": file.stem, **content}, default=str), Recipe, file, _HINT)
    recipe.check()
    return recipe


def _read(file: Path) -> Json:
    """The content of a recipe upon that of the one that it ``extends``, with the paths of its data sets."""
    if not file.is_file():
        raise MissingError(f"{file} is not there", "give the TOML file of an experiment")
    content = read_toml(file, _HINT)
    if isinstance(content.get("sets"), list):
        content["sets"] = [_set_file(str(name), file.parent) for name in content["sets"]]
    base = content.pop("extends", None)
    if base is None:
        return content
    beside = file.parent / str(base)
    below = beside if beside.is_file() else FOLDER / f"{base}.toml"
    if not below.is_file() or below.resolve() == file.resolve():
        names = ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml")))
        raise InputError(f"{file} extends {base!r}", f"give a file, or one of {names}")
    return _merged(_read(below), content)


def _merged(below: Json, above: Json) -> Json:
    """``above`` upon ``below``: tables key by key, everything else whole."""
    merged = {**below}
    for key, value in above.items():
        are_tables = isinstance(value, dict) and isinstance(below.get(key), dict)
        merged[key] = _merged(below[key], value) if are_tables else value
    return merged


def _set_file(name: str, beside: Path) -> Path:
    """One of our data sets by its name, or a path that may be relative to ``beside``."""
    file = beside / name if name.endswith(".toml") else FOLDER / f"sets/{name}.toml"
    if not file.is_file():
        raise MissingError(f"no data set is called {name}", f"give a .toml file, or a name in {FOLDER / 'sets'}")
    return file


def _dataset(file: Path) -> Json:
    content = read_toml(file, _HINT)
    folder = None if "published" in content or file.parent == FOLDER / "sets" else str(file.parent)
    return {"name": file.stem, "folder": folder, **content}


@dataclass(frozen=True)
class SetFiles:
    """The files of a data set on this machine."""

    train: str = ""
    dev: str | None = None
    test: str | None = None
    tasks: tuple[TaskEntry, ...] = ()


@dataclass(frozen=True)
class Sets:
    """The data sets of an experiment, in ``root`` once they are downloaded.

    ``paths`` has the user's folder, or only file, by the name of a set, and by "" a folder with a folder for each set.
    """

    root: Path
    paths: Mapping[str, Path]
    download: bool
    progress: Progress

    def files(self, dataset: DataSet, *, fetched: bool = True) -> SetFiles:
        """The files, downloaded if that is allowed; without ``fetched`` only if they are here.

        Raises ``MissingError`` saying what is missing and how to get it, and what ``fetch`` raises.
        """
        inside = self.paths[""] / dataset.name if "" in self.paths else None
        folder = self.paths.get(dataset.name, inside if inside and inside.is_dir() else None) or dataset.folder
        if folder is None:
            folder = self.root / "sets" / dataset.name
            missing = [file for file in dataset.published if not (folder / file.name).is_file()]
            if not dataset.published or (missing and not (self.download and fetched)):
                raise MissingError(f"{dataset.name} is not here", self._advice(dataset, missing))
            for file in missing:
                self._fetch(file, folder / file.name)
        if dataset.kind == "tasks":
            return SetFiles(tasks=_tasks(dataset, folder))
        names = (dataset.train, dataset.dev, dataset.test)
        train, dev, test = (_file(folder, name, dataset) if name else None for name in names)
        return SetFiles(train or "", dev, test)

    def _fetch(self, published: Published, target: Path) -> None:
        source = Source(published.url, published.sha256)
        folder = self.root / "archives" if published.member else target.parent
        fetch([source], folder, self.progress)
        download = local_path(source, folder)
        if published.member:
            target.parent.mkdir(parents=True, exist_ok=True)
            with writing(target) as part, _member(download, published.member) as stream, open(part, "wb") as file:
                shutil.copyfileobj(stream, file)
        elif download != target:
            download.replace(target)

    def _advice(self, dataset: DataSet, missing: list[Published]) -> str:
        ways = [f"give --data {dataset.name}=FOLDER" + (f" ({dataset.bring})" if dataset.bring else "")]
        if missing:
            sizes = {file.url: file.size for file in missing}
            total = f", {byte_size(sum(sizes.values()))}" if all(sizes.values()) else ""
            verb = "--download fetches it" if self.download else "add --download"
            ways.insert(0, f"{verb} ({pluralize(len(sizes), 'file')}{total}; license: {dataset.licence})")
        return ", or ".join(ways)


def _file(folder: Path, name: str, dataset: DataSet) -> str:
    """A file by its name, or the only one of its stem: releases differ in suffixes. A set of one file may be given as
    that file.
    """
    if folder.is_file() and not dataset.train:
        return str(folder)
    alike = [folder / name] if (folder / name).is_file() else sorted(folder.glob(f"{Path(name).stem}.*"))
    if len(alike) == 1:
        return str(alike[0])
    hint = f"give the folder of the set with --data {dataset.name}=FOLDER"
    raise MissingError(f"{dataset.name}: {folder} has no {name}", hint)


def _tasks(dataset: DataSet, folder: Path) -> tuple[TaskEntry, ...]:
    """The tasks in ``folder``; the tasks file of a published set is an example, with paths below the set's name."""
    try:
        if folder == dataset.folder:
            entries = read_tasks_file(folder / dataset.tasks, is_paper=True)
        else:
            example, quoted = own_folder("examples") / dataset.tasks, json.dumps(str(folder.resolve()))[:-1]
            with TemporaryDirectory() as temporary:
                copy = Path(temporary, dataset.tasks)
                copy.write_text(example.read_text("utf-8").replace(f'"{dataset.name}/', f"{quoted}/"), "utf-8")
                entries = read_tasks_file(copy, is_paper=True)
    except MissingError as error:
        raise MissingError(error.message, dataset.bring or error.hint) from None
    tasks = []
    for entry in entries:
        name = dataset.development.get(entry.name)
        if name is not None and name not in entry.dev:
            hint = f"it has {', '.join(entry.dev) or 'none'}"
            raise InputError(f"{dataset.name}: {entry.name} has no development set {name}", hint)
        dev = entry.dev if name is None else {name: entry.dev[name]}
        tasks.append(replace(entry, dev=dev, metric=dataset.metrics.get(entry.name, entry.metric)))
    return tuple(tasks)


@contextmanager
def _member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """A file of a tar or zip archive; raises ``InputError`` if there is no such file, or it is no archive."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped, zipped.open(name) as stream:
                yield stream
            return
        with tarfile.open(archive) as tarred:
            member = tarred.extractfile(name)
            if member is None:
                raise KeyError(name)
            yield member
    except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise InputError(f"{archive} has no file {name} ({error})", "correct the recipe of the data set") from None
