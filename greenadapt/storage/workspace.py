"""Where results lie by name, ``<workspace>/<corpus>/<model>/<stage>``, and the leftovers beside them.

Symlinks, and files behind one that leads out of the workspace, are no leftovers.
"""

import difflib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from greenadapt import __version__
from greenadapt.errors import ConflictError, InputError, MissingError, UsageError
from greenadapt.storage.arrays import read_metadata
from greenadapt.storage.files import beside, expanded, hash_file, read_own_object, replace_json, require_utf8
from greenadapt.storage.jobs import Attempts, Place
from greenadapt.storage.locks import holder, lock
from greenadapt.storage.ownership import added_files, is_noted, is_own, is_result, noted_files
from greenadapt.storage.results import MANIFEST, Result

HOME = "GREENADAPT_HOME"
_ELSEWHERE = ".elsewhere"
"""The folder of records of results that --out wrote, a file each."""
_VARIANT = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Workspace:
    """The folder that holds every result by name."""

    root: Path

    @classmethod
    def find(cls, option: Path | None = None) -> "Workspace":
        """``--workspace``, else ``$GREENADAPT_HOME``, else the user's data folder.

        Raises ``ConflictError`` if it is a file, ``InputError`` if its path is not UTF-8.
        """
        if option is None and os.environ.get(HOME):
            option = Path(os.environ[HOME])
        if option is None:
            from platformdirs import user_data_path

            option = user_data_path("greenadapt", appauthor=False)
        root = expanded(option).absolute()
        require_utf8(root)
        if not next(path for path in (root, *root.parents) if path.exists()).is_dir():
            raise ConflictError(f"the workspace {root} is not a folder", f"give one with --workspace or ${HOME}")
        return cls(root)

    def downloads(self, corpus: str) -> Path:
        """The folder of a corpus's downloaded files."""
        return self.root / corpus / ".sources"

    def folds(self) -> Path:
        """The cache of finished folds (``assess --train``); may be deleted."""
        return self.root / ".assess"

    def graphs(self) -> Path:
        """The cache of exported graphs (``--backend`` without ``compile``); may be deleted."""
        return self.root / ".graphs"

    def remember(self, folder: Path) -> None:
        """Record that a result is written to ``folder``, unless that lies in the workspace.

        Creates no workspace, and ignores one that cannot be written.
        """
        name = sha256(os.fsencode(folder)).hexdigest()[:16]
        record = self.root / _ELSEWHERE / f"{name}.json"
        if folder.is_relative_to(self.root) or record.is_file():
            return
        with suppress(OSError, UnicodeEncodeError):
            record.parent.mkdir(exist_ok=True)
            replace_json(record, {"greenadapt": __version__, "folder": str(folder)})

    def elsewhere(self) -> list[Path]:
        """The folders that ``remember`` recorded, whether or not they still hold a result."""
        folders = []
        for record in sorted((self.root / _ELSEWHERE).glob("*.json")):
            with suppress(InputError, MissingError, OSError):
                folder = Path(read_own_object(record, dict[str, str], "record")["folder"])
                folders += [folder] if folder.is_absolute() else []
        return sorted(folders)

    def corpora(self) -> list[str]:
        """Names of the corpora that have a folder here."""
        return _visible_folders(self.root)

    def models(self, corpus: str) -> list[str]:
        """Names of the models that have results for ``corpus``; none if that is not a plain name."""
        if not _is_plain(corpus):
            return []
        return [name for name in _visible_folders(self.root / corpus) if self.stages(corpus, name)]

    def stages(self, corpus: str, model: str) -> list[str]:
        """Names (``stage`` or ``stage@variant``) of the finished results for a corpus and a model."""
        folder = self.root / corpus / model
        return [name for name in _visible_folders(folder) if (folder / name / MANIFEST).is_file()]

    def results(self, corpus: str, model: str) -> list[Result]:
        """The finished results for a corpus and a model."""
        results = (self.place(corpus, model, *name.split("@", 1)).current() for name in self.stages(corpus, model))
        return [*filter(None, results)]

    def only_corpus(self, model: str | None = None, stage: str | None = None) -> str:
        """The only corpus that has results: for ``model`` if given, and of ``stage`` under any variant if given.

        Raises ``MissingError`` if there is none, ``UsageError`` listing them if there are several.
        """
        names = []
        for corpus in self.corpora():
            stages = {
                name.split("@")[0]
                for model_name in _visible_folders(self.root / corpus)
                if model in (None, model_name)
                for name in self.stages(corpus, model_name)
            }
            if stages and stage in (None, *stages):
                names.append(corpus)
        if len(names) == 1:
            return names[0]
        if names:
            raise UsageError(
                f"{self.root} has results of {len(names)} corpora ({', '.join(names)})", "choose one with --corpus"
            )
        of_model = f" for model {model}" if model else ""
        raise MissingError(
            f"no {stage or 'result'}{of_model} in {self.root}",
            f"run greenadapt {stage or 'adapt'} first, with --corpus",
        )

    def only_model(self, corpus: str) -> str:
        """The only model that has results for ``corpus``.

        Raises ``MissingError`` if there is none, ``UsageError`` listing them if there are several.
        """
        models = self.models(corpus)
        if len(models) == 1:
            return models[0]
        if models:
            raise UsageError(
                f"{corpus} has results for {len(models)} models ({', '.join(models)})", "choose one with --model"
            )
        matches = difflib.get_close_matches(corpus, filter(self.models, self.corpora()), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(matches)}?" if matches else "name the model with --model"
        raise MissingError(f"no result for corpus {corpus} in {self.root}", hint)

    def place(self, corpus: str, model: str, stage: str, variant: str | None = None) -> Place:
        """The place of a stage's result for a corpus and a model."""
        if variant is not None and not _VARIANT.fullmatch(variant):
            raise UsageError(
                f"variant {variant!r} is not a valid name",
                "begin with a letter or a digit, and use these, dots, dashes and underscores",
            )
        name = f"{stage}@{variant}" if variant else stage
        return Place(self._folder(corpus, model) / name)

    def find_place(self, corpus: str, model: str, stage: str, variant: str | None = None) -> Place:
        """The place of a later stage's input: under the same variant, else the plain one.

        Raises ``MissingError`` naming the command that creates it.
        """
        for name in (variant, None):
            place = self.place(corpus, model, stage, name)
            if (place.path / MANIFEST).is_file():
                return place
        raise MissingError(
            f"no {stage} of corpus {corpus} for model {model} in {self.root}",
            f"run greenadapt {stage} first, with the same --corpus and --model",
        )

    @contextmanager
    def locked(self, corpus: str, model: str, command: str | None = None) -> Iterator[None]:
        """Be the only writer of a corpus's results for a model while the block runs."""
        with lock(self._folder(corpus, model) / ".lock", command=command):
            yield

    def _folder(self, corpus: str, model: str) -> Path:
        if not _is_plain(corpus):
            raise MissingError(
                f"no corpus or file is called {corpus}", "greenadapt corpus list shows the available ones"
            )
        if not _is_plain(model):  # an adapted model's folder has its name
            raise InputError(f"the model calls itself {model!r}, which is no name", "correct its greenadapt.json")
        return self.root / corpus / model


def _is_plain(name: str) -> bool:
    """Whether a name is that of one folder below another."""
    return name not in ("", ".", "..") and not any(character in name for character in "/\\\0")


def _visible_folders(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


_A_DAY = 24 * 3600
"""Seconds after which no command can still be reading input, for which none takes a lock."""
_NEW_INPUT = re.compile(r"\.(stdin|records)-[0-9a-f]{32}")
FOREIGN = "nothing in it says that greenadapt made it: delete it yourself if nobody needs it"
"""Why a leftover stays."""
Kind = Literal["version", "unfinished", "download", "input", "cache"]


@dataclass(frozen=True)
class Leftover:
    """A file or folder of a workspace that is no result."""

    kind: Kind
    """``version`` (replaced by a newer one), ``unfinished`` (work of a killed run), ``download``, ``input`` (standard
    input or records of a Python program), ``cache``."""
    path: Path
    bytes: int
    changed: float
    """Time of the last change, in seconds since 1970."""
    lock: Path
    """The lock of its writers."""
    corpus: str = ""
    model: str = ""
    stage: str = ""
    """With its variant."""
    marks: tuple[Path, ...] = ()
    """Files and links that name the path; they are removed first."""
    seconds: float = 0.0
    """Time that unfinished work took so far."""
    attempts: int = 0
    needed: str = ""
    """A result that would lack the file, in words."""
    foreign: str = ""
    """Why it may be somebody else's, so that it stays."""

    @property
    def writer(self) -> str | None:
        """The process that is writing it, if any."""
        return holder(self.lock)


def leftovers(workspace: Workspace) -> list[Leftover]:
    """All leftovers of a workspace, by folder."""
    root = Path(os.path.realpath(workspace.root))
    items = [*_top(workspace)]
    for corpus in workspace.corpora():
        items += [replace(item, corpus=corpus) for item in _downloads(workspace, corpus)]
        for model in _visible_folders(workspace.root / corpus):
            folder = workspace.root / corpus / model
            work = [_work(path, folder / ".lock", path.name) for path in _listed(folder / ".work") if path.is_dir()]
            items += [replace(item, corpus=corpus, model=model) for item in (*_versions(folder), *work)]
    return [
        item
        for item in items
        if Path(os.path.realpath(item.path.parent)).is_relative_to(root) and not item.path.is_symlink()
    ]


def unfinished_beside(place: Place) -> Leftover | None:
    """The work of a killed run that would have become the folder ``place``, if any."""
    return _work(place.work, beside(place.path, "lock"), place.path.name) if is_own(place.work) else None


def tree_size(path: Path) -> tuple[int, float]:
    """The bytes of a file or of all files below a folder, and the time of the last change; symlinks count as links."""
    size, newest = 0, path.lstat().st_mtime
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size, newest
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # removed meanwhile
                status = os.lstat(Path(folder) / name)
                size += status.st_size
                newest = max(newest, status.st_mtime)
    return size, newest


def _leftover(kind: Kind, path: Path, lock: Path, *, is_own: bool, added: Sequence[str] = ()) -> Leftover:
    foreign = f"it holds files that greenadapt did not write, such as {added[0]}" if added else ""
    return Leftover(kind, path, *tree_size(path), lock, foreign=foreign if is_own else FOREIGN)


def _listed(folder: Path) -> list[Path]:
    """The entries of a folder, also hidden, sorted; none if it is no folder or was removed meanwhile."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _versions(folder: Path) -> Iterator[Leftover]:
    links = [path for path in _listed(folder) if path.is_symlink()]
    current = {Path(os.path.realpath(link)) for link in links if not link.name.startswith(".")}
    for version in _listed(folder / ".versions"):
        target = Path(os.path.realpath(version))
        if target in current or not version.is_dir():
            continue
        marks = tuple(link for link in links if Path(os.path.realpath(link)) == target)
        stage = marks[0].name.removeprefix(".").removesuffix(".previous").removesuffix(".new") if marks else ""
        is_ours, added = is_result(version), added_files(version)
        item = _leftover("version", version, folder / ".lock", is_own=is_ours, added=added)
        yield replace(item, stage=stage, marks=marks)


def _work(work: Path, lock: Path, stage: str) -> Leftover:
    item = replace(_leftover("unfinished", work, lock, is_own=is_own(work)), stage=stage)
    if (before := Attempts.read(work)) is None:
        return item
    return replace(item, attempts=before.attempts, seconds=before.cost.seconds)


def _downloads(workspace: Workspace, corpus: str) -> Iterator[Leftover]:
    folder = workspace.downloads(corpus)
    used = "the corpus to be made again" if workspace.models(corpus) else ""
    for path in _listed(folder):
        if path.name.startswith("."):
            continue
        if path.name == "stdin" or (path.name == f"{corpus}.jsonl" and corpus.startswith("records-")):
            # Either a result needs it, or the name of the corpus has the hash of its content.
            is_ours = bool(used) or (path.is_file() and corpus.endswith(f"-{hash_file(path)[:8]}"))
            yield replace(_leftover("input", path, folder / ".lock", is_own=is_ours), needed=used)
            continue
        kind: Kind = "unfinished" if path.name.endswith(".part") else "download"
        # Folders that another program fetched, and downloads of early versions, are not noted.
        added = [name for name in added_files(path) if not name.startswith(".")] if noted_files(path) else []
        item = _leftover(kind, path, folder / ".lock", is_own=is_own(path) or is_noted(path), added=added)
        yield replace(item, stage="download") if kind == "unfinished" else replace(item, needed=used)


def _top(workspace: Workspace) -> Iterator[Leftover]:
    """Caches, finished and unfinished folds, and input whose reading was killed."""
    yield from _graphs(workspace.graphs())
    folds = workspace.folds()
    for path in _listed(folds):
        if path.suffix in (".safetensors", ".part"):
            lock = folds / f".{path.stem}.safetensors.lock"
            yield replace(_leftover("cache", path, lock, is_own=_is_fold(path)), stage="assess")
    for path in _listed(folds / "running"):
        if path.is_dir():
            key = path.name.removeprefix(".").split(".")[0]
            yield replace(_work(path, folds / f".{key}.safetensors.lock", "assess"), kind="unfinished")
    for path in _listed(workspace.root):
        is_new = _NEW_INPUT.fullmatch(path.name) and path.is_file()  # a random name, which nobody else has
        if is_new and path.lstat().st_mtime < time.time() - _A_DAY:
            yield _leftover("input", path, workspace.root / ".stdin.lock", is_own=True)


def _graphs(folder: Path) -> Iterator[Leftover]:
    """Exported graphs, those that were damaged, and those of killed commands."""
    lock = folder / ".lock"
    for name in _visible_folders(folder):
        link, graph = folder / name, Path(os.path.realpath(folder / name))
        item = _leftover("cache", graph, lock, is_own=is_result(graph), added=added_files(graph))
        yield replace(item, stage="graph", marks=(link,) if link.is_symlink() else ())
    yield from (replace(item, stage="graph") for item in _versions(folder))
    yield from (_work(path, lock, "graph") for path in _listed(folder / ".work") if path.is_dir())


def _metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file; empty for any other file."""
    try:
        return read_metadata(path)
    except (InputError, OSError):
        return {}


def _is_fold(path: Path) -> bool:
    """Whether a file is the cache of a fold: its header has the time that the fold took."""
    try:
        seconds = json.loads(_metadata(path).get("seconds", "null"))
    except (ValueError, RecursionError):
        return False
    return isinstance(seconds, dict) and seconds.keys() == {"training", "predicting"}
