"""Results: folders that are written once and never changed.

1. The *key* of a result is the hash of its stage, the stage's version, the settings that differ from their defaults,
   the names on its card, and the digest of each input. Workers, memory limits and devices are not in it. Whoever
   changes a default or the arithmetic of a stage raises its version in ``VERSIONS``.
2. An input counts by its *digest*, the hash of its content, not by its key or its path: several workers train other
   vectors under one key, and an old map must never be applied to new vectors.
3. A result lies in ``HOME/results/STAGE-KEY``, or in the folder that ``--out`` names. Its ``manifest.json`` has all of
   the above, and size and SHA-256 of each file. The card, ``README.md``, is not among the files: people edit it.
4. A result is built in a hidden folder beside its place, ``.NAME-KEY``, and renamed when it is complete. A killed run
   leaves that folder. The same command resumes from the job's ``checkpoints`` there, or starts over if it has none; a
   command with another key never looks at it.
5. A lock in the hidden folder admits one process. Others wait, say for whom, and find the result.
6. A command whose result exists does nothing. Whatever else exists in its place is refused, before any work. No command
   replaces or deletes anything; only ``clean`` removes results, and only below HOME.
7. An input that changes while it is read makes the command fail, and leaves no result.
8. ``HOME/names/CORPUS/MODEL/STAGE`` is a symlink to the newest result in HOME: the path for other programs.
"""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from greenadapt.cost import Cost, Meter
from greenadapt.errors import ConflictError, GreenadaptError, InputError, LockedError, MissingError
from greenadapt.progress import ALARM, Progress, handle_signals
from greenadapt.store.files import (
    Json,
    creating,
    expand_home,
    find_changed,
    hash_file,
    hash_json,
    publish_folder,
    read_own,
    replacing,
    to_plain,
    write_json,
)
from greenadapt.store.locks import lock
from greenadapt.version import __version__

_log = logging.getLogger(__name__)

FORMAT = 2
MANIFEST, CARD = "manifest.json", "README.md"
LOCK, ATTEMPTS = ".lock", ".attempts.json"
VERSIONS: Mapping[str, int] = {"expand": 2}
"""Stage → version; 1 for those that are not listed."""
KEY_DIGITS = 12
"""Digits of the key in the name of a folder."""
_WAIT = 0.5
"""Seconds between two looks at a lock."""
_REMAKE = "remove this folder, and run its command again"
_CHOOSE_OTHER = "choose another --out, or remove it"


def version_of(stage: str) -> int:
    """The version of a stage, see the rules above."""
    return VERSIONS.get(stage, 1)


@dataclass(frozen=True)
class ModelName:
    """How a file names a model."""

    name: str
    source: str


@dataclass(frozen=True)
class Manifest:
    """A result's configuration, inputs, files and cost."""

    stage: str
    key: str
    config: Json
    """The full configuration."""
    inputs: dict[str, Json]
    """By name: ``sha256`` of the content; ``path`` or ``source``; and the path ``relative`` to the result."""
    version: int = 1
    """Of the stage."""
    files: dict[str, Json] = field(default_factory=dict)
    """By path inside the folder: ``sha256`` and ``bytes``; without the card."""
    counts: Json = field(default_factory=dict)
    cost: Json = field(default_factory=dict)
    facts: Json = field(default_factory=dict)
    """Names, versions and diagnostics for later stages and for readers."""
    greenadapt: str = __version__
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """Hash of the result's content; the next stage records it as its input."""
        return hash_json({name: entry["sha256"] for name, entry in self.files.items()})


@dataclass(frozen=True)
class Result:
    """A finished stage: its folder, its manifest, and whether this command made it."""

    folder: Path
    manifest: Manifest
    path: Path
    """The name of the result in HOME, or the folder itself."""
    fresh: bool = False
    checked: bool = False
    """Whether this command wrote the result or verified every checksum."""

    def as_input(self) -> Json:
        """How another stage's manifest names this result."""
        return {"sha256": self.manifest.digest, "path": str(self.folder)}


@dataclass(frozen=True)
class Outcome:
    """The facts that a stage's builder reports about its output."""

    counts: Json
    facts: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A stage to run: its name, and what determines its result."""

    stage: str
    config: Json
    inputs: dict[str, Json]
    defaults: Json = field(default_factory=dict)
    """Settings of ``config`` with these values are not in the key, so that new options leave old keys alone."""
    named: Json = field(default_factory=dict)
    """What the card says of the inputs, such as the name of the corpus."""
    checkpoints: tuple[str, ...] = ()
    """Patterns (``glob``) of the files in its folder from which a killed run is resumed; without any it starts over."""
    scratch: tuple[str, ...] = ()
    """Patterns of what only the run needs in its folder."""
    card: Callable[[Path, Outcome, Json], str] | None = None
    """Writes the text of ``README.md``, from the folder, the outcome and the cost."""
    command: str | None = None
    """The command line that requested the result, if any; kept among the facts."""

    @property
    def key(self) -> str:
        """Hash of all that determines the result, see the rules above."""
        contents = {name: entry["sha256"] for name, entry in self.inputs.items()}
        config, defaults = to_plain(self.config), to_plain(self.defaults)
        settings = {name: value for name, value in config.items() if name not in defaults or defaults[name] != value}
        return hash_json([self.stage, version_of(self.stage), settings, to_plain(self.named), contents])


@dataclass(frozen=True)
class Place:
    """Where a result lies."""

    folder: Path
    link: Path | None = None
    """Its name in HOME."""

    def work(self, key: str) -> Path:
        """The hidden folder in which the result ``key`` is built."""
        return self.folder.with_name(f".{self.folder.name}-{key[:8]}")

    @property
    def is_taken(self) -> bool:
        """Whether anything but an empty folder exists there."""
        folder = self.folder
        return os.path.lexists(folder) and not (
            folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
        )

    def find(self, job: Job) -> Result | None:
        """The result of ``job``; ``None`` if there is nothing.

        Raises ``ConflictError`` for anything else, ``InputError`` for a damaged result.
        """
        check_out(self.folder)
        if not self.is_taken:
            return None
        manifest = read_manifest(self.folder)
        if manifest.key != job.key:
            raise ConflictError(f"{self.folder} holds another result ({_difference(manifest, job)})", _CHOOSE_OTHER)
        return require_sizes(Result(self.folder, manifest, self.link or self.folder))


def check_out(folder: Path, stage: str | None = None, config: Json | None = None) -> None:
    """Raise ``ConflictError`` if ``folder`` holds anything but a result, or one of another ``stage`` or ``config``."""
    if os.path.ismount(folder):
        raise ConflictError(f"{folder} is a mount point", "choose a folder in it")
    if not Place(folder).is_taken:
        return
    if not folder.is_dir() or folder.is_symlink():
        raise ConflictError(f"{folder} exists and is not a folder", _CHOOSE_OTHER)
    if not (folder / MANIFEST).is_file():
        raise ConflictError(f"{folder} exists and holds no result of greenadapt", _CHOOSE_OTHER)
    manifest = read_manifest(folder)
    if stage not in (None, manifest.stage):
        raise ConflictError(f"{folder} holds a result of {manifest.stage}, not of {stage}", _CHOOSE_OTHER)
    if config is not None and (settings := _settings_difference(manifest.config, to_plain(config))):
        raise ConflictError(f"{folder} holds another result ({settings})", _CHOOSE_OTHER)


Build = Callable[[Path], Outcome]
"""Writes the result of a job into a folder."""


def run(place: Place, job: Job, build: Build, progress: Progress) -> Result:
    """The result of ``job``: the one in ``place``, or else built there, from where a killed run stopped.

    Raises ``ConflictError`` if anything else is in ``place``, ``InputError`` if an input changes meanwhile.
    """
    with _building(place, job, progress) as work:
        result = place.find(job)
        if result is None and work is not None:
            result = _build(place, job, build, work)
    assert result is not None
    if place.link is None or _point(place.link, place.folder, progress):
        return result
    return replace(result, path=place.folder)


@contextmanager
def claim(place: Place, job: Job, progress: Progress) -> Iterator[Path | None]:
    """The locked folder in which ``run`` will build ``job``, for other machines to write checkpoints into it first;
    ``None`` if there is a result.
    """
    with _building(place, job, progress) as work:
        if work is None:
            place.find(job)
        else:
            _begin(work, job).write(work)  # `run` counts the attempt
        yield work


@contextmanager
def _building(place: Place, job: Job, progress: Progress) -> Iterator[Path | None]:
    """The locked folder to build in; ``None`` if there is a result already, maybe of a process that was waited for."""
    work, is_told = place.work(job.key), False
    with ExitStack() as stack:
        while not place.is_taken:
            try:
                with creating(place.folder):
                    work.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock(work / LOCK, place.folder, job.command))
            except LockedError as error:
                if not is_told:
                    progress.note(f"{error.message}: waiting for it")
                is_told = True
                time.sleep(_WAIT)
                continue
            except (ConflictError, FileNotFoundError):
                if work.is_dir() or not place.is_taken:
                    raise
                continue  # the folder was renamed meanwhile
            if place.is_taken:
                shutil.rmtree(work, ignore_errors=True)  # which is empty: the result was finished meanwhile
                break
            yield work
            return
        yield None


def _build(place: Place, job: Job, build: Build, work: Path) -> Result:
    before, meter = _begin(work, job), Meter()
    try:
        with meter:
            outcome = build(work)
    except BaseException:
        if _matches(work, job.checkpoints):
            with suppress(OSError):  # the disk may be full
                before.with_attempt(meter.cost).write(work)
        else:
            shutil.rmtree(work, ignore_errors=True)
        raise
    if changed := find_changed([path for entry in job.inputs.values() for path in _places(entry)]):
        shutil.rmtree(work, ignore_errors=True)
        raise InputError(
            f"{changed} changed while {job.stage} read it", "run the command again once nothing writes to it"
        )
    with handle_signals() as stop:  # the work is done: publish it first
        attempts = before.with_attempt(meter.cost)
        manifest = _describe(place, job, outcome, attempts, work)
        publish_folder(work, place.folder)
        (place.folder / LOCK).unlink(missing_ok=True)
    _log.debug("%s: took %.2f s, wrote %s", job.stage, manifest.cost["seconds"], place.folder)
    if stop.signal != ALARM:  # which comes again
        stop.raise_if_requested()
    return Result(place.folder, manifest, place.link or place.folder, fresh=True, checked=True)


def _describe(place: Place, job: Job, outcome: Outcome, attempts: "Attempts", work: Path) -> Manifest:
    """Remove what only the run needed; write the card and, last, the manifest."""
    _remove([work / ATTEMPTS, *_matches(work, job.scratch)])
    cost = {**asdict(attempts.cost), "attempts": attempts.attempts}
    if job.card is not None:
        (work / CARD).write_text(job.card(work, outcome, cost), "utf-8")
    command = {} if job.command is None else {"command": job.command}
    manifest = Manifest(
        job.stage,
        job.key,
        to_plain(job.config),
        inputs={name: {**entry, **_relative(entry, place.folder)} for name, entry in job.inputs.items()},
        version=version_of(job.stage),
        files=_checksums(work),
        counts=to_plain(outcome.counts),
        cost=cost,
        facts=to_plain(command | outcome.facts),
    )
    write_json(work / MANIFEST, asdict(manifest))
    return manifest


def _checksums(folder: Path) -> dict[str, Json]:
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = sorted(paths.keys() - {LOCK, CARD})
    return {name: {"sha256": hash_file(paths[name]), "bytes": paths[name].stat().st_size} for name in names}


@dataclass(frozen=True)
class Attempts:
    """How often a run was begun, and what its stopped attempts cost."""

    attempts: int = 0
    cost: Cost = field(default_factory=Cost)

    @classmethod
    def read(cls, work: Path) -> "Attempts":
        """Those in the folder of a killed run; none if its record is missing or broken."""
        try:
            return read_own(work / ATTEMPTS, cls, "unfinished result")
        except (OSError, GreenadaptError):
            return cls()

    def with_attempt(self, cost: Cost) -> "Attempts":
        """These attempts and one more, which took ``cost``."""
        return Attempts(self.attempts + 1, self.cost + cost)

    def write(self, work: Path) -> None:
        """Keep the record in ``work``."""
        with replacing(work / ATTEMPTS) as part:
            write_json(part, asdict(self))


def _begin(work: Path, job: Job) -> Attempts:
    """Empty the folder of a killed run unless the job can resume; returns the killed attempts."""
    before = Attempts.read(work)
    _remove([work / MANIFEST, work / CARD] if _matches(work, job.checkpoints) else [*work.iterdir()])
    before.with_attempt(Cost()).write(work)
    return before


def _remove(paths: Iterable[Path]) -> None:
    """Remove files and folders, but for the lock."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink(missing_ok=True)


def _matches(folder: Path, patterns: Iterable[str]) -> set[Path]:
    return {path for pattern in patterns for path in folder.glob(pattern) if path.name not in (LOCK, ATTEMPTS)}


def _places(entry: Mapping[str, Any]) -> list[Path]:
    """The files and folders of this machine that an input consists of."""
    names = filter(None, [_location(entry), *entry.get("sources", {})])
    return [Path(name) for name in names if Path(name).is_absolute()]


def _point(link: Path, folder: Path, progress: Progress) -> bool:
    """Make the symlink ``link`` lead to ``folder``, atomically; warns and returns ``False`` if it cannot."""
    if os.path.lexists(link) and not link.is_symlink():
        progress.warn(f"{link} is no symlink, and cannot lead to the new result {folder}: move it away")
        return False
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(os.path.relpath(folder, link.parent))
        fresh.replace(link)
    except OSError as error:
        progress.warn(f"{link} cannot be made to lead to the new result {folder} ({error.strerror})")
        return False
    return True


def _difference(old: Manifest, job: Job) -> str:
    """What distinguishes a result from that of ``job``, in words."""
    if old.stage != job.stage:
        return f"of {old.stage}, not of {job.stage}"
    if settings := _settings_difference(old.config, to_plain(job.config)):
        return settings
    if old.version != version_of(job.stage):
        return f"version of {job.stage}: {old.version} → {version_of(job.stage)}"
    pairs = {name: (old.inputs.get(name), job.inputs.get(name)) for name in {**old.inputs, **job.inputs}}
    changes = [
        f"{name}: {_source_of(a)} → {_source_of(b)}" if _source_of(a) != _source_of(b) else f"{name} changed"
        for name, (a, b) in pairs.items()
        if a is None or b is None or a["sha256"] != b["sha256"]
    ]
    return ", ".join(changes) or "other names on its card"


def _source_of(entry: Mapping[str, Any] | None) -> str:
    return "none" if entry is None else _location(entry) or "other text"


def _settings_difference(old: Json, new: Json) -> str:
    """``name: old → new`` for every setting that differs; or an empty string."""

    def show(value: Any) -> str:
        return "not set" if value is None else str(value)

    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name}: {show(old.get(name))} → {show(new.get(name))}" for name in names)


def _location(entry: Mapping[str, Any]) -> str | None:
    """The path or name of an input; ``None`` if the manifest has only its hash."""
    return entry.get("path") or entry.get("source")


def _relative(entry: Mapping[str, Any], folder: Path) -> dict[str, str]:
    location = _location(entry)
    return {"relative": os.path.relpath(location, folder)} if location and Path(location).is_absolute() else {}


def find_input(entry: Mapping[str, Any], folder: Path) -> Path:
    """Where an input of the result in ``folder`` lies.

    For a result this is the relative path, if a result is there, so that a copy of HOME works; otherwise the recorded
    path, if that exists.
    """
    path = expand_home(_location(entry) or "")
    if "relative" not in entry:
        return path
    relative = Path(os.path.normpath(folder.resolve() / entry["relative"]))
    return relative if (relative / MANIFEST).is_file() or not path.exists() else path


def input_result(entry: Json, folder: Path) -> Path | None:
    """The folder of an input of the result in ``folder``; ``None`` if it is no result, or does not exist any more."""
    if not _location(entry):
        return None
    path = find_input(entry, folder)
    return path if (path / MANIFEST).is_file() else None


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest.

    Raises ``MissingError`` if there is none, ``InputError`` if it is invalid or of another format version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        problem = f"holds no greenadapt result (no {MANIFEST})" if folder.exists() else "does not exist"
        raise MissingError(f"{folder} {problem}", "give a stage's folder, or create it again")
    manifest = read_own(path, Manifest, "result", _REMAKE)
    if manifest.format != FORMAT:
        raise InputError(
            f"{folder} has format version {manifest.format}, this greenadapt reads {FORMAT}", "create it again"
        )
    return manifest


def open_result(path: Path, stage: str) -> Result:
    """Open a finished result of ``stage`` by path; ``verify_result`` checks its content.

    Raises ``MissingError`` or ``InputError`` naming the folder.
    """
    folder = path.resolve()
    manifest = read_manifest(folder)
    if manifest.stage != stage:
        raise InputError(
            f"{path} is a result of {manifest.stage}, expected {stage}", f"give the folder of a {stage} result"
        )
    if manifest.version != (version := version_of(stage)):
        raise InputError(
            f"{path} is of version {manifest.version} of {stage}, this greenadapt reads {version}", _REMAKE
        )
    _log.debug("uses the %s result %s", stage, folder)
    return require_sizes(Result(folder, manifest, path))


def require_sizes(result: Result) -> Result:
    """``result``; raises ``InputError`` if it lacks a file, or one has another size than in the manifest."""
    for name, entry in result.manifest.files.items():
        file = result.folder / name
        if not file.is_file():
            raise InputError(f"{result.path} lacks the file {name}", _REMAKE)
        if (size := file.stat().st_size) != entry["bytes"]:
            raise InputError(f"{file} is damaged: it has {size:,} bytes instead of {entry['bytes']:,}", _REMAKE)
    return result


def verify_result(result: Result) -> Result:
    """``result``, after comparing every checksum; raises ``InputError`` naming the damaged file."""
    files = {} if result.checked else require_sizes(result).manifest.files
    for name, entry in files.items():
        if hash_file(result.folder / name) != entry["sha256"]:
            raise InputError(f"{result.folder / name} is damaged: its checksum differs from the manifest's", _REMAKE)
    return replace(result, checked=True)
