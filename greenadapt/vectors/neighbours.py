"""The paper's table of nearest neighbours, within and across the two spaces, and vectors on a plane."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from greenadapt.storage.arrays import Array, FloatArray, Int64Array, row_blocks

_MANY_NAMES = 50_000  # a tenth of a second for difflib
_GROUP = 64  # columns


@dataclass(frozen=True)
class Neighbours:
    """The nearest entries of one word in one view: ``(label, cosine)``, nearest first."""

    word: str
    view: str
    neighbours: tuple[tuple[str, float], ...]
    count: int | None = None
    """How often the word occurs in the corpus; ``None`` if it is not known."""
    precision_at_10: float | None = None
    """Of held-out words about as frequent, the share whose own row is among the ten nearest of their mapped vector."""


@dataclass(frozen=True, eq=False)
class Space:
    """Labelled vectors: ``vectors`` ``(n, dim)``, ``labels[row]`` the text of a row, ``rows`` word → its row.

    ``hidden`` rows are nobody's neighbours (special tokens).
    """

    labels: Sequence[str]
    rows: Mapping[str, int]
    vectors: Array
    hidden: Collection[int] = ()


def unit_rows(vectors: Array) -> FloatArray:
    """``vectors`` ``(n, dim)`` in float32, each row divided by its length; a row of zeros stays zero."""
    rows = np.array(vectors, np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(norms > 0, norms, 1)
    return rows


def nearest(
    queries: Array,
    candidates: Array,
    k: int,
    exclude: Int64Array | None = None,
    transform: Callable[[Array], Array] | None = None,
) -> tuple[Int64Array, FloatArray]:
    """The ``k`` rows of ``candidates`` ``(n, d)`` with the highest cosine to each of ``queries`` ``(q, dim)``.

    ``exclude`` ``(q, m)`` holds candidate rows that do not count for a query, −1 for none. ``transform`` turns a block
    of candidates into ``dim`` columns before they are compared, so that word vectors on disk are aligned in blocks.
    Returns indices and cosines, ``(q, k)``, nearest first, equal cosines by index (which of the rows with the
    ``k``-th cosine are among them is open); where fewer than ``k`` rows are left, the index is −1 and the cosine −inf.
    """
    unit = unit_rows(queries)
    indices: Int64Array = np.full((len(unit), k), -1, np.int64)
    cosines: FloatArray = np.full((len(unit), k), -np.inf, np.float32)
    begin = 0
    for raw in row_blocks(candidates):
        block = unit_rows(raw if transform is None else transform(raw))
        scores = unit @ block.T
        if exclude is not None:
            query, slot = np.nonzero((exclude >= begin) & (exclude < begin + len(block)))
            scores[query, exclude[query, slot] - begin] = -np.inf
        # Sorting only the k best of a block: a block of narrow vectors has many thousand rows.
        best = _largest(scores, min(k, len(block)))
        found = np.take_along_axis(scores, best, axis=1)
        indices = np.concatenate([indices, np.where(np.isneginf(found), -1, best + begin)], axis=1)
        cosines = np.concatenate([cosines, found], axis=1)
        order = np.lexsort((indices, -cosines), axis=1)[:, :k]
        indices = np.take_along_axis(indices, order, axis=1)
        cosines = np.take_along_axis(cosines, order, axis=1)
        begin += len(block)
    return indices, cosines


def _largest(scores: FloatArray, k: int) -> Int64Array:
    """The columns of the ``k`` largest of each row of ``scores`` (n, m), in any order, (n, k)."""
    n, m = scores.shape
    n_groups = m // _GROUP
    if n_groups <= k:
        return np.argpartition(-scores, k - 1, axis=1)[:, :k]
    # Maxima are much faster than a partition, and the k largest lie in the k groups with the largest maxima.
    maxima = np.fmax.reduce(scores[:, : n_groups * _GROUP].reshape(n, n_groups, _GROUP), axis=2)
    groups = np.argpartition(-maxima, k - 1, axis=1)[:, :k, None]
    rest = np.broadcast_to(np.arange(n_groups * _GROUP, m), (n, m % _GROUP))
    columns = np.concatenate([(groups * _GROUP + np.arange(_GROUP)).reshape(n, -1), rest], axis=1)
    best = np.argpartition(-np.take_along_axis(scores, columns, axis=1), k - 1, axis=1)[:, :k]
    found: Int64Array = np.take_along_axis(columns, best, axis=1)
    return found


def neighbour_table(
    words: Sequence[str], domain: Space, base: Space, align: Callable[[Array], Array], k: int
) -> list[Neighbours]:
    """The nearest domain words (``domain``) and wordpieces (``base``) of ``words``, word by word.

    ``align`` maps rows of ``domain`` into the space of ``base``. A word with a word vector gets the views that start at
    it, a word with a base row those that start at that row, a word with neither gets none. Word vectors are compared
    with wordpieces before alignment only where both have the same width. Within a space a word is not its own
    neighbour; across spaces it may be, which shows that the map finds it.
    """

    def plain(vectors: Array) -> Array:
        return vectors

    # title, the space and map of the words' own vectors, the space and map of the candidates
    views = [
        ("word vector → word vectors", domain, plain, domain, plain),
        ("word vector → wordpieces, before alignment", domain, plain, base, plain),
        ("aligned → wordpieces", domain, align, base, plain),
        ("aligned → aligned", domain, align, domain, align),
        ("wordpiece → wordpieces", base, plain, base, plain),
        ("wordpiece → aligned", base, plain, domain, align),
    ]
    if domain.vectors.shape[1] != base.vectors.shape[1]:
        del views[1]
    found = [
        row
        for title, own, own_map, other, other_map in views
        for row in _view(title, [word for word in words if word in own.rows], (own, own_map), (other, other_map), k)
    ]
    return sorted(found, key=lambda row: words.index(row.word))  # stable: the views stay in order


_Mapped = tuple[Space, Callable[[Array], Array]]


def _view(title: str, words: list[str], own: _Mapped, other: _Mapped, k: int) -> list[Neighbours]:
    if not words:
        return []
    (own_space, own_map), (other_space, other_map) = own, other
    queries = own_map(own_space.vectors[[own_space.rows[word] for word in words]])
    hidden = sorted(other_space.hidden)
    own_rows = [own_space.rows[word] if own_space is other_space else -1 for word in words]
    exclude = np.array([[row, *hidden] for row in own_rows], np.int64)
    labels = other_space.labels
    indices, cosines = nearest(queries, other_space.vectors, min(k, len(labels)), exclude, other_map)
    return [
        Neighbours(word, title, tuple((labels[i], float(c)) for i, c in zip(row, near, strict=True) if i >= 0))
        for word, row, near in zip(words, indices, cosines, strict=True)
    ]


def near_names(word: str, names: Iterable[str]) -> list[str]:
    """Up to three of ``names`` that look like ``word``, for an error message.

    Of more than 50,000 names only those with the same first letter and about the same length are compared.
    """
    candidates = list(names)
    if len(candidates) > _MANY_NAMES:
        first = word[:1].lower()
        candidates = [name for name in candidates if name[:1].lower() == first and abs(len(name) - len(word)) <= 2]
    return get_close_matches(word, candidates)


def on_plane(rows: Array, also: Array) -> tuple[FloatArray, FloatArray, float]:
    """The coordinates of ``rows`` (n, dim) and ``also`` (m, dim) on the two principal axes of ``rows``: (n, 2), (m, 2).

    And the share of the variance of ``rows`` that lies along these axes (Pearson 1901).
    """
    mean = rows.mean(axis=0)
    centred = rows - mean
    # By the products of the rows, which are usually fewer than their columns: faster than singular values.
    variances, weights = np.linalg.eigh(centred @ centred.T)
    axes = centred.T @ weights[:, :-3:-1]
    plane = axes / np.maximum(np.linalg.norm(axes, axis=0), np.finfo(np.float32).tiny)
    total = float(variances.sum())
    share = float(variances[-2:].sum()) / total if total else 1.0
    return centred @ plane, (also - mean) @ plane, share
