"""What a workspace holds beside results: replaced versions, work of killed runs, downloads, kept input, caches.

Nothing outside the workspace is found: what is a symlink, or lies behind one that leads out, is left out.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from greenadapt.storage.attempts import Attempts, mark_of
from greenadapt.storage.jobs import Place
from greenadapt.storage.locks import holder
from greenadapt.storage.publish import beside
from greenadapt.storage.workspace import Workspace

_A_DAY = 24 * 3600
"""Seconds after which input is no longer being read: that takes no lock."""
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
    if not work.is_dir() or work.is_symlink():
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


def _found(kind: Kind, path: Path, lock: Path) -> Leftover:
    return Leftover(kind, path, *tree_size(path), lock)


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
        found = _found("version", version, folder / ".lock")
        yield replace(found, stage=stage, marks=named, is_last=bool(named))


def _unfinished(folder: Path) -> Iterator[Leftover]:
    for work in _listed(folder / ".work"):
        if work.is_dir():
            yield _work(work, folder / ".lock", work.name)


def _work(work: Path, lock: Path, stage: str) -> Leftover:
    found = replace(_found("unfinished", work, lock), stage=stage, marks=(mark_of(work),))
    if (left := Attempts.left(work)) is None:
        return found
    return replace(found, attempts=left.attempts, seconds=left.cost.seconds if left.cost else 0.0)


def _downloads(workspace: Workspace, corpus: str) -> Iterator[Leftover]:
    folder = workspace.downloads(corpus)
    used = "the corpus to be made again" if workspace.models(corpus) else ""
    for path in _listed(folder):
        if path.name.startswith("."):
            continue
        is_kept = path.name == "stdin" or (path.name == f"{corpus}.jsonl" and corpus.startswith("records-"))
        kind: Kind = "input" if is_kept else "unfinished" if path.name.endswith(".part") else "download"
        found = replace(_found(kind, path, folder / ".lock"), needed="" if kind == "unfinished" else used)
        yield replace(found, stage="download") if kind == "unfinished" else found


def _top(workspace: Workspace) -> Iterator[Leftover]:
    """Caches, finished and unfinished folds, and input whose reading was killed."""
    memory, folds = workspace.memory_cache(), workspace.folds()
    for path in _listed(memory):
        if path.suffix in (".safetensors", ".part"):
            found = _found("cache", path, path.with_suffix(".lock"))
            yield replace(found, stage="memory", marks=(path.with_suffix(".sha256"),))
    for path in _listed(folds):
        if path.suffix in (".safetensors", ".part"):
            yield replace(_found("cache", path, folds / f".{path.stem}.safetensors.lock"), stage="assess")
    for path in _listed(folds / "running"):
        if path.is_dir():
            key = path.name.removeprefix(".").split(".")[0]
            yield replace(_work(path, folds / f".{key}.safetensors.lock", "assess"), kind="unfinished")
    for path in _listed(workspace.root):
        if path.name.startswith((".stdin-", ".records-")) and path.lstat().st_mtime < time.time() - _A_DAY:
            yield _found("input", path, workspace.root / ".stdin.lock")
