"""The QA task: windows to words to answers, against plain transformers and the method's worked examples."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import TaskConfig
from greenadapt.errors import InputError
from greenadapt.progress import Silent
from greenadapt.store.arrays import Array
from greenadapt.tasks.base import Encoder, Feature, Item, load_task, make_task
from greenadapt.tasks.qa import QuestionTask, Window, strided_windows, windows
from greenadapt.tasks.questions import GoldAnswer, Question
from greenadapt.tasks.spans import word_units
from greenadapt.tokenization.added_words import AddedWords, new_entries
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary
from tests.conftest import Notes

TASK = QuestionTask()
SENTENCE = "The patient with tachycardia-1 (heart rate 212) was in the sample, the virus isolated from a cell. "
LONG = " ".join(f"{SENTENCE}In {i}, not." for i in range(9))
ARCHITECTURES = ["BertForQuestionAnswering", "RobertaForQuestionAnswering"]


def expanded(folder: Path, max_length: int | None = None, words: Sequence[str] = ("tachycardia", "212")) -> Encoder:
    """The encoder of a model's folder, with ``words`` added."""
    plain = Encoder.of(Checkpoint(folder), max_length)
    tokenizer = plain.tokenizer.base
    vocabulary = BaseVocabulary(tokenizer)
    added = AddedWords.build(new_entries(words, vocabulary), vocabulary, vocabulary.size, "base")
    return Encoder(DualTokenizer(folder, added), plain.architecture, plain.max_length)


def question_on(context: str, text: str = "", question: str = "what was in the sample?", nth: int = 0) -> Question:
    """A question whose answer is the ``nth`` occurrence of ``text``."""
    start = -1
    for _ in range(nth + 1):
        start = context.index(text, start + 1)
    return Question("q", question, context, (GoldAnswer(text, start),) if text else (), not text)


def by_unit(features: Sequence[Feature], outputs: Sequence[Array], n_units: int) -> Array:
    """The outputs of one view as the task gets them: the highest over the pieces of each unit."""
    logits = np.full((n_units, 2), -np.inf, np.float32)
    for feature, output in zip(features, outputs, strict=True):
        has_unit = feature.units >= 0
        np.maximum.at(logits, feature.units[has_unit], output[has_unit])
    return logits


@pytest.fixture(params=ARCHITECTURES)
def encoder(request: pytest.FixtureRequest, tiny_model: Callable[..., Path]) -> Encoder:
    return expanded(tiny_model(request.param), 64)


def test_targets_are_the_pieces_of_the_answer(encoder: Encoder) -> None:
    context = LONG
    answers = [("tachycardia-1 (heart rate 212)", 0), ("virus", 4), (" the sample, ", 8), ("The", 0), ("cell.", 8)]
    questions = [question_on(context, text, nth=nth) for text, nth in answers]
    items = TASK.training(questions, encoder, 0, Silent())
    encoding = encoder.tokenizer.encode(context)
    for question, views in zip(questions, items, strict=True):
        [answer] = question.answers
        for features, pieces in ((views.base, encoding.base), (views.expanded, encoding.expanded)):
            start, end = answer.start, answer.start + len(answer.text.rstrip())
            start += len(answer.text) - len(answer.text.lstrip())
            expected = pieces.ids[(pieces.spans[:, 0] >= start) & (pieces.spans[:, 0] < end)].tolist()
            holding = [feature for feature in features if feature.target is not None and feature.target.any()]
            assert holding
            for feature in holding:
                first, last = feature.target.tolist()
                assert feature.ids[first : last + 1].tolist() == expected
            negatives = [feature for feature in features if not feature.target.any()]
            assert len(negatives) == 2
            assert len({tuple(feature.ids.tolist()) for feature in features}) == len(features)


def drawn(items: Sequence[Item]) -> list[list[list[int]]]:
    return [[feature.ids.tolist() for feature in views.base if not feature.target.any()] for views in items]


def test_negatives_are_drawn_by_seed_and_index(encoder: Encoder) -> None:
    questions = [question_on(LONG, "virus", nth=nth) for nth in range(9)]
    first = drawn(TASK.training(questions, encoder, 0, Silent()))
    assert first == drawn(TASK.training(questions, encoder, 0, Silent()))
    assert first != drawn(TASK.training(questions, encoder, 1, Silent()))
    assert first[:4] == drawn(TASK.training(questions[:4], encoder, 0, Silent()))
    repeated = drawn(TASK.training([questions[0]] * 9, encoder, 0, Silent()))
    assert any(ids != repeated[0] for ids in repeated)
    for n in (0, 5):
        task = make_task(TaskConfig(task="qa", negatives=n))
        assert [*map(len, drawn(task.training(questions, encoder, 0, Silent())))] == [n] * 9


def test_questions_without_answer_train_on_negatives_alone(encoder: Encoder) -> None:
    questions = [question_on(LONG), question_on("the cell"), question_on(LONG, "virus")]
    items = QuestionTask(negatives=0, has_null=True).training(questions, encoder, 0, Silent())
    assert [len(views.base) for views in items] == [1, 1, 2]
    assert [feature.target.tolist() for views in items[:2] for feature in views.base] == [[0, 0], [0, 0]]


def test_questions_that_no_window_can_answer_are_left_out_and_counted(encoder: Encoder) -> None:
    missing = Question("m", "what?", SENTENCE, (GoldAnswer("nothing", -1),))
    too_long = question_on(LONG, LONG[:400])
    notes = Notes()
    items = TASK.training([missing, question_on(SENTENCE, "virus"), too_long], encoder, 0, notes)
    assert len(items) == 1
    assert notes.lines == ["2 of 3 questions are left out: no window holds an answer"]
    with pytest.raises(InputError, match="nothing to train on"):
        TASK.training([missing], encoder, 0, notes)
    # The first answer that is there counts, whatever stands before it.
    answers = (GoldAnswer("nothing", -1), *question_on(SENTENCE, "virus").answers)
    assert len(TASK.training([Question("b", "what?", SENTENCE, answers)], encoder, 0, notes)) == 1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_logit_that_there_is_no_answer_is_that_of_plain_transformers(
    architecture: str, tiny_model: Callable[..., Path]
) -> None:
    import torch
    from transformers import AutoModelForQuestionAnswering

    folder = tiny_model(architecture)
    encoder = Encoder.of(Checkpoint(folder), 64)
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    question = question_on(LONG)
    task = TASK.fit([question, question_on("the cell", "cell")], Silent())
    [views] = task.inference([question], encoder)
    outputs, nulls = [], []
    with torch.no_grad():
        for feature in views.base:
            inputs: dict[str, Any] = {"input_ids": torch.tensor(feature.ids[None])}
            if architecture.startswith("Bert"):
                inputs["token_type_ids"] = torch.tensor(feature.types[None])
            output = model(**inputs)
            outputs.append(torch.stack([output.start_logits[0], output.end_logits[0]], dim=1).numpy())
            nulls.append((output.start_logits[0, 0] + output.end_logits[0, 0]).item())
    logits = by_unit(views.base, outputs, views.n_units)
    n_words = len(word_units(question.context))
    assert views.n_units == n_words + len(views.base)
    [empty] = [answer for answer in task.answers(question, logits) if answer["answer"] == ""]
    assert empty["logit"] == pytest.approx(min(nulls), abs=1e-6)
    # The words' logits are as without it.
    [plain] = TASK.inference([question], encoder)
    np.testing.assert_array_equal(by_unit(plain.base, outputs, n_words), logits[:n_words])


def test_windows_of_both_views_share_the_units_of_no_answer(tiny_model: Callable[..., Path]) -> None:
    encoder = expanded(tiny_model(), 64)
    task = QuestionTask(has_null=True)
    question = question_on(LONG, "virus")
    [views] = task.inference([question], encoder)
    n_words, n_null = len(word_units(question.context)), len(views.expanded)
    for features in (views.base, views.expanded):  # the windows of the base view share the others' units
        assert sorted({int(feature.units[0]) - n_words for feature in features}) == list(range(n_null))


def predicted(*answers: str) -> list[dict[str, Any]]:
    return [{"answer": answer} for answer in answers]


def test_scores_by_kind_of_question() -> None:
    questions = [
        question_on(SENTENCE, "virus isolated"),
        question_on(SENTENCE, "cell"),
        question_on(SENTENCE),
        question_on(SENTENCE),
    ]
    predictions = predicted("the virus", "cell", "", "cell")
    answered = {"em": 0.5, "f1": pytest.approx(5 / 6), "substr": 1.0, "questions": 2}
    assert TASK.score(questions[:2], predictions[:2]) == answered
    assert TASK.score(questions, predictions) == {
        "em": 0.5, "f1": pytest.approx(2 / 3), "substr": 0.75, "questions": 4,
        "has_answer": answered,
        "no_answer": {"em": 0.5, "f1": 0.5, "substr": 0.5, "questions": 2},
    }  # fmt: skip
    statistics = TASK.statistics(questions, predictions)
    assert statistics.shape == (4, 2)
    assert TASK.main_score(statistics.sum(axis=0)) == pytest.approx(2 / 3)
    np.testing.assert_allclose(TASK.main_score(np.array([[1.0, 2.0], [3.0, 3.0]])), [0.5, 1])


def test_gold_answers_of_articles_alone_count_as_in_either_version() -> None:
    question = Question("q", "what?", SENTENCE, (GoldAnswer("the", 47), GoldAnswer("cell", 92)))
    first = TASK.score([question], predicted("a"))
    assert (first["em"], first["f1"]) == (1, 0)  # the answer is right, but no word of it is left to be counted
    assert TASK.score([question, question_on(SENTENCE)], predicted("a", ""))["has_answer"]["em"] == 0


def test_fit_finds_out_whether_there_are_questions_without_answer() -> None:
    answerable, impossible = question_on(SENTENCE, "virus"), question_on(SENTENCE)
    assert not TASK.fit([answerable], Silent()).has_null
    assert TASK.fit([answerable, impossible], Silent()).has_null
    for examples in ([impossible], []):
        with pytest.raises(InputError, match="has an answer"):
            TASK.fit(examples, Silent())


def test_windows_questions_and_answers_of_the_released_code_of_gmap(encoder: Encoder) -> None:
    """A window every 16 pieces, of questions eight pieces, and answers of at most three."""
    task = make_task(TaskConfig("qa", stride=16, max_question=8, max_answer_pieces=3, negatives=1000))
    assert load_task(task.settings()) == task
    question = question_on(LONG, "virus", question="what was in the sample, and how was the virus isolated from it?")
    counts: Counter[str] = Counter()
    [views] = task.inference([question], encoder, counts)
    assert counts["cut"] == 1
    pieces = encoder.tokenizer.encode(LONG)
    for features, m in ((views.base, len(pieces.base.ids)), (views.expanded, len(pieces.expanded.ids))):
        expected = strided_windows(m, 8, 16, 64, encoder.n_special_pair)
        n_active = [int((feature.units >= 0).sum()) for feature in features]
        assert n_active == [window.a_r - window.a_l for window in expected]
    [trained] = task.training([question], encoder, 0, Silent())
    assert len(trained.base) == len(views.base)  # every window
    for answer in task.answers(views.example, np.zeros((views.n_units, 2), np.float32)):
        spanned = (pieces.base.spans[:, 0] >= answer["start"]) & (pieces.base.spans[:, 0] < answer["end"])
        assert spanned.sum() <= 3


def test_worked_examples() -> None:
    assert [windows(1000, q)[0].a_r for q in (9, 10, 11)] == [250, 249, 249]  # half of the room
    assert windows(1000, 9) == [
        Window(0, 250, 0, 250),
        Window(250, 500, 125, 125),
        Window(500, 750, 125, 125),
        Window(750, 1000, 250, 0),
    ]
    # The last two of five windows, active to 996 and to 1000, read the same pieces, and are one.
    assert windows(1000, 10)[-1] == Window(747, 1000, 246, 0)
    assert windows(400, 11) == [Window(0, 400, 0, 0)]  # with 151 pieces after the first half, 249 before the second


def alternating(m: int, q: int, max_length: int, n_special: int) -> list[Window]:
    """The authors' way: a piece to the right, a piece to the left, as long as there are any and room for them."""
    room = max_length - n_special - q
    sequence = []
    for a_l in range(0, m, room // 2):
        a_r = min(m, a_l + room // 2)
        begin, end = a_l, a_r
        while end - begin < min(room, m):
            if end < m:
                end += 1
            if begin > 0 and end - begin < room:
                begin -= 1
        if sequence and (sequence[-1].begin, sequence[-1].end) == (begin, end):
            a_l = sequence.pop().a_l
        sequence.append(Window(a_l, a_r, a_l - begin, end - a_r))
    return sequence


def active(sequence: list[Window]) -> list[int]:
    return [piece for window in sequence for piece in range(window.a_l, window.a_r)]


@given(m=st.integers(0, 1500), q=st.integers(0, 30), room=st.integers(2, 512), n_special=st.integers(3, 4))
def test_windows_are_those_of_the_alternating_loop(m: int, q: int, room: int, n_special: int) -> None:
    max_length = room + n_special + q
    sequence = windows(m, q, max_length, n_special)
    assert sequence == alternating(m, q, max_length, n_special)
    assert active(sequence) == list(range(m))
    for window in sequence:
        assert window.begin >= 0
        assert window.end <= m
        assert window.end - window.begin == room or (window.begin, window.end) == (0, m)
        if window.begin > 0 and window.end < m:
            assert window.p_l - window.p_r in (0, -1)
    assert len({(window.begin, window.end) for window in sequence}) == len(sequence)


def as_in_bert(m: int, room: int, stride: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Begin and end of the windows, and which of them each piece has its greatest context in, by the loops of BERT's
    code for SQuAD (doc_spans and _check_is_max_context).
    """
    spans, begin = [], 0
    while begin < m:
        length = min(m - begin, room)
        spans.append((begin, length))
        if begin + length == m:
            break
        begin += min(length, stride)
    owners = []
    for position in range(m):
        best_score, best_index = None, None
        for index, (begin, length) in enumerate(spans):
            end = begin + length - 1
            if position < begin or position > end:
                continue
            score = min(position - begin, end - position) + 0.01 * length
            if best_score is None or score > best_score:
                best_score, best_index = score, index
        assert best_index is not None
        owners.append(best_index)
    return [(begin, begin + length) for begin, length in spans], owners


@given(m=st.integers(0, 900), q=st.integers(0, 64), stride=st.integers(1, 400), max_length=st.integers(80, 384))
def test_strided_windows_are_those_of_berts_code(m: int, q: int, stride: int, max_length: int) -> None:
    sequence = strided_windows(m, q, stride, max_length, 3)
    spans, owners = as_in_bert(m, max_length - 3 - q, stride)
    assert [(window.begin, window.end) for window in sequence] == spans
    assert [number for number, window in enumerate(sequence) for _ in range(window.a_l, window.a_r)] == owners
    assert active(sequence) == list(range(m))


def test_a_question_leaves_room_for_a_strided_window() -> None:
    assert strided_windows(3, 60, 128, 64, 3) == [Window(0, 1, 0, 0), Window(1, 2, 0, 0), Window(2, 3, 0, 0)]
    with pytest.raises(InputError, match="a question of 61 pieces, at most 60"):
        strided_windows(3, 61, 128, 64, 3)
