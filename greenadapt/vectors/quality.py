"""Quality of the map and of the recipes for rows, on held-out words of the overlap."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from greenadapt.config import AlignConfig
from greenadapt.errors import pluralize
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.store.arrays import Array, BoolArray, FloatArray, Int64Array
from greenadapt.vectors.alignment import Alignment, fit
from greenadapt.vectors.neighbours import unit_rows

PieceIds = Sequence[Sequence[int]]

MIN_OVERLAP = 50
COUNT_BANDS = (1, 20, 100, 500)  # the lowest count of each band of words
RARE = COUNT_BANDS[1]
"""Words below this count are rare: few of their rows come out near the right ones."""
_SILENT = Silent()
_CANDIDATES = 2048  # candidates per block
_ROUNDING = 1e-6  # float32 scores of a pair differ by less between blocks


@dataclass(frozen=True)
class Retrieval:
    """Shares of held-out words whose own row is among the nearest 1, 5, 10, and the mean reciprocal rank.

    The rank is one plus the number of candidates that are strictly nearer, so a tie counts for the word.
    """

    n_candidates: int
    precision_at_1: float
    precision_at_5: float
    precision_at_10: float
    mrr: float


@dataclass(frozen=True)
class Band:
    """Held-out words that occur at least ``min_count`` times, but less often than those in the next band."""

    min_count: int
    n_words: int
    precision_at_10: float | None
    """Among all non-special base rows, by cosine; ``None`` without words."""


@dataclass(frozen=True)
class HeldOutFigures:
    """Figures of rows predicted by a fit on ``n_fitted`` overlapping words and evaluated on ``n_heldout`` others.

    - ``r2``: 1 − Σ‖y − ŷ‖² / Σ‖y − ȳ‖², where ȳ is the mean of the held-out rows.
    - ``cosine``: mean cosine of ŷ and y.
    - ``mapped_norm``, ``target_norm``, ``base_norm``: mean length of ŷ, of y, and of all non-special base rows.
    - ``base_rows``: retrieval of the own row among all non-special base rows, under ``"cosine"``.
    - ``by_count``: the precision of rare and of frequent words; empty if all occur equally often.
    """

    n_fitted: int
    n_heldout: int
    rank: int | None
    r2: float
    cosine: float
    mapped_norm: float
    target_norm: float
    base_norm: float
    base_rows: dict[str, Retrieval]
    by_count: list[Band]


@dataclass(frozen=True)
class Diagnostics:
    """``figures`` on held-out words; ``None``, with the reason in ``note``, if there are too few words."""

    n_overlap: int
    figures: HeldOutFigures | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class KnownWords:
    """The n overlapping words of a model with the rows ``base`` (n_base, dim)."""

    vectors: Array
    """(n, source_dim)"""
    counts: Int64Array
    """(n,)"""
    base_ids: Int64Array
    """Id of each word, its row of ``base``, (n,)."""
    base: Array
    pieces: PieceIds = ()
    """Pieces of each word without its row, for recipes that use pieces."""
    special_ids: Collection[int] = ()
    """Rows to exclude from comparisons."""
    words: Sequence[str] = ()
    """The words; may be empty."""

    def targets(self, among: Int64Array) -> FloatArray:
        """The model's rows of the words ``among``, float32 (n_some, dim)."""
        return np.asarray(self.base[self.base_ids[among]], np.float32)


def fit_and_measure(
    overlap: KnownWords, config: AlignConfig, progress: Progress = _SILENT
) -> tuple[Diagnostics, Alignment]:
    """Fit on all words but a random share ``config.heldout``, measure on that share, and fit on all words.

    Raises the errors of ``fit``.
    """
    n = len(overlap.base_ids)
    order, partial_fit = np.arange(n), None
    if n >= MIN_OVERLAP:
        heldout, fitted = split(n, config)
        partial_fit = fit(overlap.vectors[fitted], overlap.targets(fitted), config)
        predicted = partial_fit.apply(overlap.vectors[heldout])
        diagnostics = Diagnostics(n, measure(predicted, overlap, heldout, partial_fit.rank, progress))
        order = np.concatenate([fitted, heldout])
    else:
        overlapping = f"{pluralize(n, 'word is', 'words are')} in both vocabularies"
        diagnostics = Diagnostics(n, None, f"{overlapping}, held-out figures need {MIN_OVERLAP}: skipped")
    return diagnostics, fit(overlap.vectors[order], overlap.targets(order), config, partial_fit)


def split(n: int, config: AlignConfig) -> tuple[Int64Array, Int64Array]:
    """Indices of the held-out words and of the other words, of n words."""
    order = np.random.default_rng(config.seed).permutation(n)
    n_heldout = min(max(1, round(n * config.heldout)), n - 2)
    return np.sort(order[:n_heldout]), np.sort(order[n_heldout:])


def measure(
    predicted: FloatArray,
    overlap: KnownWords,
    heldout: Int64Array,
    rank: int | None = None,
    progress: Progress = _SILENT,
) -> HeldOutFigures:
    """Compare ``predicted`` rows (n_heldout, dim) of the words ``heldout`` with the model's rows."""
    specials = np.fromiter(overlap.special_ids, np.int64, len(overlap.special_ids))
    candidates = np.setdiff1d(np.arange(len(overlap.base)), specials)
    own_rows, table = np.searchsorted(candidates, overlap.base_ids), np.asarray(overlap.base[candidates], np.float32)
    target = table[own_rows[heldout]]
    errors = np.square(predicted - target, dtype=np.float64).sum()
    spread = np.square(target - target.mean(axis=0, dtype=np.float64)).sum()
    queries, unit = unit_rows(predicted), unit_rows(table)
    with progress.bar("measuring the map", len(unit), "rows") as bar:
        ranks = _ranks(queries, unit, own_rows[heldout], bar)
    counts, is_hit = overlap.counts[heldout], ranks <= 10
    return HeldOutFigures(
        n_fitted=len(own_rows) - len(heldout),
        n_heldout=len(heldout),
        rank=rank,
        r2=float(1 - errors / spread) if spread else float("nan"),
        cosine=float((queries * unit[own_rows[heldout]]).sum(axis=1).mean()),
        mapped_norm=float(np.linalg.norm(predicted, axis=1).mean()),
        target_norm=float(np.linalg.norm(target, axis=1).mean()),
        base_norm=float(np.linalg.norm(table, axis=1).mean()),
        base_rows={"cosine": _retrieval(ranks, len(table))},
        by_count=[
            Band(lowest, int(in_band.sum()), float(is_hit[in_band].mean()) if in_band.any() else None)
            for lowest, in_band in (bands(counts) if has_counts(counts) else [])
        ],
    )


def has_counts(counts: Int64Array) -> bool:
    """Whether ``counts`` are known; vectors without counts have the count 1."""
    return len(np.unique(counts)) > 1


def bands(counts: Int64Array) -> list[tuple[int, BoolArray]]:
    """The lowest count of each band, and which words, by ``counts`` (n,), are in the band (n,)."""
    ends = [*COUNT_BANDS[1:], np.inf]
    return [(lowest, (counts >= lowest) & (counts < end)) for lowest, end in zip(COUNT_BANDS, ends, strict=True)]


def _ranks(queries: FloatArray, unit: FloatArray, own_rows: Int64Array, bar: Bar) -> Int64Array:
    """Rank by cosine of each query's own row, ``unit[own_rows[i]]``, among all rows of ``unit``: (n_queries,)."""
    to_beat = np.empty(len(queries), np.float32)
    for begin in range(0, len(queries), _CANDIDATES):
        part = slice(begin, begin + _CANDIDATES)
        to_beat[part] = np.diagonal(unit[own_rows[part]] @ queries.T, begin)
    ranks = np.ones(len(queries), np.int64)
    for begin in range(0, len(unit), _CANDIDATES):
        candidates = unit[begin : begin + _CANDIDATES]
        ranks += np.count_nonzero(candidates @ queries.T > to_beat + _ROUNDING, axis=0)
        bar.advance(len(candidates))
    return ranks


def _retrieval(ranks: Int64Array, n_candidates: int) -> Retrieval:
    at_1, at_5, at_10 = (float((ranks <= k).mean()) for k in (1, 5, 10))
    return Retrieval(n_candidates, at_1, at_5, at_10, float((1 / ranks).mean()))
