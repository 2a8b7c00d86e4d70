"""The compiled code of the fast engine; ``fast.py`` says what it computes. Numba compiles it at its first use.

Functions take two-dimensional arrays and row numbers: views of rows would be reference-counted, which costs more than
the arithmetic. Rows end where a piece of ``lanes.py`` does (``parts.padded``).
"""

import math
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from greenadapt.storage.arrays import Array


def _arithmetic() -> tuple[Any, str]:
    """``lanes``, or ``plain`` and why ``lanes`` does not work with the installed numba."""
    try:
        from greenadapt.vectors.engines import lanes

        lanes.require_working()
    except Exception as error:  # numba's internals may raise anything
        from greenadapt.vectors.engines import plain

        return plain, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return lanes, ""


_arithmetic_used, WHY_PLAIN = _arithmetic()
"""Empty if ``lanes`` is used."""
LANES, WIDE = _arithmetic_used.LANES, _arithmetic_used.WIDE
load, load_wide, store = _arithmetic_used.load, _arithmetic_used.load_wide, _arithmetic_used.store
splat, splat_wide, prefetch = _arithmetic_used.splat, _arithmetic_used.splat_wide, _arithmetic_used.prefetch
add, subtract, total = _arithmetic_used.add, _arithmetic_used.subtract, _arithmetic_used.total
multiply, multiply_add = _arithmetic_used.multiply, _arithmetic_used.multiply_add

CHUNK = 64
"""Positions whose input rows are read together; a multiple of ``GROUP``."""
GROUP = 8
"""Positions of a chunk that share negatives, evenly spread over it."""
NEGATIVES = 8
"""Negatives of a group; the products below assume eight positions and eight negatives."""
LIMIT = 6
"""Scores are cut off here; beyond, nothing is learned."""
_BUFFER = 4096  # words left by subsampling, of one or several lines
_f32, _u64 = np.float32, np.uint64
_FAST = {"reassoc", "contract", "arcp", "nsz"}  # sums in any order; NaN is still detected


class TextPart(NamedTuple):
    """A part of a stream: ``ids`` int32, and where lines begin and end in it, ``borders`` (n_lines + 1,) int64."""

    ids: Array
    borders: Array
    words: int
    """How many of the ids are trained words."""


class Noise(NamedTuple):
    """Which words are kept and which are negatives, ``(n_words,)`` each.

    ``keep`` uint64: a word is kept if 32 random bits are at most this. ``threshold`` uint64 and ``other`` int64: a
    negative is drawn by Walker's alias method: a uniform draw gives the word itself if 32 random bits are below its
    threshold, else the other word.
    """

    keep: Array
    threshold: Array
    other: Array


class Settings(NamedTuple):
    """The settings of a ``W2VConfig`` that the compiled code needs."""

    window: int
    shrinks: bool
    mean: bool
    corrected: bool
    weight: float
    """k / m: the weight of each of a group's m negatives, for k negatives per word."""


class _Room(NamedTuple):
    """A thread's buffers; rows of positions are those of the chunk, other rows those of the words around it."""

    sums: Array
    """``(CHUNK + 2 window + 1, dim)``: running sums of input rows."""
    means: Array
    """``(GROUP, dim)``: h."""
    gradients: Array
    """``(CHUNK + 1, dim)``: α ∂L/∂h, one row per position, and a row of zeros."""
    shares: Array
    """``(CHUNK + 1,)``: the share of it for each word of the context."""
    begins: Array
    ends: Array
    """``(CHUNK,)`` each: where windows begin and end, as rows of ``sums``."""
    edges: Array
    """``(2 CHUNK,)``: the positions of all begins and ends, by row."""
    signs: Array
    """``(2 CHUNK,)``: their contribution to the running sum of changes, as a multiple of the position's gradient."""
    upto: Array
    """``(CHUNK + 2 window + 3,)``: where a row's edges end in ``edges``."""
    negatives: Array
    """``(CHUNK / GROUP, NEGATIVES)``: of each group."""
    words: Array
    """``(GROUP,)``: the positions' own words, -1 if there is nothing to learn."""
    steps: Array
    """``(GROUP,)``: α ∂L/∂(h · o) of the own words."""
    scores: Array
    """``(GROUP, NEGATIVES)``: h · o of the negatives, then α ∂L/∂(h · o)."""


def _next(state: Any) -> Any:
    """32 random bits; ``state`` (1,) uint64 moves on (xorshift64*, Vigna, arXiv 1402.6246)."""
    x = state[0]
    x ^= x >> _u64(12)
    x ^= x << _u64(25)
    x ^= x >> _u64(27)
    state[0] = x
    return (x * _u64(2685821657736338717)) >> _u64(32)


def _fill(text: Any, position: int, line: int, noise: Any, state: Any, buffer: Any) -> Any:
    """Fill ``buffer``: the words left by subsampling (n,), and where their lines begin and end (n, 2).

    Returns how many there are, the next position in the text, its line, and how many trained words were read.
    """
    words, lines = buffer
    n, met, n_words = 0, 0, len(noise.keep)
    while line < len(text.borders) - 1:
        first, end = n, text.borders[line + 1]
        while position < end and n < len(words):
            word = text.ids[position]
            position += 1
            if word < n_words:
                met += 1
                if next_bits(state) <= noise.keep[word]:
                    words[n] = word
                    n += 1
        for i in range(first, n):
            lines[i, 0], lines[i, 1] = first, n
        if position < end:
            break
        line += 1
    return n, position, line, met


def _windows(room: Any, lines: Any, first: int, n: int, settings: Any, state: Any) -> Any:
    """Draw the windows of ``n`` positions from ``first`` on; returns where the first begins and the last ends."""
    low, high = first, first + n
    for i in range(n):
        at, width = first + i, settings.window
        if settings.shrinks:
            width = 1 + int(next_bits(state) % _u64(settings.window))
        room.begins[i] = max(lines[at, 0], at - width)
        room.ends[i] = min(lines[at, 1], at + width + 1)
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
                word = noise.other[word]
            room.negatives[i, k] = word


def _read(room: Any, table: Any, words: Any, low: int, high: int) -> None:
    """Running sums of the input rows of ``words[low:high]``."""
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

    If the buffer is not full, old words follow its last one: their prefetch is wasted.
    """
    (table, output), (first, n) = tables, span
    for j in range(GROUP):
        if i + 1 < stride:
            ask_for_row(output, words[first + min(i + 1 + j * stride, n - 1)])
            ask_for_row(output, room.negatives[i + 1, j])
        ask_for_row(table, words[min(first + n + i * GROUP + j, len(words) - 1)])


def _mean(room: Any, tables: Any, word: int, place: Any, mean: bool) -> Any:
    """h of one position, for row ``j`` of ``means``, whose window begins and ends there; returns its word's score."""
    j, begin, end = place
    table, output = tables
    share = splat(_f32(1) / _f32(end - begin - 1) if mean else _f32(1))
    score = splat(_f32(0))
    for q in range(0, table.shape[1], LANES):
        around = subtract(load(room.sums, end, q), load(room.sums, begin, q))
        h = multiply(subtract(around, load(table, word, q)), share)
        store(room.means, j, q, h)
        score = multiply_add(h, load(output, word, q), score)
    return total(score)


def _means(room: Any, tables: Any, words: Any, span: Any, draws: Any, group: Any) -> Any:
    """h, own words and their steps for a group's positions, every ``stride``-th from ``i`` on.

    Returns how many learn, and at how many of these the score is over -LIMIT.
    """
    (first, n), (i, stride, rate), (_, settings, _) = span, group, draws
    learned, likely = 0, 0
    for j in range(GROUP):
        at = i + j * stride
        if at < n and room.ends[at] - room.begins[at] > 1:
            word, begin, end = words[first + at], room.begins[at], room.ends[at]
            score = context_mean(room, tables, word, (j, begin, end), settings.mean)
            room.words[j] = word
            room.steps[j] = rate / (_f32(1) + math.exp(score)) if abs(score) < LIMIT else _f32(0)
            room.shares[at] = _f32(1) / _f32(end - begin - 1) if settings.corrected else _f32(1)
            learned, likely = learned + 1, likely + (score > -LIMIT)
        else:
            for q in range(0, room.means.shape[1], LANES):
                store(room.means, j, q, splat(_f32(0)))
            room.words[j], room.steps[j], room.shares[at] = -1, 0, 0
    return learned, likely


def _sum_up(scores: Any, j: int, k: int, sums: Any) -> None:
    """The scores of position ``j`` and four negatives from ``k`` on."""
    a, b, c, d = sums
    scores[j, k], scores[j, k + 1], scores[j, k + 2], scores[j, k + 3] = total(a), total(b), total(c), total(d)


def _score(room: Any, output: Any, i: int) -> None:
    """The scores of a group's positions and negatives, four by four at a time, as many as fit in registers."""
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
    """The gradients of a group's positions, two at a time."""
    n0, n1, n2, n3 = room.negatives[i, 0], room.negatives[i, 1], room.negatives[i, 2], room.negatives[i, 3]
    n4, n5, n6, n7 = room.negatives[i, 4], room.negatives[i, 5], room.negatives[i, 6], room.negatives[i, 7]
    scores = room.scores
    for j in range(0, GROUP, 2):
        at, next_ = i + j * stride, i + (j + 1) * stride
        own, next_own = max(room.words[j], 0), max(room.words[j + 1], 0)
        s, t = splat(room.steps[j]), splat(room.steps[j + 1])
        s0, s1, s2, s3 = splat(scores[j, 0]), splat(scores[j, 1]), splat(scores[j, 2]), splat(scores[j, 3])
        s4, s5, s6, s7 = splat(scores[j, 4]), splat(scores[j, 5]), splat(scores[j, 6]), splat(scores[j, 7])
        j1 = j + 1
        t0, t1, t2, t3 = splat(scores[j1, 0]), splat(scores[j1, 1]), splat(scores[j1, 2]), splat(scores[j1, 3])
        t4, t5, t6, t7 = splat(scores[j1, 4]), splat(scores[j1, 5]), splat(scores[j1, 6]), splat(scores[j1, 7])
        for q in range(0, output.shape[1], LANES):
            a, b = multiply(s, load(output, own, q)), multiply(t, load(output, next_own, q))
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
            store(room.gradients, at, q, a)
            store(room.gradients, next_, q, b)


def _outputs(room: Any, output: Any, i: int) -> None:
    """The steps of a group's own words, then those of its negatives, two at a time."""
    dim, scores = output.shape[1], room.scores
    for j in range(GROUP):
        if room.steps[j] != 0:
            s, own = splat(room.steps[j]), room.words[j]
            for q in range(0, dim, LANES):
                store(output, own, q, multiply_add(s, load(room.means, j, q), load(output, own, q)))
    for k in range(0, NEGATIVES, 2):
        k1 = k + 1
        s0, s1, s2, s3 = splat(scores[0, k]), splat(scores[1, k]), splat(scores[2, k]), splat(scores[3, k])
        s4, s5, s6, s7 = splat(scores[4, k]), splat(scores[5, k]), splat(scores[6, k]), splat(scores[7, k])
        t0, t1, t2, t3 = splat(scores[0, k1]), splat(scores[1, k1]), splat(scores[2, k1]), splat(scores[3, k1])
        t4, t5, t6, t7 = splat(scores[4, k1]), splat(scores[5, k1]), splat(scores[6, k1]), splat(scores[7, k1])
        word, next_ = room.negatives[i, k], room.negatives[i, k1]
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
            store(output, word, q, add(load(output, word, q), a))
            store(output, next_, q, add(load(output, next_, q), b))  # after the other: both may be the same word


def _group(room: Any, tables: Any, words: Any, span: Any, draws: Any, group: Any) -> Any:
    """Train on a group, except the input rows; returns what ``_means`` does."""
    (_, output), (i, stride, rate), (_, settings, _) = tables, group, draws
    told = find_means(room, tables, words, span, draws, group)
    score_group(room, output, i)
    find_slopes(room, i, rate * _f32(settings.weight))
    find_gradients(room, output, i, stride)
    step_outputs(room, output, i)
    return told


def _edges(room: Any, n: int, n_rows: int) -> None:
    """Sort where the windows of ``n`` positions begin and end by row, with what begins or ends there."""
    upto = room.upto
    for row in range(n_rows + 2):
        upto[row] = 0
    for i in range(n):
        upto[room.begins[i] + 1] += 1
        upto[room.ends[i] + 1] += 1
    for row in range(n_rows + 1):
        upto[row + 1] += upto[row]
    for i in range(n):
        place = upto[room.begins[i]]
        room.edges[place], room.signs[place] = i, room.shares[i]
        upto[room.begins[i]] += 1
        place = upto[room.ends[i]]
        room.edges[place], room.signs[place] = i, -room.shares[i]
        upto[room.ends[i]] += 1


def _write(room: Any, table: Any, words: Any, span: Any) -> None:
    """Change the input rows of a chunk; ``span`` is its first position, how many it has, and its words' range."""
    first, n, low, high = span
    for q in range(0, table.shape[1], WIDE):
        x = splat_wide(_f32(0))
        edge = 0
        for j in range(low, high):
            while edge < room.upto[j - low]:
                sign = splat_wide(room.signs[edge])
                x = multiply_add(sign, load_wide(room.gradients, room.edges[edge], q), x)
                edge += 1
            i = j - first if first <= j < first + n else CHUNK
            own = multiply(splat_wide(room.shares[i]), load_wide(room.gradients, i, q))  # not in its own context
            store(table, words[j], q, add(load_wide(table, words[j], q), subtract(x, own)))


def _chunk(room: Any, tables: Any, buffer: Any, span: Any, draws: Any, rate: Any) -> Any:
    """Train on up to ``CHUNK`` positions; returns how many learned, and at how many the score was over -LIMIT."""
    (words, lines), (first, n), (table, _), (noise, settings, state) = buffer, span, tables, draws
    low, high = draw_windows(room, lines, first, n, settings, state)
    stride = (n + GROUP - 1) // GROUP
    draw_negatives(room, stride, noise, state)
    read_rows(room, table, words, low, high)
    learned, likely = 0, 0
    for i in range(stride):
        ask_ahead(room, tables, words, span, i, stride)
        here, likely_here = train_group(room, tables, words, span, draws, (i, stride, rate))
        learned, likely = learned + here, likely + likely_here
    sort_edges(room, n, high - low)
    write_rows(room, table, words, (first, n, low, high))
    return learned, likely


def _train(text: Any, tables: Any, noise: Any, settings: Any, rates: Any, seed: int) -> Any:
    """Train on one part, the learning rate falling from ``rates[0]`` to ``rates[1]`` with the words read.

    Returns how many positions it learned from, and at how many of these the word had a score over -LIMIT.
    """
    dim = tables[0].shape[1]
    state = np.full(1, seed, np.uint64)
    rows = CHUNK + 2 * settings.window + 1
    room = _Room(
        np.zeros((rows, dim), np.float32),
        np.zeros((GROUP, dim), np.float32),
        np.zeros((CHUNK + 1, dim), np.float32),
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
    position, line, met, learned, likely = text.borders[0], 0, 0, 0, 0
    while line < len(text.borders) - 1:
        rate = _f32(rates[0] + (rates[1] - rates[0]) * met / max(text.words, 1))
        n, position, line, more = fill(text, position, line, noise, state, buffer)
        met += more
        for first in range(0, n, CHUNK):
            span = (first, min(CHUNK, n - first))
            here, likely_here = train_chunk(room, tables, buffer, span, (noise, settings, state), rate)
            learned, likely = learned + here, likely + likely_here
    return learned, likely


def _alias(weights: Any) -> Any:
    """Walker's alias method for ``weights`` (n,) float64: thresholds out of 2³², and the other words."""
    n = len(weights)
    scaled = weights * (n / weights.sum())
    threshold, other = np.full(n, _u64(1) << _u64(32), np.uint64), np.arange(n)
    small, large = np.flatnonzero(scaled < 1), np.flatnonzero(scaled >= 1)
    n_small, n_large = len(small), len(large)
    waiting = np.zeros(n, np.int64)
    waiting[:n_small] = small
    while n_small > 0 and n_large > 0:
        n_small -= 1
        less, more = waiting[n_small], large[n_large - 1]
        threshold[less] = _u64(scaled[less] * 4294967296.0)
        other[less] = more
        scaled[more] -= 1 - scaled[less]
        if scaled[more] < 1:
            n_large -= 1
            waiting[n_small] = more
            n_small += 1
    return threshold, other


def _code() -> str:
    """A hash of every file of the engines and of the arithmetic used."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    content = b"".join([_arithmetic_used.__name__.encode(), *(path.read_bytes() for path in files)])
    return sha256(content).hexdigest()[:12]


_CODE = _code()


def _compiled(function: Any, *, inline: bool = True) -> Any:
    """``function`` compiled by itself, or, in less time, only inlined into its callers.

    Numba names its cache after the function and checks only this file for changes: so the name includes the code's
    hash.
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
train_group = _compiled(_group)
sort_edges = _compiled(_edges)
write_rows = _compiled(_write)
train_chunk = _compiled(_chunk)
train_part = _compiled(_train, inline=False)
alias_table = _compiled(_alias, inline=False)
