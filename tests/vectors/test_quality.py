"""Held-out figures, against a loop that does the same slowly."""

from typing import Any

import numpy as np
import pytest

from greenadapt.config import AlignConfig, RecipeName
from greenadapt.errors import InputError
from greenadapt.vectors.alignment import fit
from greenadapt.vectors.quality import KnownWords, fit_and_measure
from greenadapt.vectors.rows import FormSums, RowRecipe, predict_rows
from tests.conftest import Watcher

N_BASE, N_OVERLAP, SPECIAL = 400, 330, (0, 5, 399)


def _case(noise: float = 0.9) -> tuple[Any, Any, Any]:
    """Word vectors that a linear map with some noise turns into some of the rows of a base table."""
    rng = np.random.default_rng(7)
    base = rng.standard_normal((N_BASE, 12)).astype(np.float32)
    rows = rng.permutation(np.setdiff1d(np.arange(N_BASE), SPECIAL))[:N_OVERLAP]
    source = base[rows] @ rng.standard_normal((12, 9)) + noise * rng.standard_normal((N_OVERLAP, 9))
    return source.astype(np.float32), base, rows


def _cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def _by_hand(source: Any, base: Any, rows: Any, config: AlignConfig) -> dict[str, Any]:
    """The same figures one pair at a time; the words held out are found by the documented rule."""
    order = np.random.default_rng(config.seed).permutation(len(rows))
    n_held = round(len(rows) * config.heldout)
    held, fitted = sorted(order[:n_held]), sorted(order[n_held:])
    W = np.linalg.lstsq(source[fitted].astype(float), base[rows[fitted]].astype(float))[0].T
    mapped, target = [W @ source[i] for i in held], [base[rows[i]] for i in held]
    mean = np.mean(target, axis=0)
    r2 = 1 - sum(np.sum((y - t) ** 2) for y, t in zip(mapped, target, strict=True)) / sum(
        np.sum((t - mean) ** 2) for t in target
    )
    candidates = [row for row in range(len(base)) if row not in SPECIAL]
    cosines = {(q, row): _cosine(mapped[q], base[row]) for q in range(n_held) for row in candidates}
    return {
        "r2": r2,
        "cosine": np.mean([cosines[q, rows[held[q]]] for q in range(n_held)]),
        "ranks": np.array(
            [1 + sum(cosines[q, row] > cosines[q, rows[held[q]]] for row in candidates) for q in range(n_held)]
        ),
        "mapped_norm": np.mean([np.linalg.norm(y) for y in mapped]),
        "target_norm": np.mean([np.linalg.norm(t) for t in target]),
        "base_norm": np.mean([np.linalg.norm(base[row]) for row in candidates]),
    }


def test_the_figures_equal_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    import greenadapt.vectors.quality as module

    monkeypatch.setattr(module, "_CANDIDATES", 20)  # several blocks
    source, base, rows = _case()
    config = AlignConfig(seed=11)
    overlap = KnownWords(source, np.arange(len(rows)), rows, base, special_ids=SPECIAL)
    watcher = Watcher()
    figures = fit_and_measure(overlap, config, watcher)[0].figures
    assert [amount for amount, _ in watcher.steps] == [20] * 19 + [17]  # of 397 candidates
    expected = _by_hand(source, base, rows, config)
    assert figures is not None
    assert (figures.n_heldout, figures.n_fitted, figures.rank) == (33, 297, 9)
    for name in ("r2", "cosine", "mapped_norm", "target_norm", "base_norm"):
        assert getattr(figures, name) == pytest.approx(expected[name], abs=1e-5), name
    nearest, ranks = figures.base_rows["cosine"], expected["ranks"]
    assert nearest.n_candidates == N_BASE - len(SPECIAL)
    assert nearest.precision_at_1 == pytest.approx(np.mean(ranks <= 1))
    assert nearest.precision_at_5 == pytest.approx(np.mean(ranks <= 5))
    assert nearest.precision_at_10 == pytest.approx(np.mean(ranks <= 10))
    assert nearest.mrr == pytest.approx(np.mean(1 / ranks))
    assert 0 < nearest.precision_at_1 < nearest.precision_at_5 < nearest.precision_at_10 < 1
    held = np.sort(np.random.default_rng(config.seed).permutation(len(rows))[:33])  # a word's count is its number here
    for band, (low, high) in zip(figures.by_count, [(1, 20), (20, 100), (100, 500), (500, 1000)], strict=True):
        band_ranks = ranks[(held >= low) & (held < high)]
        assert (band.min_count, band.n_words) == (low, len(band_ranks))
        assert band.precision_at_10 == (pytest.approx(np.mean(band_ranks <= 10)) if len(band_ranks) else None)


def test_few_overlapping_words_are_skipped_with_a_note() -> None:
    source, base, rows = _case()
    known = [KnownWords(source[:n], np.arange(n), rows[:n], base) for n in (49, 50)]
    few, enough = (fit_and_measure(words, AlignConfig())[0] for words in known)
    assert few.figures is None
    assert few.note == "49 words are in both vocabularies, held-out figures need 50: skipped"
    assert enough.figures is not None


def test_recipes_are_compared_on_words_that_they_were_not_fitted_on() -> None:
    source, base, rows = _case()
    counts = np.arange(1, len(rows) + 1)
    pieces = [[int(row) % 7 + 10, int(row) % 11 + 20] for row in rows]
    config, norm = AlignConfig(), 3.0
    overlap = KnownWords(source, counts, rows, base, pieces, SPECIAL)
    names: tuple[RecipeName, ...] = ("map", "norm", "pieces", "form")
    recipes = [RowRecipe(name, fit(source, base[rows], config), base, norm) for name in names]
    predicted = predict_rows(overlap, recipes, config)
    figures = {name: predicted.measure(predicted_rows) for name, predicted_rows in predicted.rows.items()}
    diagnosed = fit_and_measure(overlap, config)[0].figures
    assert diagnosed is not None
    assert figures["map"].r2 == diagnosed.r2
    assert figures["norm"].mapped_norm == pytest.approx(norm, rel=1e-5)
    order = np.random.default_rng(config.seed).permutation(len(rows))
    held, fitted = np.sort(order[:33]), np.sort(order[33:])
    means = np.stack([base[pieces[i]].mean(0) for i in held])
    assert figures["pieces"].cosine == pytest.approx(
        np.mean([_cosine(row, base[rows[i]]) for row, i in zip(means, held, strict=True)]), abs=1e-6
    )
    sums = FormSums(source.shape[1], base.shape[1])
    sums.add(overlap, fitted, norm)
    form = sums.fit(norm).rows(source[held], counts[held], [pieces[i] for i in held], base)
    assert figures["form"].cosine == pytest.approx(
        np.mean([_cosine(row, base[rows[i]]) for row, i in zip(form, held, strict=True)]), abs=1e-6
    )
    small_overlap = KnownWords(source[:49], counts[:49], rows[:49], base, pieces[:49])
    with pytest.raises(InputError, match="49 of the words in both vocabularies"):
        predict_rows(small_overlap, recipes[1:2], config)
