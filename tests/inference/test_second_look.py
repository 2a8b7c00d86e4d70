"""The base tokenization read only of what the expanded one leaves in doubt."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.config import ReadingOptions
from greenadapt.errors import UsageError
from greenadapt.inference.opened_models import OpenedModel
from greenadapt.inference.predictor import PredictRequest, predict
from greenadapt.inference.qa.answering import QaRequest
from greenadapt.inference.qa.inquiry import InquirySources
from greenadapt.inference.second_look import second_look
from greenadapt.models.example_blocks import ViewOutputs
from greenadapt.models.streaming import pooled
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Silent
from greenadapt.server.found import FoundModel
from greenadapt.server.models import Asked, ServedModel
from greenadapt.stages.evaluate import EvaluateRequest, evaluate
from greenadapt.tasks.classification.task import ClassificationTask
from greenadapt.tasks.ner.task import NerTask
from greenadapt.tasks.probabilities import margins
from greenadapt.tasks.qa.questions import Question
from greenadapt.tasks.qa.task import QuestionTask
from tests.support.small_tasks import TinyModel, expand

NER = NerTask(("O", "B-Disease", "I-Disease"), chunk=4)
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
CONTEXT = "the patient with tachycardia was isolated , and the coronavirus of the heart is a virus . " * 6
MAX_LENGTH = 24


@pytest.fixture
def make(tiny_model: TinyModel, tmp_path: Path) -> Callable[..., Path]:
    """``make(NER)`` → a task folder of a tiny model with added words and random weights, large enough to tell apart."""

    def build(task: Any, *, name: str = "task", **settings: Any) -> Path:
        sizes = {"initializer_range": 0.3, **task.head_config()}
        folder = expand(tiny_model(f"BertFor{task.head}", name=f"{name}-base", **sizes), tmp_path / name)
        said = {**task.settings(), "pool": "mean", "max_length": MAX_LENGTH, **settings}
        (folder / "task.json").write_text(json.dumps(said))
        return folder

    return build


def opened(folder: Path, **options: Any) -> OpenedModel:
    return OpenedModel.open(TaskFolder.find(str(folder)), ReadingOptions(**options))


def examples(task: Any) -> list[Any]:
    return [task.example(line, str(number)) for number, line in enumerate(LINES)]


@pytest.mark.parametrize("task", [NER, TEXTS], ids=["ner", "classification"])
def test_what_is_sure_is_as_expanded_and_the_rest_the_mean(task: Any, make: Callable[..., Path]) -> None:
    folder = make(task)
    each = {pool: dict(enumerate(opened(folder, pool=pool).logits(examples(task)))) for pool in ("expanded", "mean")}
    least = [margins(logits).min() for _, logits in each["expanded"].values()]
    margin = float(np.median(least))
    found = dict(enumerate(opened(folder, margin=margin).logits(examples(task))))
    kinds = set()
    for number, (_, logits) in found.items():
        pool = "expanded" if least[number] >= margin else "mean"
        kinds.add(pool)
        np.testing.assert_allclose(logits, each[pool][number][1], atol=1e-5)
    assert kinds == {"expanded", "mean"}


@pytest.mark.parametrize(("margin", "pool"), [(0.0, "expanded"), (1.0, "mean")])
def test_the_ends(margin: float, pool: Any, make: Callable[..., Path], tmp_path: Path) -> None:
    folder, source = make(NER), tmp_path / "lines.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))

    def tags(**options: Any) -> list[list[str]]:
        request = PredictRequest((str(folder),), str(source), reading=ReadingOptions(**options))
        return [one.result["tags"] for one in predict(request, Silent())]

    assert tags(margin=margin) == tags(pool=pool)
    assert tags(pool="mean") != tags(pool="expanded")


class Reading:
    """Passes inputs on to a model, and keeps how many each view had."""

    def __init__(self, model: OpenedModel) -> None:
        self.model = model
        self.read: dict[str, list[int]] = {"base": [], "expanded": []}

    def __call__(self, inputs: Any, pool: Any) -> Iterator[ViewOutputs]:
        each = list(inputs)
        self.read[pool] += [len(getattr(one, pool)) for one in each]
        return self.model.read(each, pool)


def test_only_what_is_in_doubt_is_read_again(make: Callable[..., Path]) -> None:
    model = opened(make(TEXTS))
    inputs = list(model.inputs(examples(TEXTS)))
    alone = [margins(one.expanded).item() for one in second_look(TEXTS, inputs, 0.0, model.read)]
    has_word = [any(word in line for word in ("tachy", "corona", "dtypes", "eigen")) for line in LINES]
    reading = Reading(model)
    margin = float(np.median(alone))
    found = list(second_look(TEXTS, inputs, margin, reading))
    expected = [is_new and one < margin for is_new, one in zip(has_word, alone, strict=True)]
    assert [one.base is not one.expanded for one in found] == expected
    assert reading.read == {"expanded": [1] * len(LINES), "base": [1] * sum(expected)}
    assert 0 < sum(expected) < sum(has_word)


def test_of_long_contexts_only_windows_with_an_answer_are_read_again(make: Callable[..., Path]) -> None:
    task = QuestionTask()
    model = opened(make(task))
    asked = [Question("1", "what is the heart ?", CONTEXT), Question("2", "which virus ?", CONTEXT)]
    inputs = list(model.inputs(asked))
    full = list(model.outputs(asked))
    reading, margin = Reading(model), 0.05
    found = list(second_look(task, inputs, margin, reading))
    assert all(0 < n < len(one.base) for n, one in zip(reading.read["base"], inputs, strict=True))
    for one, whole, views in zip(found, full, inputs, strict=True):
        assert one.expanded is not None
        assert one.base is not None
        np.testing.assert_allclose(one.expanded, whole.expanded, atol=1e-5)
        units = task.in_doubt(one.example, one.expanded, margin)
        windows = [each for each in views.base if np.isin(each.units, units).any()]
        spoken = {unit for each in windows for unit in each.units.tolist() if unit >= 0}
        elsewhere = {unit for each in views.base if each not in windows for unit in each.units.tolist()}
        assert set(np.flatnonzero(np.isfinite(one.base).all(axis=1)).tolist()) == spoken
        only = sorted(spoken - elsewhere)
        np.testing.assert_allclose(one.base[only], whole.base[only], atol=1e-5)  # type: ignore[index]
        best = task.answers(one.example, pooled(one, "mean"))
        assert all(isinstance(each["logit"], float) for each in best)


def test_answers_in_doubt_are_those_near_the_first() -> None:
    task, question = QuestionTask(), Question("1", "?", "one two three four")
    logits = np.full((4, 2), -20.0, np.float32)
    logits[1] = 6.0, 6.0
    logits[3] = 5.9, 5.9
    shares = softmax([12.0, 11.8, 11.9])  # "two", "four", and all from the one to the other
    assert shares[0] - shares[1] < 0.1
    assert task.in_doubt(question, logits, 0.1).tolist() == [1, 2, 3]
    assert task.in_doubt(question, logits, 0.0).tolist() == []
    logits[3] = -20.0
    assert task.in_doubt(question, logits, 0.9).tolist() == []
    null = np.concatenate([logits, [[6.0, 6.0]]]).astype(np.float32)
    assert replace(task, has_null=True).in_doubt(question, null, 0.4).tolist() == [1]


def test_margins() -> None:
    logits = np.log([[0.7, 0.2, 0.1], [0.4, 0.2, 0.4]]).astype(np.float32)
    assert margins(logits).tolist() == pytest.approx([0.5, 0.0])
    assert margins(np.zeros((2, 1), np.float32)).tolist() == [1.0, 1.0]
    assert NER.in_doubt(NER.example("a b", ""), logits, 0.4).tolist() == [0, 1]
    assert NER.in_doubt(NER.example("a b", ""), logits[:1], 0.4).tolist() == []
    assert TEXTS.in_doubt(TEXTS.example("a", ""), logits[1:], 0.4).tolist() == [0]


def test_scores_say_how_much_was_read_twice(make: Callable[..., Path], tmp_path: Path) -> None:
    folder, test = make(TEXTS), tmp_path / "test.jsonl"
    rows = [{"text": line, "label": TEXTS.labels[i % 3]} for i, line in enumerate(LINES)]
    test.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def scored(**options: Any) -> Any:
        [found] = evaluate(EvaluateRequest(str(folder), (str(test),), reading=ReadingOptions(**options)), Silent())
        return found.scores

    plain, all_read, none_read = scored(), scored(margin=1.0), scored(margin=0.0)
    assert "read_twice" not in plain
    assert all_read["read_twice"] == pytest.approx(7 / 9)  # two lines have no added word
    assert none_read["read_twice"] == 0
    assert all_read["mean"] == plain["mean"]
    assert none_read["mean"]["macro_f1"] == plain["seeds"][0]["test"]["views"]["expanded"]["macro_f1"]
    assert list(all_read["intervals"]) == ["mean", "expanded"]
    shown = CliRunner().invoke(app, ["evaluate", "-m", str(folder), "--test", str(test), "--margin", "1"])
    assert "77.78 % of the examples were read in both tokenizations" in shown.stdout


def test_a_server_reads_both_where_both_are_asked_for(make: Callable[..., Path]) -> None:
    folder = TaskFolder.find(str(make(TEXTS)))
    found = FoundModel("texts", folder.folder, folder)
    sure, both = (ServedModel.open(found, ReadingOptions(**one)) for one in ({"margin": 0.0}, {}))  # type: ignore[arg-type]
    one = TEXTS.example("tachycardia of the heart", "")

    def label(model: ServedModel, *views: Any) -> Any:
        [answer] = model.predicted([Asked(model, one, views, 10)])
        return answer

    assert label(sure, "mean")["mean"] == label(both, "expanded")["expanded"]
    assert label(sure, "mean", "base") == label(both, "mean", "base")
    assert label(both, "mean")["mean"] != label(both, "expanded")["expanded"]


def test_what_is_refused(make: Callable[..., Path], tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("the heart\n")

    def refused(folder: Path, match: str, **options: Any) -> None:
        with pytest.raises(UsageError, match=match):
            list(predict(PredictRequest((str(folder),), str(source), reading=ReadingOptions(**options)), Silent()))

    refused(make(TEXTS), "reads only the base one", margin=0.5, pool="base")
    refused(make(TEXTS, name="one", pool="expanded"), "reads only the expanded one", margin=0.5)
    numbers = ClassificationTask(label_kind="numbers")
    refused(make(numbers, name="numbers"), "predicts numbers", margin=0.5)
    with pytest.raises(UsageError, match="either tokenization"):
        QaRequest("model", InquirySources("data.json"), reading=ReadingOptions(margin=0.5), compare="base")
    with pytest.raises(UsageError, match="leave out --margin"):
        EvaluateRequest("model", ("a",), reading=ReadingOptions(margin=0.5), keep_logits=True)
    result = CliRunner().invoke(app, ["predict", "-m", "x", "-i", str(source), "--margin", "1.5"])
    assert result.exit_code == 2
