"""The compiled chunks: one part's steps against plain numpy in float64, and the draws."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenadapt.store.arrays import Array
from greenadapt.vectors.engine import chunks
from greenadapt.vectors.engine.chunks import (
    CHUNK,
    GROUP,
    LIMIT,
    NEGATIVES,
    Noise,
    Settings,
    TextPart,
    alias_table,
    train_part,
)
from greenadapt.vectors.engine.stream import Weights, pad_rows

ALL = 2**32 - 1  # keeps every word
SEED = 2**63 + 12345


# -- the same in float64, from the module's description ---------------------------------------------------------------


@dataclass(frozen=True)
class Position:
    """A word that is predicted: itself, the words around it and its group's negatives, all as numbers."""

    word: int
    context: list[int]
    negatives: list[int]


@dataclass(frozen=True)
class Case:
    """What ``train_part`` is given, beside the tables."""

    lines: list[list[int]]
    noise: Noise
    settings: Settings
    rates: tuple[float, float] = (0.1, 0.02)
    seed: int = SEED

    @property
    def words(self) -> int:
        return sum(word < len(self.noise.keep) for line in self.lines for word in line)


def random_bits(seed: int) -> Callable[[], int]:
    """xorshift64* (Vigna, arXiv 1402.6246, figure 10: shifts 12, 25, 27), the upper 32 bits of each number."""
    state = seed

    def draw() -> int:
        nonlocal state
        state ^= state >> 12
        state ^= (state << 25) % 2**64
        state ^= state >> 27
        return state * 2685821657736338717 % 2**64 >> 32

    return draw


def drawn(case: Case) -> Iterator[tuple[list[Position], float]]:
    """Chunk by chunk, what chance makes of the text, and the learning rate."""
    draw = random_bits(case.seed)
    for buffer, met in buffers(case, draw):
        rate = case.rates[0] + (case.rates[1] - case.rates[0]) * met / max(case.words, 1)
        for first in range(0, len(buffer), CHUNK):
            yield chunk_positions(case, buffer, first, draw), rate


def buffers(case: Case, draw: Callable[[], int]) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Line and number of the words that subsampling leaves, and how many words were met before."""
    buffer: list[tuple[int, int]] = []
    met = before = 0
    for number, line in enumerate(case.lines):
        for word in line:
            if word >= len(case.noise.keep):
                continue
            if len(buffer) == chunks._BUFFER:
                yield buffer, before
                buffer, before = [], met
            met += 1
            if draw() <= case.noise.keep[word]:
                buffer.append((number, word))
    yield buffer, before


def chunk_positions(case: Case, buffer: list[tuple[int, int]], first: int, draw: Callable[[], int]) -> list[Position]:
    window = case.settings.window
    places = range(first, min(first + CHUNK, len(buffer)))
    widths = {at: 1 + draw() % window for at in places}
    shared = [[negative(case.noise, draw) for _ in range(NEGATIVES)] for _ in range(n_groups(len(places)))]
    around = {
        at: [
            j
            for j in range(max(at - width, 0), min(at + width + 1, len(buffer)))
            if j != at and buffer[j][0] == buffer[at][0]
        ]
        for at, width in widths.items()
    }
    groups = itertools.cycle(shared)
    return [Position(buffer[at][1], [buffer[j][1] for j in around[at]], next(groups)) for at in places]


def n_groups(n_positions: int) -> int:
    """Of a chunk; a position is in the group of those that are a multiple of this away."""
    return math.ceil(n_positions / GROUP)


def negative(noise: Noise, draw: Callable[[], int]) -> int:
    cell = draw() * len(noise.keep) >> 32
    return cell if draw() < int(noise.threshold[cell]) else int(noise.alias[cell])


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def error(x: float) -> float:
    """d log σ(clip(x)) / dx."""
    return float(sigmoid(-x)) if abs(x) < LIMIT else 0.0


def hidden(position: Position, tables: Weights) -> Array:
    mean: Array = tables.input[position.context].mean(axis=0)
    return mean


def step(positions: list[Position], tables: Weights, case: Settings, rate: float) -> None:
    """One chunk's changes of ``tables``, in the order that ``local.py`` promises."""
    h = [hidden(position, tables) if position.context else np.zeros(1) for position in positions]
    slopes = [np.zeros(tables.input.shape[1]) for _ in positions]
    learning = [i for i, position in enumerate(positions) if position.context]
    groups = n_groups(len(positions))
    for group in range(groups):
        before = tables.output.copy()
        for i in [i for i in learning if i % groups == group]:
            target = positions[i].word
            negatives = [
                (word, -case.weight * error(-h[i] @ before[word])) for word in positions[i].negatives if word != target
            ]
            for word, slope in [(target, error(h[i] @ before[target])), *negatives]:
                slopes[i] += slope * before[word]
                tables.output[word] += rate * slope * h[i]
    for i in learning:
        for word in positions[i].context:
            tables.input[word] += rate * slopes[i]


def expected(case: Case, tables: Weights) -> Weights:
    doubles = Weights(tables.input.astype(np.float64), tables.output.astype(np.float64))
    for positions, rate in drawn(case):
        step(positions, doubles, case.settings, rate)
    return doubles


# -- what is compared -------------------------------------------------------------------------------------------------


def make_noise(n_words: int, keep_share: float = 1.0, seed: int = 1) -> Noise:
    """Zipf's law for negatives; of the commoner half of the words the share ``keep_share`` stays."""
    keep = np.full(n_words, ALL, np.uint32)
    keep[: n_words // 2] = int(keep_share * ALL)
    return Noise(keep, *alias_table(1 / np.arange(1.0, n_words + 1)))


def make_tables(n_words: int, dim: int = 7, scale: float = 0.5) -> Weights:
    rng = np.random.default_rng(3)
    return Weights(*(rng.normal(0, scale, (n_words, dim)).astype(np.float32) for _ in range(2)))


def make_lines(lengths: list[int], n_words: int, seed: int = 5) -> list[list[int]]:
    """Words by Zipf's law, so that many are repeated within a window."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1.0, n_words + 1)
    return [rng.choice(n_words, length, p=share / share.sum()).tolist() for length in lengths]


def trained(case: Case, tables: Weights) -> Weights:
    """What the compiled code makes of ``tables``, which stay as they are."""
    return trained_and_told(case, tables)[0]


def trained_and_told(case: Case, tables: Weights) -> tuple[Weights, tuple[int, int]]:
    """The same, and at how many positions it learned, and how many of these had a score over -LIMIT."""
    others = [0, 1, 2]  # of the parts before and behind this one
    ids = np.array([*others, *(word for line in case.lines for word in line), *others], np.int32)
    ids.flags.writeable = False  # as those of a prepared corpus, so that one version is compiled
    text = TextPart(ids, np.cumsum([len(others), *map(len, case.lines)], dtype=np.int64), case.words)
    changed = Weights(tables.input.copy(), tables.output.copy())
    wide = pad_rows(changed.input), pad_rows(changed.output)
    counts = train_part(text, wide, case.noise, case.settings, case.rates, np.uint64(case.seed))
    dim = tables.input.shape[1]
    assert not any(table[:, dim:].any() for table in wide)
    return Weights(*(table[:, :dim].copy() for table in wide)), counts


def check(case: Case, tables: Weights) -> Weights:
    ours, theirs = trained(case, tables), expected(case, tables)
    np.testing.assert_allclose(ours.input, theirs.input, rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours.output, theirs.output, rtol=0, atol=1e-4)
    return ours


WORD2VEC = Settings(5, 5 / NEGATIVES)
LENGTHS = [1, 2, 3, 40, 1, 0, 5, 1, 70, 4, 1, 1, 33, 9, 2]  # a chunk ends within lines, and lines end within chunks


@pytest.mark.slow
def test_more_than_one_buffer_with_a_falling_rate() -> None:
    keep_share, size = 0.5, chunks._BUFFER
    lengths = [size - 50, 30, 300, 1, 1, size + 700]  # the first buffer ends within a line, the next ones too
    case = Case(make_lines(lengths, 200), make_noise(200, keep_share), WORD2VEC, (0.05, 0.001))
    assert len({rate for _, rate in drawn(case)}) == 2
    check(case, make_tables(200))


@pytest.mark.parametrize("dim", [1, 128])
def test_any_width(dim: int) -> None:
    case = Case(make_lines(LENGTHS, 40), make_noise(40, 0.6), WORD2VEC, (0.04, 0.008))
    tables = make_tables(40, dim, 1 / np.sqrt(dim))
    assert np.abs(check(case, tables).output - tables.output).max() > 0.01


@settings(max_examples=15)
@given(
    lines=st.lists(st.lists(st.integers(0, 11), max_size=45), min_size=1, max_size=8),
    window=st.integers(1, 7),
    keep_share=st.sampled_from([0.1, 0.7, 1.0]),
    seed=st.integers(1, 2**64 - 1),
)
def test_any_lines(lines: list[list[int]], window: int, keep_share: float, seed: int) -> None:
    """Words 9 to 11 are too rare to be trained."""
    check(Case(lines, make_noise(9, keep_share), WORD2VEC._replace(window=window), seed=seed), make_tables(9))


def test_nothing_is_learned_from_large_scores() -> None:
    """As in gensim, whose table of σ ends at ±6; within it, it is learned as always."""
    tables = make_tables(9, scale=2)
    case = Case(make_lines([60], 9), make_noise(9), WORD2VEC, (1e-3, 1e-3))
    scores = np.array([hidden(p, tables) @ tables.output[p.word] for p in next(drawn(case))[0]])
    assert (np.abs(scores) > LIMIT).any()
    assert (np.abs(scores) < LIMIT).any()
    check(case, tables)
    far = Weights(np.full((9, 4), 2, np.float32), np.full((9, 4), 1, np.float32))
    assert trained(case, far).input.tobytes() == far.input.tobytes()
    assert trained(case, far).output.tobytes() == far.output.tobytes()


def test_scores_that_are_far_too_low_are_told_of() -> None:
    """Words 0 to 4 fit their contexts, words 5 to 8 do not; a word alone in its line learns nothing."""
    case = Case([*make_lines([50, 200, 9], 9), [3]], make_noise(9), WORD2VEC, (1e-6, 1e-6))
    fits = Weights(np.full((9, 4), 2, np.float32), np.full((9, 4), 1, np.float32))
    fits.output[5:] = -1
    low = sum(word >= 5 for line in case.lines for word in line)
    assert 0 < low < 250
    assert trained_and_told(case, fits)[1] == (259, 259 - low)
    fits.input[8] = np.nan
    assert trained_and_told(case, fits)[1][1] < 259 - low - 20  # a score that is no number is not over -LIMIT


def test_nothing_to_learn_changes_nothing() -> None:
    tables = make_tables(9)
    for lines in ([[1], [2], [3]], [[], []], [[1, 9, 10], [11, 2]]):
        ours = trained(Case(lines, make_noise(9), WORD2VEC), tables)
        assert ours.input.tobytes() == tables.input.tobytes()
        assert ours.output.tobytes() == tables.output.tobytes()


# -- draws ------------------------------------------------------------------------------------------------------------


def cell_sums(threshold: Array, alias: Array) -> Array:
    """Probability of each word: its cell's share below the threshold and that of other cells above theirs."""
    below = threshold.astype(np.float64) / 2**32
    shares = below + np.bincount(alias, 1 - below, minlength=len(below))
    return np.asarray(shares / len(below))


@pytest.mark.parametrize("weights", [np.array([7.0]), 1 / np.arange(1, 20_001)], ids=["one", "zipf"])
def test_alias_table_has_the_wanted_proportions(weights: Array) -> None:
    threshold, alias = alias_table(weights)
    assert threshold.max() <= 2**32
    assert ((alias >= 0) & (alias < len(weights))).all()
    np.testing.assert_allclose(cell_sums(threshold, alias), weights / weights.sum(), rtol=0, atol=1e-9)


def test_the_random_bits_are_those_of_the_paper() -> None:
    state = np.full(1, SEED, np.uint64)
    draw = random_bits(SEED)
    assert [int(chunks.next_bits(state)) for _ in range(1000)] == [draw() for _ in range(1000)]
