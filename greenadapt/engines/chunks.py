"""The compiled code of the fast engine; ``fast.py`` says what it computes. Numba compiles it at its first use.

Everything works on rows of two-dimensional arrays by number: views of rows would be counted objects, which cost more
than the arithmetic.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from greenadapt.arrays import Array

CHUNK = 32
"""Positions whose input rows are read together."""
GROUP = 4
"""Positions that share negatives, and how many these are."""
_BUFFER = 4096  # words that subsampling leaves, of one line or of several
_LIMIT = np.float32(30)  # of a score: σ is 0 or 1 beyond it, in float32
_f32, _u64 = np.float32, np.uint64


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
    """k / m: what a negative counts."""


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
    """``(GROUP, GROUP)``: α ∂L/∂(h · o), a row a position, a column a negative."""
    begins: Array
    ends: Array
    """``(CHUNK,)`` each: where windows begin and end."""
    negatives: Array
    """``(GROUP,)``"""


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
    step = rate / (_f32(1) + math.exp(min(max(score, -_LIMIT), _LIMIT)))
    for q in range(dim):
        o = output[word, q]
        room.gradients[i, q] = step * o
        output[word, q] = o + step * room.means[i, q]
    return score


def _negative(room: Any, noise: Any, state: Any) -> None:
    """Draw the negatives of a group."""
    n_words = _u64(len(noise.keep))
    for k in range(GROUP):
        word = int((next_bits(state) * n_words) >> _u64(32))
        if next_bits(state) >= noise.threshold[word]:
            word = noise.other[word]
        room.negatives[k] = word


def _score(room: Any, output: Any, first: int) -> None:
    """The scores of four positions, from ``first`` on, and the four negatives."""
    n0, n1, n2, n3 = room.negatives[0], room.negatives[1], room.negatives[2], room.negatives[3]
    for i in range(first, first + GROUP, 2):  # two by four at a time, for which there are registers
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = _f32(0)
        for q in range(output.shape[1]):
            a, b = room.means[i, q], room.means[i + 1, q]
            o0, o1, o2, o3 = output[n0, q], output[n1, q], output[n2, q], output[n3, q]
            a0 += a * o0
            a1 += a * o1
            a2 += a * o2
            a3 += a * o3
            b0 += b * o0
            b1 += b * o1
            b2 += b * o2
            b3 += b * o3
        j = i - first
        room.scores[j, 0], room.scores[j, 1], room.scores[j, 2], room.scores[j, 3] = a0, a1, a2, a3
        room.scores[j + 1, 0], room.scores[j + 1, 1], room.scores[j + 1, 2], room.scores[j + 1, 3] = b0, b1, b2, b3


def _step(room: Any, output: Any, first: int) -> None:
    """The steps of four positions and the four negatives, given α ∂L/∂(h · o) as their scores."""
    dim, scores = output.shape[1], room.scores
    n0, n1, n2, n3 = room.negatives[0], room.negatives[1], room.negatives[2], room.negatives[3]
    for i in range(GROUP):
        s0, s1, s2, s3 = scores[i, 0], scores[i, 1], scores[i, 2], scores[i, 3]
        at = first + i
        for q in range(dim):
            room.gradients[at, q] += s0 * output[n0, q] + s1 * output[n1, q] + s2 * output[n2, q] + s3 * output[n3, q]
    for k in range(GROUP):
        s0, s1, s2, s3 = scores[0, k], scores[1, k], scores[2, k], scores[3, k]
        word = room.negatives[k]
        for q in range(dim):
            output[word, q] += (
                s0 * room.means[first, q]
                + s1 * room.means[first + 1, q]
                + s2 * room.means[first + 2, q]
                + s3 * room.means[first + 3, q]
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
    """Train on up to ``CHUNK`` positions; returns the sum of their own words' scores, which is a number if all is."""
    (words, lines), (first, n), (table, output) = buffer, span, tables
    noise, settings, state = draws
    dim = table.shape[1]
    low, high = draw_windows(room, lines, first, n, settings, state)
    read_rows(room, table, words, low, high)
    total = 0.0
    padded = (n + GROUP - 1) // GROUP * GROUP
    for i in range(padded):
        if i < n and room.ends[i] - room.begins[i] > 1:
            total += positive_step(
                room, tables, words[first + i], (i, room.begins[i] - low, room.ends[i] - low), rate, settings.mean
            )
        else:  # nothing to learn from, and no part in the products
            for q in range(dim):
                room.means[i, q] = 0
                room.gradients[i, q] = 0
    for i in range(0, padded, GROUP):
        draw_negatives(room, noise, state)
        score_group(room, output, i)
        for j in range(GROUP):
            has_context = i + j < n and room.ends[i + j] - room.begins[i + j] > 1
            for k in range(GROUP):
                score = min(max(room.scores[j, k], -_LIMIT), _LIMIT)
                counts = has_context and room.negatives[k] != words[first + i + j]
                weight = rate * _f32(settings.weight)
                room.scores[j, k] = -weight / (_f32(1) + math.exp(-score)) if counts else _f32(0)
        step_group(room, output, i)
    spread_gradients(room, n, low, settings.corrected)
    write_rows(room, table, words, (first, n, low, high))
    return total


def _train(text: Any, tables: Any, noise: Any, settings: Any, rates: Any, seed: int) -> Any:
    """Train on one part, the learning rate falling from ``rates[0]`` to ``rates[1]`` with the words met.

    Returns a number that is none where a score was none.
    """
    dim = tables[0].shape[1]
    state = np.full(1, seed, np.uint64)
    around = CHUNK + 2 * settings.window + 1
    room = _Room(
        np.zeros((around, dim), np.float32),
        np.zeros((around, dim), np.float32),
        np.zeros((CHUNK, dim), np.float32),
        np.zeros((CHUNK, dim), np.float32),
        np.zeros((GROUP, GROUP), np.float32),
        np.zeros(CHUNK, np.int64),
        np.zeros(CHUNK, np.int64),
        np.zeros(GROUP, np.int64),
    )
    buffer = (np.zeros(_BUFFER, np.int64), np.zeros((_BUFFER, 2), np.int64))
    position, line, met, total = text.borders[0], 0, 0, 0.0
    while line < len(text.borders) - 1:
        rate = _f32(rates[0] + (rates[1] - rates[0]) * met / max(text.words, 1))
        n, position, line, more = fill(text, position, line, noise, state, buffer)
        met += more
        for first in range(0, n, CHUNK):
            span = (first, min(CHUNK, n - first))
            total += train_chunk(room, tables, buffer, span, (noise, settings, state), rate)
    return total


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
    return njit(nogil=True, fastmath=True, error_model="numpy", cache=True, inline="always" if inline else "never")(
        function
    )


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
