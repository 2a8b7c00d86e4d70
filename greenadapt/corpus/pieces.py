"""What a corpus is read from: files, whole releases of CORD-19, and ranges of lines of large plain files.

Documents are in the order of the pieces, so pieces can be read by different processes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from greenadapt.config import SampleBy
from greenadapt.corpus import cord19
from greenadapt.corpus.decoding import Span
from greenadapt.corpus.opening import input_errors, is_compressed, is_tar, visible_files
from greenadapt.corpus.recipes import format_of
from greenadapt.errors import counted
from greenadapt.progress import Progress

_LINEWISE = ("text", "jsonl")
"""Formats in which a line says all of a document, so that some lines can be read alone."""
_PARTS = 512
SMALLEST, LARGEST = 4 << 20, 64 << 20
"""Bytes of a part: enough for the start of a task not to count, and little to lose with a node."""


@dataclass(frozen=True)
class Piece:
    """A file, or its lines in ``span``; an archive; or the folder or archive of a release of CORD-19."""

    path: str
    span: Span | None = None
    is_release: bool = False


@dataclass(frozen=True)
class _Block:
    """Some bytes of a file."""

    path: str
    begin: int
    size: int


def pieces_of(path: str, kind: str, counts: Counter[str]) -> Iterator[Piece]:
    """A file or an archive, or a folder's files in order of path, of the format ``kind``.

    Hidden files are left out, and so are symlinks to folders, counted as ``linked_folders``, and to files that do not
    exist, counted as ``dangling_links``.
    """
    if cord19.is_release(path, kind):
        yield Piece(path, is_release=True)
    elif not Path(path).is_dir():
        yield Piece(path)
    else:
        for file in visible_files(Path(path)):
            if file.is_file():
                yield Piece(str(file))
            elif file.is_symlink() and file.is_dir():
                counts["linked_folders"] += 1
            elif file.is_symlink() and not file.exists():
                counts["dangling_links"] += 1


def warn_symlinks(name: str, counts: Mapping[str, int], progress: Progress) -> None:
    """Say how many symlinks ``pieces_of`` left out of the folder ``name``."""
    if linked := counts.get("linked_folders"):
        what = counted(linked, "symlink to a folder", "symlinks to folders")
        progress.warn(f"{name}: skipped {what}: name the folders themselves")
    if dangling := counts.get("dangling_links"):
        progress.warn(f"{name}: skipped {counted(dangling, 'symlink')} to files that do not exist")


def is_linewise(path: str, kind: str, sample_by: SampleBy = "line") -> bool:
    """Whether it is a plain file in which a line says all of a document; ``kind`` is its format or ``auto``."""
    kind = format_of(path) if kind == "auto" else kind
    if kind == "text" and sample_by != "line":
        return False
    return kind in _LINEWISE and Path(path).is_file() and not (is_tar(path) or is_compressed(path))


def parts_of(
    pieces: Iterable[Piece],
    kind: str,
    run: Callable[[Callable[[_Block], Any], Iterable[_Block]], Iterator[Any]] = map,
    sample_by: SampleBy = "line",
) -> list[tuple[Piece, ...]]:
    """Consecutive ``pieces`` together; large plain files of lines are cut, others are not.

    A part has a 512th of all bytes on disk, but at least 4 MB and at most 64, so that the parts depend on the text
    alone, and a long text does not have too many. ``run`` counts the lines of large files, as ``map`` does.
    """
    sized = [(piece, _size(piece)) for piece in pieces]
    size = min(max(sum(n for piece, n in sized if not piece.is_release) // _PARTS, SMALLEST), LARGEST)
    large = [
        (piece, n_bytes) for piece, n_bytes in sized if n_bytes > size and is_linewise(piece.path, kind, sample_by)
    ]
    counted = run(
        _count_lines,
        (_Block(piece.path, begin, size) for piece, n_bytes in large for begin in range(0, n_bytes, size)),
    )
    cut = {piece: _cut(piece, n_bytes, size, islice(counted, -(-n_bytes // size))) for piece, n_bytes in large}
    parts: list[list[Piece]] = []
    taken = 0
    for piece, n_bytes in (one for whole in sized for one in cut.get(whole[0], [whole])):
        if not parts or taken + n_bytes > size:
            parts.append([])
            taken = 0
        parts[-1].append(piece)
        taken += n_bytes
    return list(map(tuple, parts))


def _size(piece: Piece) -> int:
    """Its bytes on disk; any number will do for a folder, which is a part of its own."""
    return 1 << 62 if piece.is_release else Path(piece.path).stat().st_size


def _cut(piece: Piece, n_bytes: int, size: int, counted: Iterable[tuple[int, int]]) -> list[tuple[Piece, int]]:
    """The lines that begin in each ``size`` bytes of a file, given ``_count_lines`` of them; and their bytes."""
    begins, n_lines = [(0, 0)], 0
    for number, (n, first) in enumerate(counted):
        begin = number * size + first
        if number and n and begin < n_bytes:
            begins.append((begin, n_lines + 1))
        n_lines += n
    spans = [Span(*begin, last=end[1]) for begin, end in pairwise(begins)] + [Span(*begins[-1])]
    ends = [*(begin for begin, _ in begins[1:]), n_bytes]
    return [(replace(piece, span=span), end - span.n_bytes) for span, end in zip(spans, ends, strict=True)]


def _count_lines(block: _Block) -> tuple[int, int]:
    """How many lines end in ``block``, and how many of its bytes are up to the first end."""
    with input_errors(block.path), open(block.path, "rb") as file:
        file.seek(block.begin)
        data = file.read(block.size)
    return data.count(b"\n"), data.find(b"\n") + 1
