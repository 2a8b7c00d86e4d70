"""Vectors of paragraphs in files of usearch, which are checked before usearch reads them."""

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from greenadapt.errors import InputError, ResourceError
from greenadapt.inference.search.marks import FileMark
from greenadapt.inference.search.store import AGAIN, VECTORS, FolderStore
from greenadapt.storage.arrays import Array, FloatArray, Int64Array
from greenadapt.storage.files import sync_file
from greenadapt.storage.ownership import is_noted

if TYPE_CHECKING:
    import usearch.index


_MAGIC = b"usearch"
_KINDS = bytes([ord("c"), 12, 14, 15])
"""Cosine, float16, keys of 64 bits, numbers of nodes of 32 bits."""
_ROWS, _HEAD, _GRAPH = struct.Struct("<II"), struct.Struct("<7s6x4sQQQB22x"), struct.Struct("<QQQQQ")
_NODE, _COUNT, _NEIGHBOUR = 10, 4, 4
"""Bytes of a node's key and level, of a number of neighbours, and of a neighbour."""
_MOST = 1 << 12
"""Neighbours of a node at a level."""
_BLOCK = 1 << 14


def fault(path: Path) -> str:
    """The fault of a file, in words that follow its name; "" if usearch can read it.

    The vectors themselves are not checked; that takes a checksum.
    """
    if path.stat().st_size < _ROWS.size + _HEAD.size + _GRAPH.size:
        return "is not a file of usearch"
    content: Array = np.memmap(path, np.uint8, "r")
    try:
        return _fault(content)
    except (ValueError, IndexError, struct.error, OverflowError):
        return "is damaged"


def _fault(content: Array) -> str:
    n, width = _ROWS.unpack_from(content.data)
    begin = _ROWS.size + n * width
    if begin + _HEAD.size + _GRAPH.size > len(content):
        return "is not a file of usearch, or is cut"
    magic, kinds, present, deleted, dim, multi = _HEAD.unpack_from(content.data, begin)
    size, connectivity, base, top, entry = _GRAPH.unpack_from(content.data, begin + _HEAD.size)
    if magic != _MAGIC or kinds != _KINDS:
        return "is not a file of usearch with float16 vectors"
    if (present, deleted, multi, size, width) != (n, 0, 0, n, 2 * dim) or dim < 1:
        return "has sizes that differ from each other"
    if not (n > 0 and 0 < connectivity <= _MOST and 0 < base <= _MOST and entry < n):
        return "has impossible sizes"
    at = begin + _HEAD.size + _GRAPH.size
    levels = np.frombuffer(content[at : at + 2 * n].tobytes(), "<i2").astype(np.int64)
    if levels.min() < 0 or levels.max() != top or levels[entry] != top:
        return "has impossible levels"
    lengths = _NODE + _COUNT + base * _NEIGHBOUR + levels * (_COUNT + connectivity * _NEIGHBOUR)
    ends = at + 2 * n + np.cumsum(lengths)
    if ends[-1] != len(content):
        return f"has {len(content):,} bytes, need {int(ends[-1]):,}"
    return _fault_of_nodes(content, ends - lengths, levels, int(base), int(connectivity))


def _fault_of_nodes(content: Array, starts: Int64Array, levels: Int64Array, base: int, connectivity: int) -> str:
    for begin in range(0, len(starts), _BLOCK):
        nodes = starts[begin : begin + _BLOCK]
        if not np.array_equal(_read(content, nodes + 8, 2).view("<i2")[:, 0], levels[begin : begin + _BLOCK]):
            return "has nodes of other levels than it says"
    for level in range(int(levels.max()) + 1):
        room = connectivity if level else base
        skipped = 0 if level == 0 else _COUNT + base * _NEIGHBOUR + (level - 1) * (_COUNT + connectivity * _NEIGHBOUR)
        lists = starts[levels >= level] + _NODE + skipped
        for begin in range(0, len(lists), _BLOCK):
            numbers = _read(content, lists[begin : begin + _BLOCK], _COUNT + room * _NEIGHBOUR).view("<u4")
            counts, neighbours = numbers[:, :1], numbers[:, 1:]
            used = neighbours[np.arange(room) < counts]
            if counts.max() > room or (len(used) and used.max() >= len(levels)) or (levels[used] < level).any():
                return "has neighbours that are not there"
    return ""


def _read(content: Array, starts: Int64Array, n_bytes: int) -> Array:
    """(n, n_bytes): the bytes from each of the ``starts`` on."""
    return np.ascontiguousarray(content[starts[:, None] + np.arange(n_bytes)])


_SUFFIX = ".usearch"
_LARGEST = 1 << 17
"""Vectors in a file."""


class VectorFiles:
    """The files of vectors of an index, by the keys of paragraphs; a key may be in several, with the same vector.

    A file counts once ``store`` has its mark; in an index of version 0.2.0, which has no marks, all files of the folder
    count. usearch gets it after all of it was compared with its mark, and its structure was checked. Raises
    ``InputError`` naming a missing or damaged file.
    """

    def __init__(self, store: FolderStore) -> None:
        self._store = store
        self._folder = store.folder / VECTORS
        self._open: dict[str, usearch.index.Index] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """Inode and time of each file, since files of an index that is made again have the same names."""
        self.refresh()

    def refresh(self) -> None:
        """Look for files that were added, merged or replaced."""
        marks = self._marks()
        try:
            identities = {name: _identity(self._folder / name) for name in sorted(marks)}
            self._open = {
                name: self._open[name] if self._seen.get(name) == identity else _view(self._folder / name, marks[name])
                for name, identity in identities.items()
            }
        except (FileNotFoundError, InputError) as error:
            if marks != self._marks():  # merged or made again meanwhile
                self.refresh()
                return
            if isinstance(error, InputError):
                raise
            raise InputError(f"{error.filename} is missing", AGAIN) from None
        self._seen = identities

    def _marks(self) -> Mapping[str, FileMark | None]:
        marks = self._store.vector_marks()
        return dict.fromkeys(path.name for path in self._folder.glob(f"*{_SUFFIX}")) if marks is None else marks

    def remove_leftovers(self) -> None:
        """Remove what a killed process left: files that were noted, but are not, or no longer, in the record."""
        for path in [*self._folder.glob("*.part"), *self._folder.glob(f"*{_SUFFIX}")]:
            if path.name not in self._open and is_noted(path, self._store.folder):
                path.unlink()

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def __contains__(self, key: int) -> bool:
        return any(key in graph for graph in self._open.values())

    def search(self, vector: FloatArray, top: int) -> list[tuple[int, float]]:
        """Keys of the ``top`` nearest vectors, with their cosine, nearest first; approximately, as HNSW finds them."""
        cosines: dict[int, float] = {}
        for graph in self._open.values():
            matches = graph.search(vector, min(top, len(graph)))
            pairs = zip(matches.keys, matches.distances, strict=True)
            cosines |= {int(key): 1.0 - float(distance) for key, distance in pairs}
        return sorted(cosines.items(), key=lambda pair: (-pair[1], pair[0]))[:top]

    def add(self, keys: Sequence[int], vectors: FloatArray) -> None:
        """Write the vectors, (n, dim), as a file, and merge files."""
        graph = _graph(vectors.shape[1])
        graph.add(np.array(keys, np.uint64), vectors, threads=1)
        self._save(graph, [])
        while len(self._open) > 1:
            before, last = [*self._open][-2:]
            sizes = len(self._open[before]), len(self._open[last])
            if 2 * sizes[1] < sizes[0] or sum(sizes) > _LARGEST:
                break
            self._merge([before, last], set)

    def drop(self, kept: Callable[[Sequence[int]], set[int]]) -> None:
        """Write anew, one by one, the files that have vectors of keys that are not ``kept``."""
        for name in [*self._open]:
            keys = np.asarray(self._open[name].keys, np.uint64)
            if len(kept(keys.tolist())) < len(keys):
                self._merge([name], kept)

    def _merge(self, names: list[str], kept: Callable[[Sequence[int]], set[int]]) -> None:
        merged = _graph(self._open[names[0]].ndim)
        for name in names:
            keys = np.asarray(self._open[name].keys, np.uint64)
            keys = keys[np.isin(keys, np.fromiter(kept(keys.tolist()), np.uint64))]
            keys = keys[~np.asarray(merged.contains(keys), bool)] if len(merged) and len(keys) else keys
            if len(keys):
                merged.add(keys, np.asarray(self._open[name].get(keys)), threads=1)
        self._save(merged, names)

    def _new_file(self) -> Path:
        """The path of the next file; neither there nor at its part is a file of anybody else."""
        newest = int([*self._open][-1].removesuffix(_SUFFIX)) if self._open else 0
        paths = (self._folder / f"{number:08d}{_SUFFIX}" for number in count(newest + 1))
        return next(path for path in paths if self._is_free(path) and self._is_free(_part(path)))

    def _is_free(self, path: Path) -> bool:
        return not os.path.lexists(path) or is_noted(path, self._store.folder)

    def _save(self, graph: "usearch.index.Index", replaced: list[str]) -> None:
        added: dict[str, FileMark] = {}
        if len(graph):
            path = self._new_file()
            part = _part(path)
            self._store.note_vectors(path.name)
            try:
                graph.save(str(part))
                sync_file(part)
            except RuntimeError as error:
                raise _not_written(path, str(error)) from None
            if part.stat().st_size != graph.serialized_length:  # usearch misses errors of its last write
                raise _not_written(path, "it is cut")
            mark = FileMark.of(part)
            part.replace(path)
            added = {path.name: mark}
        self._store.record_vectors(added, replaced)
        for name in replaced:
            (self._folder / name).unlink()
        self.refresh()


def _part(path: Path) -> Path:
    """The file that ``path`` is until all of it is written."""
    return path.with_name(f"{path.name}.part")


def _identity(path: Path) -> tuple[int, int]:
    file = path.stat()
    return file.st_ino, file.st_mtime_ns


def _not_written(path: Path, why: str) -> ResourceError:
    return ResourceError(
        f"{path} cannot be written, the disk may be full ({why})", "free some space; the same command resumes"
    )


def _graph(dim: int) -> "usearch.index.Index":
    from usearch.index import Index

    return Index(ndim=dim, metric="cos", dtype="f16")


def _view(path: Path, mark: FileMark | None) -> "usearch.index.Index":
    from usearch.index import Index

    difference = "" if mark is None else mark.difference(path, whole=True)
    if difference or (difference := fault(path)):
        raise InputError(f"{path} {difference}", AGAIN)
    try:
        graph = Index.restore(str(path), view=True)
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path} is damaged ({error})", AGAIN) from None
    if graph is None:
        raise InputError(f"{path} is not a file of usearch", AGAIN)
    return graph
