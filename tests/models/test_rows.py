"""The rows that a model holds: a compact embedding computes what the whole one does."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.models.rows import Rows, RowTable
from greenadapt.models.weights import StreamedRows, open_model
from greenadapt.store.arrays import ArrayFile, write_arrays
from greenadapt.tasks.base import Feature, Item
from greenadapt.tokenization.files import SpecialIds
from tests.support.mapped_pages import file_backed_bytes
from tests.support.small_tasks import EVERY_FAMILY, TinyModel, expanded


def feature(ids: Sequence[int]) -> Feature:
    return Feature(np.array(ids, np.int32), np.zeros(len(ids), np.int32), np.zeros(len(ids), np.int32))


def views(base: Sequence[int], expanded: Sequence[int]) -> Item:
    return Item([feature(base)], [feature(expanded)], 1)


@given(
    st.lists(st.tuples(*[st.lists(st.integers(0, 5000), min_size=1)] * 2), max_size=20),
    st.integers(0, 5),
    st.tuples(*[st.integers(0, 5000)] * 3),
)
def test_the_rows_of_examples(
    pairs: list[tuple[list[int], list[int]]], pad: int, special: tuple[int, int, int]
) -> None:
    cls, sep, unk = special
    rows = Rows.of((views(*pair) for pair in pairs), SpecialIds(cls, sep, pad, unk, mask=6000))
    expected = {*range(pad + 1), *special, *(i for pair in pairs for view in pair for i in view)}
    assert rows.ids.tolist() == sorted(expected)
    for pair in pairs:
        for view in pair:
            assert rows.ids[rows.compact(np.array(view, np.int32))].tolist() == view


def test_rows_that_are_not_held_are_named() -> None:
    rows = Rows(np.array([0, 1, 4, 9]))
    assert rows.compact(np.array([[9, 0], [4, 4]])).tolist() == [[3, 0], [2, 2]]
    assert Rows.all(10).compact(np.array([[5, 0], [7, 9]])).tolist() == [[5, 0], [7, 9]]
    with pytest.raises(ValueError, match="row 3, one of 2"):
        rows.compact(np.array([0, 3, 10]))


def test_a_table_with_changed_rows(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    stored = draw.normal(size=(2000, 8)).astype(np.float16)
    write_arrays(tmp_path / "table.safetensors", {"table": stored})
    embedding, changed = ArrayFile(tmp_path / "table.safetensors")["table"], Rows(np.arange(3, 2000, 5))
    values = draw.normal(size=(len(changed), 8)).astype(np.float32)
    table = RowTable(embedding, changed, values, 0.9)
    expected = stored.astype(np.float32) * np.float32(0.9)
    expected[changed.ids] = values
    for n in (0, 256, 257, 1500):
        ids = draw.integers(0, 2000, n)
        assert table.read(ids).dtype == np.float32
        np.testing.assert_array_equal(table.read(ids), expected[ids])
        np.testing.assert_array_equal(RowTable.of(embedding).read(ids), stored[ids].astype(np.float32))
    np.testing.assert_array_equal(np.concatenate(list(table.blocks(300))), expected)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_the_whole_table_keeps_none_of_its_pages(tmp_path: Path) -> None:
    expected = np.random.default_rng(0).normal(size=(50_000, 256)).astype(np.float32)  # 51 MB
    write_arrays(tmp_path / "table.safetensors", {"table": expected})
    embedding = ArrayFile(tmp_path / "table.safetensors")["table"]
    before = file_backed_bytes()
    for i, block in enumerate(RowTable.of(embedding).blocks(1000)):
        np.testing.assert_array_equal(block, expected[1000 * i : 1000 * (i + 1)])
        assert file_backed_bytes() - before < 10e6
    assert embedding.sum() == expected.sum()
    assert file_backed_bytes() - before > 40e6  # the measure does see pages


@pytest.mark.parametrize("architecture", EVERY_FAMILY)
def test_streamed_rows_compute_what_the_whole_table_does(
    tiny_model: TinyModel, tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greenadapt.models.weights._LEAST_TAIL", 4)
    checkpoint = expanded(tiny_model, tmp_path, architecture)
    pad = int(checkpoint.config["pad_token_id"])
    whole = open_model(checkpoint, "TokenClassification", {}, Rows.all(checkpoint.n_rows), seed=1)
    held = Rows(np.union1d(np.arange(pad + 1), [2]))
    model = open_model(checkpoint, "TokenClassification", {}, held, seed=1)
    streamed = StreamedRows(model, held, RowTable.of(checkpoint.embedding()))
    random = np.random.default_rng(0)
    lengths = []
    for n in (2, 9, 40, 3):
        ids = random.integers(3, checkpoint.n_rows, (2, n))
        ids[1, n // 2 :] = pad
        mask = torch.from_numpy((ids != pad).astype(np.int64))
        with torch.inference_mode():
            expected = whole(torch.from_numpy(ids), attention_mask=mask).logits
        positions = streamed.compact(ids)
        assert positions[1, -1] == pad
        with torch.inference_mode():
            got = model(torch.from_numpy(positions), attention_mask=mask).logits
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)
        lengths.append(len(model.get_input_embeddings().weight) - len(held))
    assert lengths == [4, 16, 64, 64]  # the largest batches have 3, 14 and 60 other rows
