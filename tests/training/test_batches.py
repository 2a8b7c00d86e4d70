from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.models.rows import Rows
from greenadapt.tasks.base import Feature, Item
from greenadapt.training.batches import Batch, BatchDivider, TaskDataset, loss_sum


def _feature(ids: list[int], target: object) -> Feature:
    n = len(ids)
    return Feature(np.array(ids, np.int32), np.arange(n, dtype=np.int32) % 2, np.zeros(n, np.int32), np.array(target))


def _ner(*ids: int) -> Feature:
    return _feature(list(ids), [-100, *range(len(ids) - 1)])


def _table() -> TaskDataset:
    base, shared = [_ner(1, 20, 30, 40)], [_ner(1, 20)]
    items = [Item(base, [_ner(1, 50, 40)], 1), Item(shared, shared, 1)]
    return TaskDataset.of(items, Rows(np.array([0, 1, 20, 30, 40, 50])), "TokenClassification", 0)


def test_inputs_are_those_of_the_chosen_view_in_the_models_rows() -> None:
    table = _table()
    for expanded, longer in ((False, [1, 2, 3, 4]), (True, [1, 5, 4])):
        numbers = table.inputs_of(np.array([0, 1]), np.array([expanded, expanded]))
        assert table.lengths(numbers).tolist() == [2, len(longer)]
        batch = table.batch(numbers)
        n = len(longer)
        assert batch.ids.tolist() == [[1, 2] + [0] * (n - 2), longer]
        assert batch.mask.tolist() == [[1, 1] + [0] * (n - 2), [1] * n]
        assert batch.types.tolist() == [[0, 1] + [0] * (n - 2), [i % 2 for i in range(n)]]
        assert batch.extra == {}
        assert batch.targets.tolist() == [[-100, 0] + [-100] * (n - 2), [-100, *range(n - 1)]]
        assert table.n_terms(numbers) == 1 + n - 1


def test_one_example_can_have_several_inputs() -> None:
    windows = [_feature([1, 2, 3], [1, 2]), _feature([1, 4], [0, 0]), _feature([1, 5, 6, 7], [3, 3])]
    items = [Item(windows[:2], windows[2:], 3), Item([], [], 0), Item(windows[2:], windows[:2], 3)]
    table = TaskDataset.of(items, Rows.all(9), "QuestionAnswering", 0)
    numbers = table.inputs_of(np.array([2, 1, 0]), np.array([True, False, False]))
    assert table.lengths(numbers).tolist() == [2, 2, 3, 3]
    assert table.n_terms(numbers) == 4
    assert table.batch(numbers).targets.tolist() == [[0, 0], [0, 0], [1, 2], [1, 2]]
    assert table.inputs_of(np.array([0]), np.array([True])).tolist() == [2]


def _cost(lengths: list[int], bounds: list[int], overhead: int) -> int:
    return sum((b - a) * lengths[b - 1] + overhead for a, b in pairwise(bounds))


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8).map(sorted),
    st.integers(1, 100),
    st.integers(0, 60),
)
def test_the_cut_is_the_cheapest_that_fits(lengths: list[int], max_tokens: int, overhead: int) -> None:
    n = len(lengths)
    parts = BatchDivider(max_tokens, overhead).divide(np.array(lengths))
    bounds = [part.start for part in reversed(parts)] + [n]
    assert [part.stop for part in parts] == bounds[:0:-1]
    assert bounds[0] == 0

    def fits(bounds: list[int]) -> bool:
        pairs = pairwise(bounds)
        return all(b - a == 1 or (b - a) * lengths[b - 1] <= max_tokens for a, b in pairs)

    every = ([0, *inner, n] for k in range(n) for inner in combinations(range(1, n), k))
    assert fits(bounds)
    assert _cost(lengths, bounds, overhead) == min(_cost(lengths, cut, overhead) for cut in every if fits(cut))


CONFIG: dict[str, Any] = dict(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
)
TAGS = torch.arange(36).reshape(4, 9) % 3
TAGS[:, 5:] = -100
SPANS = torch.tensor([[1, 2], [0, 8], [4, 4], [3, 7]])


def _loss(head: str, output: Any, targets: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return loss_sum(head, output, Batch(mask, mask, mask, targets))


@pytest.mark.parametrize(
    ("head", "n_labels", "targets", "n_terms"),
    [
        ("TokenClassification", 3, TAGS, 20),
        ("SequenceClassification", 3, torch.tensor([0, 2, 1, 1]), 4),
        ("SequenceClassification", 1, torch.tensor([0.5, -2.0, 3.0, 1.0]), 4),
        ("QuestionAnswering", 2, SPANS, 4),
    ],
)
def test_the_loss_is_that_of_transformers(head: str, n_labels: int, targets: torch.Tensor, n_terms: int) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**CONFIG, num_labels=n_labels)
    model = getattr(transformers, f"BertFor{head}")(config).eval()
    starts, ends = SPANS.T.contiguous()
    labels = {"start_positions": starts, "end_positions": ends} if targets is SPANS else {"labels": targets}
    ids, mask = torch.randint(5, 50, (4, 9)), torch.ones(4, 9, dtype=torch.int64)
    output = model(input_ids=ids, attention_mask=mask, **labels)
    torch.testing.assert_close(_loss(head, output, targets, mask) / n_terms, output.loss)


def test_padding_is_no_answer() -> None:
    output = {"start_logits": torch.randn(1, 4), "end_logits": torch.randn(1, 4)}
    padded = {name: torch.cat([logits, torch.full((1, 3), 9.0)], dim=1) for name, logits in output.items()}
    targets, mask = torch.tensor([[1, 3]]), torch.tensor([[1, 1, 1, 1, 0, 0, 0]])
    expected = _loss("QuestionAnswering", output, targets, mask[:, :4])
    torch.testing.assert_close(_loss("QuestionAnswering", padded, targets, mask), expected)
