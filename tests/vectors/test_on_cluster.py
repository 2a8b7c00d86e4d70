"""What nodes learned apart is merged as if one had learned it all, and parts are assigned fairly."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.config import W2VConfig
from greenadapt.store.arrays import Array, write_arrays
from greenadapt.vectors.engine.stream import StreamPart, Weights
from greenadapt.vectors.on_cluster import (
    GROWTH,
    Curvature,
    Trainer,
    add,
    assign_parts,
    curvatures,
    expected_steps,
    find_changes,
    merge,
    round_size,
)

RATE = 0.01
STEPS = np.array([1.0, 30, 1000, 30_000])
"""Of each of four rows in a node's interval."""


def _descended(start: Array, goal: Array, curvature: Array, steps: Array) -> Array:
    """Rows after ``steps`` of gradient descent towards ``goal``, each column with its own ``curvature``."""
    return goal + (start - goal) * (1 - RATE * curvature) ** steps[:, None]


@pytest.mark.parametrize("n_nodes", [2, 8])
def test_merged_rows_are_where_one_node_would_have_come(n_nodes: int) -> None:
    rng = np.random.default_rng(0)
    start, goal = (rng.normal(size=(4, 6)).astype(np.float32) for _ in range(2))
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0].astype(np.float32)
    values = np.array([0.01, 0.01, 0.2, 0.5, 1, 2])  # the rest, and four large ones
    apart = _descended(start @ turn, goal @ turn, values, STEPS) @ turn.T
    curvature = Curvature(turn[:, 2:], values[2:], 0.01)
    merged_changes = merge([find_changes(apart, start)] * n_nodes, start.shape, RATE * STEPS, curvature)
    together = _descended(start @ turn, goal @ turn, values, n_nodes * STEPS) @ turn.T
    add([start], merged_changes)
    np.testing.assert_allclose(start, together, atol=0.02)


def test_a_row_is_merged_over_the_nodes_that_changed_it_and_only_changed_rows_are_sent() -> None:
    start = np.zeros((5, 6), np.float32)
    first, second = start.copy(), start.copy()
    first[1], first[3], second[3] = 1, 1, 3
    sent = [find_changes(first, start), find_changes(second, start)]
    assert [changed.rows.tolist() for changed in sent] == [[1, 3], [3]]
    curvature = Curvature(np.eye(6, 4, dtype=np.float32), np.full(4, 1e9), 1e9)  # each has arrived: the mean
    add([start], merge(sent, start.shape, np.ones(5), curvature))
    np.testing.assert_array_equal(start[:, 0], [0, 1, 0, 2, 0])


def test_expected_steps_and_curvatures_are_those_of_drawn_windows() -> None:
    rng = np.random.default_rng(1)
    counts = np.array([2000, 1500, 1000, 500])
    config = W2VConfig(window=3, negative=2, sample=0)
    weights = Weights(*(rng.normal(size=(4, 8)).astype(np.float32) for _ in range(2)))
    text = rng.permutation(np.repeat(np.arange(4), counts))
    inputs, outputs, hidden, targets = np.zeros(4), np.zeros(4), np.zeros((8, 8)), np.zeros((8, 8))
    noise = counts**0.75 / (counts**0.75).sum()
    for at in range(3, len(text) - 3):
        width = int(rng.integers(1, 4))
        context = np.delete(text[at - width : at + width + 1], width)
        np.add.at(inputs, context, 1)
        np.add.at(outputs, drawn := np.append(rng.choice(4, 2, p=noise), text[at]), 1)
        h = weights.input[context].mean(axis=0)
        hidden += np.outer(h, h)
        targets += weights.output[drawn].T @ weights.output[drawn]
    steps = expected_steps(counts, config)
    np.testing.assert_allclose(steps.input, inputs / len(text), rtol=0.07)
    np.testing.assert_allclose(steps.output, outputs / len(text), rtol=0.07)
    of_input, of_output = curvatures(weights, steps, config)
    for curvature, moment in ((of_input, targets / len(text) / 4), (of_output, hidden / len(text) / 4)):
        np.testing.assert_allclose(curvature.values, np.linalg.eigvalsh(moment)[-4:], rtol=0.3, atol=0.02)
        np.testing.assert_allclose(curvature.values[-1], np.linalg.eigvalsh(moment)[-1], rtol=0.15)


@given(st.lists(st.integers(1, 16), min_size=1, max_size=9), st.integers(1, 5), st.integers(1, 3000))
def test_rounds_begin_small_on_one_node_and_end_on_all(cores: list[int], per_core: int, n_parts: int) -> None:
    before, largest = 0, 0
    while before < n_parts:
        size, n_nodes = round_size(before, cores, per_core)
        assert size >= 1
        assert size <= per_core * sum(cores) or n_nodes == 1
        assert n_nodes == 1 or size <= GROWTH * before
        assert n_nodes == 1 or size >= sum(cores[:n_nodes])
        before, largest = before + size, max(largest, n_nodes)
    if before * GROWTH > per_core * sum(cores):
        assert round_size(before, cores, per_core) == (per_core * sum(cores), len(cores))


@given(st.lists(st.integers(1, 16), min_size=1, max_size=9), st.integers(0, 200), st.integers(0, 9))
def test_each_part_is_dealt_once_and_by_cores(cores: list[int], n_parts: int, seed: int) -> None:
    parts = [StreamPart(number, np.zeros(0, np.int64), 0, 1) for number in range(n_parts)]
    parts_by_node = assign_parts(parts, cores, np.random.default_rng(seed))
    assert sorted(part.number for node_parts in parts_by_node for part in node_parts) == list(range(n_parts))
    assert all(
        [part.number for part in node_parts] == sorted(part.number for part in node_parts)
        and abs(len(node_parts) - n_parts * n_cores / sum(cores)) <= 1
        for node_parts, n_cores in zip(parts_by_node, cores, strict=True)
    )


@pytest.mark.slow
def test_trainers_agree_after_a_merge(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids, counts = rng.integers(0, 50, 4000).astype(np.int32), np.full(50, 80)
    write_arrays(tmp_path / "ids", {"ids": ids})
    config = W2VConfig(dim=10, sample=0, alpha=0.05)
    tables = rng.normal(size=(2, 50, 10)).astype(np.float32)
    trainers = [Trainer() for _ in range(3)]
    for number, trainer in enumerate(trainers):
        trainer.start(tmp_path / "ids", (counts, len(ids)), config, *tables)
        trainer.train([StreamPart(number, np.array([number * 1000, number * 1000 + 1000]), 0, 1000)], 0)
    sent = [trainer.changes(3) for trainer in trainers]
    messages = [trainers[i].merge(i, 3, 0.05, 1000, *(slices[i] for slices in sent)) for i in range(3)]
    for trainer in trainers:
        trainer.apply(*messages)
    first, second, _ = (trainer.tables() for trainer in trainers)
    for table, second_table, start in zip(first, second, tables, strict=True):
        np.testing.assert_array_equal(table, second_table)
        assert np.abs(table - start).max() > 0.01
    assert all(not changed.rows.size for trainer in trainers for message in trainer.changes(2) for changed in message)
