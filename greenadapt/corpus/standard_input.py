"""A corpus from standard input, which can be read only once: it is saved to a file and named by its content."""

import hashlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from greenadapt.corpus.recipes import FORMATS, Recipe, Source
from greenadapt.errors import InputError, UsageError
from greenadapt.progress import Progress
from greenadapt.wording import byte_size

_BLOCK = 1 << 20
# The others infer formats from file names, or read no files.
_FORMATS = tuple(name for name in FORMATS if name not in ("auto", "pmc", "pydocs"))


def keep_input(stream: IO[bytes], root: Path, said: Mapping[str, Any], progress: Progress) -> Recipe:
    """The recipe of the content of ``stream``, copied to ``NAME/.sources/stdin`` in the workspace ``root``, block by
    block.

    ``NAME`` is ``stdin-`` and eight digits of the SHA-256 of the content, so that the same text is the same corpus and
    another text never replaces it. ``said`` may have ``format`` and ``fields``; a text that begins with a JSON object
    is read as JSON lines. Raises ``UsageError`` for a format that needs file names, ``InputError`` for no input.
    """
    kind = said.get("format")
    if kind is not None and kind not in _FORMATS:
        raise UsageError(f"{kind!r} is not a format for standard input", f"the formats are {', '.join(_FORMATS)}")
    root.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=".stdin-", dir=root)
    try:
        digest, size = hashlib.sha256(), 0
        with open(handle, "wb") as file, progress.bar("reading standard input", None, "bytes") as bar:
            while block := stream.read(_BLOCK):
                file.write(block)
                digest.update(block)
                size += len(block)
                bar.advance(len(block))
        if not size:
            raise InputError("standard input is empty", "pipe text into it, or give --corpus or --text a file")
        name = f"stdin-{digest.hexdigest()[:8]}"
        path = _kept(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        Path(part).replace(path)
    finally:
        Path(part).unlink(missing_ok=True)
    progress.note(f"standard input is corpus {name}, {byte_size(size)}, kept in {path}")
    return _recipe(name, path, said)


def kept_input(root: Path, name: str, said: Mapping[str, Any]) -> Recipe | None:
    """The recipe of the input that ``keep_input`` kept under ``name``; ``None`` if there is none."""
    path = _kept(root, name)
    return _recipe(name, path, said) if re.fullmatch(r"stdin-[0-9a-f]{8}", name) and path.is_file() else None


def _kept(root: Path, name: str) -> Path:
    return root / name / ".sources" / "stdin"


def _recipe(name: str, path: Path, said: Mapping[str, Any]) -> Recipe:
    with open(path, "rb") as file:
        begins = file.read(2)
    kind = said.get("format") or ("jsonl" if begins == b'{"' else "text")
    fields = tuple(said.get("fields") or Recipe.fields)
    return Recipe(name, "standard input", "unknown", kind, (Source(str(path)),), fields, given="-", asked=name)
