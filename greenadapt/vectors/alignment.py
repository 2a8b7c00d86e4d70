"""The linear map from word vectors to wordpiece vectors (Poerner et al., arXiv 2004.03354, equation 1)."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.config import AlignConfig, AlignMethod
from greenadapt.errors import InputError
from greenadapt.store.arrays import Array, ArrayFile, Float64Array, FloatArray, row_blocks, write_arrays
from greenadapt.store.files import parse_own
from greenadapt.tokenization.vocabulary import BaseVocabulary
from greenadapt.vectors.word_vectors import WordVectors

FILE = "alignment.safetensors"
BERT_STD = 0.02  # how BERT initialises its embedding
_MAX_CONDITION = 1e4  # in the 1-norm, to decompose XᵀX
_ENOUGH_WORDS = 200  # with fewer cased words, all being lower case can be chance


@dataclass(frozen=True, eq=False)
class _Facts:
    """What is stored of a map beside its arrays."""

    method: AlignMethod
    source_dim: int
    target_dim: int
    n_overlap: int
    seed: int
    rank: int | None = None
    condition: float | None = None
    residual: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Alignment(_Facts):
    """A fitted map; ``apply`` turns word vectors into wordpiece-like rows.

    ``matrix`` is W, float32 ``(target_dim, source_dim)``; under ``method="random"`` it is ``None``, and ``mean`` and
    ``std``, float32 ``(target_dim,)``, describe the rows instead. ``rank`` and ``condition`` (largest over smallest
    singular value above the rank cut-off) describe the word vectors of the overlap; they are ``None`` if the method
    decomposes nothing. ``residual`` is Σ‖W x − y‖² over the overlap, ``None`` for random rows.
    """

    matrix: FloatArray | None = None
    mean: FloatArray | None = None
    std: FloatArray | None = None
    triangle: "Triangle | None" = None
    """From which a fit on these and more words starts; not stored."""

    def apply(self, vectors: Array) -> FloatArray:
        """Rows ``y = x Wᵀ``, float32 ``(n, target_dim)``, of ``vectors`` ``(n, source_dim)``, a block at a time.

        Each row is computed from its own vector, and under ``random`` from the seed. Other vectors can change its last
        bit, since products of matrices of other sizes round differently.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.source_dim:
            raise InputError(
                f"the word vectors have shape {vectors.shape}, the map was fitted on width {self.source_dim}",
                "align again with these vectors",
            )
        rows = np.empty((len(vectors), self.target_dim), np.float32)
        # The block size affects the last bits: in float64, so that rounding to float32 hides it.
        transposed = None if self.matrix is None else self.matrix.T.astype(np.float64)
        begin = 0
        for raw in row_blocks(vectors):
            block = np.asarray(raw, np.float32)
            out = rows[begin : begin + len(block)]
            if transposed is None:
                self._draw(block, out)
            else:
                out[:] = block.astype(np.float64) @ transposed
            begin += len(block)
        return rows

    def _draw(self, block: FloatArray, out: FloatArray) -> None:
        key = self.seed.to_bytes(8, "little", signed=True)
        for vector, row in zip(block, out, strict=True):
            digest = blake2b(vector.tobytes(), digest_size=8, key=key).digest()
            np.random.default_rng(int.from_bytes(digest, "little")).standard_normal(dtype=np.float32, out=row)
        assert self.mean is not None
        assert self.std is not None
        out *= self.std
        out += self.mean

    def facts(self) -> dict[str, Any]:
        """Everything except the arrays, ready for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(_Facts)}

    def save(self, folder: Path) -> None:
        """Write ``alignment.safetensors``: ``map``, or ``mean`` and ``std``, with the facts as metadata."""
        named = {"map": self.matrix, "mean": self.mean, "std": self.std}
        arrays = {name: array for name, array in named.items() if array is not None}
        write_arrays(folder / FILE, arrays, {"alignment": json.dumps(self.facts())})

    @classmethod
    def load(cls, folder: Path) -> "Alignment":
        """Read what ``save`` wrote; raises ``InputError`` for any other file."""
        file = ArrayFile(folder / FILE)
        again = "run greenadapt align again"
        if "alignment" not in file.metadata:
            raise InputError(f"{file.path} is not an alignment", again)
        facts = parse_own(file.metadata["alignment"], _Facts, file.path, again)
        arrays: dict[str, Any] = {"matrix" if name == "map" else name: file[name] for name in file.names}
        return cls(**vars(facts), **arrays)


def fit(
    source: Array,
    target: Array,
    config: AlignConfig,
    first: Alignment | None = None,
) -> Alignment:
    """Fit the map on the overlap: ``source`` ``(n, d_source)`` word vectors, ``target`` ``(n, d_target)`` base rows.

    - ``lstsq``: argmin_W Σ‖W x − y‖², no intercept, no weights; the minimum-norm W if the rank is too low.
    - ``procrustes``: the W with orthonormal columns (rows, if the target is narrower) that maximises tr(Wᵀ Yᵀ X):
      W = U Vᵀ with Yᵀ X = U S Vᵀ (Schönemann 1966). It does not scale.
    - ``identity``: W = I. ``random``: no map, rows drawn from N(0, 0.02) or with the mean and deviation of ``target``.

    ``first`` is a fit on the first of the rows, which are then not decomposed again. Computed in float64, stored in
    float32. Raises ``InputError`` for fewer than 2 words, and unequal widths under ``identity``.
    """
    n, source_dim, target_dim = len(source), source.shape[1], target.shape[1]
    if n < 2:
        words_are = "1 word is" if n == 1 else f"{n} words are"
        message = f"{words_are} in both vocabularies, at least 2 are needed"
        raise InputError(message, "lower --min-count or use a larger corpus")
    sizes = {"source_dim": source_dim, "target_dim": target_dim, "n_overlap": n}
    common: dict[str, Any] = {"method": config.method, "seed": config.seed, **sizes}
    if config.method == "random":
        mean, std = _row_statistics(target, config)
        return Alignment(**common, mean=mean, std=std)
    if config.method == "identity":
        if source_dim != target_dim:
            raise InputError(
                f"word vectors are {source_dim} wide and the model's rows {target_dim}, identity needs equal widths",
                f"train the vectors with --dim {target_dim}, or choose another --method",
            )
        residual = float(np.square(np.asarray(source, np.float64) - target).sum())
        return Alignment(**common, matrix=np.eye(source_dim, dtype=np.float32), residual=residual)
    n_first, triangle = (0, None) if first is None else (first.n_overlap, first.triangle)
    triangle = Triangle.of(source[n_first:], target[n_first:], triangle)
    transposed, rank, condition = _solve(triangle, n, config)
    return Alignment(
        **common,
        matrix=np.ascontiguousarray(transposed.T, np.float32),
        rank=rank,
        condition=condition,
        residual=triangle.residual(transposed),
        warnings=_rank_warnings(n, source_dim, rank),
        triangle=triangle,
    )


def check_casing(words: Iterable[str], *, lowercases: bool, vocabulary_has_upper: bool) -> str | None:
    """Refuse lower-cased word vectors for a cased model; return a warning for cased vectors of an uncased one.

    ``lowercases``: whether the tokenizer does; ``vocabulary_has_upper``: whether it has upper-case words that are not
    special tokens.
    Raises ``InputError`` if none of at least 200 words that could have an upper-case letter has one.
    """
    cased = [word for word in words if word.lower() != word.upper()]
    n_upper = sum(word != word.lower() for word in cased)
    if lowercases:
        message = "cannot be looked up: the model's tokenizer lower-cases its text"
        return f"{n_upper} words with upper-case letters {message}" if n_upper else None
    if vocabulary_has_upper and n_upper == 0 and len(cased) >= _ENOUGH_WORDS:
        raise InputError(
            f"none of the {len(cased)} words with letters has an upper-case one, but the model's tokenizer keeps case",
            "use vectors trained on cased text, or an uncased model",
        )
    return None


@dataclass(frozen=True, eq=False)
class Triangle:
    """R and Qᵀ Y of the QR decomposition X = Q R: a fit on them equals a fit on X and Y."""

    source: Float64Array
    """R, (m, d_source), for n words, where m is the lesser of n and d_source."""
    target: Float64Array
    """Qᵀ Y, (m, d_target)."""
    squares: float
    """Σ y²."""

    @classmethod
    def of(cls, source: Array, target: Array, before: "Triangle | None" = None) -> "Triangle":
        """The triangle of these words and those of ``before``, which R replaces (Demmel et al., arXiv 0808.2664).

        R is the Cholesky factor of XᵀX, a fifth of the work, unless that would lose more digits than float32 rounds
        off: the error is that of float64 times the square of the condition.
        """
        X, Y = np.asarray(source, np.float64), np.asarray(target, np.float64)
        squares = float(np.vdot(Y, Y)) + (0.0 if before is None else before.squares)
        if before is not None:
            X, Y = np.vstack([before.source, X]), np.vstack([before.target, Y])
        with suppress(np.linalg.LinAlgError):
            R: Array = np.linalg.cholesky(X.T @ X, upper=True)
            if np.linalg.cond(R, 1) < _MAX_CONDITION:
                projected: Array = np.linalg.solve(R.T, X.T @ Y)
                return cls(R, projected, squares)
        from scipy import linalg  # here, since its import takes as long as most fits

        # 2 s for 30,000 × 768 on two cores where numpy.linalg.qr needs 20 and scipy.linalg.lstsq 3
        Q, R = linalg.qr(np.array(X, order="F"), mode="economic", overwrite_a=True, check_finite=False)
        return cls(R, Q.T @ Y, squares)

    def residual(self, transposed: Float64Array) -> float:
        """Σ‖W x − y‖² for Wᵀ ``(d_source, d_target)``."""
        difference = self.source @ transposed - self.target
        return max(
            0.0, self.squares - float(np.vdot(self.target, self.target)) + float(np.vdot(difference, difference))
        )


def _solve(triangle: Triangle, n: int, config: AlignConfig) -> tuple[Float64Array, int, float | None]:
    """Wᵀ ``(d_source, d_target)`` of n words, from R = U S Vᵀ cut at its rank; also the rank and the condition."""
    U, S, Vt = np.linalg.svd(triangle.source, full_matrices=False)
    cutoff = S[0] * max(n, triangle.source.shape[1]) * np.finfo(np.float64).eps  # as numpy.linalg.matrix_rank
    rank = int((cutoff < S).sum())
    singular, right, projected = S[:rank], Vt[:rank], U[:, :rank].T @ triangle.target
    condition = float(S[0] / S[rank - 1]) if rank else None
    if config.method == "procrustes":  # the nearest semi-orthogonal matrix to XᵀY
        U, _, Vt = np.linalg.svd(right.T @ (singular[:, None] * projected), full_matrices=False)
        return U @ Vt, rank, condition
    return right.T @ ((singular / singular**2)[:, None] * projected), rank, condition


def _rank_warnings(n: int, width: int, rank: int) -> tuple[str, ...]:
    if n < width:
        message = f"{n} words are in both vocabularies, fewer than the {width} dimensions of the word vectors"
        return (f"{message} (rank {rank}): took the minimum-norm map; lower --min-count or use a larger corpus",)
    if rank < width:
        return (f"the word vectors of the {n} overlapping words have rank {rank}, below their width {width}",)
    return ()


def _row_statistics(target: Array, config: AlignConfig) -> tuple[FloatArray, FloatArray]:
    width = target.shape[1]
    if config.random_scale == "bert":
        return np.zeros(width, np.float32), np.full(width, BERT_STD, np.float32)
    rows = np.asarray(target, np.float64)
    return rows.mean(axis=0).astype(np.float32), rows.std(axis=0).astype(np.float32)


def overlap(vectors: WordVectors, vocabulary: BaseVocabulary) -> tuple[list[str], Array, Array]:
    """The words in both vocabularies, their rows among the vectors and their base ids, both int64 ``(n_overlap,)``."""
    whole = vocabulary.whole_words
    rows = [row for row, word in enumerate(vectors.words) if word in whole]
    words = [vectors.words[row] for row in rows]
    return words, np.array(rows, np.int64), np.array([whole[word] for word in words], np.int64)
