"""The classification task, from files to scores, with a real small model and against scikit-learn and scipy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from greenadapt.checkpoint import Checkpoint
from greenadapt.config import TaskConfig
from greenadapt.errors import InputError
from greenadapt.features import Encoder
from greenadapt.progress import Silent
from greenadapt.tasks import Task
from greenadapt.tasks.classification import ClassificationTask
from greenadapt.tasks.texts import Text
from tests.conftest import Notes

Json = dict[str, Any]


def lines(path: Path, rows: list[Json]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def task_of(**options: Any) -> ClassificationTask:
    return ClassificationTask.of(TaskConfig(task="classification", **options))


def texts(*labels: str | float) -> list[Text]:
    return [Text("the heart", label=label, where=f"x:{i}") for i, label in enumerate(labels, start=1)]


def fitted(*labels: str | float, **options: Any) -> ClassificationTask:
    return task_of(**options).fit(texts(*labels), Silent())


@pytest.fixture
def encoder(tiny_model: Callable[..., Path]) -> Encoder:
    return Encoder.of(Checkpoint.open(tiny_model()), 16)


def test_it_is_a_task() -> None:
    task: Task[Text] = task_of()
    assert (task.name, task.head, task.main) == ("classification", "SequenceClassification", "macro_f1")


def test_reading_single_texts(tmp_path: Path) -> None:
    rows: list[Json] = [
        {"text": "a", "label": "x", "more": []},
        {"text": "", "label": True},
        {"text": " ", "label": 3},
        {"text": "b", "label": 0.5},
    ]
    heard = Notes()
    path = lines(tmp_path / "a.jsonl", rows)
    read = task_of().read(path, heard)
    assert read == [Text("a", None, "x"), Text("", None, "true"), Text(" ", None, 3), Text("b", None, 0.5)]
    assert [text.where for text in read] == [f"{path}:{i}" for i in range(1, 5)]
    assert heard.notes == [f"{path}: 2 of 4 texts are empty"]


def test_reading_pairs_from_a_table_with_chosen_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,premise,hypothesis,gold\n1,"a, b",c,yes\n2,d,,no\n')
    task = task_of(text_fields=("premise", "hypothesis"), label_field="gold")
    assert task.read(str(path), Silent()) == [Text("a, b", "c", "yes"), Text("d", "", "no")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "x"}, "a.jsonl:2 has no field text, it has: label: choose one with --text-field"),
        ({"text": "a", "class": "x"}, "a.jsonl:2 has no field label, it has: text, class: choose one with --label"),
        ({"text": ["a"], "label": "x"}, "a.jsonl:2: field text is a list, not text"),
        ({"text": None, "label": "x"}, "a.jsonl:2: field text is null, not text"),
        ({"text": "a", "label": None}, "a.jsonl:2: label field label is null: give each text one label"),
        ({"text": "a", "label": ""}, "a.jsonl:2: label field label is empty"),
        ({"text": "a", "label": ["x", "y"]}, "a.jsonl:2: label field label is a list"),
        ({"text": "a", "label": float("nan")}, "a.jsonl:2: label field label is NaN"),
    ],
)
def test_wrong_rows_are_named_by_line(tmp_path: Path, row: Json, message: str) -> None:
    path = lines(tmp_path / "a.jsonl", [{"text": "a", "label": "x"}, row])
    with pytest.raises(InputError) as caught:
        task_of().read(path, Silent())
    assert message in str(caught.value)


def test_classes_are_the_labels_texts_in_natural_order() -> None:
    assert fitted("b", "a10", "a9", "b").labels == ("a9", "a10", "b")
    assert fitted(10, 9, "2", 9).labels == ("2", "9", "10")
    assert fitted("true", 1.5, "false").labels == ("1.5", "false", "true")
    heard = Notes()
    task_of().fit(texts("b", "a", "b"), heard)
    assert heard.notes == ["2 classes: a (1), b (2)"]


@pytest.mark.parametrize(
    ("labels", "kind", "main"),
    [
        ([1, 2, 3], "auto", "macro_f1"),
        (["1", "2"], "auto", "macro_f1"),
        ([1, 2.5], "auto", "pearson"),
        (["1", "2.0"], "auto", "pearson"),
        ([1.0, 2.0], "auto", "pearson"),
        ([1.5, "x"], "auto", "macro_f1"),
        ([1.5, "nan"], "auto", "macro_f1"),
        ([1.5, 2.5], "classes", "macro_f1"),
        ([1, "2"], "numbers", "pearson"),
    ],
)
def test_classes_or_numbers(labels: list[str | float], kind: str, main: str) -> None:
    assert fitted(*labels, label_kind=kind).main == main


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        ([], "auto", "there are no training examples"),
        (["x", "x"], "auto", "all 2 training examples have the same label, x: give examples of at least two"),
        ([2.5, 2.5, "2.50"], "auto", "all 3 training examples have the same label, 2.5"),
        (["1", "x"], "numbers", "x:2: label x is no number"),
        (["1", "inf"], "numbers", "x:2: label inf is no number"),
    ],
)
def test_labels_that_cannot_be_learnt(labels: list[str | float], kind: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        fitted(*labels, label_kind=kind)
    assert message in str(caught.value)


def test_a_fitted_task_checks_what_it_reads(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"text": "a", "label": label} for label in ("x", "new", "y", "new", "newer")])
    heard = Notes()
    assert len(fitted("x", "y").read(path, heard)) == 5
    assert heard.warnings == [
        f"{path}: 3 of 5 texts have labels that no training example has, and count as wrong: new (2), newer (1)"
    ]
    with pytest.raises(InputError, match=r"a\.jsonl:1: label x is no number"):
        fitted(1.5, 2).read(path, Silent())


@pytest.mark.parametrize(
    "task",
    [
        fitted("b", "a", "c"),
        fitted(1, 2.5, label_field="score"),
        fitted("1", "0", text_fields=("first", "second"), label_kind="classes"),
    ],
)
def test_settings_make_the_same_task_again(task: ClassificationTask) -> None:
    settings = json.loads(json.dumps(task.settings()))
    assert settings["task"] == "classification"
    assert ClassificationTask.of_settings(settings) == task


def test_the_heads_configuration_is_transformers_own(tiny_model: Callable[..., Path]) -> None:
    from transformers import BertForSequenceClassification

    folder = tiny_model()
    classes = fitted("no", "yes", "maybe")
    config = BertForSequenceClassification.from_pretrained(folder, **classes.head_config()).config
    assert config.id2label == {0: "maybe", 1: "no", 2: "yes"}
    assert config.label2id == {"maybe": 0, "no": 1, "yes": 2}
    assert (config.num_labels, config.problem_type) == (3, "single_label_classification")
    model = BertForSequenceClassification.from_pretrained(folder, **fitted(0.5, 1).head_config())
    assert (model.config.num_labels, model.config.problem_type) == (1, "regression")
    assert model.classifier.weight.shape == (1, 32)


def test_training_has_targets_and_says_what_is_cut(encoder: Encoder) -> None:
    heard = Notes()
    examples = [Text("heart " * 20, label="b"), Text("heart", label="a"), Text("", label="b")]
    views = task_of().fit(examples, Silent()).training(examples, encoder, 1, heard)
    targets = [view.base[0].target for view in views]
    assert [target.tolist() for target in targets if target is not None] == [1, 0, 1]
    assert {(target.dtype, target.shape) for target in targets if target is not None} == {(np.dtype(np.int64), ())}
    assert [len(view.base[0]) for view in views] == [16, 3, 2]
    assert all(view.expanded is view.base for view in views)
    assert heard.notes == ["1 of 3 training texts are cut to 16 pieces"]

    (view, _) = fitted(0.1, 2).training(texts(0.1, "7"), encoder, 1, heard)
    target = view.base[0].target
    assert target is not None
    assert (target.dtype, float(target)) == (np.dtype(np.float32), np.float32(0.1))
    with pytest.raises(InputError, match="x:1: label c is not one of a, b"):
        fitted("a", "b").training(texts("c"), encoder, 1, heard)


def test_inference_reads_what_training_does(encoder: Encoder) -> None:
    examples = [Text(f"heart {i}", label="ab"[i % 2]) for i in range(600)]
    task = task_of().fit(examples, Silent())
    trained = task.training(examples, encoder, 1, Silent())
    for view, expected in zip(task.inference(examples, encoder), trained, strict=True):
        assert view.base[0].target is None
        np.testing.assert_array_equal(view.base[0].ids, expected.base[0].ids)


def test_examples_without_labels() -> None:
    assert task_of().example("some text", "in:1") == Text("some text")
    assert task_of().example({"text": "a", "other": 1}, "in:1") == Text("a")
    pair = task_of(text_fields=("q", "a"))
    assert pair.example({"q": "a", "a": "b"}, "in:1") == Text("a", "b")
    with pytest.raises(InputError, match=r'in:1 is a line of text, .* reads pairs: give JSON lines such as {"q"'):
        pair.example("some text", "in:1")
    with pytest.raises(InputError, match="in:7 has no field a, it has: q"):
        pair.example({"q": "a"}, "in:7")


def test_decoding_is_softmax_of_the_models_logits(tiny_model: Callable[..., Path], encoder: Encoder) -> None:
    import torch
    from transformers import BertForSequenceClassification

    task = fitted("no", "yes", "maybe")
    folder = tiny_model()
    torch.manual_seed(1)
    model = BertForSequenceClassification.from_pretrained(folder, **task.head_config()).eval()
    example = Text("the patient with tachycardia")
    (view,) = task.inference([example], encoder)
    with torch.no_grad():
        logits = 20 * model(torch.tensor(view.base[0].ids[None], dtype=torch.long)).logits
    prediction = task.decode(example, logits.numpy())
    expected = logits[0].double().softmax(0).tolist()
    assert prediction["probabilities"] == pytest.approx(dict(zip(("maybe", "no", "yes"), expected, strict=True)))
    assert prediction["label"] == model.config.id2label[int(logits.argmax())]
    assert prediction["score"] == pytest.approx(max(expected))
    json.dumps(prediction)
    huge = task.decode(example, np.array([[-1e4, 1e4, 0]], np.float32))
    assert (huge["label"], huge["score"]) == ("no", 1)
    assert fitted(0.5, 1).decode(example, np.array([[2.5]], np.float32)) == {"value": 2.5}


def test_scores_of_classes_with_labels_that_training_did_not_have() -> None:
    task = fitted("a", "b", "c")
    gold = [*"aabbccc", "new", "newer", "new"]
    predicted = [*"abbbcca", "a", "c", "b"]
    examples, predictions = texts(*gold), [{"label": label} for label in predicted]
    scores = task.score(examples, predictions)
    assert scores["unseen_labels"] == 3
    assert scores["accuracy"] == scores["micro_f1"] == 0.5
    assert scores["macro_f1"] == pytest.approx(metrics.f1_score(gold, predicted, average="macro"))
    assert scores["mcc"] == pytest.approx(metrics.matthews_corrcoef(gold, predicted))
    assert scores["by_class"]["new"]["f1"] == 0
    sums = task.statistics(examples, predictions).sum(axis=0)
    assert float(task.main_score(sums)) == pytest.approx(scores[task.main])
    json.dumps(scores)


def test_labels_of_any_type_are_compared_as_texts() -> None:
    task = fitted(0, 1, "true")
    scores = task.score(texts("0", 1, "true"), [{"label": label} for label in ("0", "1", "true")])
    assert scores["accuracy"] == 1
    with pytest.raises(InputError, match="a text has no label"):
        task.score([Text("a")], [{"label": "0"}])


def test_scores_of_numbers() -> None:
    task = fitted(1.5, "2", 4)
    examples = texts(1.5, "2", 4, 0)
    predictions = [{"value": value} for value in (1.0, 2.5, 3.0, 1.5)]
    scores = task.score(examples, predictions)
    values = ([1.5, 2, 4, 0], [1.0, 2.5, 3.0, 1.5])
    assert scores == pytest.approx(
        {
            "pearson": stats.pearsonr(*values).statistic,
            "spearman": stats.spearmanr(*values).statistic,
            "mse": metrics.mean_squared_error(*values),
        }
    )
    sums = task.statistics(examples, predictions).sum(axis=0)
    assert float(task.main_score(sums)) == pytest.approx(scores[task.main])
    constant = [{"value": 2.0}] * 4
    assert task.score(examples, constant)["pearson"] is None
    assert float(task.main_score(task.statistics(examples, constant).sum(axis=0))) == 0
