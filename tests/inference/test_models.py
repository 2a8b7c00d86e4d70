"""Ensembles of logits and of probabilities, against numpy and torch by hand."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.special import softmax
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.config import ReadingOptions
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.inference.models import OpenedModel, ensemble_logits, margin_of, stream_with_margin
from greenadapt.inference.predictor import PredictionRequest
from greenadapt.inference.qa.answering import Answerer, QaRequest
from greenadapt.inference.qa.question_set import QuestionSources
from greenadapt.models.streaming import ViewOutputs
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Silent
from greenadapt.stages.evaluate import evaluate
from greenadapt.tasks.base import margins
from greenadapt.tasks.classification import ClassificationTask
from greenadapt.tasks.ner import NerTask
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question
from tests.support.predictions import predict
from tests.support.small_tasks import TinyModel, expand

A, B = np.array([[10, 9.5, 0]], np.float32), np.array([[0, 2, 3]], np.float32)
HEADS = {"SequenceClassification": -1, "TokenClassification": -1, "QuestionAnswering": 0}


def logits(shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.float32, shape, elements=st.floats(-50, 50, width=32))


@pytest.mark.slow
@pytest.mark.parametrize(("head", "axis"), HEADS.items())
@settings(deadline=None)
@given(st.data())
def test_the_softmax_is_the_mean_of_the_softmaxes(head: str, axis: int, data: st.DataObject) -> None:
    k = 2 if head == "QuestionAnswering" else 4
    drawn = data.draw(st.lists(logits((5, k)), min_size=2, max_size=3))
    tensors = [torch.from_numpy(tensor).double() for tensor in drawn]
    result = torch.from_numpy(ensemble_logits(drawn, "probabilities", head)).double()
    expected = torch.stack([torch.softmax(tensor, axis) for tensor in tensors]).mean(0)
    torch.testing.assert_close(torch.softmax(result, axis), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(result.exp(), expected, atol=1e-5, rtol=1e-4)
    mean = torch.from_numpy(ensemble_logits(drawn, "logits", head)).double()
    torch.testing.assert_close(mean, torch.stack(tensors).mean(0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_units_without_pieces(head: str) -> None:
    """What one model has no piece for is improbable to it; what none has a piece for stays unknown."""
    values = np.array([[1, 2], [3, 0], [0, 1]], np.float32)
    first, second = values.copy(), values.copy()
    first[1] = first[2] = second[2] = -np.inf
    result = ensemble_logits([first, second], "probabilities", head)
    assert np.isneginf(result[2]).all()
    assert np.isfinite(result[:2]).all()
    if head == "QuestionAnswering":
        share = np.exp(values[:2].astype(float)) / np.exp(values[:2].astype(float)).sum(0)
        expected = np.stack([(1 + share[0]) / 2, share[1] / 2])
        np.testing.assert_allclose(np.exp(result[:2]), expected, rtol=1e-5)
    else:
        softmax = np.exp(values[1]) / np.exp(values[1]).sum()
        np.testing.assert_allclose(np.exp(result[1]) / np.exp(result[1]).sum(), softmax, rtol=1e-5)
    unknown = np.full((2, 2), -np.inf, np.float32)
    for rule in ("logits", "probabilities"):
        np.testing.assert_array_equal(ensemble_logits([unknown, unknown], rule, head), unknown)


QA = "BertForQuestionAnswering"


@pytest.fixture
def make(tiny_model: TinyModel) -> Callable[..., Path]:
    """``make("BertForTokenClassification", {...})``: a model with this ``task.json``."""

    def build(architecture: str, settings: Any = None, **config: Any) -> Path:
        folder = tiny_model(architecture, name=architecture, **config)
        if settings is not None:
            (folder / "task.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
        return folder

    return build


def test_a_folder_says_what_it_is_for(make: Callable[..., Path]) -> None:
    settings = {**QuestionTask(has_null=True).settings(), "pool": "expanded", "max_length": 32}
    folder = make(QA, settings)
    opened = TaskFolder.open(str(folder))
    assert opened.task == QuestionTask(has_null=True)
    assert opened.weights == folder
    model = OpenedModel.open(opened, ReadingOptions())
    assert (model.settings.pool, model.encoder.max_length) == ("expanded", 32)
    model = OpenedModel.open(opened, ReadingOptions("base", max_length=16, max_tokens=99))
    assert (model.settings.pool, model.encoder.max_length, model.settings.max_tokens) == ("base", 16, 99)


def test_a_model_from_elsewhere_may_answer_questions(make: Callable[..., Path]) -> None:
    source = make(QA)
    folder = TaskFolder.open(str(source))
    assert (folder.task, folder.settings) == (QuestionTask(), {})
    model = OpenedModel.open(folder, ReadingOptions())
    assert (model.settings.pool, model.encoder.max_length) == ("mean", 160)
    with pytest.raises(UsageError, match=r"--seed 1, but finetune did not write .*Answering: leave out --seed"):
        TaskFolder.open(str(source), 1)


def test_models_of_other_tasks_are_refused(make: Callable[..., Path]) -> None:
    for architecture in ("BertForMaskedLM", "BertModel"):
        with pytest.raises(MissingError, match=r"is not a fine-tuned model: it has no task\.json: give the folder"):
            TaskFolder.open(str(make(architecture)))
    tagger = make("BertForTokenClassification", QuestionTask().settings(), num_labels=2)
    with pytest.raises(InputError, match="holds a model for TokenClassification, not for QuestionAnswering"):
        OpenedModel.open(TaskFolder.open(str(tagger)), ReadingOptions())
    tagger = make("BertForTokenClassification", TAGGER.settings(), num_labels=3)
    with pytest.raises(InputError, match="is for ner, not for question answering"):
        Answerer(QaRequest(str(tagger), QuestionSources("data.json")), Silent())


TAGGER = NerTask(("O", "B-Disease", "I-Disease"), chunk=4)
TEXTS = ClassificationTask(label_kind="classes", labels=("negative", "neutral", "positive"))
LINES = [
    "the patient with tachycardia was isolated",
    "the heart",
    "coronavirus",
    "a heart rate in the cell sample and the protein with tachycardia is isolated",
    "dtypes of array",
    "eigenvalues of the matrix",
    "the virus is a coronavirus",
    "tachycardia of the heart",
    "samples of patients",
]
CONTEXT = "the patient with tachycardia was isolated, and the non-coronavirus of the heart is a virus. " * 6
MAX_LENGTH = 24
N_PIECES = 30  # so few that inputs go through in several blocks


@pytest.fixture
def make_model(tiny_model: TinyModel, tmp_path: Path) -> Callable[..., Path]:
    """``make_model(NER)`` → a task folder of a tiny model with added words and random weights that differ enough."""

    def build(task: Any, *, name: str = "task", size: float = 0.3, **settings: Any) -> Path:
        sizes = {"initializer_range": size, **task.head_config()}
        folder = expand(tiny_model(f"BertFor{task.head}", name=f"{name}-base", **sizes), tmp_path / name)
        described = {**task.settings(), "pool": "mean", "max_length": MAX_LENGTH, **settings}
        (folder / "task.json").write_text(json.dumps(described))
        return folder

    return build


def opened(folder: Path, **options: Any) -> OpenedModel:
    return OpenedModel.open(TaskFolder.open(str(folder)), ReadingOptions(**options))


def examples(task: Any) -> list[Any]:
    return [task.example(line, str(number)) for number, line in enumerate(LINES)]


@pytest.mark.parametrize("task", [TAGGER, TEXTS], ids=["ner", "classification"])
def test_what_is_sure_is_as_expanded_and_the_rest_the_mean(task: Any, make_model: Callable[..., Path]) -> None:
    folder = make_model(task)
    model, mean = opened(folder, pool="expanded"), opened(folder, pool="mean")
    expanded, means = (
        [logits for _, logits in reader.logits(reader.inputs(examples(task)))] for reader in (model, mean)
    )
    margin = float(np.median(np.concatenate([*map(margins, expanded)])))
    kinds = set()
    predicted = opened(folder, margin=margin).logits(model.inputs(examples(task)))
    for views, first, second, (_, logits) in zip(model.inputs(examples(task)), expanded, means, predicted, strict=True):
        for part in views.base:  # a chunk of a sentence, or the text
            units = part.units[part.units >= 0]
            is_sure = bool((margins(first[units]) >= margin).all())
            kinds.add((is_sure, len(views.base) > 1))
            np.testing.assert_allclose(logits[units], (first if is_sure else second)[units], atol=1e-5)
    assert kinds == {
        (is_sure, is_cut) for is_sure in (True, False) for is_cut in ((True, False) if task is TAGGER else (False,))
    }


def test_labels_have_a_margin_by_default(make_model: Callable[..., Path], tmp_path: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))

    def results(folder: Path, **options: Any) -> list[Any]:
        request = PredictionRequest((str(folder),), str(source), reading=ReadingOptions(**options))
        return [prediction.result for prediction in predict(request, Silent())]

    for number, task in enumerate((TAGGER, TEXTS)):
        folder = make_model(task, name=f"task-{number}")
        default = results(folder)
        assert default == results(folder, margin=0.9)
        assert default != results(folder, margin=1.0)
        served, reading = TaskFolder.open(str(folder)), ReadingOptions()
        assert margin_of(served, replace(reading, margin=0.0)) == 0
        assert margin_of(served, replace(reading, pool="base")) is None
        assert OpenedModel.open_to_predict(served, reading).margin == margin_of(served, reading) == 0.9
    for name, other in (("numbers", ClassificationTask(label_kind="numbers")), ("answers", QuestionTask())):
        assert margin_of(TaskFolder.open(str(make_model(other, name=name))), ReadingOptions()) is None


class Reading:
    """Passes inputs on to a model, and keeps how many each view had."""

    def __init__(self, model: OpenedModel) -> None:
        self.model = model
        self.read: dict[str, list[int]] = {"base": [], "expanded": []}

    def __call__(self, inputs: Any, pool: Any) -> Iterator[ViewOutputs]:
        items = list(inputs)
        self.read[pool] += [len(getattr(item, pool)) for item in items]
        return self.model.read(items, pool)


def test_of_long_contexts_only_windows_with_an_answer_are_read_again(make_model: Callable[..., Path]) -> None:
    task = QuestionTask()
    model = opened(make_model(task))
    questions = [Question("1", "what is the heart ?", CONTEXT), Question("2", "which virus ?", CONTEXT)]
    inputs = list(model.inputs(questions))
    full = list(model.outputs(model.inputs(questions)))
    reading, margin = Reading(model), 0.05
    outputs = list(stream_with_margin(task, inputs, margin, reading, N_PIECES))
    assert all(0 < n < len(output.base) for n, output in zip(reading.read["base"], inputs, strict=True))
    for output, whole, views in zip(outputs, full, inputs, strict=True):
        assert output.base is not None
        assert output.expanded is not None
        assert whole.base is not None
        np.testing.assert_allclose(output.expanded, whole.expanded, atol=1e-5)
        doubtful = task.uncertain_units(output.example, output.expanded, margin)
        is_again = [bool(np.isin(window.units, doubtful).any()) for window in views.base]
        read, only_in_others = ({u for window, is_in in zip(views.base, is_again, strict=True) if is_in is is_needed
                       for u in window.units.tolist() if u >= 0} for is_needed in (True, False))  # fmt: skip
        only_rest, only_read = sorted(only_in_others - read), sorted(read - only_in_others)
        np.testing.assert_array_equal(output.base[only_rest], output.expanded[only_rest])
        np.testing.assert_allclose(output.base[only_read], whole.base[only_read], atol=1e-5)
        assert only_rest
        assert only_read


def test_answers_in_doubt_are_those_near_the_first() -> None:
    task, question = QuestionTask(), Question("1", "?", "one two three four")
    logits = np.full((4, 2), -20.0, np.float32)
    logits[1] = 6.0, 6.0
    logits[3] = 5.9, 5.9
    shares = softmax([12.0, 11.8, 11.9])  # "two", "four", and all from the one to the other
    assert shares[0] - shares[1] < 0.1
    assert task.uncertain_units(question, logits, 0.1).tolist() == [1, 2, 3]
    assert task.uncertain_units(question, logits, 0.0).tolist() == []
    logits[3] = -20.0
    assert task.uncertain_units(question, logits, 0.9).tolist() == []
    null, with_null = np.concatenate([logits, [[6.0, 6.0]]]).astype(np.float32), replace(task, has_null=True)
    assert with_null.uncertain_units(question, null, 0.4).tolist() == [1]
    null[4] = 5.0, 5.0
    eager = replace(with_null, null_threshold=-5.0)  # "no answer" comes first, with a lower probability
    assert eager.uncertain_units(question, null, 0.0).tolist() == []


def test_scores_say_how_much_was_read_twice(make_model: Callable[..., Path], tmp_path: Path) -> None:
    folder, test = make_model(TEXTS), tmp_path / "test.jsonl"
    rows = [{"text": line, "label": TEXTS.labels[i % 3]} for i, line in enumerate(LINES)]
    test.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def scored(**options: Any) -> Any:
        [scores] = evaluate(str(folder), [str(test)], None, ReadingOptions(**options), {}, Silent())
        return scores

    plain, all_read, none_read = scored(), scored(margin=1.0), scored(margin=0.0)
    assert "read_twice" not in plain
    assert all_read["read_twice"] == pytest.approx(7 / 9)  # two lines have no added word
    assert none_read["read_twice"] == 0
    assert all_read["mean"] == plain["mean"]
    assert none_read["mean"]["macro_f1"] == plain["seeds"][0]["test"]["views"]["expanded"]["macro_f1"]
    assert list(all_read["intervals"]) == ["mean", "expanded"]
    result = CliRunner().invoke(app, ["evaluate", "-m", str(folder), "--test", str(test), "--margin", "1"])
    assert "77.78 % of the examples were read in both tokenizations" in result.stdout


def test_what_is_refused(make_model: Callable[..., Path], tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("the heart\n")

    def refused(folder: Path, match: str, **options: Any) -> None:
        with pytest.raises(UsageError, match=match):
            list(predict(PredictionRequest((str(folder),), str(source), reading=ReadingOptions(**options)), Silent()))

    refused(make_model(TEXTS), "reads only the base one", margin=0.5, pool="base")
    numbers = ClassificationTask(label_kind="numbers")
    refused(make_model(numbers, name="numbers"), "predicts numbers", margin=0.5)
    with pytest.raises(UsageError, match="either tokenization"):
        QaRequest("model", QuestionSources("data.json"), reading=ReadingOptions(margin=0.5), compare="base")
    result = CliRunner().invoke(app, ["predict", "-m", "x", "-i", str(source), "--margin", "1.5"])
    assert result.exit_code == 2
    assert "1.5" in result.stderr
    assert "--margin" in result.stderr
