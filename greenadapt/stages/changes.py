"""What has changed since a result was made, found without making it again."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from greenadapt.checkpoints.provenance import adapted_input, encoder_input, model_input, task_input
from greenadapt.checkpoints.source import PACKAGED, PretrainedModel
from greenadapt.corpus.opening import path_sha256
from greenadapt.corpus.recipes import file_name
from greenadapt.errors import GreenadaptError
from greenadapt.storage.files import Json, expanded
from greenadapt.storage.results import CARD, MANIFEST, Result, found_at, read_manifest, verified
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
