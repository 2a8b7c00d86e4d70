"""The score that counts, its average over tasks, and the paper's own averages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.config import TaskConfig
from greenadapt.errors import InputError
from greenadapt.progress import Silent
from greenadapt.tasks.base import Task
from greenadapt.tasks.classification import ClassificationTask, Text
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.metrics import average, check_metric, chosen_metric, metric_of
from greenadapt.tasks.ner import NerTask
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question

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


def test_an_average_without_columns_or_without_a_score() -> None:
    assert average([]) is None
    assert average([0.5, None, 1.0]) == 0.5
    assert average(iter([0.25])) == 0.25


def of(labels: list[Any], predicted: list[Any], task: ClassificationTask) -> dict[str, Any]:
    key = "value" if task == NUMBERS else "label"
    return task.score([Text("a", label=label) for label in labels], [{key: value} for value in predicted])


def test_paths_into_the_scores_of_each_kind() -> None:
    scores = of(["0", "1", "1", "New.York"], ["0", "1", "0", "New.York"], CLASSES)
    for name in ("accuracy", "macro_f1", "micro_f1", "mcc"):
        assert metric_of(scores, name) == scores[name]
    assert metric_of(scores, "by_class.1.recall") == 0.5
    assert metric_of(scores, "by_class.New.York.f1") == 1
    assert metric_of(scores, "by_class.2.f1") is None
    assert metric_of(scores, "by_class") is None
    assert metric_of(scores, "accuracy.x") is None

    scores = of([1.0, 2.0, 3.0], [1.0, 2.5, 2.0], NUMBERS)
    assert metric_of(scores, "pearson") == scores["pearson"] == pytest.approx(0.6546536)
    assert metric_of(of([1.0, 2.0], [3.0, 3.0], NUMBERS), "spearman") is None

    sentences = [Sentence(("a", "b"), ("B-Disease", "B-gene.x"))]
    scores = NER.score(sentences, [{"tags": ["B-Disease", "O"]}])
    assert [metric_of(scores, name) for name in ("precision", "recall", "f1")] == [1, 0.5, pytest.approx(2 / 3)]
    assert metric_of(scores, "by_type.gene.x.recall") == 0
    assert metric_of(scores, "by_type.Disease.recall") == 1

    questions = [Question("1", "q", "c", impossible=True)]
    scores = QuestionTask(has_null=True).score(questions, [{"answer": ""}])
    assert metric_of(scores, "em") == metric_of(scores, "no_answer.substr") == 1
    assert metric_of(scores, "has_answer.f1") is None


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.dictionaries(st.text(), x)))
def test_a_path_into_anything(value: Any) -> None:
    scores = {"a": value, "by_class": {"x.y": {"f1": value}}}
    expected = float(value) if isinstance(value, int | float) else None
    for path in ("a", "by_class.x.y.f1"):
        assert repr(metric_of(scores, path)) == repr(expected)


@pytest.mark.parametrize(
    ("config", "metrics"),
    [
        (TaskConfig(), ("precision", "recall", "f1", "by_type.a.b.f1")),
        (TaskConfig("qa"), ("em", "f1", "substr", "has_answer.f1", "no_answer.em")),
        (
            TaskConfig("classification"),
            ("accuracy", "mcc", "pearson", "spearman", "by_class.1.f1", "by_class.1.recall"),
        ),
        (TaskConfig("classification", label_kind="classes"), ("accuracy", "macro_f1", "micro_f1", "by_class.x.y.f1")),
        (TaskConfig("classification", label_kind="numbers"), ("pearson", "spearman")),
        (TaskConfig("classification", label_range=(0, 5)), ("pearson", "spearman")),
    ],
)
def test_scores_that_can_be_chosen(config: TaskConfig, metrics: tuple[str, ...]) -> None:
    for metric in metrics:
        check_metric(metric, config, "here")


@pytest.mark.parametrize(
    ("config", "metric", "message"),
    [
        (
            TaskConfig(),
            "accuracy",
            "metric 'accuracy' is not a score of this task: known are precision, recall, f1, by_ty",
        ),
        (TaskConfig(), "by_class.a.f1", "is not a score of this task"),
        (TaskConfig(), "", "metric '' is not a score of this task"),
        (TaskConfig("qa"), "mcc", "known are em, f1, substr, has_answer.em, "),
        (TaskConfig("qa"), "by_class.1.f1", "is not a score of this task"),
        (TaskConfig("classification"), "by_class.1.support", "is not a score of this task"),
        (TaskConfig("classification"), "by_class.1", "is not a score of this task"),
        (TaskConfig("classification"), "unseen_labels", "is not a score of this task"),
        (TaskConfig("classification"), "mse", "metric mse is lower where it is better: give one of accuracy, "),
        (
            TaskConfig("classification", label_kind="classes"),
            "pearson",
            "known are accuracy, macro_f1, micro_f1, mcc, b",
        ),
        (TaskConfig("classification", label_kind="numbers"), "mse", "is lower where it is better: give one of pearson"),
        (TaskConfig("classification", label_range=(0, 5)), "accuracy", "known are pearson, spearman"),
        (TaskConfig("classification", label_range=(0, 5)), "by_class.1.f1", "known are pearson, spearman"),
        (TaskConfig("classification"), 3, "metric 3 is not a score of this task"),
    ],
)
def test_scores_that_are_none(config: TaskConfig, metric: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_metric(metric, config, "tasks.toml, task a")
    assert str(caught.value).startswith("tasks.toml, task a: metric ")
    assert message in str(caught.value)


def test_what_is_chosen_once_the_labels_are_known() -> None:
    assert chosen_metric(None, CLASSES, "a") == "macro_f1"
    assert chosen_metric(None, NUMBERS, "a") == "pearson"
    assert chosen_metric("by_class.New.York.f1", CLASSES, "a") == "by_class.New.York.f1"
    assert chosen_metric("by_type.gene.x.f1", NER, "a") == "by_type.gene.x.f1"
    assert chosen_metric("spearman", NUMBERS, "a") == "spearman"
    assert chosen_metric("no_answer.f1", QuestionTask(), "a") == "no_answer.f1"
    wrong: list[tuple[Task[Any], str, str]] = [
        (
            CLASSES,
            "by_class.2.f1",
            "a: metric by_class.2.f1 is of 2, which no training example has: they have 0, New.Y",
        ),
        (NER, "by_type.B-Disease.f1", "which no training example has: they have Disease, gene.x"),
        (CLASSES, "pearson", "a: metric 'pearson' is not a score of this task: known are accuracy"),
        (NUMBERS, "accuracy", "a: metric 'accuracy' is not a score of this task: known are pearson, spearman"),
    ]
    for task, metric, message in wrong:
        with pytest.raises(InputError) as caught:
            chosen_metric(metric, task, "a")
        assert message in str(caught.value)


def test_a_task_that_training_made() -> None:
    examples = [Text("a", label="1.5"), Text("b", label="2")]
    fitted = ClassificationTask.of(TaskConfig("classification")).fit(examples, Silent())
    assert chosen_metric(None, fitted, "a") == "pearson"
    with pytest.raises(InputError, match="not a score"):
        chosen_metric("accuracy", fitted, "a")
