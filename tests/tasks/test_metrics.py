"""The score that counts, its average over tasks, and the paper's own averages."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from greenadapt.errors import InputError
from greenadapt.store.arrays import Array
from greenadapt.tasks.base import Task
from greenadapt.tasks.classification import ClassificationTask, Text
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.metrics import (
    FEWEST,
    average,
    choose_metric,
    gap_covered,
    interval,
    metric_of,
    paired_bootstrap,
    resample,
)
from greenadapt.tasks.ner import NerTask
from greenadapt.tasks.qa import QuestionTask

CLASSES = ClassificationTask(label_kind="classes", labels=("0", "New.York", "1"))
NUMBERS = ClassificationTask(label_kind="numbers")
NER = NerTask(("O", "B-Disease", "I-Disease", "B-gene.x", "I-gene.x"))

# Table 2 of arXiv 1902.02671: MNLI-m, MNLI-mm, QQP (F1), QNLI, SST-2, CoLA, STS-B, MRPC (F1), RTE, and the average.
TABLE_2 = {
    "BERT-base": ([84.6, 83.4, 71.2, 90.1, 93.5, 52.1, 85.8, 88.9, 66.4], 79.6),
    "Shared": ([84.0, 83.4, 70.8, 89.3, 93.4, 51.2, 83.6, 86.7, 76.6], 79.9),
    "Top projected attention": ([84.0, 83.2, 71.2, 89.7, 93.2, 47.1, 85.3, 87.5, 75.5], 79.6),
    "PALs": ([84.3, 83.5, 71.5, 90.0, 92.6, 51.2, 85.8, 88.7, 76.0], 80.4),
}


@pytest.mark.parametrize("method", TABLE_2)
def test_the_papers_averages(method: str) -> None:
    columns, expected = TABLE_2[method]
    mean = average(columns)
    assert mean is not None
    assert round(mean, 1) == expected


def of(labels: list[Any], predicted: list[Any], task: ClassificationTask) -> dict[str, Any]:
    key = "value" if task == NUMBERS else "label"
    return task.score([Text("a", label=label) for label in labels], [{key: value} for value in predicted])


def test_paths_into_the_scores_of_each_kind() -> None:
    scores = of(["0", "1", "1", "New.York"], ["0", "1", "0", "New.York"], CLASSES)
    assert metric_of(scores, "accuracy") == scores["accuracy"]
    assert metric_of(scores, "by_class.New.York.f1") == 1
    assert metric_of(scores, "by_class.2.f1") is None
    assert metric_of(of([1.0, 2.0], [3.0, 3.0], NUMBERS), "spearman") is None

    sentences = [Sentence(("a", "b"), ("B-Disease", "B-gene.x"))]
    scores = NER.score(sentences, [{"tags": ["B-Disease", "O"]}])
    assert metric_of(scores, "by_type.gene.x.recall") == 0
    assert metric_of(scores, "by_type.Disease.recall") == 1


@pytest.mark.parametrize(
    ("task", "metric", "known"),
    [
        (NER, "accuracy", "precision, recall, f1"),
        (QuestionTask(), "mcc", "em, f1, substr, has_answer.em, "),
        (NUMBERS, "mse", "pearson, spearman"),
    ],
)
def test_scores_that_are_none(task: Task[Any], metric: str, known: str) -> None:
    with pytest.raises(InputError) as caught:
        choose_metric(metric, task, "tasks.toml, task a")
    assert str(caught.value).startswith(f"tasks.toml, task a: metric {metric!r} is not a score of this task")
    assert f"known are {known}" in str(caught.value)


def test_what_is_chosen_once_the_labels_are_known() -> None:
    assert choose_metric(None, CLASSES, "a") == "macro_f1"
    assert choose_metric("by_class.New.York.f1", CLASSES, "a") == "by_class.New.York.f1"
    assert choose_metric("by_type.gene.x.f1", NER, "a") == "by_type.gene.x.f1"
    with pytest.raises(InputError, match="which no training example has: they have Disease, gene"):
        choose_metric("by_type.B-Disease.f1", NER, "a")


def mean(sums: Array) -> Array:
    """The main score of statistics (1, value): their mean."""
    return np.asarray(sums[..., 1] / sums[..., 0])


def with_ones(values: Array) -> Array:
    return np.stack([np.ones_like(values), values], axis=-1)


@pytest.fixture
def values() -> tuple[Array, Array]:
    """Scores (4 seeds, 300 examples) of two models that are alike on the same examples."""
    random = np.random.default_rng(0)
    difficulty = random.normal(size=300)
    ours, theirs = difficulty + random.normal(scale=0.5, size=(2, 4, 300))
    return ours + 0.05, theirs


def test_an_interval_is_scipys_percentile_bootstrap(values: tuple[Array, Array]) -> None:
    ours = np.exp(values[0][0])  # skewed: the interval is not symmetric
    result = interval(with_ones(ours), mean, samples=20_000)
    expected = stats.bootstrap(
        (ours,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    width = expected.high - expected.low
    assert result.value == pytest.approx(ours.mean())
    assert result.low == pytest.approx(expected.low, abs=0.03 * width)
    assert result.high == pytest.approx(expected.high, abs=0.03 * width)


def test_one_seed_is_scipys_paired_bootstrap(values: tuple[Array, Array]) -> None:
    ours, theirs = values[0][:1], values[1][:1]
    result = paired_bootstrap(with_ones(ours), with_ones(theirs), mean, samples=20_000)
    expected = stats.bootstrap(
        (ours[0], theirs[0]),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        method="percentile",
        paired=True,
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    )
    interval = expected.confidence_interval
    width = interval.high - interval.low
    assert result.low == pytest.approx(interval.low, abs=0.03 * width)
    assert result.high == pytest.approx(interval.high, abs=0.03 * width)
    assert result.share_positive == pytest.approx((expected.bootstrap_distribution > 0).mean(), abs=0.015)
    assert result.ours == pytest.approx(ours.mean())
    assert result.theirs == pytest.approx(theirs.mean())
    assert result.difference == pytest.approx((ours - theirs).mean())


def test_seeds_are_drawn_in_pairs_as_well() -> None:
    per_seed = np.array([0.0, 0.1, 0.4])  # the same gain on every example: all doubt comes from the seeds
    luck = np.array([5.0, -3.0, 9.0])  # of the seed itself, which both models share
    theirs = np.tile(luck[:, np.newaxis], (1, 50))
    ours = theirs + per_seed[:, np.newaxis]
    result = paired_bootstrap(with_ones(ours), with_ones(theirs), mean, samples=20_000)
    draws = np.array([per_seed[[a, b, c]].mean() for a in range(3) for b in range(3) for c in range(3)])
    assert result.low == pytest.approx(np.sort(draws)[0], abs=1e-9)  # probability 1/27, more than 2.5 %
    assert result.high == pytest.approx(np.sort(draws)[-1], abs=1e-9)
    assert result.share_positive == pytest.approx(26 / 27, abs=0.01)


def test_contexts_are_drawn_if_there_are_enough() -> None:
    statistics = np.arange(6.0 * FEWEST).reshape(1, 3 * FEWEST, 2)
    for n in (1, FEWEST - 1):
        assert resample(statistics, [str(i % n) for i in range(3 * FEWEST)]) == (statistics, "examples")
    sums, drawn = resample(statistics, [str(i // 3) for i in range(3 * FEWEST)])
    assert drawn == "contexts"
    np.testing.assert_array_equal(sums, statistics.reshape(1, FEWEST, 3, 2).sum(axis=2))


def test_the_share_of_the_gap() -> None:
    assert gap_covered(80.0, 83.0, 85.0) == pytest.approx(0.6)
    assert gap_covered(80.0, 79.0, 85.0) == pytest.approx(-0.2)
    assert gap_covered(80.0, 90.0, 80.0) is None
    assert gap_covered(80.0, 90.0, 79.0) is None
