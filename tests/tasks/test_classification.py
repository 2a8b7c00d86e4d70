"""Scores of classes and numbers against scikit-learn and scipy, from predictions and from sums."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics
from transformers import AutoTokenizer

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import TaskConfig
from greenadapt.errors import InputError
from greenadapt.progress import Silent
from greenadapt.tasks.base import Encoder, make_task
from greenadapt.tasks.classification import (
    ClassificationTask,
    Text,
    class_counts,
    class_scores,
    macro_f1,
    moments,
    number_scores,
    pearson,
)
from greenadapt.tasks.records import parse_number
from tests.conftest import Notes

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


@pytest.mark.parametrize("predicted", [[2.0, 2.0, 2.0], [0.1 + 0.2, 0.3, 0.3]])
def test_a_constant_prediction_has_no_correlation(predicted: list[float]) -> None:
    gold = [1.0, 2.0, 4.0]
    scores = number_scores(gold, [2.0] * 3)
    assert (scores["pearson"], scores["spearman"]) == (None, None)
    number_scores(gold, predicted)  # nearly constant: no warning either
    assert float(pearson(moments(gold, predicted).sum(axis=0))) == 0
    assert number_scores([1.0], [3.0]) == {"pearson": None, "spearman": None, "mse": 4.0}


def test_what_is_a_number() -> None:
    assert [parse_number(text) for text in ("3", "-.5", "+1.e3", 2, 2.5)] == [3, -0.5, 1000, 2, 2.5]
    for label in ("", "nan", "inf", "1_000", " 1", "٣", "1e", ".", "1e999", float("nan"), float("inf"), 10**400):
        assert parse_number(label) is None


Json = dict[str, Any]


def lines(path: Path, rows: list[Json]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def task_of(**options: Any) -> Any:
    return make_task(TaskConfig(task="classification", **options))


def texts(*labels: str | float) -> list[Text]:
    return [Text("the heart", label=label, where=f"x:{i}") for i, label in enumerate(labels, start=1)]


def fitted(*labels: str | float, **options: Any) -> Any:
    return task_of(**options).fit(texts(*labels), Silent())


@pytest.fixture
def encoder(tiny_model: Callable[..., Path]) -> Encoder:
    return Encoder.of(Checkpoint(tiny_model()), 16)


def test_reading_single_texts(tmp_path: Path) -> None:
    pairs = [("a", "x"), ("", True), (" ", 3), ("b", 0.5)]
    rows: list[Json] = [{"text": text, "label": label, "further": []} for text, label in pairs]
    heard = Notes()
    path = lines(tmp_path / "a.jsonl", rows)
    read = task_of().read(path, heard)
    assert read == [Text("a", None, "x"), Text("", None, "true"), Text(" ", None, 3), Text("b", None, 0.5)]
    assert [text.where for text in read] == [f"{path}:{i}" for i in range(1, 5)]
    assert heard.warnings == [f"{path}: 2 of 4 texts are empty"]


def test_reading_pairs_from_a_table_with_chosen_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,premise,hypothesis,gold\n1,"a, b",c,yes\n2,d,,no\n')
    task = task_of(text_fields=("premise", "hypothesis"), label_field="gold")
    assert task.read(str(path), Silent()) == [Text("a, b", "c", "yes"), Text("d", "", "no")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a", "class": "x"}, "a.jsonl:2 has no field label, it has: text, class: choose one with finetune"),
        ({"text": "a", "label": ""}, "a.jsonl:2: label field label is empty"),
        ({"text": "a", "label": float("inf")}, "a.jsonl:2: label field label is Infinity, not a finite number"),
        ({"text": "a", "label": "-0.01"}, "a.jsonl:2: label -0.01 is beyond the range, 0 to 5: correct it"),
    ],
)
def test_wrong_rows_are_named_by_line(tmp_path: Path, row: Json, message: str) -> None:
    path = lines(tmp_path / "a.jsonl", [{"text": "a", "label": "5.000"}, row])
    with pytest.raises(InputError) as caught:
        task_of(label_range=(0, 5)).read(path, Silent())
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
        ([1, 2.5], "auto", "pearson"),
        (["1", "2.0"], "auto", "macro_f1"),
        (["1.0", "0.00", "0.5"], "auto", "pearson"),
        ([float(level) for level in range(20)], "auto", "macro_f1"),
        ([float(level) for level in range(21)], "auto", "pearson"),  # a measurement, not a rating
        ([1.5, 2.5], "classes", "macro_f1"),
    ],
)
def test_classes_or_numbers(labels: list[str | float], kind: str, main: str) -> None:
    assert fitted(*labels, label_kind=kind).main == main


@pytest.mark.parametrize("upcast", ["test", "both"])
def test_what_pandas_makes_of_classes_is_the_same_classes(upcast: str, tmp_path: Path) -> None:
    """A missing value makes a column of integers one of floats, also once its row is dropped; ``to_csv`` writes 1.0."""
    paths = {name: str(tmp_path / f"{name}.csv") for name in ("train", "test")}
    for name, path in paths.items():
        fraction = ".0" if upcast in (name, "both") else ""
        Path(path).write_text("text,label\n" + f"a,1{fraction}\nb,0{fraction}\nc,2{fraction}\n")
    heard = Notes()
    task = task_of()
    task = task.fit(task.read(paths["train"], heard), heard)
    assert task.labels == ("0", "1", "2")
    examples = task.read(paths["test"], heard)
    assert task.score(examples, [{"label": label} for label in ("1", "0", "1")])["accuracy"] == pytest.approx(2 / 3)
    assert heard.warnings == []
    assert ["--labels numbers" in note for note in heard.notes] == [upcast != "test"]
    earlier = ClassificationTask(label_kind="classes", labels=("0.0", "1.0", "2.0"))
    assert earlier.score(examples, [{"label": label} for label in ("1.0", "0.0", "2.0")])["accuracy"] == 1


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        ([2.5, 3, "2,5"], "auto", "labels are numbers, and 2,5 has a comma: write 2.5, or give --labels classes"),
        (["x", "x"], "auto", "all 2 training examples have the same label, x: give examples of at least two"),
        (["1", "x"], "numbers", "x:2: label x is not a number"),
    ],
)
def test_labels_that_cannot_be_learnt(labels: list[str | float], kind: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        fitted(*labels, label_kind=kind)
    assert message in str(caught.value)


def test_the_heads_configuration_is_transformers_own(tiny_model: Callable[..., Path]) -> None:
    from transformers import BertForSequenceClassification

    folder = tiny_model()
    classes = fitted("no", "yes", "maybe")
    config = BertForSequenceClassification.from_pretrained(folder, **classes.head_config()).config
    assert config.id2label == {0: "maybe", 1: "no", 2: "yes"}
    assert config.label2id == {"maybe": 0, "no": 1, "yes": 2}
    assert (config.num_labels, config.problem_type) == (3, "single_label_classification")
    config = BertForSequenceClassification.from_pretrained(folder, **fitted(0.5, 1).head_config()).config
    assert (config.num_labels, config.problem_type) == (1, "regression")


def test_training_has_targets_and_says_what_is_cut(encoder: Encoder) -> None:
    heard = Notes()
    examples = [Text("heart " * 20, label="b"), Text("heart", label="a"), Text("", label="b")]
    views = task_of().fit(examples, Silent()).training(examples, encoder, 1, heard)
    targets = [view.base[0].target for view in views]
    assert [target.tolist() for target in targets if target is not None] == [1, 0, 1]
    assert {(target.dtype, target.shape) for target in targets if target is not None} == {(np.dtype(np.int64), ())}
    assert [len(view.base[0]) for view in views] == [16, 3, 2]
    assert all(view.expanded is view.base for view in views)
    assert heard.warnings == ["1 of 3 training texts are cut to 16 pieces"]

    (view, _) = fitted(0.1, 2).training(texts(0.1, "7"), encoder, 1, heard)
    target = view.base[0].target
    assert target is not None
    assert (target.dtype, float(target)) == (np.dtype(np.float32), np.float32(0.1))
    with pytest.raises(InputError, match="x:1: label c is not one of a, b"):
        fitted("a", "b").training(texts("c"), encoder, 1, heard)


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
    assert fitted(0.5, 1).decode(example, np.array([[2.5]], np.float32)) == {"value": 2.5}


def test_labels_that_differ_between_files(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": label} for label in ("0", "1", "yes")]
    task, heard = fitted(0, 1), Notes()
    path = lines(tmp_path / "dev.jsonl", rows)
    assert len(task.read(path, heard)) == 3
    assert heard.warnings == [
        f"{path}: 1 of 3 texts have labels that no training example has, and count as wrong: yes (1)"
    ]
    with pytest.raises(InputError, match=r"dev\.jsonl:3: label yes is not a number"):
        fitted(1.5, 2).read(path, Silent())
    path = lines(tmp_path / "test.jsonl", [{"text": "a", "label": label} for label in ("no", "yes", "no")])
    with pytest.raises(InputError, match=r"no text has a label that was learnt, 0, 1; they have no \(2\), yes \(1\)"):
        task.read(path, Silent())


def test_numbers_of_a_range_are_learnt_from_0_to_1(encoder: Encoder) -> None:
    """STS-B: the targets are scores divided by 5."""
    task = fitted("0.000", "5.000", "3.800", label_range=(0, 5))
    views = task.training(texts("0.000", "5.000", "3.800", 2), encoder, 1, Silent())
    targets = [view.base[0].target for view in views]
    assert [float(target) for target in targets if target is not None] == pytest.approx([0, 1, 0.76, 0.4])
    assert {target.dtype for target in targets if target is not None} == {np.dtype(np.float32)}
    assert fitted(1, 2, label_range=(1, 5)).main == "pearson"  # whole numbers, too
    (view,) = fitted(1, 2, label_range=(1, 5)).training(texts(4), encoder, 1, Silent())
    assert view.base[0].target == np.float32(0.75)


def test_what_is_predicted_is_cut_to_the_range() -> None:
    task = fitted(0.0, 5.0, label_range=(0, 5))
    outputs = [-0.3, 0.0, 0.5, 0.76, 1.0, 1.7]
    values = [task.decode(Text("a"), np.array([[output]], np.float32))["value"] for output in outputs]
    assert values == pytest.approx([0, 0, 2.5, 3.8, 5, 5])

    gold = [0.5, 1.0, 3.0, 5.0, 4.0, 2.0]
    examples, predictions = texts(*gold), [{"value": value} for value in values]
    clipped = 5 * np.clip(outputs, 0, 1)
    scores = task.score(examples, predictions)
    assert scores["pearson"] == pytest.approx(stats.pearsonr(gold, clipped).statistic)
    sums = task.statistics(examples, predictions).sum(axis=0)
    assert float(task.main_score(sums)) == pytest.approx(scores["pearson"])


LONG = "the patient with tachycardia was not isolated from sample a1 and e2 of the virus "
LENGTHS = ["", " ", "heart", "tachycardia", "the heart rate", LONG, LONG * 3, "\u200b"]


@pytest.mark.parametrize("architecture", ["BertModel", "RobertaModel"])
def test_pairs_and_truncation_are_transformers_own(architecture: str, tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model(architecture)
    reference = AutoTokenizer.from_pretrained(folder)
    pairs: list[tuple[str, str | None]] = [*product(LENGTHS, LENGTHS), *((text, None) for text in LENGTHS)]
    examples = [Text(*pair) for pair in pairs]
    views = ClassificationTask().inference(examples, Encoder.of(Checkpoint(folder), 17))
    for (first, second), view in zip(pairs, views, strict=True):
        # In a list, since a lone empty second text is taken for none.
        batch = [first] if second is None else [(first, second)]
        expected = {name: row[0] for name, row in reference(batch, truncation=True, max_length=17).items()}
        (feature,) = view.base
        assert feature.ids.tolist() == expected["input_ids"]
        if architecture == "BertModel":
            assert feature.types.tolist() == expected["token_type_ids"]
        assert view.expanded is view.base
        assert (feature.units.tolist(), view.n_units) == ([0], 1)
