"""What a workspace holds beside results: replaced versions, work of killed runs, downloads, kept input, caches.

Nothing outside the workspace is found: what is a symlink, or lies behind one that leads out, is left out. What is not
marked as greenadapt's own says so.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from greenadapt.errors import InputError
from greenadapt.storage.arrays import read_metadata
from greenadapt.storage.attempts import Attempts, former_mark, is_work
from greenadapt.storage.files import hash_file
from greenadapt.storage.jobs import Place
from greenadapt.storage.locks import holder
from greenadapt.storage.ownership import added_files, is_noted, is_own, is_result
from greenadapt.storage.publish import beside
from greenadapt.storage.workspace import Workspace

_A_DAY = 24 * 3600
"""Seconds after which input is no longer being read: that takes no lock."""
_NEW_INPUT = re.compile(r"\.(stdin|records)-[0-9a-f]{32}")
_OF_STATES = frozenset({"format", "general", "states", "dim", "precision", "texts"})
"""What the header of a cache of states says of them."""
FOREIGN = "nothing in it says that greenadapt made it: delete it yourself if nobody needs it"
"""Why something stays."""
Kind = Literal["version", "unfinished", "download", "input", "cache"]


@dataclass(frozen=True)
class Leftover:
    """A file or folder that is no result."""

    kind: Kind
    """``version`` (replaced by a newer one), ``unfinished`` (work of a killed run), ``download``, ``input`` (standard
    input, or records of a Python program, that was kept), ``cache``."""
    path: Path
    bytes: int
    changed: float
    """When its newest file was changed, in seconds since 1970."""
    lock: Path
    """The lock of those who write it."""
    corpus: str = ""
    model: str = ""
    stage: str = ""
    """With its variant."""
    marks: tuple[Path, ...] = ()
    """Files and links that name it; they go first."""
    seconds: float = 0.0
    """Of unfinished work: what it took so far."""
    attempts: int = 0
    is_last: bool = False
    """Whether it is the version before the current one."""
    needed: str = ""
    """What a result would lack without it."""
    foreign: str = ""
    """Why it is somebody else's, as far as can be told, so that it stays."""

    @property
    def writer(self) -> str | None:
        """The process that is writing it, if any."""
        return holder(self.lock)


def leftovers(workspace: Workspace) -> list[Leftover]:
    """All of a workspace, by folder."""
    root = Path(os.path.realpath(workspace.root))
    found = [*_top(workspace)]
    for corpus in workspace.corpora():
        folder = workspace.root / corpus
        found += [replace(each, corpus=corpus) for each in _downloads(workspace, corpus)]
        for model in sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != "."):
            each = [*_versions(folder / model), *_unfinished(folder / model)]
            found += [replace(one, corpus=corpus, model=model) for one in each]
    inside = [each for each in found if Path(os.path.realpath(each.path.parent)).is_relative_to(root)]
    return [each for each in inside if not each.path.is_symlink()]


def unfinished_beside(place: Place) -> Leftover | None:
    """The work of a killed run that was to become the folder ``place``, if any."""
    work = place.work
    if not is_work(work):
        return None
    return _work(work, beside(place.path, "lock"), place.path.name)


def tree_size(path: Path) -> tuple[int, float]:
    """The bytes of a file or of all files below a folder, and when the newest was changed; symlinks count as links."""
    size, newest = 0, path.lstat().st_mtime
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size, newest
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                facts = os.lstat(Path(folder) / name)
            except FileNotFoundError:
                continue  # removed meanwhile
            size += facts.st_size
            newest = max(newest, facts.st_mtime)
    return size, newest


def _found(kind: Kind, path: Path, lock: Path, *, is_own: bool) -> Leftover:
    return Leftover(kind, path, *tree_size(path), lock, foreign="" if is_own else FOREIGN)


def _listed(folder: Path) -> list[Path]:
    """What is in a folder, also hidden, in order; nothing if it is none or went meanwhile."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _versions(folder: Path) -> Iterator[Leftover]:
    links = [path for path in _listed(folder) if path.is_symlink()]
    current = {Path(os.path.realpath(link)) for link in links if not link.name.startswith(".")}
    for version in _listed(folder / ".versions"):
        named = tuple(link for link in links if Path(os.path.realpath(link)) == Path(os.path.realpath(version)))
        if Path(os.path.realpath(version)) in current or not version.is_dir():
            continue
        stage = named[0].name.removeprefix(".").removesuffix(".previous").removesuffix(".new") if named else ""
        found = _found("version", version, folder / ".lock", is_own=is_result(version))
        if not found.foreign and (added := added_files(version)):
            found = replace(found, foreign=f"it holds files that greenadapt did not write, such as {added[0]}")
        yield replace(found, stage=stage, marks=named, is_last=bool(named))


def _unfinished(folder: Path) -> Iterator[Leftover]:
    for work in _listed(folder / ".work"):
        if work.is_dir():
            yield _work(work, folder / ".lock", work.name)


def _work(work: Path, lock: Path, stage: str) -> Leftover:
    found = replace(_found("unfinished", work, lock, is_own=is_work(work)), stage=stage)
    if (left := Attempts.left(work)) is None:
        return found
    seconds = left.cost.seconds if left.cost else 0.0
    return replace(found, attempts=left.attempts, seconds=seconds, marks=(former_mark(work),))


def _downloads(workspace: Workspace, corpus: str) -> Iterator[Leftover]:
    folder = workspace.downloads(corpus)
    used = "the corpus to be made again" if workspace.models(corpus) else ""
    for path in _listed(folder):
        if path.name.startswith("."):
            continue
        is_kept = path.name == "stdin" or (path.name == f"{corpus}.jsonl" and corpus.startswith("records-"))
        kind: Kind = "input" if is_kept else "unfinished" if path.name.endswith(".part") else "download"
        ours = is_own(path) or is_noted(path)
        if is_kept:  # it is needed, or its content says what it is called
            ours = bool(used) or (path.is_file() and corpus.endswith(f"-{hash_file(path)[:8]}"))
        found = replace(_found(kind, path, folder / ".lock", is_own=ours), needed="" if kind == "unfinished" else used)
        yield replace(found, stage="download") if kind == "unfinished" else found


def _top(workspace: Workspace) -> Iterator[Leftover]:
    """Caches, finished and unfinished folds, and input whose reading was killed."""
    memory, folds = workspace.memory_cache(), workspace.folds()
    for path in _listed(memory):
        if path.suffix in (".safetensors", ".part"):
            found = _found("cache", path, path.with_suffix(".lock"), is_own=_metadata(path).keys() == _OF_STATES)
            yield replace(found, stage="memory", marks=(path.with_suffix(".sha256"),))
    for path in _listed(folds):
        if path.suffix in (".safetensors", ".part"):
            lock = folds / f".{path.stem}.safetensors.lock"
            yield replace(_found("cache", path, lock, is_own=_is_fold(path)), stage="assess")
    for path in _listed(folds / "running"):
        if path.is_dir():
            key = path.name.removeprefix(".").split(".")[0]
            yield replace(_work(path, folds / f".{key}.safetensors.lock", "assess"), kind="unfinished")
    for path in _listed(workspace.root):
        is_new = _NEW_INPUT.fullmatch(path.name) and path.is_file()  # a random name, which nobody else has
        if is_new and path.lstat().st_mtime < time.time() - _A_DAY:
            yield _found("input", path, workspace.root / ".stdin.lock", is_own=True)


def _metadata(path: Path) -> dict[str, str]:
    """Those of a safetensors file; empty if it is none."""
    try:
        return read_metadata(path)
    except (InputError, OSError):
        return {}


def _is_fold(path: Path) -> bool:
    """Whether a file is what is kept of a fold: its header says how long it took."""
    try:
        seconds = json.loads(_metadata(path).get("seconds", "null"))
    except (ValueError, RecursionError):
        return False
    return isinstance(seconds, dict) and seconds.keys() == {"training", "predicting"}
