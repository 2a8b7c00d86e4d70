"""Vectors of paragraphs in usearch's HNSW graphs (Malkov and Yashunin, arXiv 1603.09320), which are memory-mapped.

The vectors of a batch are a file of their own, which appears whole and never changes. A file is merged into the one
before it once it has half as many vectors, up to ``_LARGEST``, so that there are few files, every vector is inserted a
few times only, and memory is bounded (Bentley and Saxe, J. Algorithms 1, 1980).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from greenadapt.errors import InputError, ResourceError
from greenadapt.storage.arrays import FloatArray, UInt64Array
from greenadapt.storage.publish import sync_file

if TYPE_CHECKING:
    import usearch.index

_SUFFIX = ".usearch"
_LARGEST = 1 << 17
"""Vectors in a file."""


class VectorFiles:
    """The files of vectors in a folder, by the keys of paragraphs; a key may be in several, with the same vector."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, usearch.index.Index] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """Inode and time of each file: those of an index that is made again have the same names."""
        self.refresh()

    def refresh(self) -> None:
        """Look for files that were added, merged or replaced."""
        try:
            found = {path.name: _identity(path) for path in sorted(self._folder.glob(f"*{_SUFFIX}"))}
            self._open = {
                name: self._open[name] if self._seen.get(name) == one else _view(self._folder / name)
                for name, one in found.items()
            }
        except FileNotFoundError:  # merged since it was listed
            self.refresh()
            return
        self._seen = found

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
            part.replace(path)
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


def _view(path: Path) -> "usearch.index.Index":
    from usearch.index import Index

    if not path.is_file():
        raise FileNotFoundError(path)
    try:
        found = Index.restore(str(path), view=True)
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path} is damaged ({error})", "index again with --force") from None
    if found is None:
        raise InputError(f"{path} is not a file of usearch", "index again with --force")
    return found
