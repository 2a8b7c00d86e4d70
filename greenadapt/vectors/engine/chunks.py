"""The compiled code of the engine, which ``local.py`` describes. Numba compiles it at first use.

Functions take matrices and row numbers: reference counting of row views would cost more than the arithmetic. The width
of rows is a multiple of the pieces of ``lanes.py`` (``pad_rows``).
"""

from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numba import njit

from greenadapt.store.arrays import Array
from greenadapt.vectors.engine import lanes
from greenadapt.vectors.engine.lanes import (
    LANES,
    WIDE,
    add,
    divide,
    load,
    load_wide,
    multiply,
    multiply_add,
    prefetch,
    splat,
    splat_wide,
    store,
    store_totals,
    subtract,
    total,
)
from greenadapt.vectors.engine.stream import aligned_zeros

lanes.require_working()

CHUNK = 64
"""Positions whose input rows are summed together; a multiple of ``GROUP``."""
GROUP = 8
"""Positions that share negatives, evenly spaced in a chunk."""
NEGATIVES = 8
"""Negatives of a group; the code below assumes eight positions and eight negatives."""
LIMIT = 6
"""Limit of the absolute value of scores, beyond which nothing is learned."""
_BLOCK = 192  # columns at a time: 8 h, 16 output rows and 8 gradients of a group, 24 KB, stay in the first cache
_BUFFER = 4096  # words after subsampling
_NOWHERE = CHUNK + GROUP  # the row of zeros
_OWN = 4  # the row of the words' own scores
_f32, _u64 = np.float32, np.uint64
_FAST = {"reassoc", "contract", "arcp", "nsz"}  # any order of sums; NaN is detected


class TextPart(NamedTuple):
    """A part of a stream: ``ids`` int32, and the offsets of its lines, ``borders`` (n_lines + 1,) int64."""

    ids: Array
    borders: Array
    words: int
    """Number of trained words."""


class Noise(NamedTuple):
    """Distributions of subsampling and of negatives, ``(n_words,)`` each.

    ``keep`` uint32: a word is kept if 32 random bits are at most this number. ``threshold`` uint32 and ``alias`` int32:
    Walker's alias method draws a negative as a uniform word if 32 random bits are below its threshold, else as the
    alias of that word.
    """

    keep: Array
    threshold: Array
    alias: Array


class Settings(NamedTuple):
    """The settings of a ``W2VConfig`` that the compiled code needs."""

    window: int
    weight: float
    """k / m: the weight of each of a group's m negatives, for k negatives per word."""


class _Room(NamedTuple):
    """The buffers of a thread for one chunk.

    Slot ``GROUP i + j`` belongs to the j-th position of group i. A row of ``rows`` has ``dim`` columns and a cache line
    of padding; without the padding, every eighth row would fall on the same lines of the cache.
    """

    sums: Array
    """``(CHUNK + 2 window + 1, 2 WIDE)``: cumulative sums of two pieces of input rows."""
    rows: Array
    """``(CHUNK + GROUP + 1, dim)``: row ``GROUP + s`` holds h of slot s. Its gradient α ∂L/∂h is then written to row s,
    over an h of the group before, which is no longer needed. The last row is zero."""
    factors: Array
    """``(CHUNK,)``, by slot: factor of the sum of the context in h."""
    begins: Array
    ends: Array
    """``(CHUNK,)`` each: begin and end of windows, as rows of the cumulative sums."""
    positions: Array
    """``(CHUNK,)``: positions in the chunk, by slot."""
    slots: Array
    """``(CHUNK + 1,)``: slots of positions, and the row of zeros."""
    edges: Array
    """``(2 CHUNK,)``: the slots of all begins and ends, sorted by row."""
    signs: Array
    """``(2 CHUNK,)``: factor of the slot's gradient in the cumulative sum of changes."""
    upto: Array
    """``(CHUNK + 2 window + 3,)``: end of each row's edges in ``edges``."""
    negatives: Array
    """``(CHUNK / GROUP, NEGATIVES)``: negatives of each group."""
    words: Array
    """``(CHUNK,)``, by slot: words at the positions, -1 if there is nothing to learn."""
    scores: Array
    """``(5, 16)``: h · o of a group's positions and negatives, four by four in each row; then, -h · o of words."""
    slopes: Array
    """The same places: α ∂L/∂(h · o)."""


_CODE = sha256(b"".join(Path(file).read_bytes() for file in (__file__, lanes.__file__))).hexdigest()[:12]
"""A hash of this file and of the arithmetic."""


def _compile(function: Any, inline: Literal["never", "always"] = "never") -> Any:
    """Compile ``function``.

    Numba's cache is named after the function and only detects changes in this file, so the name includes the hash of
    all code.
    """
    function.__qualname__ += f"_{_CODE}"
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": True, "fastmath": _FAST}
    return njit(inline=inline, **options)(function)


def _inline(function: Any) -> Any:
    """Inline ``function`` into its callers, which compiles faster unless they are inlined, too."""
    return _compile(function, "always")


@_inline
def next_bits(state: Any) -> Any:
    """Draw 32 random bits and update ``state`` (1,) uint64 (xorshift64*, Vigna, arXiv 1402.6246)."""
    x = state[0]
    x ^= x >> _u64(12)
    x ^= x << _u64(25)
    x ^= x >> _u64(27)
    state[0] = x
    return (x * _u64(2685821657736338717)) >> _u64(32)


@_inline
def fill_buffer(text: Any, position: int, line: int, noise: Any, state: Any, buffer: Any) -> Any:
    """Fill ``buffer``: the words after subsampling (n,), and begin and end of their lines (n, 2).

    Returns n, the next position in the text, its line, and the number of trained words read.
    """
    words, lines = buffer
    n, n_read, n_words = 0, 0, len(noise.keep)
    while line < len(text.borders) - 1:
        line_begin, end = n, text.borders[line + 1]
        while position < end and n < len(words):
            word = text.ids[position]
            position += 1
            if word < n_words:
                n_read += 1
                words[n] = word
                n += next_bits(state) <= noise.keep[word]  # without a branch, since it would be mispredicted
        for i in range(line_begin, n):
            lines[i, 0], lines[i, 1] = line_begin, n
        if position < end:
            break
        line += 1
    return n, position, line, n_read


@_inline
def draw_windows(room: Any, lines: Any, first_position: int, n: int, settings: Any, state: Any) -> Any:
    """Draw the windows of ``n`` positions from ``first_position`` on; returns the lowest begin and the highest end."""
    low, high = first_position, first_position + n
    for i in range(n):
        position, width = first_position + i, 1 + int(next_bits(state) % _u64(settings.window))
        room.begins[i] = max(lines[position, 0], position - width)
        room.ends[i] = min(lines[position, 1], position + width + 1)
        low, high = min(low, room.begins[i]), max(high, room.ends[i])
    for i in range(n):
        room.begins[i] -= low
        room.ends[i] -= low
    return low, high


@_inline
def draw_negatives(room: Any, n_groups: int, noise: Any, state: Any) -> None:
    """Draw the negatives of all groups."""
    n_words = _u64(len(noise.keep))
    for i in range(n_groups):
        for k in range(NEGATIVES):
            word = np.int64((next_bits(state) * n_words) >> _u64(32))
            alias = np.int64(noise.alias[word])
            room.negatives[i, k] = alias if next_bits(state) >= noise.threshold[word] else word


@_inline
def prefetch_row(table: Any, word: int) -> None:
    """Prefetch a row."""
    for q in range(0, table.shape[1], LANES):
        prefetch(table, word, q)


@_inline
def prefetch_first(room: Any, output: Any, words: Any, first_position: int, n: int) -> None:
    """Prefetch the output rows of a chunk's first group; those of the others are prefetched a group ahead."""
    for j in range(GROUP):
        prefetch_row(output, words[first_position + min(room.positions[j], n - 1)])
        prefetch_row(output, room.negatives[0, j])


@_inline
def find_places(room: Any, stride: int) -> None:
    """Order positions by group: the positions of slots, and the slots of positions."""
    slot = 0
    for i in range(stride):
        for j in range(GROUP):
            room.positions[slot], room.slots[i + j * stride] = i + j * stride, slot
            slot += 1


@_inline
def read_rows(room: Any, table: Any, words: Any, span: Any, n_slots: int) -> None:
    """Compute h of all positions from cumulative sums of input rows."""
    first_position, n, low, high = span
    find_factors(room, words, first_position, n, n_slots)
    for q in range(0, table.shape[1], 2 * WIDE):
        # Two pieces at a time, with the same result if they are the same, the last of an odd number.
        r = min(q + WIDE, table.shape[1] - WIDE)
        x = y = splat_wide(_f32(0))
        store(room.sums, 0, 0, x)
        store(room.sums, 0, WIDE, y)
        for j in range(low, high):
            x, y = add(x, load_wide(table, words[j], q)), add(y, load_wide(table, words[j], r))
            store(room.sums, j - low + 1, 0, x)
            store(room.sums, j - low + 1, WIDE, y)
        for slot in range(n_slots):
            position = room.positions[slot]
            begin, end, word = room.begins[position], room.ends[position], words[first_position + min(position, n - 1)]
            factor = splat_wide(room.factors[slot])
            x = subtract(load_wide(room.sums, end, 0), load_wide(room.sums, begin, 0))
            y = subtract(load_wide(room.sums, end, WIDE), load_wide(room.sums, begin, WIDE))
            # A word is not in its own context.
            store(room.rows, GROUP + slot, q, multiply(factor, subtract(x, load_wide(table, word, q))))
            store(room.rows, GROUP + slot, r, multiply(factor, subtract(y, load_wide(table, word, r))))


@_inline
def find_factors(room: Any, words: Any, first_position: int, n: int, n_slots: int) -> None:
    """Find words and factors of sums, by slot; without a context, there is no word."""
    for slot in range(n_slots):
        position = room.positions[slot]
        n_others = room.ends[position] - room.begins[position] - 1 if position < n else 0
        room.words[slot] = words[first_position + position] if n_others > 0 else -1
        room.factors[slot] = _f32(1) / _f32(n_others) if n_others > 0 else _f32(0)


@_inline
def score_group(room: Any, output: Any, i: int) -> None:
    """Compute a group's scores, in tiles of four positions and four negatives, and of two words beside each tile."""
    for tile in range(4):
        j, k, own = tile % 2 * 4, tile // 2 * 4, i * GROUP + 2 * tile
        n0, n1 = room.negatives[i, k], room.negatives[i, k + 1]
        n2, n3 = room.negatives[i, k + 2], room.negatives[i, k + 3]
        word, next_word = max(room.words[own], 0), max(room.words[own + 1], 0)
        row, own_row = GROUP + i * GROUP + j, GROUP + own
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = splat(_f32(0))
        c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = splat(_f32(0))
        x = y = splat(_f32(0))
        for q in range(0, output.shape[1], LANES):
            o0, o1, o2, o3 = load(output, n0, q), load(output, n1, q), load(output, n2, q), load(output, n3, q)
            h = load(room.rows, row, q)
            a0, a1 = multiply_add(h, o0, a0), multiply_add(h, o1, a1)
            a2, a3 = multiply_add(h, o2, a2), multiply_add(h, o3, a3)
            h = load(room.rows, row + 1, q)
            b0, b1 = multiply_add(h, o0, b0), multiply_add(h, o1, b1)
            b2, b3 = multiply_add(h, o2, b2), multiply_add(h, o3, b3)
            h = load(room.rows, row + 2, q)
            c0, c1 = multiply_add(h, o0, c0), multiply_add(h, o1, c1)
            c2, c3 = multiply_add(h, o2, c2), multiply_add(h, o3, c3)
            h = load(room.rows, row + 3, q)
            d0, d1 = multiply_add(h, o0, d0), multiply_add(h, o1, d1)
            d2, d3 = multiply_add(h, o2, d2), multiply_add(h, o3, d3)
            x = multiply_add(load(room.rows, own_row, q), load(output, word, q), x)
            y = multiply_add(load(room.rows, own_row + 1, q), load(output, next_word, q), y)
        store_totals(room.scores, tile, (a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3))
        room.scores[_OWN, 2 * tile], room.scores[_OWN, 2 * tile + 1] = -total(x), -total(y)


@_inline
def find_errors(scores: Any, errors: Any) -> None:
    """Compute σ of ``scores``, rows of 16; exp(-x) = exp(-x / 16)^16, by the first terms of its series."""
    for j in range(scores.shape[0]):
        for k in range(0, scores.shape[1], LANES):
            x = multiply(load(scores, j, k), splat(_f32(-1 / 16)))
            e = multiply_add(x, splat(_f32(1 / 720)), splat(_f32(1 / 120)))
            e = multiply_add(e, x, splat(_f32(1 / 24)))
            e = multiply_add(e, x, splat(_f32(1 / 6)))
            e = multiply_add(e, x, splat(_f32(1 / 2)))
            e = multiply_add(e, x, splat(_f32(1)))
            e = multiply_add(e, x, splat(_f32(1)))
            e = multiply(e, e)
            e = multiply(e, e)
            e = multiply(e, e)
            store(errors, j, k, divide(splat(_f32(1)), multiply_add(e, e, splat(_f32(1)))))


@_inline
def find_slopes(room: Any, i: int, rate: Any, weight: Any) -> Any:
    """Compute α ∂L/∂(h · o) from scores; ``weight`` is the learning rate times a negative's weight.

    Returns the number of positions that learn, and the number of these whose word has a score over -LIMIT.
    """
    find_errors(room.scores, room.slopes)
    learned, likely = 0, 0
    for j in range(GROUP):
        word = room.words[i * GROUP + j]
        learns, score = word >= 0, -room.scores[_OWN, j]
        room.slopes[_OWN, j] = rate * room.slopes[_OWN, j] if learns and abs(score) < LIMIT else _f32(0)
        learned += learns
        likely += learns and score > -LIMIT
        for k in range(NEGATIVES):
            row, column = k // 4 * 2 + j // 4, j % 4 * 4 + k % 4
            counts = learns and room.negatives[i, k] != word and abs(room.scores[row, column]) < LIMIT
            room.slopes[row, column] = -weight * room.slopes[row, column] if counts else _f32(0)
    return learned, likely


@_inline
def splat_four(table: Any, row: Any, column: Any, step: Any) -> Any:
    """Lanes of four numbers of a row, ``step`` columns apart."""
    return (
        splat(table[row, column]),
        splat(table[row, column + step]),
        splat(table[row, column + 2 * step]),
        splat(table[row, column + 3 * step]),
    )


@_inline
def find_gradients(room: Any, output: Any, groups: Any, columns: Any) -> None:
    """Compute the gradients of a group's positions, two at a time, and prefetch the next group's output rows."""
    i, next_group = groups
    n0, n1, n2, n3 = room.negatives[i, 0], room.negatives[i, 1], room.negatives[i, 2], room.negatives[i, 3]
    n4, n5, n6, n7 = room.negatives[i, 4], room.negatives[i, 5], room.negatives[i, 6], room.negatives[i, 7]
    slopes = room.slopes
    for j in range(0, GROUP, 2):
        slot, next_slot = i * GROUP + j, i * GROUP + j + 1
        word, next_word = max(room.words[slot], 0), max(room.words[next_slot], 0)
        soon, also_soon = room.negatives[next_group, j], room.negatives[next_group, j + 1]
        soon_slot = next_group * GROUP + j
        word_soon, next_word_soon = max(room.words[soon_slot], 0), max(room.words[soon_slot + 1], 0)
        s, t = splat(slopes[_OWN, j]), splat(slopes[_OWN, j + 1])
        row, column = j // 4, j % 4 * 4
        s0, s1, s2, s3 = splat_four(slopes, row, column, 1)
        s4, s5, s6, s7 = splat_four(slopes, row + 2, column, 1)
        t0, t1, t2, t3 = splat_four(slopes, row, column + 4, 1)
        t4, t5, t6, t7 = splat_four(slopes, row + 2, column + 4, 1)
        for q in range(columns[0], columns[1], LANES):
            prefetch(output, soon, q)
            prefetch(output, also_soon, q)
            prefetch(output, word_soon, q)
            prefetch(output, next_word_soon, q)
            a, b = multiply(s, load(output, word, q)), multiply(t, load(output, next_word, q))
            o = load(output, n0, q)
            a, b = multiply_add(s0, o, a), multiply_add(t0, o, b)
            o = load(output, n1, q)
            a, b = multiply_add(s1, o, a), multiply_add(t1, o, b)
            o = load(output, n2, q)
            a, b = multiply_add(s2, o, a), multiply_add(t2, o, b)
            o = load(output, n3, q)
            a, b = multiply_add(s3, o, a), multiply_add(t3, o, b)
            o = load(output, n4, q)
            a, b = multiply_add(s4, o, a), multiply_add(t4, o, b)
            o = load(output, n5, q)
            a, b = multiply_add(s5, o, a), multiply_add(t5, o, b)
            o = load(output, n6, q)
            a, b = multiply_add(s6, o, a), multiply_add(t6, o, b)
            o = load(output, n7, q)
            a, b = multiply_add(s7, o, a), multiply_add(t7, o, b)
            store(room.rows, slot, q, a)
            store(room.rows, next_slot, q, b)


@_inline
def step_outputs(room: Any, tables: Any, group: Any, columns: Any) -> None:
    """Update the output rows of a group's words and negatives, two of each at a time.

    Also prefetch input rows of the next chunk. After the end of a buffer that is not full, stale words are prefetched.
    """
    (table, output), (i, words, next_position), slopes = tables, group, room.slopes
    slot = i * GROUP
    for k in range(0, NEGATIVES, 2):
        k1 = k + 1
        soon, also_soon = words[min(next_position + k, len(words) - 1)], words[min(next_position + k1, len(words) - 1)]
        s, t = splat(slopes[_OWN, k]), splat(slopes[_OWN, k1])
        row, column = k // 4 * 2, k % 4
        s0, s1, s2, s3 = splat_four(slopes, row, column, 4)
        s4, s5, s6, s7 = splat_four(slopes, row + 1, column, 4)
        t0, t1, t2, t3 = splat_four(slopes, row, column + 1, 4)
        t4, t5, t6, t7 = splat_four(slopes, row + 1, column + 1, 4)
        word, next_word = max(room.words[slot + k], 0), max(room.words[slot + k1], 0)
        negative, next_negative = room.negatives[i, k], room.negatives[i, k1]
        for q in range(columns[0], columns[1], LANES):
            prefetch(table, soon, q)
            prefetch(table, also_soon, q)
            store(output, word, q, multiply_add(s, load(room.rows, GROUP + slot + k, q), load(output, word, q)))
            h = load(room.rows, GROUP + slot + k1, q)
            store(output, next_word, q, multiply_add(t, h, load(output, next_word, q)))
            h = load(room.rows, GROUP + slot, q)
            a, b = multiply(s0, h), multiply(t0, h)
            h = load(room.rows, GROUP + slot + 1, q)
            a, b = multiply_add(s1, h, a), multiply_add(t1, h, b)
            h = load(room.rows, GROUP + slot + 2, q)
            a, b = multiply_add(s2, h, a), multiply_add(t2, h, b)
            h = load(room.rows, GROUP + slot + 3, q)
            a, b = multiply_add(s3, h, a), multiply_add(t3, h, b)
            h = load(room.rows, GROUP + slot + 4, q)
            a, b = multiply_add(s4, h, a), multiply_add(t4, h, b)
            h = load(room.rows, GROUP + slot + 5, q)
            a, b = multiply_add(s5, h, a), multiply_add(t5, h, b)
            h = load(room.rows, GROUP + slot + 6, q)
            a, b = multiply_add(s6, h, a), multiply_add(t6, h, b)
            h = load(room.rows, GROUP + slot + 7, q)
            a, b = multiply_add(s7, h, a), multiply_add(t7, h, b)
            store(output, negative, q, add(load(output, negative, q), a))
            store(output, next_negative, q, add(load(output, next_negative, q), b))


@_inline
def sort_edges(room: Any, n: int, n_rows: int) -> None:
    """Sort the begins and ends of the windows of ``n`` positions by row."""
    upto = room.upto
    for row in range(n_rows + 2):
        upto[row] = 0
    for i in range(n):
        upto[room.begins[i] + 1] += 1
        upto[room.ends[i] + 1] += 1
    for row in range(n_rows + 1):
        upto[row + 1] += upto[row]
    for i in range(n):
        slot = upto[room.begins[i]]
        room.edges[slot], room.signs[slot] = room.slots[i], _f32(1)
        upto[room.begins[i]] += 1
        slot = upto[room.ends[i]]
        room.edges[slot], room.signs[slot] = room.slots[i], _f32(-1)
        upto[room.ends[i]] += 1


@_inline
def write_rows(room: Any, table: Any, words: Any, span: Any) -> None:
    """Update the input rows of a chunk; ``span`` is its first position, their number, and the range of words."""
    first_position, n, low, high = span
    for q in range(0, table.shape[1], 2 * WIDE):
        r = min(q + WIDE, table.shape[1] - WIDE)  # as in read_rows
        x = y = splat_wide(_f32(0))
        edge = 0
        for j in range(low, high):
            while edge < room.upto[j - low]:
                sign, i = splat_wide(room.signs[edge]), room.edges[edge]
                x = multiply_add(sign, load_wide(room.rows, i, q), x)
                y = multiply_add(sign, load_wide(room.rows, i, r), y)
                edge += 1
            i = room.slots[j - first_position if first_position <= j < first_position + n else CHUNK]
            # A word is not in its own context.
            change = subtract(x, load_wide(room.rows, i, q))
            next_change = subtract(y, load_wide(room.rows, i, r))
            changed = add(load_wide(table, words[j], r), next_change)
            store(table, words[j], q, add(load_wide(table, words[j], q), change))
            store(table, words[j], r, changed)


@_compile
def train_chunk(room: Any, tables: Any, buffer: Any, span: Any, draws: Any, rate: Any) -> Any:
    """Train on up to ``CHUNK`` positions; returns the numbers of ``find_slopes``."""
    (words, lines), (first_position, n), (table, output), (noise, settings, state) = buffer, span, tables, draws
    low, high = draw_windows(room, lines, first_position, n, settings, state)
    stride = (n + GROUP - 1) // GROUP
    draw_negatives(room, stride, noise, state)
    find_places(room, stride)
    prefetch_first(room, output, words, first_position, n)
    read_rows(room, table, words, (first_position, n, low, high), stride * GROUP)
    learned, likely = 0, 0
    for i in range(stride):
        next_group = min(i + 1, stride - 1)
        score_group(room, output, i)
        learned_here, likely_here = find_slopes(room, i, rate, rate * _f32(settings.weight))
        learned, likely = learned + learned_here, likely + likely_here
        for column in range(0, output.shape[1], _BLOCK):
            columns = column, min(column + _BLOCK, output.shape[1])
            find_gradients(room, output, (i, next_group), columns)
            step_outputs(room, tables, (i, words, first_position + n + i * GROUP), columns)
    sort_edges(room, n, high - low)
    write_rows(room, table, words, (first_position, n, low, high))
    return learned, likely


@_compile
def train_lines(text: Any, tables: Any, draws: Any, buffers: Any, rates: Any) -> Any:
    """Train on a part, see ``train_part``."""
    (noise, _, state), (room, buffer) = draws, buffers
    position, line, n_read, learned, likely = text.borders[0], 0, 0, 0, 0
    while line < len(text.borders) - 1:
        rate = _f32(rates[0] + (rates[1] - rates[0]) * n_read / max(text.words, 1))
        n, position, line, n_new = fill_buffer(text, position, line, noise, state, buffer)
        n_read += n_new
        for first_position in range(0, n, CHUNK):
            span = (first_position, min(CHUNK, n - first_position))
            learned_here, likely_here = train_chunk(room, tables, buffer, span, draws, rate)
            learned, likely = learned + learned_here, likely + likely_here
    return learned, likely


@_compile
def sum_weights(weights: Any) -> Any:
    """The sum, in any order."""
    return weights.sum()


@_compile
def pair_words(scaled: Any, underfull: Any, n_small: int, large: Any, tables: Any) -> None:
    """Fill the tables of ``alias_table``: each of the ``n_small`` words gets the rest of its share from a large one."""
    n_large, (threshold, alias) = len(large), tables
    while n_small > 0 and n_large > 0:
        n_small -= 1
        word, donor = underfull[n_small], large[n_large - 1]
        threshold[word] = min(_u64(scaled[word] * 4294967296.0), _u64(4294967295))
        alias[word] = donor
        scaled[donor] -= 1 - scaled[word]
        if scaled[donor] < 1:
            n_large -= 1
            underfull[n_small] = donor
            n_small += 1


def train_part(
    text: TextPart, tables: tuple[Array, Array], noise: Noise, settings: Settings, rates: tuple[float, float], seed: Any
) -> tuple[int, int]:
    """Train on a part; the learning rate falls linearly from ``rates[0]`` to ``rates[1]``.

    Returns the number of positions that learned, and the number of these with a score over -LIMIT.
    """
    # The buffers are made here, since numba takes long to compile their allocation.
    window = settings.window
    dim, rows = tables[0].shape[1] + LANES, CHUNK + 2 * window + 1
    room = _Room(
        aligned_zeros((rows, 2 * WIDE)),
        aligned_zeros((_NOWHERE + 1, dim)),
        np.zeros(CHUNK, np.float32),
        np.zeros(CHUNK, np.int64),
        np.zeros(CHUNK, np.int64),
        np.zeros(CHUNK, np.int64),
        np.full(CHUNK + 1, _NOWHERE),
        np.zeros(2 * CHUNK, np.int64),
        np.zeros(2 * CHUNK, np.float32),
        np.zeros(rows + 2, np.int64),
        np.zeros((CHUNK // GROUP, NEGATIVES), np.int64),
        np.zeros(CHUNK, np.int64),
        aligned_zeros((_OWN + 1, 16)),
        aligned_zeros((_OWN + 1, 16)),
    )
    buffer = (np.zeros(_BUFFER, np.int64), np.zeros((_BUFFER, 2), np.int64))
    draws = (noise, settings, np.full(1, seed, np.uint64))
    return train_lines(text, tables, draws, (room, buffer), rates)


def alias_table(weights: Array) -> tuple[Array, Array]:
    """Build the tables of Walker's alias method for ``weights`` (n,) float64: thresholds out of 2³², and aliases."""
    n = len(weights)
    scaled = weights * (n / sum_weights(weights))
    tables = np.full(n, (1 << 32) - 1, np.uint32), np.arange(n, dtype=np.int32)  # a full word's alias is itself
    small, large = np.flatnonzero(scaled < 1), np.flatnonzero(scaled >= 1)
    underfull = np.zeros(n, np.int64)
    underfull[: len(small)] = small
    pair_words(scaled, underfull, len(small), large, tables)
    return tables
