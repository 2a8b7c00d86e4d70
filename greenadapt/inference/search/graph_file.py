"""Whether a file of usearch is what it says, before usearch maps it: it trusts every number, and would read anywhere.

The layout is that of usearch 2 for an index of float16 vectors by 64-bit keys, all numbers little-endian: rows and
bytes per row (uint32 each), the vectors, a head of 64 bytes, the head of the graph (five uint64), the level of each
node (int16), and the nodes. A node has its key, its level (int16), and for each level up to its own the number of
neighbours (uint32) and room for as many as ``connectivity`` (at level 0 ``connectivity_base``), each a number of a node
(uint32).
"""

import struct
from pathlib import Path

import numpy as np

from greenadapt.storage.arrays import Array, Int64Array

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
    """What is wrong with a file, in words that follow its name; "" if usearch can read it.

    Wrong vectors are not found; the caller has a checksum, or not.
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
        own = starts[levels >= level] + _NODE + skipped
        for begin in range(0, len(own), _BLOCK):
            numbers = _read(content, own[begin : begin + _BLOCK], _COUNT + room * _NEIGHBOUR).view("<u4")
            counts, neighbours = numbers[:, :1], numbers[:, 1:]
            used = neighbours[np.arange(room) < counts]
            if counts.max() > room or (len(used) and used.max() >= len(levels)) or (levels[used] < level).any():
                return "has neighbours that are not there"
    return ""


def _read(content: Array, starts: Int64Array, n_bytes: int) -> Array:
    """(n, n_bytes): the bytes from each of the ``starts`` on."""
    return np.ascontiguousarray(content[starts[:, None] + np.arange(n_bytes)])
