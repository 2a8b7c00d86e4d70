"""The compiled code of the fast engine; ``fast.py`` says what it computes. Numba compiles it at its first use.

Everything works on rows of two-dimensional arrays by number: views of rows would be counted objects, which cost more
than the arithmetic.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from greenadapt.arrays import Array

CHUNK = 64
"""Positions whose input rows are read together, a multiple of ``GROUP``."""
GROUP = 8
"""Positions of a chunk that share negatives, evenly spread over it, a multiple of four."""
NEGATIVES = 4
"""Negatives of a group; the products below are written for four."""
LIMIT = 6
"""Of a score; at it and beyond, nothing is learned."""
_BUFFER = 4096  # words that subsampling leaves, of one line or of several
_f32, _u64 = np.float32, np.uint64
_FAST = {"reassoc", "contract", "arcp", "nsz"}  # sums in any order; what is no number is still seen as none


class Text(NamedTuple):
    """Some of a stream: ``ids`` int32, and where lines begin and end in it, ``borders`` (n_lines + 1,) int64."""

    ids: Array
    borders: Array
    words: int
    """How many of the ids are trained words."""


class Noise(NamedTuple):
    """Which words are kept and which are negatives, ``(n_words,)`` each.

    ``keep`` uint64: a word is kept where 32 random bits are at most this. ``threshold`` uint64 and ``other`` int64: a
    negative is drawn by Walker's alias method, evenly and then the word itself where 32 random bits are below its
    threshold, else the other word.
    """

    keep: Array
    threshold: Array
    other: Array


class Settings(NamedTuple):
    """What the compiled code has to know of a ``W2VConfig``."""

    window: int
    shrinks: bool
    mean: bool
    corrected: bool
    weight: float
    """k / m: what one of the m negatives of a group counts, for k negatives a word."""


class _Room(NamedTuple):
    """What one thread works in; rows are those of the chunk's positions, or of the words around them."""

    sums: Array
    """``(CHUNK + 2 window + 1, dim)``: running sums of input rows."""
    changes: Array
    """The same shape: by how much the change of an input row differs from that of the one before it."""
    means: Array
    """``(CHUNK, dim)``: h."""
    gradients: Array
    """``(CHUNK, dim)``: α ∂L/∂h."""
    scores: Array
    """``(GROUP, NEGATIVES)``: α ∂L/∂(h · o), a row a position, a column a negative."""
    begins: Array
    ends: Array
    """``(CHUNK,)`` each: where windows begin and end."""
    negatives: Array
    """``(NEGATIVES,)``"""


def _next(state: Any) -> Any:
    """32 random bits; ``state`` (1,) uint64 moves on (xorshift64*, Vigna, arXiv 1402.6246)."""
    x = state[0]
    x ^= x >> _u64(12)
    x ^= x << _u64(25)
    x ^= x >> _u64(27)
    state[0] = x
    return (x * _u64(2685821657736338717)) >> _u64(32)


def _fill(text: Any, position: int, line: int, noise: Any, state: Any, buffer: Any) -> Any:
    """Fill ``buffer``: the words that subsampling leaves (n,), and where their lines begin and end in them (n, 2).

    Returns how many there are, where the text goes on, its line, and how many trained words were met.
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
    return low, high


def _read(room: Any, table: Any, words: Any, low: int, high: int) -> None:
    """Running sums of the input rows of ``words[low:high]``."""
    dim = table.shape[1]
    for q in range(dim):
        room.sums[0, q] = 0
    for j in range(low, high):
        row, word = j - low, words[j]
        for q in range(dim):
            room.sums[row + 1, q] = room.sums[row, q] + table[word, q]


def _positive(room: Any, weights: Any, word: int, place: Any, rate: Any, mean: bool) -> Any:
    """h of one position, and the step of its own word; ``place`` is its row, and where in ``sums`` its window is.

    Returns the score.
    """
    i, begin, end = place
    table, output = weights
    dim = table.shape[1]
    share = _f32(1) / _f32(end - begin - 1) if mean else _f32(1)
    score = _f32(0)
    for q in range(dim):
        h = (room.sums[end, q] - room.sums[begin, q] - table[word, q]) * share
        room.means[i, q] = h
        score += h * output[word, q]
    step = rate / (_f32(1) + math.exp(score)) if abs(score) < LIMIT else _f32(0)
    for q in range(dim):
        o = output[word, q]
        room.gradients[i, q] = step * o
        output[word, q] = o + step * room.means[i, q]
    return score


def _negative(room: Any, noise: Any, state: Any) -> None:
    """Draw the negatives of a group."""
    n_words = _u64(len(noise.keep))
    for k in range(NEGATIVES):
        word = np.int64((next_bits(state) * n_words) >> _u64(32))
        if next_bits(state) >= noise.threshold[word]:
            word = noise.other[word]
        room.negatives[k] = word


def _score(room: Any, output: Any, first: int, stride: int) -> None:
    """The scores of a group's positions, every ``stride``-th from ``first`` on, and its four negatives."""
    n0, n1, n2, n3 = room.negatives[0], room.negatives[1], room.negatives[2], room.negatives[3]
    for j in range(0, GROUP, 2):  # two by four at a time, for which there are registers
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = _f32(0)
        at, next_ = first + j * stride, first + (j + 1) * stride
        for q in range(output.shape[1]):
            a, b = room.means[at, q], room.means[next_, q]
            o0, o1, o2, o3 = output[n0, q], output[n1, q], output[n2, q], output[n3, q]
            a0 += a * o0
            a1 += a * o1
            a2 += a * o2
            a3 += a * o3
            b0 += b * o0
            b1 += b * o1
            b2 += b * o2
            b3 += b * o3
        room.scores[j, 0], room.scores[j, 1], room.scores[j, 2], room.scores[j, 3] = a0, a1, a2, a3
        room.scores[j + 1, 0], room.scores[j + 1, 1], room.scores[j + 1, 2], room.scores[j + 1, 3] = b0, b1, b2, b3


def _step(room: Any, output: Any, first: int, stride: int) -> None:
    """The steps of a group's positions and negatives, given α ∂L/∂(h · o) as their scores."""
    dim, scores = output.shape[1], room.scores
    n0, n1, n2, n3 = room.negatives[0], room.negatives[1], room.negatives[2], room.negatives[3]
    for j in range(0, GROUP, 2):
        s0, s1, s2, s3 = scores[j, 0], scores[j, 1], scores[j, 2], scores[j, 3]
        t0, t1, t2, t3 = scores[j + 1, 0], scores[j + 1, 1], scores[j + 1, 2], scores[j + 1, 3]
        at, next_ = first + j * stride, first + (j + 1) * stride
        for q in range(dim):
            o0, o1, o2, o3 = output[n0, q], output[n1, q], output[n2, q], output[n3, q]
            room.gradients[at, q] += s0 * o0 + s1 * o1 + s2 * o2 + s3 * o3
            room.gradients[next_, q] += t0 * o0 + t1 * o1 + t2 * o2 + t3 * o3
    for j in range(0, GROUP, 4):
        at = first + j * stride
        for k in range(NEGATIVES):
            s0, s1, s2, s3 = scores[j, k], scores[j + 1, k], scores[j + 2, k], scores[j + 3, k]
            word = room.negatives[k]
            for q in range(dim):
                output[word, q] += (
                    s0 * room.means[at, q]
                    + s1 * room.means[at + stride, q]
                    + s2 * room.means[at + 2 * stride, q]
                    + s3 * room.means[at + 3 * stride, q]
                )


def _spread(room: Any, n: int, low: int, corrected: bool) -> None:
    """Turn the gradients of ``n`` positions into changes of the rows in their windows, which begin at word ``low``."""
    dim = room.gradients.shape[1]
    for i in range(n):
        begin, end = room.begins[i] - low, room.ends[i] - low
        if end - begin > 1:
            share = _f32(1) / _f32(end - begin - 1) if corrected else _f32(1)
            for q in range(dim):
                x = room.gradients[i, q] * share
                room.gradients[i, q] = x
                room.changes[begin, q] += x
                room.changes[end, q] -= x


def _write(room: Any, table: Any, words: Any, span: Any) -> None:
    """Change the input rows of a chunk; ``span`` is its first position, how many it has, and its words' range."""
    first, n, low, high = span
    dim = table.shape[1]
    for q in range(dim):
        room.sums[0, q] = 0
    for j in range(low, high):
        row, word, i = j - low, words[j], j - first
        for q in range(dim):
            x = room.sums[0, q] + room.changes[row, q]
            room.sums[0, q] = x
            table[word, q] += x
            room.changes[row, q] = 0
        if 0 <= i < n and room.ends[i] - room.begins[i] > 1:  # no word is in its own context
            for q in range(dim):
                table[word, q] -= room.gradients[i, q]
    for q in range(dim):
        room.changes[high - low, q] = 0


def _chunk(room: Any, tables: Any, buffer: Any, span: Any, draws: Any, rate: Any) -> Any:
    """Train on up to ``CHUNK`` positions; returns how many learned, and at how many the score was over -LIMIT."""
    (words, lines), (first, n), (table, output) = buffer, span, tables
    noise, settings, state = draws
    dim = table.shape[1]
    low, high = draw_windows(room, lines, first, n, settings, state)
    read_rows(room, table, words, low, high)
    learned, likely = 0, 0
    padded = (n + GROUP - 1) // GROUP * GROUP
    for i in range(padded):
        if i < n and room.ends[i] - room.begins[i] > 1:
            place = (i, room.begins[i] - low, room.ends[i] - low)
            score = positive_step(room, tables, words[first + i], place, rate, settings.mean)
            learned, likely = learned + 1, likely + (score > -LIMIT)
        else:  # nothing to learn from, and no part in the products
            for q in range(dim):
                room.means[i, q] = 0
                room.gradients[i, q] = 0
    stride, weight = padded // GROUP, rate * _f32(settings.weight)
    for i in range(stride):
        draw_negatives(room, noise, state)
        score_group(room, output, i, stride)
        for j in range(GROUP):
            at = i + j * stride
            has_context = at < n and room.ends[at] - room.begins[at] > 1
            for k in range(NEGATIVES):
                score = room.scores[j, k]
                counts = has_context and room.negatives[k] != words[first + at] and abs(score) < LIMIT
                room.scores[j, k] = -weight / (_f32(1) + math.exp(-score)) if counts else _f32(0)
        step_group(room, output, i, stride)
    spread_gradients(room, n, low, settings.corrected)
    write_rows(room, table, words, (first, n, low, high))
    return learned, likely


def _train(text: Any, tables: Any, noise: Any, settings: Any, rates: Any, seed: int) -> Any:
    """Train on one part, the learning rate falling from ``rates[0]`` to ``rates[1]`` with the words met.

    Returns how many positions it learned from, and at how many of these the word had a score over -LIMIT.
    """
    dim = tables[0].shape[1]
    state = np.full(1, seed, np.uint64)
    around = CHUNK + 2 * settings.window + 1
    room = _Room(
        np.zeros((around, dim), np.float32),
        np.zeros((around, dim), np.float32),
        np.zeros((CHUNK, dim), np.float32),
        np.zeros((CHUNK, dim), np.float32),
        np.zeros((GROUP, NEGATIVES), np.float32),
        np.zeros(CHUNK, np.int64),
        np.zeros(CHUNK, np.int64),
        np.zeros(NEGATIVES, np.int64),
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


def _compiled(function: Any, *, inline: bool = True) -> Any:
    """``function`` compiled by itself, or only as a part of what calls it, which takes less time."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": True, "fastmath": _FAST}
    return njit(inline="always" if inline else "never", **options)(function)


next_bits = _compiled(_next)
fill = _compiled(_fill)
draw_windows = _compiled(_windows)
read_rows = _compiled(_read)
positive_step = _compiled(_positive)
draw_negatives = _compiled(_negative)
score_group = _compiled(_score)
step_group = _compiled(_step)
spread_gradients = _compiled(_spread)
write_rows = _compiled(_write)
train_chunk = _compiled(_chunk)
train_part = _compiled(_train, inline=False)
alias_table = _compiled(_alias, inline=False)
