"""Vectors of paragraphs in usearch's HNSW graphs (Malkov and Yashunin, arXiv 1603.09320), which are memory-mapped.

The vectors of a batch are a file of their own, which appears whole and never changes. A file is merged into the one
before it once it has half as many vectors, up to ``_LARGEST``, so that there are few files, every vector is inserted a
few times only, and memory is bounded (Bentley and Saxe, J. Algorithms 1, 1980).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from greenadapt.errors import InputError, ResourceError
from greenadapt.inference.search import graph_file
from greenadapt.inference.search.facts import AGAIN
from greenadapt.inference.search.marks import FileMark
from greenadapt.storage.arrays import FloatArray, UInt64Array
from greenadapt.storage.files import sync_file

if TYPE_CHECKING:
    import usearch.index

_SUFFIX = ".usearch"
_LARGEST = 1 << 17
"""Vectors in a file."""


class VectorRecord(Protocol):
    """Where it is written which files of vectors there are."""

    def vector_marks(self) -> dict[str, FileMark] | None:
        """The marks of the files by name; ``None`` where there are none, and all files of the folder count."""

    def record_vectors(self, added: Mapping[str, FileMark], removed: Iterable[str]) -> None:
        """Take note of files that appear, and of those that will be removed."""


class VectorFiles:
    """The files of vectors in a folder, by the keys of paragraphs; a key may be in several, with the same vector.

    A file counts once it is in ``record``. usearch gets it after all of it was compared with its mark, and its
    structure was checked. Raises ``InputError`` naming a file that is missing or damaged.
    """

    def __init__(self, folder: Path, record: VectorRecord | None = None) -> None:
        self._folder = folder
        self._record = record
        self._open: dict[str, usearch.index.Index] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """Inode and time of each file: those of an index that is made again have the same names."""
        self.refresh()

    def refresh(self) -> None:
        """Look for files that were added, merged or replaced."""
        marks = self._marks()
        try:
            found = {name: _identity(self._folder / name) for name in sorted(marks)}
            self._open = {
                name: self._open[name] if self._seen.get(name) == one else _view(self._folder / name, marks[name])
                for name, one in found.items()
            }
        except (FileNotFoundError, InputError) as error:
            if marks != self._marks():  # merged or made again meanwhile
                self.refresh()
                return
            if isinstance(error, InputError):
                raise
            raise InputError(f"{error.filename} is missing", AGAIN) from None
        self._seen = found

    def _marks(self) -> Mapping[str, FileMark | None]:
        marks = None if self._record is None else self._record.vector_marks()
        return dict.fromkeys(path.name for path in self._folder.glob(f"*{_SUFFIX}")) if marks is None else marks

    def remove_others(self) -> None:
        """Remove what a killed process left: files that are not, or no longer, in the record."""
        for path in [*self._folder.glob("*.part"), *self._folder.glob(f"*{_SUFFIX}")]:
            if path.name not in self._open:
                path.unlink()

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def __contains__(self, key: int) -> bool:
        return any(key in one for one in self._open.values())

    def search(self, vector: FloatArray, top: int) -> list[tuple[int, float]]:
        """Keys of the ``top`` nearest vectors, with their cosine, nearest first; approximately, as HNSW finds them."""
        found: dict[int, float] = {}
        for one in self._open.values():
            matches = one.search(vector, min(top, len(one)))
            found |= {int(key): 1.0 - float(far) for key, far in zip(matches.keys, matches.distances, strict=True)}
        return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:top]

    def add(self, keys: Sequence[int], vectors: FloatArray) -> None:
        """Write the vectors, (n, dim), as a file, and merge files."""
        graph = _graph(vectors.shape[1])
        graph.add(np.array(keys, np.uint64), vectors, threads=1)
        self._save(graph, self._number() + 1, [])
        while len(self._open) > 1:
            before, last = [*self._open][-2:]
            sizes = len(self._open[before]), len(self._open[last])
            if 2 * sizes[1] < sizes[0] or sum(sizes) > _LARGEST:
                break
            self._merge([before, last], lambda keys: np.ones(len(keys), bool))

    def drop(self, is_kept: Callable[[UInt64Array], Any]) -> None:
        """Write anew, one by one, the files that have vectors of keys that are not kept."""
        for name in [*self._open]:
            keys = np.asarray(self._open[name].keys, np.uint64)
            if not np.all(is_kept(keys)):
                self._merge([name], is_kept)

    def _merge(self, names: list[str], is_kept: Callable[[UInt64Array], Any]) -> None:
        merged = _graph(self._open[names[0]].ndim)
        for name in names:
            keys = np.asarray(self._open[name].keys, np.uint64)
            keys = keys[np.asarray(is_kept(keys), bool)]
            keys = keys[~np.asarray(merged.contains(keys), bool)] if len(merged) and len(keys) else keys
            if len(keys):
                merged.add(keys, np.asarray(self._open[name].get(keys)), threads=1)
        self._save(merged, self._number() + 1, names)

    def _number(self) -> int:
        """Of the newest file."""
        return int([*self._open][-1].removesuffix(_SUFFIX)) if self._open else 0

    def _save(self, graph: "usearch.index.Index", number: int, replaced: list[str]) -> None:
        added: dict[str, FileMark] = {}
        if len(graph):
            path = self._folder / f"{number:08d}{_SUFFIX}"
            part = path.with_suffix(".part")
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
        if self._record is not None:
            self._record.record_vectors(added, replaced)
        for name in replaced:
            (self._folder / name).unlink()
        self.refresh()


def _identity(path: Path) -> tuple[int, int]:
    file = path.stat()
    return file.st_ino, file.st_mtime_ns


def _not_written(path: Path, why: str) -> ResourceError:
    return ResourceError(
        f"{path} cannot be written, the disk may be full ({why})", "free some space; the same command goes on"
    )


def _graph(dim: int) -> "usearch.index.Index":
    from usearch.index import Index

    return Index(ndim=dim, metric="cos", dtype="f16")


def _view(path: Path, mark: FileMark | None) -> "usearch.index.Index":
    from usearch.index import Index

    difference = "" if mark is None else mark.difference(path, whole=True)
    if difference or (difference := graph_file.fault(path)):
        raise InputError(f"{path} {difference}", AGAIN)
    try:
        found = Index.restore(str(path), view=True)
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path} is damaged ({error})", AGAIN) from None
    if found is None:
        raise InputError(f"{path} is not a file of usearch", AGAIN)
    return found
