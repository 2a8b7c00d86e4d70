"""Removes what no result needs: replaced versions, work of killed runs, downloads, kept input, caches."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from greenadapt.errors import ConflictError
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json, beside
from greenadapt.storage.locks import lock
from greenadapt.storage.ownership import MARK, is_own, read_mark, remove_folder
from greenadapt.storage.workspace import FOREIGN, Kind, Leftover, Workspace, leftovers, tree_size


@dataclass(frozen=True)
class CleanRequest:
    """What to remove."""

    kinds: tuple[Kind, ...] = ()
    """Only these; by default all, but for unfinished work."""
    older_than: float | None = None
    """Seconds since the last change."""
    larger_than: int | None = None
    """Bytes."""
    keep_last: bool = False
    """Whether to keep the version before the current one, for those who still read it."""
    downloads: bool = False
    """Whether to remove also the downloads that a corpus was made from, which can be downloaded again."""

    @property
    def asks_for_unfinished(self) -> bool:
        """Whether unfinished work is removed, too: by its kind or by age."""
        return "unfinished" in self.kinds or self.older_than is not None


@dataclass(frozen=True)
class Cleaning:
    """What can be removed, and what was asked for but is kept."""

    removable: list[Leftover]
    kept: list[tuple[Leftover, str]]
    """With the reason."""


def find(session: Session, request: CleanRequest) -> Cleaning:
    """What ``request`` asks to remove; nothing is changed.

    Kept is what a result was made from, what is being written, and what a run would resume, unless it is asked for.
    """
    found = Cleaning([], [])
    for left, why in _judged(session.workspace, request):
        writer = left.writer
        why = why or ("" if writer is None else f"{writer} is writing")
        if why:
            found.kept.append((left, why))
        else:
            found.removable.append(left)
    return found


def remove(session: Session, request: CleanRequest, chosen: Sequence[Leftover]) -> Iterator[tuple[Leftover, str]]:
    """Remove each of ``chosen``, and give it with the reason if it was kept: it is locked, or changed since.

    They are removed under the lock of those who write them, after looking at them again.
    """
    for path in dict.fromkeys(left.lock for left in chosen):
        group = [left for left in chosen if left.lock == path]
        try:
            with lock(path, command=session.command):
                free = {left.path: left.changed for left, why in _judged(session.workspace, request) if not why}
                for left in group:
                    yield left, _removed(left) if free.get(left.path) == left.changed else "it changed meanwhile"
        except ConflictError as error:
            yield from ((left, error.message) for left in group)
        for left in group:
            _remove_empty(left.path.parent, session.workspace.root)


def row(left: Leftover, action: str, why: str = "") -> Json:
    """A row of what ``clean`` prints: ``action`` is ``removable``, ``removed`` or ``kept``."""
    return {
        "what": left.kind,
        "path": str(left.path),
        "corpus": left.corpus or None,
        "model": left.model or None,
        "stage": left.stage or None,
        "bytes": left.bytes,
        "action": action,
        "why": why,
    }


def _judged(workspace: Workspace, request: CleanRequest) -> Iterator[tuple[Leftover, str]]:
    """What ``request`` asks for, and why it must be kept, if it must."""
    used = _used(workspace)
    for left in _chosen(workspace, request):
        if left.foreign:
            yield left, left.foreign
            continue
        if left.needed and not (request.downloads and left.kind == "download"):
            yield left, f"needed for {left.needed}"
            continue
        if left.kind == "unfinished" and not request.asks_for_unfinished:
            yield left, "the same command resumes it (--only unfinished or --older-than removes it)"
            continue
        real = Path(os.path.realpath(left.path))
        user = next((user for path, user in used if path.is_relative_to(real)), None)
        yield left, "" if user is None else f"{user} was made from it"


def _chosen(workspace: Workspace, request: CleanRequest) -> list[Leftover]:
    now = time.time()
    rules: list[Callable[[Leftover], bool]] = [
        lambda left: not request.kinds or left.kind in request.kinds,
        lambda left: request.older_than is None or now - left.changed > request.older_than,
        lambda left: request.larger_than is None or left.bytes > request.larger_than,
        lambda left: not (request.keep_last and left.is_last),
    ]
    return [left for left in [*leftovers(workspace), *_models()] if all(rule(left) for rule in rules)]


def _models() -> Iterator[Leftover]:
    """Models that were unzipped from packages, in the user's cache; they are unzipped again when they are needed."""
    folder = user_cache_path("greenadapt", appauthor=False) / "models"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            foreign = "" if is_own(path) else FOREIGN
            yield Leftover("cache", path, *tree_size(path), beside(path, "lock"), stage="model", foreign=foreign)


def _used(workspace: Workspace) -> list[tuple[Path, str]]:
    """The real paths that results of the workspace were made from but for downloads, with the result."""
    return [
        (Path(os.path.realpath(given)), str(result.path))
        for corpus in workspace.corpora()
        for model in workspace.models(corpus)
        for result in workspace.results(corpus, model)
        for entry in result.manifest.inputs.values()
        if Path(given := str(entry.get("path") or entry.get("source") or "")).is_absolute()
    ]


def _removed(left: Leftover) -> str:
    """Remove ``left``, and say why not if that fails; what names it goes first, so that half of it is not used."""
    try:
        for mark in left.marks:
            mark.unlink(missing_ok=True)
        if left.path.is_dir():
            remove_folder(left.path)
        else:
            left.path.unlink()
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    return ""


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove folders that are empty now, but for greenadapt's mark, up to the workspace."""
    with suppress(OSError):
        while folder.is_relative_to(root) and folder != root:
            if read_mark(folder) is not None and len([*folder.iterdir()]) == 1:
                (folder / MARK).unlink()
            folder.rmdir()
            folder = folder.parent
