"""QA against a slow reading of the method with plain transformers, and against models that say where they read."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import QaConfig, ReadingOptions, WordUnit
from greenadapt.inference.qa.answering import Answerer, QaRequest
from greenadapt.inference.qa.question_set import QuestionSources
from greenadapt.models.forward import TorchRunner
from greenadapt.models.streaming import Inference, ViewOutputs, pool_views, stream_task
from greenadapt.models.weights import open_task_model
from greenadapt.progress import Silent
from greenadapt.tasks.base import Encoder
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question
from tests.support.plain_qa import PlainQa, assert_same_answers
from tests.support.small_tasks import TinyModel, expand

WORDPIECE_AND_BYTES = ["Bert", "Roberta"]
SENTENCE = (
    "The patient with tachycardia-1 (heart rate 212) was in the sample; the coronavirus' virus isolated from a cell."
)
ASKED = [
    ("what heart?", f"{SENTENCE} In 2, not. {SENTENCE} Tachycardia's rate is 2.5"),
    ("Was the coronavirus\u00a0— isolated in 日本?", SENTENCE),
    (
        "what e\u0301te\u0301?",
        "a\u00a0heart\u2003rate--[1],(...)e\u0301te\u0301 日本x virus\u200b,\u200bcell\n\n\t …and“protein”. "
        "tachycardias don't",
    ),
    ("how long?", f"the {'x' * 110} virus {'cell' * 130} was {'.' * 40} in {'tachycardia' * 4}"),
    ("the " * 9, "cell"),  # a context that fits beside the question, with room to spare
    ("what?", "cell"),
    ("", "the heart of a cell"),
    ("what?", " \n\u00a0"),
    ("what?", ""),
]


def question(text: str, context: str) -> Question:
    return Question("q", text, context)


class Ours:
    """A folder as the package reads it."""

    def __init__(self, folder: Path, max_length: int, unit: WordUnit = "punct") -> None:
        self.opened = open_task_model(folder)
        self.encoder = Encoder.of(Checkpoint(folder), max_length)
        self.task = QuestionTask(word_unit=unit)
        self.run = Inference(400, self.encoder.special.pad)

    def outputs(self, questions: Sequence[Question], counts: Counter[str] | None = None) -> list[ViewOutputs]:
        views = self.task.inference(questions, self.encoder, counts)
        return list(stream_task(TorchRunner(self.opened.model, self.opened.rows), views, self.run))


@pytest.fixture(params=WORDPIECE_AND_BYTES)
def folder(request: pytest.FixtureRequest, tiny_model: TinyModel) -> Path:
    """A QA model with random weights that are large enough to tell words apart, and four words added to it."""
    source = tiny_model(f"{request.param}ForQuestionAnswering", name="base", initializer_range=0.2)
    return expand(source, source.parent / "expanded")


def assert_close(ours: Any, theirs: Any) -> None:
    expected = np.array(theirs, np.float64).reshape(-1, 2)
    np.testing.assert_allclose(np.asarray(ours).reshape(-1, 2), expected, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("folder", "max_length", "unit"),
    [("Bert", 32, "punct"), ("Roberta", 64, "whitespace")],
    indirect=["folder"],
)
def test_logits_and_answers_are_those_of_the_slow_reading(folder: Path, max_length: int, unit: WordUnit) -> None:
    ours, theirs = Ours(folder, max_length, unit), PlainQa(folder, max_length, unit)
    questions = [question(*pair) for pair in ASKED]
    for item, output, pair in zip(questions, ours.outputs(questions), ASKED, strict=True):
        assert_close(output.base, theirs.word_logits(*pair, "base_tokenizer"))
        assert_close(output.expanded, theirs.word_logits(*pair, ""))
        logits = pool_views(output, "mean")
        assert_close(logits, theirs.mean(*pair))
        assert_same_answers(ours.task.answers(item, logits), theirs.answers(*pair), item.context)
    [first, *_] = ours.task.inference(questions, ours.encoder)
    assert len(first.base) >= len(first.expanded) >= 2
    assert len(first.base) >= 256 // max_length


@pytest.mark.usefixtures("one_thread")
def test_a_question_that_just_fits_and_one_that_is_cut(folder: Path) -> None:
    ours, theirs = Ours(folder, 32), PlainQa(folder, 32, "punct")
    context = "the heart rate of tachycardia-1 (virus)"
    room = 32 - ours.encoder.n_special_pair - 2
    fits, cut = (question("!" + "?" * (n - 1), context) for n in (room, room + 1))
    counts = Counter[str]()
    [output] = ours.outputs([fits], counts)
    assert counts == {}
    assert_close(pool_views(output, "mean"), theirs.mean(fits.question, context))
    [again] = ours.outputs([cut], counts)
    assert counts == {"cut": 1}
    assert_close(pool_views(again, "mean"), theirs.mean(cut.question, context))
    np.testing.assert_array_equal(again.base, output.base)


@pytest.mark.usefixtures("one_thread")
def test_documents_are_read_as_if_they_were_one(folder: Path, tmp_path: Path) -> None:
    """The best spans of each by their raw logits, as the windows of one context are put together."""
    contexts = {str(tmp_path / f"{i}.txt"): context for i, (_, context) in enumerate(ASKED[:3])}
    for path, context in contexts.items():
        Path(path).write_text(context, "utf-8")
    reading = ReadingOptions(max_length=64, precision="float32")
    sources = QuestionSources(documents=tuple(contexts), question_texts=("what heart?",), sample_by="document")
    [row] = Answerer(QaRequest(str(folder), sources, QaConfig(top=20), reading), Silent()).rows()
    theirs = PlainQa(folder, 64, "punct")
    candidates = [
        (logit, text, path)
        for path, context in contexts.items()
        for text, logit, _ in theirs.answers("what heart?", context)
    ]
    best = sorted(candidates, reverse=True)[:20]
    total = sum(math.exp(logit) for logit, *_ in best)
    assert [(answer["answer"], answer["document"]) for answer in row["answers"]] == [
        (text, path) for _, text, path in best
    ]
    for answer, (logit, _, path) in zip(row["answers"], best, strict=True):
        assert answer["logit"] == pytest.approx(logit, abs=1e-5)
        assert answer["score"] == pytest.approx(math.exp(logit) / total, abs=1e-5)
        assert contexts[path][answer["start"] : answer["end"]] == answer["answer"]
