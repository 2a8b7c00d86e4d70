"""Quality of the map on held-out overlapping words."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from greenadapt.config import AlignConfig
from greenadapt.storage.arrays import Array, FloatArray, Int64Array
from greenadapt.vectors.alignment import Alignment, fit
from greenadapt.vectors.neighbours import unit_rows

MIN_OVERLAP = 50
CSLS_NEIGHBOURS = 10
_QUERIES = 256  # queries compared with all candidates at a time
_CANDIDATES = 2048  # candidates compared with all queries at a time


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
class HeldOut:
    """Figures of a map fitted on ``n_fitted`` overlapping words and evaluated on ``n_heldout`` others.

    - ``r2``: 1 − Σ‖y − ŷ‖² / Σ‖y − ȳ‖², where ȳ is the mean of the held-out rows.
    - ``cosine``: mean cosine of ŷ and y.
    - ``mapped_norm``, ``target_norm``, ``base_norm``: mean length of ŷ, of y, and of all non-special base rows.
    - ``base_rows``, ``overlap_rows``: retrieval of the own row among all non-special base rows, or among the rows of
      overlapping words only; under ``"cosine"``, and under ``"csls"`` (Conneau et al., arXiv 1710.04087, equation 3,
      10 neighbours; the source side of the neighbourhoods are the held-out words).
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


@dataclass(frozen=True)
class Diagnostics:
    """``figures`` on held-out words, or ``None`` and a ``note`` with the reason."""

    n_overlap: int
    figures: HeldOut | None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The same as nested dictionaries with the same names, ready for JSON."""
        return asdict(self)


def diagnose(
    source: Array, base: Array, rows: Int64Array, config: AlignConfig, special_ids: Collection[int] = ()
) -> Diagnostics:
    """Fit on all but a seeded share ``config.heldout`` of the overlap and measure on that share.

    ``source`` ``(n, d_source)``: the vectors of the overlapping words; ``base`` ``(n_base, d_target)``: all rows of the
    model; ``rows`` ``(n,)``: the base row of each overlapping word; ``special_ids``: base rows that are not candidates.
    Raises what ``fit`` raises.
    """
    n = len(rows)
    if n < MIN_OVERLAP:
        words_are = "1 word is" if n == 1 else f"{n} words are"
        note = f"{words_are} in both vocabularies, held-out figures need {MIN_OVERLAP}"
        return Diagnostics(n, None, f"{note}: skipped")
    candidates = np.setdiff1d(np.arange(len(base)), np.fromiter(special_ids, np.int64, len(special_ids)))
    own = np.searchsorted(candidates, rows)
    if not np.isin(rows, candidates).all():
        raise ValueError("an overlapping word has the row of a special token, or none of the model's rows")
    table = np.asarray(base[candidates], np.float32)
    order = np.random.default_rng(config.seed).permutation(n)
    n_heldout = min(max(1, round(n * config.heldout)), n - 2)
    held, fitted = np.sort(order[:n_heldout]), np.sort(order[n_heldout:])
    alignment = fit(source[fitted], table[own[fitted]], config)
    return Diagnostics(n, _measure(alignment, source[held], table, own, held))


def _measure(alignment: Alignment, source: Array, table: FloatArray, own: Int64Array, held: Int64Array) -> HeldOut:
    """Map ``source`` ``(n_heldout, d_source)`` and look for ``own[held]`` among the rows of ``table``."""
    mapped, target = alignment.apply(source), table[own[held]]
    errors = np.square(mapped - target, dtype=np.float64).sum()
    spread = np.square(target - target.mean(axis=0, dtype=np.float64)).sum()
    queries, unit = unit_rows(mapped), unit_rows(table)
    among_all, among_own = _ranks(queries, unit, own, held)
    return HeldOut(
        n_fitted=alignment.n_overlap,
        n_heldout=len(held),
        rank=alignment.rank,
        r2=float(1 - errors / spread) if spread else float("nan"),
        cosine=float((queries * unit[own[held]]).sum(axis=1).mean()),
        mapped_norm=_mean_norm(mapped),
        target_norm=_mean_norm(target),
        base_norm=_mean_norm(table),
        base_rows={name: _retrieval(ranks, len(table)) for name, ranks in among_all.items()},
        overlap_rows={name: _retrieval(ranks, len(own)) for name, ranks in among_own.items()},
    )


def _hubness(queries: FloatArray, unit: FloatArray) -> FloatArray:
    """r(y) of every candidate ``(n_rows,)``: its mean cosine with its 10 nearest queries."""
    k = min(CSLS_NEIGHBOURS, len(queries))
    means = np.empty(len(unit), np.float32)
    for begin in range(0, len(unit), _CANDIDATES):
        cosines = unit[begin : begin + _CANDIDATES] @ queries.T
        means[begin : begin + _CANDIDATES] = np.partition(cosines, -k, axis=1)[:, -k:].mean(axis=1)
    return means


def _ranks(
    queries: FloatArray, unit: FloatArray, own: Int64Array, held: Int64Array
) -> tuple[dict[str, Int64Array], dict[str, Int64Array]]:
    """Rank of each query's own row among all rows of ``unit``, and among the rows ``own``, by cosine and by CSLS.

    CSLS is 2 cos − r(x) − r(y); r(x) is the same for all candidates of a query and cannot change a rank.
    """
    hubness = _hubness(queries, unit)
    among_all = {name: np.empty(len(queries), np.int64) for name in ("cosine", "csls")}
    among_own = {name: np.empty(len(queries), np.int64) for name in ("cosine", "csls")}
    for begin in range(0, len(queries), _QUERIES):
        block = slice(begin, begin + _QUERIES)
        cosines = queries[block] @ unit.T
        for name, scores in (("cosine", cosines), ("csls", 2 * cosines - hubness)):
            better = scores > scores[np.arange(len(scores)), own[held[block]], None]
            among_all[name][block] = 1 + better.sum(axis=1)
            among_own[name][block] = 1 + better[:, own].sum(axis=1)
    return among_all, among_own


def _retrieval(ranks: Int64Array, n_candidates: int) -> Retrieval:
    at_1, at_5, at_10 = (float((ranks <= k).mean()) for k in (1, 5, 10))
    return Retrieval(n_candidates, at_1, at_5, at_10, float((1 / ranks).mean()))


def _mean_norm(rows: FloatArray) -> float:
    return float(np.linalg.norm(rows, axis=1).mean())
