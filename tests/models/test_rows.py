"""The rows that a model holds: a compact embedding computes what the whole one does."""

import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.models.rows import Rows, RowTable
from greenadapt.models.weights import StreamedRows, open_model
from greenadapt.storage.arrays import ArrayFile, write_arrays
from greenadapt.tasks.base import Feature, Input
from tests.support.mapped_pages import file_backed_bytes
from tests.support.small_tasks import EVERY_FAMILY, TinyModel, expanded


def feature(ids: Sequence[int]) -> Feature:
    return Feature(np.array(ids, np.int32), np.zeros(len(ids), np.int32), np.zeros(len(ids), np.int32))


def views(base: Sequence[int], expanded: Sequence[int]) -> Input:
    return Input([feature(base)], [feature(expanded)], 1)


@given(
    st.lists(st.tuples(*[st.lists(st.integers(0, 5000), min_size=1)] * 2), max_size=20),
    st.integers(0, 5),
    st.lists(st.integers(0, 5000), max_size=4),
)
def test_the_rows_of_examples(pairs: list[tuple[list[int], list[int]]], pad: int, special: list[int]) -> None:
    rows = Rows.of((views(*pair) for pair in pairs), pad, special)
    wanted = {*range(pad + 1), *special, *(i for pair in pairs for view in pair for i in view)}
    assert rows.ids.tolist() == sorted(wanted)
    assert rows.ids.dtype == np.int64
    assert len(rows) == len(wanted)
    assert rows.compact(np.array([[pad]])).tolist() == [[pad]]
    for pair in pairs:
        for view in pair:
            positions = rows.compact(np.array(view, np.int32))
            assert positions.dtype == np.int64
            assert rows.ids[positions].tolist() == view


def test_many_examples_are_joined_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenadapt.models.rows._CHUNK", 7)
    rows = Rows.of((views([i, 3 * i], [i, 5 * i]) for i in range(50)), 0, [])
    assert rows.ids.tolist() == sorted({f * i for i in range(50) for f in (1, 3, 5)})


def test_rows_that_are_not_held_are_named() -> None:
    rows = Rows(np.array([0, 1, 4, 9]))
    assert rows.compact(np.array([[9, 0], [4, 4]])).tolist() == [[3, 0], [2, 2]]
    for ids, message in (([0, 3, 10], "row 3, one of 2"), ([10], "row 10, one of 1")):
        with pytest.raises(ValueError, match=message):
            rows.compact(np.array(ids))


def test_all_rows_keep_their_ids() -> None:
    ids = np.array([[5, 0], [7, 9]])
    assert Rows.all(10).compact(ids).tolist() == ids.tolist()
    with pytest.raises(ValueError, match="row 10"):
        Rows.all(10).compact(np.array([10]))


def test_a_table_with_changed_rows() -> None:
    embedding = np.arange(20, dtype=np.float16).reshape(10, 2)
    values = np.array([[-1, -2], [-3, -4]], np.float32)
    table = RowTable(embedding, Rows(np.array([2, 7])), values, 0.5)
    expected = embedding.astype(np.float32) / 2
    expected[[2, 7]] = values
    np.testing.assert_array_equal(table.read(np.arange(10)), expected)
    np.testing.assert_array_equal(table.read(np.array([9, 7, 7, 0])), expected[[9, 7, 7, 0]])
    np.testing.assert_array_equal(np.concatenate(list(table.blocks(3))), expected)
    assert [len(block) for block in table.blocks(3)] == [3, 3, 3, 1]
    assert table.read(np.arange(2)).dtype == np.float32
    np.testing.assert_array_equal(RowTable.of(embedding).read(np.arange(10)), embedding)


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
    few = Rows.of((), pad, [2])
    model = open_model(checkpoint, "TokenClassification", {}, few, seed=1)
    streamed = StreamedRows(model, few, RowTable.of(checkpoint.embedding()))
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
        lengths.append(len(model.get_input_embeddings().weight) - len(few))
    assert lengths == [4, 16, 64, 64]  # the largest batches have 3, 14 and 60 other rows


def test_streamed_rows_take_the_memory_of_a_batch(tiny_model: TinyModel, tmp_path: Path) -> None:
    checkpoint = expanded(tiny_model, tmp_path, "Bert", n=60_000, width=64)
    tracemalloc.start()
    few = Rows.of((), 0, [])
    model = open_model(checkpoint, "TokenClassification", {}, few, seed=1)
    streamed = StreamedRows(model, few, RowTable.of(checkpoint.embedding()))
    for ids in np.random.default_rng(0).integers(0, checkpoint.n_rows, (5, 100)):
        streamed.compact(ids)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.1 * checkpoint.embedding().nbytes
    assert len(model.get_input_embeddings().weight) == 1 + 1024
