"""Which words get a row, and what the row is, up to a real checkpoint with the rows in it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.writer import write_expanded
from greenadapt.config import AlignConfig, ExpandConfig, RowRecipe
from greenadapt.vectors.alignment import fit
from greenadapt.vectors.expansion import NewRows, mean_of_pieces, replacements, rescaled, select, wordpiece_norm
from tests.conftest import WORDS, wordpiece_vocabulary

SELECT_WORDS = ["the", "insulin", "egfr", "[CLS]", "rare", "cardia", "virus"]
COUNTS = np.array([900, 5, 80, 70, 1, 5, 60])
BASE = {"the", "virus", "[CLS]"}
PIECES = {"insulin": 3, "egfr": 4, "rare": 1, "cardia": 2}


def chosen(allowed: set[str] | None = None, **config: object) -> list[str]:
    def n_pieces(words: Sequence[str]) -> list[int]:
        return [PIECES[word] for word in words]

    return [SELECT_WORDS[i] for i in select(SELECT_WORDS, COUNTS, BASE, ExpandConfig(**config), n_pieces, allowed)]


def test_new_words_come_by_count_and_ties_in_order() -> None:
    assert chosen() == ["egfr", "insulin", "cardia", "rare"]


def test_each_limit_leaves_words_out() -> None:
    assert chosen(max_words=2) == ["egfr", "insulin"]
    assert chosen(min_count=5) == ["egfr", "insulin", "cardia"]
    assert chosen(min_pieces=3) == ["egfr", "insulin"]
    assert chosen({"rare", "cardia", "the", "absent"}) == ["cardia", "rare"]
    assert chosen(set()) == []
    assert chosen({"rare", "cardia"}, min_pieces=2, max_words=1) == ["cardia"]


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=4), st.integers(0, 5)), unique_by=lambda pair: pair[0]),
    st.sets(st.text(min_size=1, max_size=2)),
    st.integers(1, 4),
)
def test_selection_is_the_sorted_filter(entries: list[tuple[str, int]], base: set[str], min_count: int) -> None:
    words = [word for word, _ in entries]
    counts = np.array([count for _, count in entries], np.int64)
    indices = select(words, counts, base, ExpandConfig(min_count=min_count), lambda words: [len(w) for w in words])
    expected = sorted((-count, i) for i, (word, count) in enumerate(entries) if count >= min_count and word not in base)
    assert indices.tolist() == [i for _, i in expected]


EMBEDDING = np.arange(24, dtype=np.float16).reshape(8, 3)
MAPPED = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [1.0, 2.0, 2.0]], np.float32)
PIECE_IDS = [[1, 2], [7], [0, 3, 3]]
MEANS = np.array([[4.5, 5.5, 6.5], [21, 22, 23], [6, 7, 8]], np.float32)


def rows(recipe: RowRecipe, **config: object) -> np.ndarray:
    blocks = NewRows(
        3, ExpandConfig(rows=recipe, **config), lambda s: MAPPED[s], lambda s: PIECE_IDS[s], EMBEDDING, norm=10.0
    )
    return np.concatenate(list(blocks))


def test_each_recipe_by_hand() -> None:
    np.testing.assert_array_equal(rows("map"), MAPPED)
    expected = np.array([[6, 8, 0], [0, 0, 0], [10 / 3, 20 / 3, 20 / 3]], np.float32)
    np.testing.assert_allclose(rows("norm"), expected, rtol=1e-6)
    np.testing.assert_allclose(rows("pieces"), MEANS, rtol=1e-6)
    np.testing.assert_allclose(rows("blend"), 0.5 * MAPPED + 0.5 * MEANS, rtol=1e-6)
    np.testing.assert_allclose(rows("blend", blend=0.25), 0.25 * MAPPED + 0.75 * MEANS, rtol=1e-6)
    assert {rows(recipe).dtype for recipe in ("map", "norm", "pieces", "blend")} == {np.dtype(np.float32)}


def test_a_recipe_asks_only_for_what_it_needs() -> None:
    def never(block: slice) -> np.ndarray:
        raise AssertionError

    for recipe in ("map", "norm"):
        list(NewRows(3, ExpandConfig(rows=recipe), lambda s: MAPPED[s], never, EMBEDDING, 1.0))
    list(NewRows(3, ExpandConfig(rows="pieces"), never, lambda s: PIECE_IDS[s], EMBEDDING, 1.0))


@pytest.mark.parametrize("recipe", ["map", "norm", "pieces", "blend"])
def test_blocks_are_the_rows_of_the_whole_each_time(recipe: RowRecipe) -> None:
    n = 10_000
    draw = np.random.default_rng(1)
    mapped = draw.normal(size=(n, 3)).astype(np.float32)
    pieces = [draw.integers(0, 8, draw.integers(1, 6)).tolist() for _ in range(n)]
    new = NewRows(n, ExpandConfig(rows=recipe), lambda s: mapped[s], lambda s: pieces[s], EMBEDDING, 2.0)
    whole = {
        "map": mapped,
        "norm": rescaled(mapped, 2.0),
        "pieces": mean_of_pieces(pieces, EMBEDDING),
        "blend": (mapped + mean_of_pieces(pieces, EMBEDDING)) / 2,
    }[recipe]
    assert len(list(new)) > 1
    for _ in range(2):
        np.testing.assert_allclose(np.concatenate(list(new.streamed().pieces)), whole, rtol=1e-6, atol=1e-7)


def test_mean_of_pieces_against_a_loop() -> None:
    draw = np.random.default_rng(0)
    embedding = draw.normal(size=(50, 16)).astype(np.float32)
    pieces = [draw.integers(0, 50, draw.integers(1, 9)).tolist() for _ in range(200)]
    expected = np.stack([embedding[ids].mean(0) for ids in pieces])
    np.testing.assert_allclose(mean_of_pieces(pieces, embedding), expected, atol=1e-6)
    with pytest.raises(ValueError, match="word 1 has no pieces"):
        mean_of_pieces([[1], [], [2]], embedding)


def test_the_wordpiece_norm_counts_neither_specials_nor_padding() -> None:
    embedding = np.diag([100.0, 3.0, 1.0, 50.0, 5.0, 77.0]).astype(np.float16)
    assert wordpiece_norm(embedding, n_tokens=5, special_ids=frozenset({0, 3})) == pytest.approx(3.0)


def test_replacements_are_the_words_of_both() -> None:
    vectors = np.arange(8, dtype=np.float64).reshape(4, 2)
    found = replacements(["a", "b", "c", "d"], {"d": 10, "b": 3, "x": 4}, lambda indices: vectors[indices] * 2)
    assert {row: value.tolist() for row, value in found.items()} == {3: [4, 6], 10: [12, 14]}
    assert replacements(["a"], {}, lambda indices: vectors[indices]) == {}


def test_from_vectors_to_a_grown_embedding(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(tiny_model("BertForMaskedLM"))
    vocabulary = {piece: i for i, piece in enumerate(wordpiece_vocabulary())}
    base = {word: vocabulary[word] for word in WORDS}
    words = [*WORDS, "tachycardia", "[CLS]", "insulin"]
    counts = np.arange(len(words), 0, -1)
    matrix = np.random.default_rng(0).normal(size=(len(words), 6)).astype(np.float32)
    target = checkpoint.embedding()[list(base.values())]

    def adapted(scale: float, folder: Path) -> np.ndarray:
        vectors = matrix * np.float32(scale)
        alignment = fit(vectors[: len(base)], target, AlignConfig())
        new = select(words, counts, {*base, "[CLS]"}, ExpandConfig(), lambda some: [2] * len(some))
        assert [words[i] for i in new] == ["tachycardia", "insulin"]
        blocks = NewRows(
            len(new), ExpandConfig(), lambda block: alignment.apply(vectors[new[block]]), lambda _: [], target, 1.0
        )
        write_expanded(checkpoint, blocks.streamed(), folder)
        W = np.linalg.lstsq(vectors[: len(base)].astype(np.float64), target.astype(np.float64), rcond=None)[0].T
        embedding = Checkpoint.open(folder).embedding()
        np.testing.assert_allclose(embedding[checkpoint.n_rows :], vectors[new] @ W.T, atol=1e-5)
        return embedding

    grown = adapted(1.0, tmp_path / "one")
    assert grown.shape == (checkpoint.n_rows + 2, checkpoint.dim)
    assert grown[: checkpoint.n_rows].tobytes() == checkpoint.embedding().tobytes()
    np.testing.assert_allclose(adapted(16.0, tmp_path / "sixteen"), grown, atol=1e-6)
