"""Quality of the map, or of any other rows, on held-out overlapping words."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from greenadapt.config import AlignConfig
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.storage.arrays import Array, BoolArray, FloatArray, Int64Array
from greenadapt.vectors.alignment import Alignment, fit
from greenadapt.vectors.neighbours import unit_rows

PieceIds = Sequence[Sequence[int]]

MIN_OVERLAP = 50
CSLS_NEIGHBOURS = 10
COUNT_BANDS = (1, 20, 100, 500)  # the least count of each band of words
SPLIT = "split"
"""Beside the recipes of rows: a word without a row, in pieces."""
_SILENT = Silent()
_CANDIDATES = 2048  # candidates compared with all queries at a time
_ROUNDING = 1e-6  # in float32 the score of one pair can differ by less, with what it is computed with


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
    """Held-out words that occur at least ``min_count`` times, but less often than those of the next band."""

    min_count: int
    n_words: int
    precision_at_10: float | None
    """Among all non-special base rows, by cosine; ``None`` without words."""


@dataclass(frozen=True)
class HeldOut:
    """Figures of rows predicted by a fit on ``n_fitted`` overlapping words and evaluated on ``n_heldout`` others.

    - ``r2``: 1 − Σ‖y − ŷ‖² / Σ‖y − ȳ‖², where ȳ is the mean of the held-out rows.
    - ``cosine``: mean cosine of ŷ and y.
    - ``mapped_norm``, ``target_norm``, ``base_norm``: mean length of ŷ, of y, and of all non-special base rows.
    - ``base_rows``, ``overlap_rows``: retrieval of the own row among all non-special base rows, or among the rows of
      overlapping words only; under ``"cosine"``, and under ``"csls"`` (Conneau et al., arXiv 1710.04087, equation 3,
      10 neighbours; the source side of the neighbourhoods are the held-out words).
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
    overlap_rows: dict[str, Retrieval]
    by_count: list[Band]


@dataclass(frozen=True)
class Diagnostics:
    """``figures`` on held-out words, or ``None`` and a ``note`` with the reason."""

    n_overlap: int
    figures: HeldOut | None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The same as nested dictionaries with the same names, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class KnownWords:
    """The overlapping words and what is known of each: n words of a model with the rows ``base`` (n_base, dim)."""

    vectors: Array
    """(n, source_dim)"""
    counts: Int64Array
    """(n,)"""
    rows: Int64Array
    """Their rows of ``base``, (n,)."""
    base: Array
    pieces: PieceIds = ()
    """What each word would be cut into without its row, for recipes that read pieces."""
    special_ids: Collection[int] = ()
    """Rows that nothing is compared with."""
    words: Sequence[str] = ()
    """The words themselves, if they are wanted."""

    def targets(self, among: Int64Array) -> FloatArray:
        """The model's rows of some of the words, float32 (n_some, dim)."""
        return np.asarray(self.base[self.rows[among]], np.float32)


def diagnose(known: KnownWords, config: AlignConfig, progress: Progress = _SILENT) -> tuple[Diagnostics, Alignment]:
    """Fit on all but a seeded share ``config.heldout`` of the words, measure on that share, and fit on all words.

    Raises what ``fit`` raises.
    """
    n = len(known.rows)
    order, part = np.arange(n), None
    diagnostics = Diagnostics(n, None, f"{_too_few(n)}: skipped")
    if n >= MIN_OVERLAP:
        held, fitted = split(n, config)
        part = fit(known.vectors[fitted], known.targets(fitted), config)
        diagnostics = Diagnostics(n, measure(part.apply(known.vectors[held]), known, held, part.rank, progress))
        order = np.concatenate([fitted, held])
    words = [known.words[i] for i in order.tolist()] if known.words else None
    return diagnostics, fit(known.vectors[order], known.targets(order), config, words, part)


def _too_few(n: int) -> str:
    words_are = "1 word is" if n == 1 else f"{n} words are"
    return f"{words_are} in both vocabularies, held-out figures need {MIN_OVERLAP}"


def split(n: int, config: AlignConfig) -> tuple[Int64Array, Int64Array]:
    """Which of n words are held out, and which are not."""
    order = np.random.default_rng(config.seed).permutation(n)
    n_heldout = min(max(1, round(n * config.heldout)), n - 2)
    return np.sort(order[:n_heldout]), np.sort(order[n_heldout:])


def measure(
    made: FloatArray, known: KnownWords, held: Int64Array, rank: int | None = None, progress: Progress = _SILENT
) -> HeldOut:
    """Compare the rows ``made`` (n_heldout, dim) of the words ``held`` with the model's rows."""
    specials = np.fromiter(known.special_ids, np.int64, len(known.special_ids))
    candidates = np.setdiff1d(np.arange(len(known.base)), specials)
    if not np.isin(known.rows, candidates).all():
        raise ValueError("an overlapping word has the row of a special token, or none of the model's rows")
    own, table = np.searchsorted(candidates, known.rows), np.asarray(known.base[candidates], np.float32)
    target = table[own[held]]
    errors = np.square(made - target, dtype=np.float64).sum()
    spread = np.square(target - target.mean(axis=0, dtype=np.float64)).sum()
    queries, unit = unit_rows(made), unit_rows(table)
    with progress.bar("measuring the map", len(unit), "rows") as bar:
        among_all, among_own = _ranks(queries, unit, own, held, bar)
    return HeldOut(
        n_fitted=len(own) - len(held),
        n_heldout=len(held),
        rank=rank,
        r2=float(1 - errors / spread) if spread else float("nan"),
        cosine=float((queries * unit[own[held]]).sum(axis=1).mean()),
        mapped_norm=_mean_norm(made),
        target_norm=_mean_norm(target),
        base_norm=_mean_norm(table),
        base_rows={name: _retrieval(ranks, len(table)) for name, ranks in among_all.items()},
        overlap_rows={name: _retrieval(ranks, len(own)) for name, ranks in among_own.items()},
        by_count=_by_count(known.counts[held], among_all["cosine"]),
    )


def has_counts(counts: Int64Array) -> bool:
    """Whether words come with counts: vectors that came without have 1 each."""
    return len(np.unique(counts)) > 1


def bands(counts: Int64Array) -> list[tuple[int, BoolArray]]:
    """The least count of each band, and which words (n,) with these ``counts`` (n,) it has."""
    most = [*COUNT_BANDS[1:], np.inf]
    return [(least, (counts >= least) & (counts < end)) for least, end in zip(COUNT_BANDS, most, strict=True)]


def _by_count(counts: Int64Array, ranks: Int64Array) -> list[Band]:
    each = bands(counts) if has_counts(counts) else []
    found = [(least, ranks[some] <= 10) for least, some in each]
    return [Band(least, len(among), float(among.mean()) if len(among) else None) for least, among in found]


def _ranks(
    queries: FloatArray, unit: FloatArray, own: Int64Array, held: Int64Array, bar: Bar
) -> tuple[dict[str, Int64Array], dict[str, Int64Array]]:
    """Rank of each query's own row among all rows of ``unit``, and among the rows ``own``, by cosine and by CSLS.

    CSLS is 2 cos − r(x) − r(y); r(x) is the same for all candidates of a query and cannot change a rank.
    """
    is_own = np.isin(np.arange(len(unit)), own)
    to_beat = {name: np.empty(len(queries), np.float32) for name in ("cosine", "csls")}
    for begin in range(0, len(held), _CANDIDATES):
        block = slice(begin, begin + _CANDIDATES)
        for name, scores in _scores(unit[own[held[block]]], queries).items():
            to_beat[name][block] = np.diagonal(scores, begin)
    among_all, among_own = ({name: np.ones(len(queries), np.int64) for name in to_beat} for _ in range(2))
    for begin in range(0, len(unit), _CANDIDATES):
        block = slice(begin, begin + _CANDIDATES)
        for name, scores in _scores(unit[block], queries).items():
            better = scores > to_beat[name] + _ROUNDING
            among_all[name] += np.count_nonzero(better, axis=0)
            among_own[name] += np.count_nonzero(better[is_own[block]], axis=0)
        bar.advance(len(unit[block]))
    return among_all, among_own


def _scores(candidates: FloatArray, queries: FloatArray) -> dict[str, FloatArray]:
    """Cosine and CSLS, but for r(x), of each of ``candidates`` and each of ``queries``, (n_candidates, n_queries).

    r(y) is the mean cosine of a candidate with its 10 nearest queries.
    """
    cosines, k = candidates @ queries.T, min(CSLS_NEIGHBOURS, len(queries))
    nearest = np.partition(cosines, -k, axis=1)[:, -k:]
    return {"cosine": cosines, "csls": 2 * cosines - nearest.mean(axis=1, keepdims=True)}


def _retrieval(ranks: Int64Array, n_candidates: int) -> Retrieval:
    at_1, at_5, at_10 = (float((ranks <= k).mean()) for k in (1, 5, 10))
    return Retrieval(n_candidates, at_1, at_5, at_10, float((1 / ranks).mean()))


def _mean_norm(rows: FloatArray) -> float:
    return float(np.linalg.norm(rows, axis=1).mean())
