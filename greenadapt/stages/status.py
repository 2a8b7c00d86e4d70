"""The content of a workspace: results and what changed since, unfinished work, and what can be removed."""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from platformdirs import user_cache_path

from greenadapt.checkpoints.provenance import adapted_input, model_input, task_input
from greenadapt.checkpoints.source import PACKAGED, PretrainedModel, model_name
from greenadapt.corpus.opening import path_sha256
from greenadapt.corpus.recipes import file_name
from greenadapt.errors import ConflictError, GreenadaptError, MissingError
from greenadapt.progress import Progress
from greenadapt.stages.session import ALIGN, CORPUS, EXPAND, W2V, Session
from greenadapt.storage.files import Json, beside, expanded
from greenadapt.storage.jobs import Place
from greenadapt.storage.locks import holder, lock
from greenadapt.storage.ownership import MARK, is_own, read_mark, remove_folder
from greenadapt.storage.results import (
    CARD,
    MANIFEST,
    Manifest,
    Result,
    found_at,
    read_manifest,
    result_behind,
    verified,
)
from greenadapt.storage.workspace import FOREIGN, Kind, Leftover, Workspace, leftovers, tree_size, unfinished_beside
from greenadapt.tokenization.files import TOKENIZER_FILE, tokenizer_files, tokenizer_hash

_HASHED_AT_ONCE = 64 << 20
"""The largest input in bytes that is hashed because its time differs."""
_MODEL_FILES = (".json", ".txt", ".model", ".safetensors", ".bin")


def check_result(result: Result, *, verify: bool) -> tuple[list[str], list[str], list[str]]:
    """The changes since ``result`` was made, in words: files of it that are missing or have changed, inputs that have
    changed, and inputs that are missing or were not compared.

    As for make, an input counts as unchanged if none of its files is newer than the result. Small newer inputs are
    compared by content; with ``verify`` all inputs and all files of the result.
    """
    stale: list[str] = []
    unsure: list[str] = []
    began = (result.folder / MANIFEST).stat().st_mtime - float(result.manifest.cost.get("seconds", 0.0))
    for name, entry in result.manifest.inputs.items():
        for part in _parts(result, name, entry):
            is_sure, text = part.compared(began, verify)
            if text:
                (stale if is_sure else unsure).append(f"{name} {text}: {part.path}")
    return _damage(result, verify), stale, unsure


@dataclass(frozen=True)
class _InputPart:
    """One file, folder, result or model of an input."""

    path: Path
    expected: str
    hashes: Callable[[], Iterable[str]]
    """Its present hash, in each way that stages compute it."""
    files: Callable[[], Iterable[Path]]
    is_result: bool = False

    def compared(self, began: float, verify: bool) -> tuple[bool, str]:
        """Whether the content has surely changed, and a description; empty if it has not changed."""
        if not self.path.exists():
            return False, "is gone"
        try:
            if not self.is_result:
                facts = [file.stat() for file in self.files()]
                if not verify and all(status.st_mtime <= began for status in facts):
                    return False, ""
                if not verify and sum(status.st_size for status in facts) > _HASHED_AT_ONCE:
                    return False, "is newer than the result (--verify compares its content)"
            changed = "was made again" if self.is_result else "changed"
            return True, "" if self.expected in self.hashes() else changed
        except (GreenadaptError, OSError) as error:
            return False, f"cannot be read ({error})"


def _damage(result: Result, verify: bool) -> list[str]:
    """The first missing or damaged file."""
    for name, entry in result.manifest.files.items():
        if name == CARD:
            continue
        try:
            size = (result.folder / name).stat().st_size
        except OSError:
            return [f"{name} is missing"]
        if size != entry.get("bytes"):
            return [f"{name} has {size:,} bytes instead of {entry.get('bytes'):,}"]
    if verify:
        try:
            verified(result)
        except (GreenadaptError, OSError) as error:
            return [error.message if isinstance(error, GreenadaptError) else str(error)]
    return []


def _parts(result: Result, name: str, entry: Json) -> Iterator[_InputPart]:
    if "sources" in entry:
        yield from _sources(result, entry["sources"])
        return
    source = entry.get("path") or entry.get("source") or ""
    path, expected = found_at(entry, result.path), entry["sha256"]
    if "path" in entry and (path / MANIFEST).is_file():
        yield _InputPart(path, expected, lambda: [read_manifest(path).digest], lambda: [], is_result=True)
    elif name == "task":
        yield _InputPart(path, expected, lambda: [(task_input(path.parent) or {}).get("sha256", "")], lambda: [path])
    elif "path" in entry:
        yield _file(path, expected)
    elif (folder := _model_folder(source)) is not None:
        yield _tokenizer(folder, expected) if name == "tokenizer" else _model(folder, expected)
    elif path.is_absolute():
        yield _file(path, expected)


def _sources(result: Result, sources: Json) -> Iterator[_InputPart]:
    for source, sha256 in sources.items():
        if "://" in source:
            yield _file(result.path.parent.parent / ".sources" / file_name(source), sha256)
        elif Path(source).is_absolute():  # else a Python package
            yield _file(Path(source), sha256)


def _file(path: Path, expected: str) -> _InputPart:
    def files() -> list[Path]:
        return [path, *(file for file in path.rglob("*") if file.is_file())] if path.is_dir() else [path]

    return _InputPart(path, expected, lambda: [path_sha256(path)], files)


def _tokenizer(folder: Path, expected: str) -> _InputPart:
    file = folder / TOKENIZER_FILE
    path = file if file.is_file() else folder
    return _InputPart(path, expected, lambda: [tokenizer_hash(folder)], lambda: tokenizer_files(folder))


def _model(folder: Path, expected: str) -> _InputPart:
    model = PretrainedModel(folder.name, folder, str(folder))

    def hashes() -> Iterator[str]:
        for entry in (model_input, adapted_input):  # stages read different parts of a model
            yield entry(model)["sha256"]

    def files() -> list[Path]:
        return [path for path in folder.rglob("*") if path.suffix in _MODEL_FILES and path.name != MANIFEST]

    return _InputPart(folder, expected, hashes, files)


def _model_folder(source: str) -> Path | None:
    """The folder of a model on this machine; ``None`` for a model of the hub, which counts as unchanged."""
    if source in PACKAGED:
        return PACKAGED[source].present(source)
    path = expanded(source)
    return path if path.is_dir() else None


@dataclass(frozen=True)
class CleanRequest:
    """The files and folders to remove."""

    kinds: tuple[Kind, ...] = ()
    """Only these kinds; by default all kinds but unfinished work."""
    older_than: float | None = None
    """Seconds since the last change."""


def find(session: Session, request: CleanRequest) -> Iterator[tuple[Leftover, str]]:
    """The files and folders that ``request`` asks to remove, each with the reason to keep it or an empty text;
    changes nothing.

    Keeps inputs of results, files that a process writes, and, unless ``request`` asks for it, unfinished work.
    """
    for leftover, why in _judged(session.workspace, request):
        if not why and (writer := leftover.writer) is not None:
            why = f"{writer} is writing"
        yield leftover, why


def remove(session: Session, request: CleanRequest, chosen: Sequence[Leftover]) -> Iterator[tuple[Leftover, str]]:
    """Remove each of ``chosen``; yields it with an empty text or the reason why it stays: it is locked or has changed.

    Checks each again under its lock before removing it.
    """
    for path in dict.fromkeys(leftover.lock for leftover in chosen):
        group = [leftover for leftover in chosen if leftover.lock == path]
        try:
            with lock(path, command=session.command):
                judged = _judged(session.workspace, request)
                free = {leftover.path: leftover.changed for leftover, why in judged if not why}
                for leftover in group:
                    is_same = free.get(leftover.path) == leftover.changed
                    yield leftover, _removed(leftover) if is_same else "it changed meanwhile"
        except ConflictError as error:
            yield from ((leftover, error.message) for leftover in group)
        for leftover in group:
            _remove_empty(leftover.path.parent, session.workspace.root)


def row(leftover: Leftover, action: str, why: str = "") -> Json:
    """A row of the output of ``clean``: ``action`` is ``removable``, ``removed`` or ``kept``."""
    return {
        "what": leftover.kind,
        "path": str(leftover.path),
        "corpus": leftover.corpus or None,
        "model": leftover.model or None,
        "stage": leftover.stage or None,
        "bytes": leftover.bytes,
        "action": action,
        "why": why,
    }


def _judged(workspace: Workspace, request: CleanRequest) -> Iterator[tuple[Leftover, str]]:
    """Everything that ``request`` asks to remove, each with the reason to keep it or an empty text."""
    used = _used(workspace)
    for leftover in _chosen(workspace, request):
        if leftover.foreign:
            yield leftover, leftover.foreign
            continue
        if leftover.needed:
            yield leftover, f"needed for {leftover.needed}"
            continue
        if leftover.kind == "unfinished" and "unfinished" not in request.kinds and request.older_than is None:
            yield leftover, "the same command resumes it (clean --only unfinished or clean --older-than removes it)"
            continue
        real = Path(os.path.realpath(leftover.path))
        user = next((user for path, user in used if path.is_relative_to(real)), None)
        yield leftover, "" if user is None else f"{user} was made from it"


def _chosen(workspace: Workspace, request: CleanRequest) -> list[Leftover]:
    latest = time.time() - (request.older_than or 0)
    return [
        leftover
        for leftover in [*leftovers(workspace), *_models()]
        if (not request.kinds or leftover.kind in request.kinds)
        and (request.older_than is None or leftover.changed < latest)
    ]


def _models() -> Iterator[Leftover]:
    """Models in the user's cache that were unzipped from packages; they are unzipped again on use."""
    folder = user_cache_path("greenadapt", appauthor=False) / "models"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            foreign = "" if is_own(path) else FOREIGN
            yield Leftover("cache", path, *tree_size(path), beside(path, "lock"), stage="model", foreign=foreign)


def _used(workspace: Workspace) -> list[tuple[Path, str]]:
    """The real paths of the inputs of all results in the workspace, without downloads, with the result."""
    return [
        (Path(os.path.realpath(source)), str(result.path))
        for corpus in workspace.corpora()
        for model in workspace.models(corpus)
        for result in workspace.results(corpus, model)
        for entry in result.manifest.inputs.values()
        if Path(source := str(entry.get("path") or entry.get("source") or "")).is_absolute()
    ]


def _removed(leftover: Leftover) -> str:
    """Remove ``leftover``, its marks first, so that nobody uses half of it; returns the error, if any."""
    try:
        for mark in leftover.marks:
            mark.unlink(missing_ok=True)
        if leftover.path.is_dir():
            remove_folder(leftover.path)
        else:
            leftover.path.unlink()
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    return ""


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove empty folders and those with only greenadapt's mark, up to the workspace."""
    with suppress(OSError):
        while folder.is_relative_to(root) and folder != root:
            if read_mark(folder) is not None and len([*folder.iterdir()]) == 1:
                (folder / MARK).unlink()
            folder.rmdir()
            folder = folder.parent


UP_TO_DATE, STALE, UNSURE, DAMAGED, MISSING = "up to date", "stale", "unsure", "damaged", "not made"
"""States of a result; an ``unsure`` one has an input that is missing, or that only ``--verify`` compares."""
_ORDER = (CORPUS, W2V, ALIGN, EXPAND)
"""The stages of adapt; each needs the result of the stage before it."""


def status(
    session: Session, corpus: str | None, model: str | None, folders: Sequence[Path] = (), *, verify: bool = False
) -> list[Json]:
    """One row per result, unfinished work, lock in use, and kind of files that ``clean`` can remove.

    ``kind`` is ``result``, ``unfinished``, ``lock`` or ``leftovers``. Covers the results in ``folders`` or, without
    these, in the workspace and in other folders that its commands wrote to (``--out``). Takes no lock, writes nothing,
    and reads only manifests and small inputs unless ``verify``. Raises ``MissingError`` for a folder that does not
    exist, and for a folder or a corpus without results.
    """
    reading = _StateReader(verify)
    if folders:
        return [row for folder in folders for row in _of_folder(reading, session.workspace, folder)]
    workspace = session.workspace
    name = None if corpus is None else session.corpus_name(corpus)
    folder_name = None if model is None else model_name(model)
    elsewhere = [
        row
        for row in reading.elsewhere(workspace)
        if name in (None, row.get("corpus")) and folder_name in (None, row.get("model"))
    ]
    rows: list[Json] = []
    for corpus_folder in workspace.corpora() if name is None else [name]:
        for model_folder in workspace.models(corpus_folder):
            if folder_name in (None, model_folder):
                pair = corpus_folder, model_folder
                stages = {row["stage"] for row in elsewhere if (row.get("corpus"), row.get("model")) == pair}
                rows += reading.pipeline(*pair, workspace.root / corpus_folder / model_folder, stages)
    rows += elsewhere
    remaining = [
        leftover
        for leftover in leftovers(workspace)
        if name in (None, leftover.corpus) and folder_name in (None, leftover.model)
    ]
    rows += [_unfinished(leftover) for leftover in remaining if leftover.kind == "unfinished" and not leftover.foreign]
    rows += [_lock(path, owner) for path, owner in _locks(workspace.root, name, folder_name)]
    if not rows and (corpus is not None or model is not None):
        if name is not None and name not in workspace.corpora():
            corpora = ", ".join(workspace.corpora()) or "no corpus yet"
            raise MissingError(f"no corpus {corpus} in {workspace.root}", f"it has {corpora}")
        names = " and ".join(filter(None, (corpus, model)))
        raise MissingError(f"nothing of {names} in {workspace.root}", "greenadapt status shows all that there is")
    kept_paths = {leftover.path for leftover, why in find(session, CleanRequest()) if why}
    return rows + _reclaimable([leftover for leftover in remaining if leftover.path not in kept_paths])


@dataclass(frozen=True)
class _StateReader:
    """Reads each result once."""

    verify: bool
    states: dict[Path, str] = field(default_factory=dict)
    """By resolved folder."""

    def pipeline(self, corpus: str, model: str, folder: Path, elsewhere: set[str]) -> Iterator[Json]:
        """The results for a corpus and a model in the order of the stages, and the missing later stages of adapt.

        Stages with a result in another folder, ``elsewhere``, are not missing.
        """
        names = [path.name for path in folder.iterdir() if (path / MANIFEST).is_file() and path.name[0] != "."]
        names.sort(key=lambda name: (_rank(name.split("@")[0]), name))
        stages = {name.split("@")[0] for name in names}
        for name in names:
            stage, _, variant = name.partition("@")
            names_of_row = {"corpus": corpus, "model": model, "stage": stage, "variant": variant or None}
            yield {**self.row(folder / name), **names_of_row}
        for stage in _ORDER[1:]:
            if stages & {*_ORDER[: _rank(stage)]} and not (stages | elsewhere) & {*_ORDER[_rank(stage) :]}:
                row = _result(folder / stage, MISSING, ["no result yet"])
                yield {**row, "corpus": corpus, "model": model, "stage": stage}

    def elsewhere(self, workspace: Workspace) -> Iterator[Json]:
        """The rows of the folders that the workspace's commands wrote to, without unreadable ones."""
        for folder in workspace.elsewhere():
            with suppress(PermissionError):
                yield from self.folder(folder)

    def folder(self, path: Path) -> list[Json]:
        """The rows of the result in a folder, of unfinished work on it, and of its writer."""
        rows = [self.row(path)] if (path / MANIFEST).is_file() else []
        work = unfinished_beside(Place(path, linked=False))
        rows += [] if work is None else [_unfinished(work)]
        lock = beside(path, "lock")
        return rows + ([] if (owner := holder(lock)) is None else [_lock(lock, owner)])

    def row(self, path: Path) -> Json:
        """The row of the result in ``path``."""
        folder = path.resolve()
        try:
            result = Result(folder, read_manifest(folder), path)
        except (GreenadaptError, OSError) as error:
            self.states[folder] = DAMAGED
            return {**_result(path, DAMAGED, [str(error)]), "stage": path.name}
        state, why = self._state(result)
        manifest = result.manifest
        facts = manifest.facts.get("model")
        return {
            **_result(path, state, why),
            "corpus": manifest.facts.get("corpus"),
            "model": facts.get("name") if isinstance(facts, dict) else None,
            "stage": manifest.stage,
            "made": _time((folder / MANIFEST).stat().st_mtime),
            "bytes": tree_size(folder)[0],
            "seconds": manifest.cost.get("seconds"),
            "command": manifest.facts.get("command"),
        }

    def _state(self, result: Result) -> tuple[str, list[str]]:
        """The state of a result, also by the results that it was made from, and the reasons."""
        damaged, stale, unsure = check_result(result, verify=self.verify)
        if not stale:
            for entry in result.manifest.inputs.values():
                if (source := result_behind(entry, result.path)) is None:
                    continue
                folder = source.resolve()
                if folder not in self.states:
                    self.row(folder)
                if self.states[folder] in (STALE, DAMAGED):
                    stale.append(f"made from {source.name}, which is {self.states[folder]}")
        state = DAMAGED if damaged else STALE if stale else UNSURE if unsure else UP_TO_DATE
        self.states[result.folder] = state
        return state, [*damaged, *stale, *unsure]


def _rank(stage: str) -> int:
    return _ORDER.index(stage) if stage in _ORDER else len(_ORDER)


def _result(path: Path, state: str, why: list[str]) -> Json:
    """A row of a result, with null for unknown values."""
    empty = dict.fromkeys(("corpus", "model", "stage", "variant"))
    unknown = dict.fromkeys(("made", "bytes", "seconds", "command"))
    return {"kind": "result", **empty, "state": state, "why": why, "folder": str(path), **unknown}


def _unfinished(leftover: Leftover) -> Json:
    return {
        "kind": "unfinished",
        "corpus": leftover.corpus or None,
        "model": leftover.model or None,
        "stage": leftover.stage,
        "folder": str(leftover.path),
        "changed": _time(leftover.changed),
        "bytes": leftover.bytes,
        "seconds": leftover.seconds,
        "attempts": leftover.attempts,
        "writer": leftover.writer,
    }


def _lock(path: Path, owner: str) -> Json:
    return {"kind": "lock", "file": str(path), "writer": owner}


def _locks(root: Path, corpus: str | None, model: str | None) -> Iterator[tuple[Path, str]]:
    """The locks in use below a workspace."""
    paths = (path for pattern in ("*/*/.lock", ".*/.*.lock", ".*/*.lock") for path in root.glob(pattern))
    for path in sorted(set(paths)):
        folders = path.relative_to(root).parts
        if corpus in (None, folders[0]) and model in (None, folders[1]) and (owner := holder(path)) is not None:
            yield path, owner


def _reclaimable(free: Sequence[Leftover]) -> list[Json]:
    """The files and folders that ``clean`` can remove, by kind."""
    kinds = dict.fromkeys(leftover.kind for leftover in free)
    return [
        {
            "kind": "leftovers",
            "what": kind,
            "files": sum(leftover.kind == kind for leftover in free),
            "bytes": sum(leftover.bytes for leftover in free if leftover.kind == kind),
        }
        for kind in kinds
    ]


def _of_folder(reading: _StateReader, workspace: Workspace, named: Path) -> list[Json]:
    """The rows of a result's folder, or of all results in a folder such as ``runs``."""
    path = expanded(named).absolute()
    inside: list[Path] = []
    if path.is_dir() and not (path / MANIFEST).is_file():
        results = sorted(result for result in path.iterdir() if (result / MANIFEST).is_file() and result.name[0] != ".")
        works = [work for work in sorted(path.glob(".*.work")) if work.is_dir()]
        inside = [*dict.fromkeys([*results, *(path / work.name[1 : -len(".work")] for work in works)])]
    rows = [row for folder in [path, *inside] for row in reading.folder(folder)]
    if rows:
        return rows
    if path.is_dir():
        raise MissingError(f"{named} holds no greenadapt result (no {MANIFEST})", "give a stage's folder")
    if path.exists() or str(named) in workspace.corpora():
        raise MissingError(
            f"{named} is no folder", f"for a corpus: greenadapt status --corpus {shlex.quote(str(named))}"
        )
    raise MissingError(f"{named} does not exist", "check the path; greenadapt status shows what is in the workspace")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def with_sources(folders: Sequence[Path], progress: Progress) -> list[Result]:
    """The results in ``folders``, each after the results that it was made from.

    Warns of inputs that were made again since, and leaves them out. Raises ``MissingError`` for a folder without a
    result.
    """
    results: dict[Path, Result] = {}

    def add(folder: Path, manifest: Manifest) -> None:
        if folder.resolve() in results:
            return
        for entry in manifest.inputs.values():
            source = result_behind(entry, folder)
            if source is None:
                continue
            before = read_manifest(source)
            if "path" in entry and before.digest != entry["sha256"]:
                progress.warn(f"{source} was made again since {folder} was made from it: left out")
            else:
                add(source, before)
        results[folder.resolve()] = Result(folder.resolve(), manifest, folder)

    for folder in folders:
        add(folder, read_manifest(folder))
    return list(results.values())
