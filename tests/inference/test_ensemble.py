"""Ensembles of logits and of probabilities, against numpy and torch by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from greenadapt.inference.models import combined
from greenadapt.tasks.classification import ClassificationTask
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question

A, B = np.array([[10, 9.5, 0]], np.float32), np.array([[0, 2, 3]], np.float32)
HEADS = {"SequenceClassification": -1, "TokenClassification": -1, "QuestionAnswering": 0}


def logits(shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.float32, shape, elements=st.floats(-50, 50, width=32))


def test_where_logits_and_probabilities_disagree() -> None:
    task = ClassificationTask(label_kind="classes", labels=("first", "second", "third"))
    by_logits, by_probabilities = (combined([A, B], rule, task.head) for rule in ("logits", "probabilities"))
    assert by_logits.tolist() == [[5, 5.75, 1.5]]
    assert (2 * np.exp(by_probabilities))[0] == pytest.approx([0.658, 0.637, 0.705], abs=5e-4)
    assert task.decode(None, by_logits)["label"] == "second"
    decided = task.decode(None, by_probabilities)
    assert decided["label"] == "third"
    assert decided["score"] == pytest.approx(0.705 / 2, abs=5e-4)


@settings(deadline=None)
@given(st.lists(logits((4, 2)), min_size=2, max_size=2))
def test_of_two_models_and_two_classes_both_choose_alike(pair: list[np.ndarray]) -> None:
    """sigmoid(a) + sigmoid(b) > 1 exactly where a + b > 0; of three models that would not hold."""
    gaps = [each.astype(np.float64)[:, 1] - each[:, 0] for each in pair]
    sure = np.abs(gaps[0] + gaps[1]) > 1e-4  # the other rows are ties, but for rounding
    sure &= np.minimum(np.abs(gaps[0]), np.abs(gaps[1])) < 12  # beyond that float32 has no sum but 1
    chosen = [combined(pair, rule, "TokenClassification").argmax(-1) for rule in ("logits", "probabilities")]
    np.testing.assert_array_equal(chosen[0][sure], chosen[1][sure])


@pytest.mark.slow
@pytest.mark.parametrize(("head", "axis"), HEADS.items())
@settings(deadline=None)
@given(st.data())
def test_the_softmax_is_the_mean_of_the_softmaxes(head: str, axis: int, data: st.DataObject) -> None:
    k = 2 if head == "QuestionAnswering" else 4
    each = data.draw(st.lists(logits((5, k)), min_size=2, max_size=3))
    tensors = [torch.from_numpy(one).double() for one in each]
    found = torch.from_numpy(combined(each, "probabilities", head)).double()
    expected = torch.stack([torch.softmax(one, axis) for one in tensors]).mean(0)
    torch.testing.assert_close(torch.softmax(found, axis), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.exp(), expected, atol=1e-5, rtol=1e-4)
    mean = torch.from_numpy(combined(each, "logits", head)).double()
    torch.testing.assert_close(mean, torch.stack(tensors).mean(0), atol=1e-5, rtol=1e-5)


def test_large_logits_do_not_overflow() -> None:
    found = combined([A * 1e4, B * 1e4], "probabilities", "SequenceClassification")
    assert np.exp(found)[0].tolist() == pytest.approx([0.5, 0, 0.5])
    assert found[0, 1] == pytest.approx(np.log(0.5) - 5e3)


def test_a_number_has_no_probabilities() -> None:
    for rule in ("logits", "probabilities"):
        found = combined([np.array([[1.5]], np.float32), np.array([[2]], np.float32)], rule, "SequenceClassification")
        assert found.tolist() == [[1.75]]


@pytest.mark.parametrize("head", HEADS)
def test_units_without_pieces(head: str) -> None:
    """What one model has no piece for is improbable to it; what none has a piece for stays unknown."""
    known = np.array([[1, 2], [3, 0], [0, 1]], np.float32)
    first, second = known.copy(), known.copy()
    first[1] = first[2] = second[2] = -np.inf
    found = combined([first, second], "probabilities", head)
    assert np.isneginf(found[2]).all()
    assert np.isfinite(found[:2]).all()
    if head == "QuestionAnswering":
        share = np.exp(known[:2].astype(float)) / np.exp(known[:2].astype(float)).sum(0)
        expected = np.stack([(1 + share[0]) / 2, share[1] / 2])
        np.testing.assert_allclose(np.exp(found[:2]), expected, rtol=1e-5)
    else:
        softmax = np.exp(known[1]) / np.exp(known[1]).sum()
        np.testing.assert_allclose(np.exp(found[1]) / np.exp(found[1]).sum(), softmax, rtol=1e-5)
    nothing = np.full((2, 2), -np.inf, np.float32)
    for rule in ("logits", "probabilities"):
        np.testing.assert_array_equal(combined([nothing, nothing], rule, head), nothing)


def test_the_answers_of_two_models() -> None:
    """The best span is that of the largest product of mean start and mean end probabilities."""
    random, context = np.random.default_rng(0), "the heart rate of a patient with virus"
    each: list[Any] = [random.normal(scale=3, size=(8, 2)).astype(np.float32) for _ in range(2)]
    question = Question("1", "what rate", context, ())
    found = QuestionTask().decode(question, combined(each, "probabilities", "QuestionAnswering"))
    shares = np.mean([np.exp(one.astype(float)) / np.exp(one.astype(float)).sum(0) for one in each], axis=0)
    products = np.triu(shares[:, :1] * shares[:, 1])
    first, last = divmod(int(products.argmax()), 8)
    assert found["answer"] == " ".join(context.split()[first : last + 1])
    assert found["logit"] == pytest.approx(np.log(products.max()), abs=1e-4)
