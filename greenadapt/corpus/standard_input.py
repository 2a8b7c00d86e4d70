"""Text that is in no file (standard input, records of a Python program): it is saved and named by its content."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from greenadapt.corpus.recipes import FORMATS, Recipe
from greenadapt.corpus.sources import Source
from greenadapt.errors import InputError, UsageError, byte_size
from greenadapt.progress import Bar, Progress

_BLOCK = 1 << 20
_NAME = re.compile(r"(stdin|records)-[0-9a-f]{8}")
# The others infer formats from file names, or read no files.
_FORMATS = tuple(name for name in FORMATS if name not in ("auto", "pmc", "pydocs"))


def keep_input(stream: IO[bytes], root: Path, said: Mapping[str, Any], progress: Progress) -> Recipe:
    """The recipe of the content of ``stream``, copied to ``NAME/.sources/stdin`` in the workspace ``root``, block by
    block.

    ``NAME`` is ``stdin-`` and eight digits of the SHA-256 of the content, so that the same text is the same corpus and
    another text never replaces it. ``said`` may have ``format``, ``fields`` and ``sample_by``; a text that begins with
    a JSON object is read as JSON lines. Raises ``UsageError`` for a format that needs file names, ``InputError`` for no
    input.
    """
    kind = said.get("format")
    if kind is not None and kind not in _FORMATS:
        raise UsageError(f"{kind!r} is not a format for standard input", f"the formats are {', '.join(_FORMATS)}")
    with progress.bar("reading standard input", None, "bytes") as bar:
        path, size = _keep(_blocks(stream, bar), root, "stdin")
    if path is None:
        raise InputError("standard input is empty", "pipe text into it, or give --corpus or --text a file")
    name = _name_of(path)
    progress.note(f"standard input is corpus {name}, {byte_size(size)}, kept in {path}")
    return _recipe(name, path, said)


def keep_records(lines: Iterable[bytes], root: Path) -> tuple[str, Path] | None:
    """The name of records, ``records-`` and eight digits of the SHA-256 of their JSON ``lines``, and the file they are
    written to, ``NAME/.sources/NAME.jsonl`` in the workspace ``root``; ``None`` if there are none.
    """
    path, _ = _keep(lines, root, "records")
    return None if path is None else (_name_of(path), path)


def _blocks(stream: IO[bytes], bar: Bar) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block
        bar.advance(len(block))


def _keep(blocks: Iterable[bytes], root: Path, kind: str) -> tuple[Path | None, int]:
    """Write ``blocks`` to a file that is named by their content, complete or not at all; the file and its size."""
    root.mkdir(parents=True, exist_ok=True)
    part = root / f".{kind}-{uuid4().hex}"  # a file of tempfile could be read by its owner only
    try:
        digest, size = hashlib.sha256(), 0
        with open(part, "xb") as file:
            for block in blocks:
                file.write(block)
                digest.update(block)
                size += len(block)
        if not size:
            return None, 0
        path = _kept(root, f"{kind}-{digest.hexdigest()[:8]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(path)
        return path, size
    finally:
        part.unlink(missing_ok=True)


def kept_input(root: Path, name: str, said: Mapping[str, Any]) -> Recipe | None:
    """The recipe of what ``keep_input`` or ``keep_records`` kept under ``name``; ``None`` if there is none."""
    path = _kept(root, name)
    return _recipe(name, path, said) if _NAME.fullmatch(name) and path.is_file() else None


def _kept(root: Path, name: str) -> Path:
    return root / name / ".sources" / ("stdin" if name.startswith("stdin-") else f"{name}.jsonl")


def _name_of(path: Path) -> str:
    return path.parent.parent.name


def _recipe(name: str, path: Path, said: Mapping[str, Any]) -> Recipe:
    with open(path, "rb") as file:
        begins = file.read(2)
    kind = said.get("format") or ("jsonl" if begins == b'{"' else "text")
    fields = tuple(said.get("fields") or Recipe.fields)
    title, given = ("standard input", "-") if path.name == "stdin" else ("records of a Python program", name)
    by = said.get("sample_by") or Recipe.sample_by
    return Recipe(name, title, "unknown", kind, (Source(str(path)),), fields, by, given=given, asked=name)
