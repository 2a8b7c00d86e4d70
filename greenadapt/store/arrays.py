"""Named arrays in safetensors: memory-mapped, written in pieces; sequences of integers found by their content.

The safetensors library copies every tensor it reads and needs every tensor in memory to write; embedding tables and
word streams can be larger than memory, so the header is read here and the bytes are mapped.
"""

import json
import math
import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from greenadapt.errors import InputError
from greenadapt.store.files import naming

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.integer[Any]]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
CODES = {dtype: name for name, dtype in DTYPES.items()}

_AGAIN = "fetch or make it again"
_CACHED_BYTES = 1 << 20
"""A block that fits in a core's cache."""
SPLITMIX_STEP = np.uint64(0x9E3779B97F4A7C15)
"""The difference of successive inputs of ``mix_bits`` in SplitMix64 (Steele, Lea and Flood 2014)."""


class ArrayFile:
    """A safetensors file: ``names``, ``metadata`` and, by name, read-only memory-mapped arrays.

    Raises ``InputError`` if the file is truncated or is not a safetensors file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata, self._entries, self._start = _header(path)

    @property
    def names(self) -> list[str]:
        """Names of the arrays, in the order of the header."""
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one array, without touching its bytes."""
        return self._entries[name][1]

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> Array:
        """The array ``name``; raises ``InputError`` if the file lacks it."""
        if name not in self._entries:
            raise InputError(f"{self.path} has no array {name}", "copy the files of the same model")
        dtype, shape, begin, end = self._entries[name]
        if begin == end:
            return np.zeros(shape, dtype)
        return np.ndarray(end - begin, np.uint8, self._mapped, self._start + begin).view(dtype).reshape(shape)

    @cached_property
    def _mapped(self) -> mmap.mmap:
        """The file, mapped once for all arrays, since each map keeps a file open."""
        with open(self.path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_mapped"}


_Entry = tuple["np.dtype[Any]", tuple[int, ...], int, int]


def _header(path: Path) -> tuple[dict[str, str], dict[str, _Entry], int]:
    """Metadata, arrays by name, and where they begin."""
    with open(path, "rb") as file:
        try:
            with safe_open(path, "numpy"):  # checks the header, sizes and positions
                length = int.from_bytes(file.read(8), "little")
        except SafetensorError as error:
            raise InputError(f"{path} is truncated, or is not a safetensors file ({error})", _AGAIN) from None
        header = json.loads(file.read(length))
    metadata = header.pop("__metadata__", {})
    if unknown := {entry["dtype"] for entry in header.values()} - DTYPES.keys():
        raise InputError(f"{path} has numbers of type {', '.join(unknown)}, must be {', '.join(DTYPES)}", _AGAIN)
    entries = {name: (DTYPES[e["dtype"]], tuple(e["shape"]), *e["data_offsets"]) for name, e in header.items()}
    return metadata, entries, 8 + length


def write_arrays(
    path: Path, arrays: Mapping[str, "Array | StreamedArray"], metadata: Mapping[str, str] | None = None
) -> None:
    """Write ``arrays`` as one safetensors file, in the given order, in pieces."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, array in arrays.items():
        end = offset + array.nbytes
        header[name] = {"dtype": CODES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays start at a multiple of eight, so that they can be mapped
    with naming(path), open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, array in arrays.items():
            begin = file.tell()
            for piece in array.pieces if isinstance(array, StreamedArray) else row_blocks(array):
                file.write(np.ascontiguousarray(piece, dtype=array.dtype).reshape(-1).view(np.uint8).data)
            if (written := file.tell() - begin) != array.nbytes:
                raise ValueError(f"{name}: {written} bytes given, {array.nbytes} announced")


@dataclass(frozen=True)
class StreamedArray:
    """An array that is never entirely in memory: its shape, its type, and its rows in pieces."""

    shape: tuple[int, ...]
    dtype: "np.dtype[Any]"
    pieces: Iterable[Array]

    @property
    def nbytes(self) -> int:
        """Bytes of the array, as numpy's."""
        return math.prod(self.shape) * self.dtype.itemsize


def row_blocks(array: Array, block_bytes: int = 16 << 20) -> Iterable[Array]:
    """``array`` in consecutive blocks of whole rows of about ``block_bytes`` bytes each."""
    if array.ndim == 0:
        yield array.reshape(1)
        return
    row = max(1, array.nbytes // max(1, len(array)))
    step = max(1, block_bytes // row)
    for begin in range(0, len(array), step):
        yield array[begin : begin + step]


def release_pages(array: Array) -> None:
    """Release the pages of a memory-mapped array, which count as memory of this process once they were read."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap):
        owner.madvise(mmap.MADV_DONTNEED)


def require_finite(array: Array, name: str, source: Path) -> None:
    """Raise ``InputError`` with the weight's ``name`` and ``source`` if it has NaN or infinity; releases its pages."""
    if np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_:
        return
    n_bad = sum(int(np.size(block) - np.isfinite(block).sum()) for block in row_blocks(array, _CACHED_BYTES))
    release_pages(array)
    if n_bad:
        raise InputError(
            f"{source}: {n_bad:,} of the {array.size:,} numbers of {name} are NaN or infinity",
            "download or train the model again",
        )


def same_arrays(a: Array, b: Array) -> bool:
    """Whether two arrays have the same type, shape and values, compared in blocks of rows."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return all(np.array_equal(x, y) for x, y in zip(row_blocks(a), row_blocks(b), strict=True))


def offsets_of(lengths: IntArray) -> IntArray:
    """``(0, l1, l1 + l2, …)``, int64 (n + 1,)."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def mix_bits(numbers: UInt64Array) -> UInt64Array:
    """SplitMix64's mixing of the bits of each number (n,): different numbers stay different, and look random."""
    x = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


@dataclass(frozen=True)
class Sequences:
    """``n`` sequences end to end: ``values`` (total,), and ``offsets`` (n + 1,) where each begins."""

    values: IntArray
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, lists: list[list[int]]) -> "Sequences":
        """The given lists as one array of int32."""
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        values = np.fromiter(chain.from_iterable(lists), np.int32, int(lengths.sum()))
        return cls(values, offsets_of(lengths))

    def as_bytes(self) -> list[bytes]:
        """The values of each sequence as bytes, to look it up in a dictionary."""
        data, size = self.values.tobytes(), self.values.itemsize
        return [data[size * begin : size * end] for begin, end in pairwise(self.offsets.tolist())]

    def take(self, rows: IntArray | BoolArray) -> "Sequences":
        """The sequences ``rows`` (m,), by position or as a mask, copied end to end."""
        begins, lengths = self.offsets[:-1][rows], np.diff(self.offsets)[rows]
        offsets = offsets_of(lengths)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Sequences(self.values[np.repeat(begins, lengths) + within], offsets)
