"""The compiled code of the fast engine, which ``fast.py`` describes. Numba compiles it at first use.

Functions take matrices and row numbers: reference counting of row views would cost more than the arithmetic. The width
of rows is a multiple of the pieces of ``lanes.py`` (``padded``).
"""

import math
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from greenadapt.storage.arrays import Array
from greenadapt.vectors.engines import aligned_zeros


def _arithmetic() -> tuple[Any, str]:
    """Import ``lanes``, or ``plain`` and the reason if ``lanes`` does not work with the installed numba."""
    try:
        from greenadapt.vectors.engines import lanes

        lanes.require_working()
    except Exception as error:  # numba's internals can raise any error
        from greenadapt.vectors.engines import plain

        return plain, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return lanes, ""


_arithmetic_used, WHY_PLAIN = _arithmetic()
"""Reason why ``plain`` is used; empty if ``lanes`` is used."""
LANES, WIDE = _arithmetic_used.LANES, _arithmetic_used.WIDE
load, load_wide, store = _arithmetic_used.load, _arithmetic_used.load_wide, _arithmetic_used.store
splat, splat_wide, prefetch = _arithmetic_used.splat, _arithmetic_used.splat_wide, _arithmetic_used.prefetch
add, subtract, total = _arithmetic_used.add, _arithmetic_used.subtract, _arithmetic_used.total
multiply, multiply_add = _arithmetic_used.multiply, _arithmetic_used.multiply_add

CHUNK = 64
"""Positions whose input rows are summed together; a multiple of ``GROUP``."""
GROUP = 8
"""Positions that share negatives, evenly spaced in a chunk."""
NEGATIVES = 8
"""Negatives of a group; the code below assumes eight positions and eight negatives."""
LIMIT = 6
"""Limit of the absolute value of scores, beyond which nothing is learned."""
_BUFFER = 4096  # words after subsampling
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

    ``keep`` uint64: a word is kept if 32 random bits are at most this number. ``threshold`` uint64 and ``alias`` int64:
    Walker's alias method draws a negative as a uniform word if 32 random bits are below its threshold, else as the
    alias of that word.
    """

    keep: Array
    threshold: Array
    alias: Array


class Settings(NamedTuple):
    """The settings of a ``W2VConfig`` that the compiled code needs."""

    window: int
    shrinks: bool
    mean: bool
    corrected: bool
    weight: float
    """k / m: the weight of each of a group's m negatives, for k negatives per word."""


class _Room(NamedTuple):
    """The buffers of a thread, for the positions of a chunk and the words around it."""

    sums: Array
    """``(CHUNK + 2 window + 1, dim)``: cumulative sums of input rows."""
    means: Array
    """``(GROUP, dim)``: h."""
    gradients: Array
    """``(CHUNK + 1, dim)``: α ∂L/∂h, one row per position, and a row of zeros."""
    shares: Array
    """``(CHUNK + 1,)``: the share of the gradient for each word of the context."""
    begins: Array
    ends: Array
    """``(CHUNK,)`` each: begin and end of windows, as rows of ``sums``."""
    edges: Array
    """``(2 CHUNK,)``: the positions of all begins and ends, sorted by row."""
    signs: Array
    """``(2 CHUNK,)``: factor of the position's gradient in the cumulative sum of changes."""
    upto: Array
    """``(CHUNK + 2 window + 3,)``: end of each row's edges in ``edges``."""
    negatives: Array
    """``(CHUNK / GROUP, NEGATIVES)``: negatives of each group."""
    words: Array
    """``(GROUP,)``: words at the positions, -1 if there is nothing to learn."""
    steps: Array
    """``(GROUP,)``: α ∂L/∂(h · o) of the words at the positions."""
    scores: Array
    """``(GROUP, NEGATIVES)``: h · o of the negatives, then α ∂L/∂(h · o)."""


def _next(state: Any) -> Any:
    """Draw 32 random bits and update ``state`` (1,) uint64 (xorshift64*, Vigna, arXiv 1402.6246)."""
    x = state[0]
    x ^= x >> _u64(12)
    x ^= x << _u64(25)
    x ^= x >> _u64(27)
    state[0] = x
    return (x * _u64(2685821657736338717)) >> _u64(32)


def _fill(text: Any, position: int, line: int, noise: Any, state: Any, buffer: Any) -> Any:
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
                if next_bits(state) <= noise.keep[word]:
                    words[n] = word
                    n += 1
        for i in range(line_begin, n):
            lines[i, 0], lines[i, 1] = line_begin, n
        if position < end:
            break
        line += 1
    return n, position, line, n_read


def _windows(room: Any, lines: Any, first_position: int, n: int, settings: Any, state: Any) -> Any:
    """Draw the windows of ``n`` positions from ``first_position`` on; returns the lowest begin and the highest end."""
    low, high = first_position, first_position + n
    for i in range(n):
        position, width = first_position + i, settings.window
        if settings.shrinks:
            width = 1 + int(next_bits(state) % _u64(settings.window))
        room.begins[i] = max(lines[position, 0], position - width)
        room.ends[i] = min(lines[position, 1], position + width + 1)
        low, high = min(low, room.begins[i]), max(high, room.ends[i])
    for i in range(n):
        room.begins[i] -= low
        room.ends[i] -= low
    return low, high


def _negatives(room: Any, n_groups: int, noise: Any, state: Any) -> None:
    """Draw the negatives of all groups."""
    n_words = _u64(len(noise.keep))
    for i in range(n_groups):
        for k in range(NEGATIVES):
            word = np.int64((next_bits(state) * n_words) >> _u64(32))
            if next_bits(state) >= noise.threshold[word]:
                word = noise.alias[word]
            room.negatives[i, k] = word


def _read(room: Any, table: Any, words: Any, low: int, high: int) -> None:
    """Compute cumulative sums of the input rows of ``words[low:high]``."""
    for q in range(0, table.shape[1], WIDE):
        x = splat_wide(_f32(0))
        store(room.sums, 0, q, x)
        for j in range(low, high):
            x = add(x, load_wide(table, words[j], q))
            store(room.sums, j - low + 1, q, x)


def _ask_for(table: Any, word: int) -> None:
    """Prefetch a row."""
    for q in range(0, table.shape[1], LANES):
        prefetch(table, word, q)


def _ask_ahead(room: Any, tables: Any, words: Any, span: Any, i: int, stride: int) -> None:
    """Prefetch the output rows of the group after ``i``, and one input row of the next chunk per position.

    After the end of a buffer that is not full, stale words are prefetched in vain.
    """
    (table, output), (first_position, n) = tables, span
    for j in range(GROUP):
        if i + 1 < stride:
            ask_for_row(output, words[first_position + min(i + 1 + j * stride, n - 1)])
            ask_for_row(output, room.negatives[i + 1, j])
        ask_for_row(table, words[min(first_position + n + i * GROUP + j, len(words) - 1)])


def _mean(room: Any, tables: Any, word: int, window: Any, mean: bool) -> Any:
    """Compute h of a position in row ``j`` of ``means``; ``window`` is (j, begin, end). Returns the word's score."""
    j, begin, end = window
    table, output = tables
    share = splat(_f32(1) / _f32(end - begin - 1) if mean else _f32(1))
    score = splat(_f32(0))
    for q in range(0, table.shape[1], LANES):
        others_sum = subtract(load(room.sums, end, q), load(room.sums, begin, q))
        h = multiply(subtract(others_sum, load(table, word, q)), share)
        store(room.means, j, q, h)
        score = multiply_add(h, load(output, word, q), score)
    return total(score)


def _means(room: Any, tables: Any, words: Any, span: Any, draws: Any, group: Any) -> Any:
    """Compute h, words and steps of a group's positions, every ``stride``-th from ``i`` on.

    Returns the number of positions that learn, and the number of these with a score over -LIMIT.
    """
    (first_position, n), (i, stride, rate), (_, settings, _) = span, group, draws
    learned, likely = 0, 0
    for j in range(GROUP):
        position = i + j * stride
        if position < n and room.ends[position] - room.begins[position] > 1:
            word, begin, end = words[first_position + position], room.begins[position], room.ends[position]
            score = context_mean(room, tables, word, (j, begin, end), settings.mean)
            room.words[j] = word
            room.steps[j] = rate / (_f32(1) + math.exp(score)) if abs(score) < LIMIT else _f32(0)
            room.shares[position] = _f32(1) / _f32(end - begin - 1) if settings.corrected else _f32(1)
            learned, likely = learned + 1, likely + (score > -LIMIT)
        else:
            for q in range(0, room.means.shape[1], LANES):
                store(room.means, j, q, splat(_f32(0)))
            room.words[j], room.steps[j], room.shares[position] = -1, 0, 0
    return learned, likely


def _sum_up(scores: Any, j: int, k: int, sums: Any) -> None:
    """Store the scores of position ``j`` and four negatives from ``k`` on."""
    a, b, c, d = sums
    scores[j, k], scores[j, k + 1], scores[j, k + 2], scores[j, k + 3] = total(a), total(b), total(c), total(d)


def _score(room: Any, output: Any, i: int) -> None:
    """Compute the scores of a group's positions and negatives, in blocks of 4 × 4 that fit in registers."""
    for k in range(0, NEGATIVES, 4):
        n0, n1 = room.negatives[i, k], room.negatives[i, k + 1]
        n2, n3 = room.negatives[i, k + 2], room.negatives[i, k + 3]
        for j in range(0, GROUP, 4):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = splat(_f32(0))
            c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = splat(_f32(0))
            for q in range(0, output.shape[1], LANES):
                o0, o1, o2, o3 = load(output, n0, q), load(output, n1, q), load(output, n2, q), load(output, n3, q)
                h = load(room.means, j, q)
                a0, a1 = multiply_add(h, o0, a0), multiply_add(h, o1, a1)
                a2, a3 = multiply_add(h, o2, a2), multiply_add(h, o3, a3)
                h = load(room.means, j + 1, q)
                b0, b1 = multiply_add(h, o0, b0), multiply_add(h, o1, b1)
                b2, b3 = multiply_add(h, o2, b2), multiply_add(h, o3, b3)
                h = load(room.means, j + 2, q)
                c0, c1 = multiply_add(h, o0, c0), multiply_add(h, o1, c1)
                c2, c3 = multiply_add(h, o2, c2), multiply_add(h, o3, c3)
                h = load(room.means, j + 3, q)
                d0, d1 = multiply_add(h, o0, d0), multiply_add(h, o1, d1)
                d2, d3 = multiply_add(h, o2, d2), multiply_add(h, o3, d3)
            sum_up(room.scores, j, k, (a0, a1, a2, a3))
            sum_up(room.scores, j + 1, k, (b0, b1, b2, b3))
            sum_up(room.scores, j + 2, k, (c0, c1, c2, c3))
            sum_up(room.scores, j + 3, k, (d0, d1, d2, d3))


def _slopes(room: Any, i: int, weight: Any) -> None:
    """Turn the scores of negatives into α ∂L/∂(h · o); ``weight`` is the learning rate times a negative's weight."""
    for j in range(GROUP):
        for k in range(NEGATIVES):
            score = room.scores[j, k]
            counts = room.words[j] >= 0 and room.negatives[i, k] != room.words[j] and abs(score) < LIMIT
            room.scores[j, k] = -weight / (_f32(1) + math.exp(-score)) if counts else _f32(0)


def _gradients(room: Any, output: Any, i: int, stride: int) -> None:
    """Compute the gradients of a group's positions, two at a time."""
    n0, n1, n2, n3 = room.negatives[i, 0], room.negatives[i, 1], room.negatives[i, 2], room.negatives[i, 3]
    n4, n5, n6, n7 = room.negatives[i, 4], room.negatives[i, 5], room.negatives[i, 6], room.negatives[i, 7]
    scores = room.scores
    for j in range(0, GROUP, 2):
        position, next_position = i + j * stride, i + (j + 1) * stride
        word, next_word = max(room.words[j], 0), max(room.words[j + 1], 0)
        s, t = splat(room.steps[j]), splat(room.steps[j + 1])
        s0, s1, s2, s3 = splat(scores[j, 0]), splat(scores[j, 1]), splat(scores[j, 2]), splat(scores[j, 3])
        s4, s5, s6, s7 = splat(scores[j, 4]), splat(scores[j, 5]), splat(scores[j, 6]), splat(scores[j, 7])
        j1 = j + 1
        t0, t1, t2, t3 = splat(scores[j1, 0]), splat(scores[j1, 1]), splat(scores[j1, 2]), splat(scores[j1, 3])
        t4, t5, t6, t7 = splat(scores[j1, 4]), splat(scores[j1, 5]), splat(scores[j1, 6]), splat(scores[j1, 7])
        for q in range(0, output.shape[1], LANES):
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
            store(room.gradients, position, q, a)
            store(room.gradients, next_position, q, b)


def _outputs(room: Any, output: Any, i: int) -> None:
    """Update the output rows of a group's words, then those of its negatives, two at a time."""
    dim, scores = output.shape[1], room.scores
    for j in range(GROUP):
        if room.steps[j] != 0:
            s, word = splat(room.steps[j]), room.words[j]
            for q in range(0, dim, LANES):
                store(output, word, q, multiply_add(s, load(room.means, j, q), load(output, word, q)))
    for k in range(0, NEGATIVES, 2):
        k1 = k + 1
        s0, s1, s2, s3 = splat(scores[0, k]), splat(scores[1, k]), splat(scores[2, k]), splat(scores[3, k])
        s4, s5, s6, s7 = splat(scores[4, k]), splat(scores[5, k]), splat(scores[6, k]), splat(scores[7, k])
        t0, t1, t2, t3 = splat(scores[0, k1]), splat(scores[1, k1]), splat(scores[2, k1]), splat(scores[3, k1])
        t4, t5, t6, t7 = splat(scores[4, k1]), splat(scores[5, k1]), splat(scores[6, k1]), splat(scores[7, k1])
        negative, next_negative = room.negatives[i, k], room.negatives[i, k1]
        for q in range(0, dim, LANES):
            h = load(room.means, 0, q)
            a, b = multiply(s0, h), multiply(t0, h)
            h = load(room.means, 1, q)
            a, b = multiply_add(s1, h, a), multiply_add(t1, h, b)
            h = load(room.means, 2, q)
            a, b = multiply_add(s2, h, a), multiply_add(t2, h, b)
            h = load(room.means, 3, q)
            a, b = multiply_add(s3, h, a), multiply_add(t3, h, b)
            h = load(room.means, 4, q)
            a, b = multiply_add(s4, h, a), multiply_add(t4, h, b)
            h = load(room.means, 5, q)
            a, b = multiply_add(s5, h, a), multiply_add(t5, h, b)
            h = load(room.means, 6, q)
            a, b = multiply_add(s6, h, a), multiply_add(t6, h, b)
            h = load(room.means, 7, q)
            a, b = multiply_add(s7, h, a), multiply_add(t7, h, b)
            store(output, negative, q, add(load(output, negative, q), a))
            store(output, next_negative, q, add(load(output, next_negative, q), b))


def _edges(room: Any, n: int, n_rows: int) -> None:
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
        room.edges[slot], room.signs[slot] = i, room.shares[i]
        upto[room.begins[i]] += 1
        slot = upto[room.ends[i]]
        room.edges[slot], room.signs[slot] = i, -room.shares[i]
        upto[room.ends[i]] += 1


def _write(room: Any, table: Any, words: Any, span: Any) -> None:
    """Update the input rows of a chunk; ``span`` is its first position, their number, and the range of words."""
    first_position, n, low, high = span
    for q in range(0, table.shape[1], WIDE):
        x = splat_wide(_f32(0))
        edge = 0
        for j in range(low, high):
            while edge < room.upto[j - low]:
                sign = splat_wide(room.signs[edge])
                x = multiply_add(sign, load_wide(room.gradients, room.edges[edge], q), x)
                edge += 1
            i = j - first_position if first_position <= j < first_position + n else CHUNK
            # A word is not in its own context.
            own_gradient = multiply(splat_wide(room.shares[i]), load_wide(room.gradients, i, q))
            store(table, words[j], q, add(load_wide(table, words[j], q), subtract(x, own_gradient)))


def _chunk(room: Any, tables: Any, buffer: Any, span: Any, draws: Any, rate: Any) -> Any:
    """Train on up to ``CHUNK`` positions; returns the numbers of ``_means``."""
    (words, lines), (first_position, n), (table, output), (noise, settings, state) = buffer, span, tables, draws
    low, high = draw_windows(room, lines, first_position, n, settings, state)
    stride = (n + GROUP - 1) // GROUP
    draw_negatives(room, stride, noise, state)
    read_rows(room, table, words, low, high)
    learned, likely = 0, 0
    for i in range(stride):
        ask_ahead(room, tables, words, span, i, stride)
        learned_here, likely_here = find_means(room, tables, words, span, draws, (i, stride, rate))
        learned, likely = learned + learned_here, likely + likely_here
        score_group(room, output, i)
        find_slopes(room, i, rate * _f32(settings.weight))
        find_gradients(room, output, i, stride)
        step_outputs(room, output, i)
    sort_edges(room, n, high - low)
    write_rows(room, table, words, (first_position, n, low, high))
    return learned, likely


def _train(text: Any, tables: Any, draws: Any, buffers: Any, rates: Any) -> Any:
    """Train on a part, see ``train_part``."""
    (noise, _, state), (room, buffer) = draws, buffers
    position, line, n_read, learned, likely = text.borders[0], 0, 0, 0, 0
    while line < len(text.borders) - 1:
        rate = _f32(rates[0] + (rates[1] - rates[0]) * n_read / max(text.words, 1))
        n, position, line, n_new = fill(text, position, line, noise, state, buffer)
        n_read += n_new
        for first_position in range(0, n, CHUNK):
            span = (first_position, min(CHUNK, n - first_position))
            learned_here, likely_here = train_chunk(room, tables, buffer, span, draws, rate)
            learned, likely = learned + learned_here, likely + likely_here
    return learned, likely


def _sum(weights: Any) -> Any:
    return weights.sum()


def _pair(scaled: Any, underfull: Any, n_small: int, large: Any, tables: Any) -> None:
    """Fill the tables of ``alias_table``: each of the ``n_small`` words gets the rest of its share from a large one."""
    n_large, (threshold, alias) = len(large), tables
    while n_small > 0 and n_large > 0:
        n_small -= 1
        word, donor = underfull[n_small], large[n_large - 1]
        threshold[word] = _u64(scaled[word] * 4294967296.0)
        alias[word] = donor
        scaled[donor] -= 1 - scaled[word]
        if scaled[donor] < 1:
            n_large -= 1
            underfull[n_small] = donor
            n_small += 1


def _code() -> str:
    """A hash of this file and of the arithmetic in use."""
    content = b"".join(Path(file).read_bytes() for file in (__file__, _arithmetic_used.__file__))
    return sha256(content + f"{_arithmetic_used.__name__} {WIDE}".encode()).hexdigest()[:12]


_CODE = _code()


def _compiled(function: Any, *, inline: bool = True) -> Any:
    """Compile ``function``, or inline it into its callers, which compiles faster unless they are inlined, too.

    Numba's cache is named after the function and only detects changes in this file, so the name includes the hash of
    all code.
    """
    function.__qualname__ += f"_{_CODE}"
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": True, "fastmath": _FAST}
    return njit(inline="always" if inline else "never", **options)(function)


next_bits = _compiled(_next)
fill = _compiled(_fill)
draw_windows = _compiled(_windows)
draw_negatives = _compiled(_negatives)
read_rows = _compiled(_read)
ask_for_row = _compiled(_ask_for)
ask_ahead = _compiled(_ask_ahead)
context_mean = _compiled(_mean)
sum_up = _compiled(_sum_up)
score_group = _compiled(_score)
find_means = _compiled(_means)
find_slopes = _compiled(_slopes)
find_gradients = _compiled(_gradients)
step_outputs = _compiled(_outputs)
sort_edges = _compiled(_edges)
write_rows = _compiled(_write)
train_chunk = _compiled(_chunk, inline=False)
train_lines = _compiled(_train, inline=False)
sum_weights = _compiled(_sum, inline=False)
pair_words = _compiled(_pair, inline=False)


def train_part(
    text: TextPart, tables: tuple[Array, Array], noise: Noise, settings: Settings, rates: tuple[float, float], seed: Any
) -> tuple[int, int]:
    """Train on a part; the learning rate falls linearly from ``rates[0]`` to ``rates[1]``.

    Returns the number of positions that learned, and the number of these with a score over -LIMIT.
    """
    # The buffers are made here, since numba takes long to compile their allocation.
    dim, rows = tables[0].shape[1], CHUNK + 2 * settings.window + 1
    room = _Room(
        aligned_zeros((rows, dim)),
        aligned_zeros((GROUP, dim)),
        aligned_zeros((CHUNK + 1, dim)),
        np.zeros(CHUNK + 1, np.float32),
        np.zeros(CHUNK, np.int64),
        np.zeros(CHUNK, np.int64),
        np.zeros(2 * CHUNK, np.int64),
        np.zeros(2 * CHUNK, np.float32),
        np.zeros(rows + 2, np.int64),
        np.zeros((CHUNK // GROUP, NEGATIVES), np.int64),
        np.zeros(GROUP, np.int64),
        np.zeros(GROUP, np.float32),
        np.zeros((GROUP, NEGATIVES), np.float32),
    )
    buffer = (np.zeros(_BUFFER, np.int64), np.zeros((_BUFFER, 2), np.int64))
    draws = (noise, settings, np.full(1, seed, np.uint64))
    counts: tuple[int, int] = train_lines(text, tables, draws, (room, buffer), rates)
    return counts


def alias_table(weights: Array) -> tuple[Array, Array]:
    """Build the tables of Walker's alias method for ``weights`` (n,) float64: thresholds out of 2³², and aliases."""
    n = len(weights)
    scaled = weights * (n / sum_weights(weights))
    tables = np.full(n, 1 << 32, np.uint64), np.arange(n)
    small, large = np.flatnonzero(scaled < 1), np.flatnonzero(scaled >= 1)
    underfull = np.zeros(n, np.int64)
    underfull[: len(small)] = small
    pair_words(scaled, underfull, len(small), large, tables)
    return tables
