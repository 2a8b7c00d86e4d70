"""What a workspace holds: results and what changed since, unfinished work, and what can be removed."""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from platformdirs import user_cache_path

from greenadapt.checkpoints.provenance import adapted_input, encoder_input, model_input, task_input
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
"""Bytes of an input that are hashed if only its time differs."""
_MODEL_FILES = (".json", ".txt", ".model", ".safetensors", ".bin")


@dataclass(frozen=True)
class Changes:
    """What differs now; each in words."""

    damaged: list[str]
    """Files of the result that are missing or not as they were written."""
    stale: list[str]
    """Inputs that changed."""
    unsure: list[str]
    """Inputs that are gone, or were touched and are too large to compare without being asked to."""


def changes(result: Result, *, verify: bool) -> Changes:
    """What changed since ``result`` was made.

    An input counts as unchanged if no file of it is newer than the result, as for make; a small one that is newer is
    compared by content, and with ``verify`` every one, and every file of the result.
    """
    found = Changes(_damage(result, verify), [], [])
    began = (result.folder / MANIFEST).stat().st_mtime - float(result.manifest.cost.get("seconds", 0.0))
    for name, entry in result.manifest.inputs.items():
        for part in _parts(result, name, entry):
            is_sure, said = part.compared(began, verify)
            if said:
                (found.stale if is_sure else found.unsure).append(f"{name} {said}: {part.path}")
    return found


@dataclass(frozen=True)
class _Part:
    """One file, folder, result or model of an input."""

    path: Path
    expected: str
    hashes: Callable[[], Iterable[str]]
    """What it is now; one of several ways in which stages hash it."""
    files: Callable[[], Iterable[Path]]
    is_result: bool = False

    def compared(self, began: float, verify: bool) -> tuple[bool, str]:
        """Whether its content is surely another one, and what to say about it, if anything."""
        if not self.path.exists():
            return False, "is gone"
        try:
            if not self.is_result:
                facts = [file.stat() for file in self.files()]
                if not verify and all(each.st_mtime <= began for each in facts):
                    return False, ""
                if not verify and sum(each.st_size for each in facts) > _HASHED_AT_ONCE:
                    return False, "is newer than the result (--verify compares its content)"
            changed = "was made again" if self.is_result else "changed"
            return True, "" if self.expected in self.hashes() else changed
        except (GreenadaptError, OSError) as error:
            return False, f"cannot be read ({error})"


def _damage(result: Result, verify: bool) -> list[str]:
    """The first file that is missing or damaged."""
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


def _parts(result: Result, name: str, entry: Json) -> Iterator[_Part]:
    if "sources" in entry:
        yield from _sources(result, entry["sources"])
        return
    given = entry.get("path") or entry.get("source") or ""
    path, expected = found_at(entry, result.path), entry["sha256"]
    if "path" in entry and (path / MANIFEST).is_file():
        yield _Part(path, expected, lambda: [read_manifest(path).digest], lambda: [], is_result=True)
    elif name == "task":
        yield _Part(path, expected, lambda: [(task_input(path.parent) or {}).get("sha256", "")], lambda: [path])
    elif "path" in entry:
        yield _file(path, expected)
    elif (folder := _model_folder(given)) is not None:
        yield _tokenizer(folder, expected) if name == "tokenizer" else _model(folder, expected)
    elif path.is_absolute():
        yield _file(path, expected)


def _sources(result: Result, sources: Json) -> Iterator[_Part]:
    for source, sha256 in sources.items():
        if "://" in source:
            yield _file(result.path.parent.parent / ".sources" / file_name(source), sha256)
        elif Path(source).is_absolute():  # else a Python package
            yield _file(Path(source), sha256)


def _file(path: Path, expected: str) -> _Part:
    def files() -> list[Path]:
        return [path, *(each for each in path.rglob("*") if each.is_file())] if path.is_dir() else [path]

    return _Part(path, expected, lambda: [path_sha256(path)], files)


def _tokenizer(folder: Path, expected: str) -> _Part:
    file = folder / TOKENIZER_FILE
    path = file if file.is_file() else folder
    return _Part(path, expected, lambda: [tokenizer_hash(folder)], lambda: tokenizer_files(folder))


def _model(folder: Path, expected: str) -> _Part:
    model = PretrainedModel(folder.name, folder, str(folder))

    def hashes() -> Iterator[str]:
        for entry in (model_input, adapted_input, encoder_input):  # as the stages do, by what they read of it
            yield entry(model)["sha256"]

    def files() -> list[Path]:
        return [path for path in folder.rglob("*") if path.suffix in _MODEL_FILES and path.name != MANIFEST]

    return _Part(folder, expected, hashes, files)


def _model_folder(source: str) -> Path | None:
    """The folder of a model if it is on this machine; models of the hub are taken as unchanged."""
    if source in PACKAGED:
        return PACKAGED[source].present(source)
    path = expanded(source)
    return path if path.is_dir() else None


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


UP_TO_DATE, STALE, UNSURE, DAMAGED, MISSING = "up to date", "stale", "unsure", "damaged", "not made"
"""States of a result; what is ``unsure`` has an input that is gone, or that only ``--verify`` compares."""
_ORDER = (CORPUS, W2V, ALIGN, EXPAND)
"""The stages of adapt, each made from the one before."""


def status(
    session: Session, corpus: str | None, model: str | None, folders: Sequence[Path] = (), *, verify: bool = False
) -> list[Json]:
    """One row per result, per unfinished work, per lock that is held, and per kind of what ``clean`` can remove.

    ``kind`` is ``result``, ``unfinished``, ``lock`` or ``leftovers``. Of the results in ``folders`` if given, else of
    the workspace and of those that its commands wrote elsewhere (``--out``). Takes no lock, writes nothing, and reads
    only manifests and small inputs unless ``verify``. Raises ``MissingError`` for a folder that does not exist, and for
    a folder or a corpus without results.
    """
    reading = _Reading(verify)
    if folders:
        return [row for folder in folders for row in _of_folder(reading, session.workspace, folder)]
    workspace = session.workspace
    name = None if corpus is None else session.corpus_name(corpus)
    wanted = None if model is None else model_name(model)
    elsewhere = [
        row
        for row in reading.elsewhere(workspace)
        if name in (None, row.get("corpus")) and wanted in (None, row.get("model"))
    ]
    rows: list[Json] = []
    for known in workspace.corpora() if name is None else [name]:
        for each in workspace.models(known):
            if wanted in (None, each):
                made = {row["stage"] for row in elsewhere if (row.get("corpus"), row.get("model")) == (known, each)}
                rows += reading.pipeline(known, each, workspace.root / known / each, made)
    rows += elsewhere
    left = [one for one in leftovers(workspace) if name in (None, one.corpus) and wanted in (None, one.model)]
    rows += [_unfinished(one) for one in left if one.kind == "unfinished" and not one.foreign]
    rows += [_lock(path, owner) for path, owner in _locks(workspace.root, name, wanted)]
    if not rows and (corpus is not None or model is not None):
        if name is not None and name not in workspace.corpora():
            known = ", ".join(workspace.corpora()) or "no corpus yet"
            raise MissingError(f"no corpus {corpus} in {workspace.root}", f"it has {known}")
        what = " and ".join(each for each in (corpus, model) if each is not None)
        raise MissingError(f"nothing of {what} in {workspace.root}", "greenadapt status shows all that there is")
    kept = {one.path for one, _ in find(session, CleanRequest()).kept}
    return rows + _reclaimable([one for one in left if one.path not in kept])


@dataclass(frozen=True)
class _Reading:
    """Reads results, each once."""

    verify: bool
    states: dict[Path, str] = field(default_factory=dict)
    """By resolved folder."""

    def pipeline(self, corpus: str, model: str, folder: Path, elsewhere: set[str]) -> Iterator[Json]:
        """The results for a corpus and a model in the order of the work, and the stages of adapt that are to come.

        Those that were made ``elsewhere`` are not.
        """
        names = [path.name for path in folder.iterdir() if (path / MANIFEST).is_file() and path.name[0] != "."]
        names.sort(key=lambda name: (_rank(name.split("@")[0]), name))
        stages = {name.split("@")[0] for name in names}
        for name in names:
            stage, _, variant = name.partition("@")
            yield {
                **self.row(folder / name),
                "corpus": corpus,
                "model": model,
                "stage": stage,
                "variant": variant or None,
            }
        later = [stage for stage in _ORDER if stage not in stages and stages & {*_ORDER[: _rank(stage)]}]
        for stage in later:
            if stage != CORPUS and not (stages | elsewhere) & {*_ORDER[_rank(stage) :]}:
                yield {
                    **_result(folder / stage, MISSING, ["no result yet"]),
                    **{"corpus": corpus, "model": model, "stage": stage},
                }

    def elsewhere(self, workspace: Workspace) -> Iterator[Json]:
        """The rows of what was written elsewhere, as far as it is still there and can be read."""
        for folder in workspace.elsewhere():
            with suppress(PermissionError):
                yield from self.place(folder)

    def place(self, path: Path) -> list[Json]:
        """The rows of the result in a folder that the user named, of what was begun there, and of its writer."""
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
        """Whether a result is up to date, also with what it was made from; and why not."""
        found = changes(result, verify=self.verify)
        stale = found.stale
        if not stale:
            for entry in result.manifest.inputs.values():
                source = result_behind(entry, result.path)
                if source is not None and (known := self._known(source.resolve())) in (STALE, DAMAGED):
                    stale.append(f"made from {source.name}, which is {known}")
        state = DAMAGED if found.damaged else STALE if stale else UNSURE if found.unsure else UP_TO_DATE
        self.states[result.folder] = state
        return state, [*found.damaged, *stale, *found.unsure]

    def _known(self, folder: Path) -> str:
        """The state of the result that another one was made from."""
        if folder not in self.states:
            self.row(folder)
        return self.states[folder]


def _rank(stage: str) -> int:
    return _ORDER.index(stage) if stage in _ORDER else len(_ORDER)


def _result(path: Path, state: str, why: list[str]) -> Json:
    """A row of a result, with null for what is not known."""
    empty = dict.fromkeys(("corpus", "model", "stage", "variant"))
    unknown = dict.fromkeys(("made", "bytes", "seconds", "command"))
    return {"kind": "result", **empty, "state": state, "why": why, "folder": str(path), **unknown}


def _unfinished(left: Leftover) -> Json:
    return {
        "kind": "unfinished",
        "corpus": left.corpus or None,
        "model": left.model or None,
        "stage": left.stage,
        "folder": str(left.path),
        "changed": _time(left.changed),
        "bytes": left.bytes,
        "seconds": left.seconds,
        "attempts": left.attempts,
        "writer": left.writer,
    }


def _lock(path: Path, owner: str) -> Json:
    return {"kind": "lock", "file": str(path), "writer": owner}


def _locks(root: Path, corpus: str | None, model: str | None) -> Iterator[tuple[Path, str]]:
    """The locks below a workspace that are held."""
    found = (path for pattern in ("*/*/.lock", ".*/.*.lock", ".*/*.lock") for path in root.glob(pattern))
    for path in sorted(set(found)):
        folders = path.relative_to(root).parts
        if corpus in (None, folders[0]) and model in (None, folders[1]) and (owner := holder(path)) is not None:
            yield path, owner


def _reclaimable(free: Sequence[Leftover]) -> list[Json]:
    """What ``clean`` can remove, by kind."""
    kinds = dict.fromkeys(one.kind for one in free)
    return [
        {
            "kind": "leftovers",
            "what": kind,
            "files": sum(one.kind == kind for one in free),
            "bytes": sum(one.bytes for one in free if one.kind == kind),
        }
        for kind in kinds
    ]


def _of_folder(reading: _Reading, workspace: Workspace, given: Path) -> list[Json]:
    """The rows of a result's folder, or of those in a folder such as ``runs``."""
    path = expanded(given).absolute()
    inside: list[Path] = []
    if path.is_dir() and not (path / MANIFEST).is_file():
        results = sorted(each for each in path.iterdir() if (each / MANIFEST).is_file() and each.name[0] != ".")
        inside = [*dict.fromkeys([*results, *_begun(path)])]
    rows = [row for each in [path, *inside] for row in reading.place(each)]
    if rows:
        return rows
    if path.is_dir():
        raise MissingError(f"{given} holds no greenadapt result (no {MANIFEST})", "give a stage's folder")
    if path.exists() or str(given) in workspace.corpora():
        raise MissingError(
            f"{given} is no folder", f"for a corpus: greenadapt status --corpus {shlex.quote(str(given))}"
        )
    raise MissingError(f"{given} does not exist", "check the path; greenadapt status shows what is in the workspace")


def _begun(folder: Path) -> list[Path]:
    """The results in a folder that were begun, by their folders of work."""
    return [folder / work.name[1 : -len(".work")] for work in sorted(folder.glob(".*.work")) if work.is_dir()]


def _time(seconds: float) -> str:
    """A time as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def with_sources(folders: Sequence[Path], progress: Progress) -> list[Result]:
    """The results in ``folders``, each after those it was made from.

    Warns of inputs that were made again since, and leaves them out. Raises ``MissingError`` for a folder that holds no
    result.
    """
    found: dict[Path, Result] = {}

    def add(folder: Path, manifest: Manifest) -> None:
        if folder.resolve() in found:
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
        found[folder.resolve()] = Result(folder.resolve(), manifest, folder)

    for folder in folders:
        add(folder, read_manifest(folder))
    return list(found.values())
