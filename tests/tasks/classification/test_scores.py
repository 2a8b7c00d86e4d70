"""Scores of classes and numbers against scikit-learn and scipy, from predictions and from sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from greenadapt.tasks.classification import class_counts, class_scores, macro_f1, moments, number_scores, pearson
from greenadapt.tasks.records import as_number, natural_order

KNOWN = ["a", "b", "c", "rare"]
PAIRS = st.lists(st.tuples(st.sampled_from([*KNOWN, "new", "newer"]), st.sampled_from(KNOWN)), min_size=1, max_size=30)
NUMBERS = st.floats(-1e3, 1e3).map(lambda x: round(x, 2))


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(PAIRS)
def test_class_scores_are_sklearns(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    scores = class_scores(gold, predicted)
    report = metrics.classification_report(gold, predicted, output_dict=True, zero_division=0)
    assert scores["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])
    assert scores["accuracy"] == pytest.approx(np.mean(np.array(gold) == np.array(predicted)))
    assert scores["micro_f1"] == pytest.approx(scores["accuracy"])  # what single-label data makes of it
    assert set(scores["by_class"]) == {*gold, *predicted}
    for label, values in scores["by_class"].items():
        assert values == {name.removesuffix("-score"): value for name, value in report[label].items()}
    # R. Gorodkin's formula for several classes, written out.
    classes = sorted({*gold, *predicted})
    one_hot = [np.array([[label == c for c in classes] for label in side], float) for side in (gold, predicted)]
    x, y = (side - side.mean(0) for side in one_hot)
    scale = np.sqrt((x * x).sum() * (y * y).sum())
    assert scores["mcc"] == pytest.approx((x * y).sum() / scale if scale > 1e-9 else 0, abs=1e-9)


def test_micro_is_accuracy_and_macro_is_not_on_an_imbalanced_toy() -> None:
    gold, predicted = ["a"] * 9 + ["b"], ["a"] * 10
    scores = class_scores(gold, predicted)
    assert scores["micro_f1"] == scores["accuracy"] == pytest.approx(0.9)
    assert scores["macro_f1"] == pytest.approx((18 / 19 + 0) / 2)
    assert scores["mcc"] == 0
    assert scores["by_class"]["b"] == {"precision": 0, "recall": 0, "f1": 0, "support": 1}


def test_all_of_one_class_is_no_error() -> None:
    scores = class_scores(["a", "a"], ["a", "a"])
    assert (scores["macro_f1"], scores["accuracy"], scores["mcc"]) == (1, 1, 0)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(PAIRS, st.integers(0, 2**32 - 1))
def test_macro_f1_from_sums_of_any_draw(pairs: list[tuple[str, str]], seed: int) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    statistics = class_counts(gold, predicted, KNOWN)
    assert statistics.shape == (len(pairs), len({*KNOWN, *gold}) * 3)
    drawn = np.random.default_rng(seed).integers(len(pairs), size=(2, 3, len(pairs)))
    values = macro_f1(statistics[drawn].sum(axis=2))
    assert values.shape == (2, 3)
    for index in np.ndindex(2, 3):
        sides = [np.array(side)[drawn[index]] for side in (gold, predicted)]
        assert values[index] == pytest.approx(metrics.f1_score(*sides, average="macro", zero_division=0))


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=30))
def test_number_scores_are_scipys(pairs: list[tuple[float, float]]) -> None:
    gold, predicted = map(list, zip(*pairs, strict=True))
    scores = number_scores(gold, predicted)
    assert scores["mse"] == pytest.approx(metrics.mean_squared_error(gold, predicted))
    from_sums = float(pearson(moments(gold, predicted).sum(axis=0)))
    if len(set(gold)) == 1 or len(set(predicted)) == 1:
        assert (scores["pearson"], scores["spearman"], from_sums) == (None, None, 0)
        return
    ranks = (stats.rankdata(gold), stats.rankdata(predicted))
    assert scores["pearson"] == pytest.approx(np.corrcoef(gold, predicted)[0, 1], abs=1e-9)
    assert scores["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-9)
    assert from_sums == pytest.approx(scores["pearson"], abs=1e-6)


def test_pearson_from_sums_keeps_its_digits_far_from_zero() -> None:
    random = np.random.default_rng(0)
    gold = 1e6 + random.normal(size=200)
    predicted = gold + random.normal(size=200)
    drawn = random.integers(200, size=(50, 200))
    values = pearson(moments(gold, predicted)[drawn].sum(axis=1))
    expected = [stats.pearsonr(gold[d], predicted[d]).statistic for d in drawn]
    np.testing.assert_allclose(values, expected, rtol=1e-9)


def test_scores_of_the_whole_set_are_not_means_over_batches() -> None:
    random = np.random.default_rng(0)
    gold = random.normal(size=64)
    predicted = gold + random.normal(size=64)
    statistics = moments(gold, predicted)
    for size in (1, 7, 8, 64):
        total = sum(statistics[begin : begin + size].sum(axis=0) for begin in range(0, 64, size))
        assert float(pearson(total)) == pytest.approx(stats.pearsonr(gold, predicted).statistic)
    in_batches = [stats.pearsonr(gold[i : i + 8], predicted[i : i + 8]).statistic for i in range(0, 64, 8)]
    assert abs(np.mean(in_batches) - stats.pearsonr(gold, predicted).statistic) > 0.01


@pytest.mark.parametrize("predicted", [[2.0, 2.0, 2.0], [0.1 + 0.2, 0.3, 0.3]])
def test_a_constant_prediction_has_no_correlation(predicted: list[float]) -> None:
    gold = [1.0, 2.0, 4.0]
    scores = number_scores(gold, [2.0] * 3)
    assert (scores["pearson"], scores["spearman"]) == (None, None)
    number_scores(gold, predicted)  # nearly constant: no warning either
    assert float(pearson(moments(gold, predicted).sum(axis=0))) == 0
    assert number_scores([1.0], [3.0]) == {"pearson": None, "spearman": None, "mse": 4.0}


def test_rounding_is_no_correlation() -> None:
    random = np.random.default_rng(0)
    for value in (0.1, 1 / 3, 1e3 / 7, 1e6 + 0.1):
        sums = moments(random.normal(size=1000), [value] * 1000)[random.integers(1000, size=(50, 1000))].sum(axis=1)
        assert pearson(sums).tolist() == [0] * 50
        assert pearson(sums[:, [0, 2, 1, 4, 3, 5]]).tolist() == [0] * 50  # and with the sides exchanged


def test_the_order_of_labels() -> None:
    assert natural_order({"10", "9", "-1", "1.5", "1e1"}) == ["-1", "1.5", "9", "10", "1e1"]
    assert natural_order({"type10", "type2", "a", "Type2", "10", "2b"}) == ["2b", "10", "Type2", "a", "type2", "type10"]
    assert natural_order({"nan", "1", "inf"}) == ["1", "inf", "nan"]
    assert natural_order({"9" * 5000 + "x", "1"}) == ["1", "9" * 5000 + "x"]


def test_what_is_a_number() -> None:
    assert [as_number(text) for text in ("3", "-.5", "+1.e3", 2, 2.5)] == [3, -0.5, 1000, 2, 2.5]
    for label in ("", "nan", "inf", "1_000", " 1", "٣", "1e", ".", "1e999", float("nan"), float("inf"), 10**400):
        assert as_number(label) is None
