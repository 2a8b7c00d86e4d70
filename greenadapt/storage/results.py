"""Stage results on disk: folders with a ``manifest.json``, which has their files, checksums and inputs.

A result may not lie in one of its inputs, nor an input in it.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from annotated_types import Interval

from greenadapt import __version__
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.storage import ownership
from greenadapt.storage.files import Json, expanded, hash_file, hash_json, parse_own, parse_own_object, read_bounded

Inputs = Mapping[str, Mapping[str, Any]]
"""As in a manifest: by name, ``sha256`` and ``path`` or ``source``."""


def with_relative(inputs: Inputs, folder: Path) -> dict[str, dict[str, Any]]:
    """``inputs`` with paths relative to ``folder``, which stay valid if both are moved together."""
    return {name: {**entry, **_relative(entry, folder)} for name, entry in inputs.items()}


def found_at(entry: Mapping[str, Any], folder: Path) -> Path:
    """The path of an input of the result in ``folder``; if that does not exist, its path relative to ``folder``."""
    path = expanded(_location(entry) or "")
    if not path.exists() and "relative" in entry:
        return Path(os.path.normpath(folder / entry["relative"]))  # by name: the result may be behind a link
    return path


def same_content(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether an input's content is unchanged; ``content`` is its hash if ``sha256`` also covers paths."""
    return bool(old["sha256"] == new["sha256"] or ("content" in old and old["content"] == new.get("content")))


def differing_inputs(old: Inputs, new: Inputs, folder: Path, *, linked: bool) -> dict[str, str]:
    """``old → new`` by name for every input that is a different file, folder or data set, or was added or removed.

    Moved files with the same content count as the same input, and so does new content under the same path. Stages of
    a workspace, where ``folder`` is ``linked``, find each other's results by name: these do not count as different.
    """

    def described(entry: Mapping[str, Any] | None) -> str:
        return "none" if entry is None else _location(entry) or "other text"

    pairs = {name: (old.get(name), new.get(name)) for name in {**old, **new}}
    return {
        name: f"{described(a)} → {described(b)}"
        for name, (a, b) in pairs.items()
        if a is None or b is None or not _is_same(a, b, folder, linked=linked)
    }


def paths_of(inputs: Inputs) -> dict[str, str]:
    """The absolute paths of ``inputs``, by name; inputs known by name, such as data sets on the hub, have none."""
    paths: dict[str, str] = {}
    for name, entry in inputs.items():
        for path in (_location(entry), *entry.get("sources", {})):
            if path and Path(path).is_absolute():
                paths[f"{name} {path}" if name in paths else name] = path
    return paths


def _location(entry: Mapping[str, Any]) -> str | None:
    """The path or name of an input; ``None`` if the manifest has only its hash."""
    return entry.get("path") or entry.get("source")


def _path(entry: Mapping[str, Any]) -> Path | None:
    """The path of an input; ``None`` for one known by name, such as a data set on the hub."""
    location = _location(entry)
    return Path(location) if location is not None and Path(location).is_absolute() else None


def _is_same(old: Mapping[str, Any], new: Mapping[str, Any], folder: Path, *, linked: bool) -> bool:
    if same_content(old, new):
        return True
    old_path, new_path = _path(old), _path(new)
    if old_path is None or new_path is None:
        names = _location(old), _location(new)
        return None in names or names[0] == names[1]
    if os.path.realpath(old_path) == os.path.realpath(new_path):
        return True
    if linked and old_path.parent == new_path.parent == folder.parent:
        return True
    return old.get("relative") == _relative(new, folder)["relative"]


def _relative(entry: Mapping[str, Any], folder: Path) -> dict[str, str]:
    path = _path(entry)
    return {} if path is None else {"relative": os.path.relpath(path, folder)}


_log = logging.getLogger(__name__)

FORMAT = 1
MANIFEST = ownership.MANIFEST
CARD = ownership.CARD
"""People may edit the card, so it is not part of a result's content."""
_REMAKE = "run the stage again with --force"
_MOST_SECONDS = 1e12


@dataclass(frozen=True)
class _Versioned:
    format: int = FORMAT


@dataclass(frozen=True)
class _Cost:
    seconds: Annotated[float, Interval(ge=0, lt=_MOST_SECONDS)] = 0.0


@dataclass(frozen=True)
class ModelName:
    """How a file names a model."""

    name: str
    source: str


@dataclass(frozen=True)
class _Facts:
    """The facts of any stage that are read by name."""

    corpus: str = ""
    given: str = ""
    title: str = ""
    licence: str = ""
    task: str = ""
    command: str | None = None
    model: ModelName | None = None
    heldout: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Any] | None = None
    updates: list[dict[str, Any]] = field(default_factory=list)
    said: dict[str, list[str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    earlier_cost: _Cost | None = None


@dataclass(frozen=True)
class _Checked:
    """A manifest, as far as it is read by name."""

    stage: str
    config: dict[str, Any]
    inputs: dict[str, dict[str, Any]]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    cost: _Cost = _Cost()
    facts: _Facts = _Facts()
    greenadapt: str = ""


@dataclass(frozen=True)
class Manifest:
    """A result's configuration, inputs, files and cost."""

    stage: str
    config: Json
    """The full configuration; a different one makes a different result."""
    inputs: dict[str, Json]
    """By name: ``sha256`` of the content; ``path`` or ``source``; and the path ``relative`` to the result."""
    files: dict[str, Json] = field(default_factory=dict)
    """By path inside the folder: ``sha256`` and ``bytes``."""
    counts: Json = field(default_factory=dict)
    cost: Json = field(default_factory=dict)
    facts: Json = field(default_factory=dict)
    """Names, versions and diagnostics for later stages and for readers."""
    greenadapt: str = __version__
    format: int = FORMAT

    @property
    def key(self) -> str:
        """Hash of everything that determines the result: stage, configuration, content of the inputs."""
        contents = {name: entry["sha256"] for name, entry in self.inputs.items()}
        return hash_json([FORMAT, self.stage, self.config, contents])

    @property
    def digest(self) -> str:
        """Hash of the result's content without its card; the next stage records it as its input."""
        return hash_json({name: entry["sha256"] for name, entry in self.files.items() if name != CARD})


@dataclass(frozen=True)
class Result:
    """A finished stage: its folder (resolved, so that a swap does not move it), its manifest, and whether it is new."""

    folder: Path
    manifest: Manifest
    path: Path
    """The symlink in a workspace, or the folder itself."""
    fresh: bool = False
    checked: bool = False
    """Whether this command wrote the result or verified every checksum."""

    def as_input(self) -> Json:
        """How another stage's manifest names this result."""
        return {"sha256": self.manifest.digest, "path": str(self.path)}


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest.

    Raises ``MissingError`` if there is none, ``InputError`` if it is invalid or of another format version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        problem = f"holds no greenadapt result (no {MANIFEST})" if folder.exists() else "does not exist"
        raise MissingError(f"{folder} {problem}", "give a stage's folder, or create it again")
    content = read_bounded(path, _REMAKE)
    version = parse_own(content, _Versioned, path, _REMAKE).format
    if version != FORMAT:
        raise InputError(f"{folder} has format version {version}, this greenadapt reads {FORMAT}", "create it again")
    values = parse_own_object(content, _Checked, path, _REMAKE)
    if unknown := sorted(values.keys() - {field.name for field in fields(Manifest)}):
        raise InputError(f"{path} has the unknown keys {', '.join(unknown)}", _REMAKE)
    for key, is_valid in (("inputs", _is_input), ("files", _is_file)):
        for name, entry in values.get(key, {}).items():
            if not is_valid(name, entry):
                raise InputError(f"{path}: {name!r} of {key} is not one that a stage writes", _REMAKE)
    return Manifest(**values)


def _is_input(name: str, entry: Json) -> bool:
    sources = entry.get("sources", {})
    texts = [entry.get(key, "") for key in ("path", "source", "relative")]
    return (
        isinstance(entry.get("sha256"), str)
        and isinstance(sources, dict)
        and all(isinstance(text, str) for text in (*texts, *sources.values()))
        and all(map(_is_name, texts))
    )


def _is_name(text: str) -> bool:
    """Whether the operating system accepts ``text`` as a path."""
    return "\0" not in text and text.encode("utf-8", "replace").decode() == text


def _is_file(name: str, entry: Json) -> bool:
    """Whether an entry is complete and names a file inside the result's folder: no other file may be hashed."""
    path = PurePosixPath(name)
    is_inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts and _is_name(name)
    return is_inside and isinstance(entry.get("sha256"), str) and type(entry.get("bytes")) is int


def result_behind(entry: Json, path: Path) -> Path | None:
    """The folder of an input of the result in ``path``; ``None`` if it is no result, or does not exist any more."""
    if not _location(entry):
        return None
    folder = found_at(entry, path)
    return folder if (folder / MANIFEST).is_file() else None


def open_result(path: Path, stage: str) -> Result:
    """Open a finished result of ``stage`` by path; ``verified`` checks its content.

    Raises ``MissingError`` or ``InputError`` naming the folder.
    """
    folder = path.resolve()
    manifest = read_manifest(folder)
    if manifest.stage != stage:
        raise InputError(
            f"{path} is a result of {manifest.stage}, expected {stage}", f"give the folder of a {stage} result"
        )
    _log.debug("uses the %s result %s", stage, folder)
    return Result(folder, manifest, path)


def verified(result: Result) -> Result:
    """``result``, after comparing every checksum but the card's.

    Raises ``InputError`` naming the damaged file.
    """
    for file in damaged_files(result):
        if not file.is_file():
            raise InputError(f"{result.path} lacks the file {file.relative_to(result.folder).as_posix()}", _REMAKE)
        raise InputError(f"{file} is damaged: its checksum differs from the manifest's", _REMAKE)
    return replace(result, checked=True)


def damaged_files(result: Result) -> Iterator[Path]:
    """The missing or changed files of ``result``, without its card; none if the result is ``checked``."""
    for name, entry in () if result.checked else result.manifest.files.items():
        file = result.folder / name
        if name != CARD and not (
            file.is_file() and file.stat().st_size == entry["bytes"] and hash_file(file) == entry["sha256"]
        ):
            yield file


_READ: ContextVar[Mapping[str, str | os.PathLike[str]]] = ContextVar("read")
"""Files and folders that the running command reads, by their name in messages."""


@contextmanager
def reading(read: Mapping[str, str | os.PathLike[str]]) -> Iterator[None]:
    """Protect ``read``, existing files and folders by their name in messages, from being overwritten in the block."""
    token = _READ.set({**_READ.get({}), **{name: path for name, path in read.items() if expanded(path).exists()}})
    try:
        yield
    finally:
        _READ.reset(token)


def refuse_overlap(out: Path, read: Mapping[str, str | os.PathLike[str]] = {}, *, is_replaced: bool = True) -> None:
    """Raise ``UsageError`` if ``out``, a file or a folder, is or lies in an input: one of ``read``, or of ``reading``.

    A folder that ``is_replaced`` may not hold an input, either.
    """
    target = _real(out)
    for name, path in {**_READ.get({}), **read}.items():
        source = _real(path)
        if target == source:
            how = "is"
        elif source in target.parents:
            how = "lies in"
        elif is_replaced and target in source.parents:
            how = "holds"
        else:
            continue
        raise UsageError(f"{out} {how} {os.fspath(path)}, which is an input ({name})", "choose another place")


def _real(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.realpath(expanded(path)))
