"""Recipes of labelled data sets: where one is published, under which licence, and in which files."""

import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from greenadapt.corpus.download import fetch, local_path
from greenadapt.corpus.recipes import Source, check_keys
from greenadapt.errors import InputError, MissingError, byte_size, counted
from greenadapt.progress import Progress
from greenadapt.storage.files import own_folder, read_toml
from greenadapt.storage.outputs import replacing
from greenadapt.tasks.tasks_file import TaskEntry, read_tasks_file

FOLDER = "experiments/sets"
SETS, ARCHIVES = "sets", "archives"


@dataclass(frozen=True)
class Published:
    """A file of a data set, at an address or in an archive there."""

    name: str
    url: str
    member: str = ""
    """Its path in the archive (tar or zip) at ``url``; empty: that is the file itself."""
    sha256: str = ""
    """Of what is at ``url``."""
    size: int = 0
    """Bytes of what is at ``url``; 0: unknown."""

    @property
    def source(self) -> Source:
        """What is downloaded."""
        return Source(self.url, self.sha256, size=self.size)


@dataclass(frozen=True)
class DataSet:
    """A labelled data set."""

    name: str
    title: str
    licence: str
    kind: str
    """``ner``, ``classification``, ``qa``, or ``tasks`` for several that a tasks file describes."""
    folder: Path | None
    """Where the files are, if they lie beside the recipe."""
    train: tuple[str, ...] = ()
    dev: str = ""
    test: str = ""
    tasks: str = ""
    """The tasks file; that of a published set is one of greenadapt's examples."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """The score that counts of a task, where the paper has another one than the tasks file."""
    development: Mapping[str, str] = field(default_factory=dict)
    """The development set that counts of a task, where the tasks file has several and the paper one."""
    published: tuple[Published, ...] = ()
    bring: str = ""
    """Where to get what cannot be downloaded here."""
    words: int = 0
    """Of the training examples, as counted in the published files; 0: unknown."""
    examples: int = 0
    """How many there are, as published; 0: unknown."""


@dataclass(frozen=True)
class SetFiles:
    """The files of a data set on this machine."""

    train: tuple[str, ...] = ()
    dev: str | None = None
    test: str | None = None
    tasks: tuple[TaskEntry, ...] = ()


def find_set(name: str, beside: Path) -> DataSet:
    """The data set of that name, or in that TOML file, whose path may be relative to ``beside``.

    Raises ``MissingError`` if there is none, ``InputError`` if it is invalid.
    """
    is_file = name.endswith(".toml")
    path = beside / name if is_file else own_folder(FOLDER) / f"{name}.toml"
    if not path.is_file():
        raise MissingError(f"no data set is called {name}", f"give a .toml file, or a name in {own_folder(FOLDER)}")
    content = read_toml(path, "see README.md of the experiments for the format")
    known = {one.name for one in fields(DataSet)} - {"name", "folder"}
    check_keys(content, known, ("title", "licence", "kind"), str(path))
    texts = ("title", "licence", "kind", "dev", "test", "tasks", "bring")
    for key, kind in (("words", int), ("examples", int), *((key, str) for key in texts)):
        if key in content and type(content[key]) is not kind:
            raise InputError(f"{path}: {key} is {content[key]!r}", f"it must be of type {kind.__name__}")
    for key in ("metrics", "development"):
        if not isinstance(content.get(key, {}), dict):
            raise InputError(f"{path}: {key} is {content[key]!r}", f'write {key} = {{ TASK = "..." }}')
    published = tuple(_published(one, str(path)) for one in content.pop("published", []))
    train = content.pop("train", [])
    train = (train,) if isinstance(train, str) else tuple(train)
    return DataSet(
        path.stem,
        folder=path.parent if is_file and not published else None,
        train=train,
        published=published,
        **content,
    )


def _published(table: Any, where: str) -> Published:
    if not isinstance(table, dict):
        raise InputError(f"{where}: published is not a list of tables", "write each as [[published]]")
    check_keys(table, (one.name for one in fields(Published)), ("name", "url"), f"{where}, published")
    return Published(**table)


@dataclass(frozen=True)
class Sets:
    """The data sets of an experiment, in ``root`` once they are downloaded."""

    root: Path
    given: Mapping[str, Path]
    """Folders that the user gave by the name of a set, or a set of one file; by "" one that has a folder for each."""
    download: bool
    progress: Progress

    def files(self, dataset: DataSet, *, fetched: bool = True) -> SetFiles:
        """The files, downloaded if that is allowed; without ``fetched`` only if they are here.

        Raises ``MissingError`` saying what is missing and how to get it, and what ``fetch`` raises.
        """
        folder = self._folder(dataset)
        if folder is None:
            folder = self.root / SETS / dataset.name
            missing = self.missing(dataset)
            if missing and not (self.download and fetched):
                raise MissingError(f"{dataset.name} is not here", self._advice(dataset, missing))
            self._fetch(missing, folder)
            if not dataset.published:
                raise MissingError(f"{dataset.name} is not here", self._advice(dataset, []))
        if dataset.kind == "tasks":
            return SetFiles(tasks=self._tasks(dataset, folder))
        train, dev, test = (
            tuple(self._file(folder, name, dataset) for name in names if name)
            for names in (dataset.train, [dataset.dev], [dataset.test])
        )
        return SetFiles(train, next(iter(dev), None), next(iter(test), None))

    def missing(self, dataset: DataSet) -> list[Published]:
        """The published files that are not here; none of a set whose folder was given."""
        if self._folder(dataset) is not None:
            return []
        return [one for one in dataset.published if not (self.root / SETS / dataset.name / one.name).is_file()]

    def to_download(self, published: Published) -> bool:
        """Whether the file, or its archive, has to be downloaded."""
        return not (published.member and local_path(published.source, self.root / ARCHIVES).exists())

    def _folder(self, dataset: DataSet) -> Path | None:
        if dataset.name in self.given:
            return self.given[dataset.name]
        if "" in self.given and (self.given[""] / dataset.name).is_dir():
            return self.given[""] / dataset.name
        return dataset.folder

    def _fetch(self, missing: list[Published], folder: Path) -> None:
        for one in missing:
            target = folder / one.name
            into = self.root / ARCHIVES if one.member else target.parent
            fetch([one.source], into, self.progress)
            arrived = local_path(one.source, into)
            if one.member:
                target.parent.mkdir(parents=True, exist_ok=True)
                with replacing(target) as part, _member(arrived, one.member) as stream, open(part, "wb") as file:
                    shutil.copyfileobj(stream, file)
            elif arrived != target:
                arrived.replace(target)

    def _advice(self, dataset: DataSet, missing: list[Published]) -> str:
        ways = []
        if missing and not self.download:
            sizes = {one.url: one.size for one in missing}
            known = f", {byte_size(sum(sizes.values()))}" if all(sizes.values()) else ""
            ways.append(f"add --download ({counted(len(sizes), 'file')}{known})")
        ways.append(f"give --data {dataset.name}=FOLDER" + (f" ({dataset.bring})" if dataset.bring else ""))
        return ", or ".join(ways)

    def _file(self, folder: Path, name: str, dataset: DataSet) -> str:
        """A file by its name, or the only one of its stem: releases differ in suffixes. A set of one file may be given
        as that file.
        """
        if folder.is_file() and not dataset.train:
            return str(folder)
        if (folder / name).is_file():
            return str(folder / name)
        alike = sorted(folder.glob(f"{Path(name).stem}.*"))
        if len(alike) == 1:
            return str(alike[0])
        raise MissingError(
            f"{dataset.name}: {folder} has no {name}", f"give the folder of the set with --data {dataset.name}=FOLDER"
        )

    def _tasks(self, dataset: DataSet, folder: Path) -> tuple[TaskEntry, ...]:
        """What the tasks file says; that of a published set is one of greenadapt's examples, read beside ``folder``."""
        try:
            if dataset.folder is not None and folder == dataset.folder:
                entries = read_tasks_file(folder / dataset.tasks)
            else:
                entries = _read_beside(own_folder("examples") / dataset.tasks, dataset.name, folder.resolve())
        except MissingError as error:
            raise MissingError(error.message, dataset.bring or error.hint) from None
        return tuple(_as_in_paper(one, dataset) for one in entries)


def _as_in_paper(entry: TaskEntry, dataset: DataSet) -> TaskEntry:
    """The task with the score and the development set that count; raises ``InputError`` if it has no such set."""
    dev, wanted = entry.dev, dataset.development.get(entry.name)
    if wanted is not None:
        if wanted not in dev:
            raise InputError(
                f"{dataset.name}: {entry.name} has no development set {wanted}", f"it has {', '.join(dev) or 'none'}"
            )
        dev = {wanted: dev[wanted]}
    return replace(entry, dev=dev, metric=dataset.metrics.get(entry.name, entry.metric))


def _read_beside(file: Path, name: str, folder: Path) -> tuple[TaskEntry, ...]:
    """The tasks of ``file`` as if ``folder`` lay beside it under ``name``; only names of files are read there."""
    with TemporaryDirectory() as temporary:
        shutil.copyfile(file, Path(temporary, file.name))
        beside = Path(temporary, name)
        beside.symlink_to(folder, target_is_directory=True)

        def real(source: str) -> str:
            path = Path(source)
            return str(folder / path.relative_to(beside)) if path.is_relative_to(beside) else source

        return tuple(
            replace(
                one,
                train=tuple(map(real, one.train)),
                dev={key: real(source) for key, source in one.dev.items()},
                test={key: real(source) for key, source in one.test.items()},
            )
            for one in read_tasks_file(Path(temporary, file.name))
        )


@contextmanager
def _member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """A file of a tar or zip archive; raises ``InputError`` if there is no such file, or it is no archive."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped, zipped.open(name) as stream:
                yield stream
            return
        with tarfile.open(archive) as tarred:
            found = tarred.extractfile(name)
            if found is None:
                raise KeyError(name)
            yield found
    except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise InputError(f"{archive} has no file {name} ({error})", "correct the recipe of the data set") from None
