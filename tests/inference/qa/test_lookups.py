"""Questions looked up in contexts one by one: what is kept, in what portions, and how it is put together again."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.checkpoints.source import find_model
from greenadapt.config import QaConfig, ReadingOptions
from greenadapt.inference.models import OpenedModel
from greenadapt.inference.qa.inquiry import Inquiry, InquirySources, read_inquiry
from greenadapt.inference.qa.lookups import Lookup, QaModel, Waiting, looked_up, read_journal
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Silent
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import Candidate, Found, together
from tests.conftest import Notes
from tests.support.small_tasks import TinyModel, adapted

pytestmark = pytest.mark.usefixtures("one_thread")
SPAN = Candidate("bäts\n\u2028\ud800", 3, 10, 1.0000000000000002, "a.txt:3", "the bäts\n\u2028\ud800 fly", 0)
LOOKUPS = [
    Lookup("1", "a.txt:3", {"mean": Found((SPAN, Candidate("x", 0, 1, -math.inf))), "base": Found((), -0.1)}),
    Lookup("2", "a.txt:3", {"mean": Found((), None)}),
    Lookup("2", 'b\n"\udcff', {"mean": Found((SPAN,), math.inf)}),
]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal"
    path.write_text("".join(one.as_line() for one in LOOKUPS), "ascii")
    return path


def test_the_journal_holds_all_that_was_found(journal: Path) -> None:
    before = journal.read_bytes()
    assert before.count(b"\n") == 3
    assert [*read_journal(journal)] == LOOKUPS
    assert journal.read_bytes() == before
    assert [*read_journal(journal.with_name("none"))] == [*read_journal(None)] == []
    assert not journal.with_name("none").exists()


@given(st.integers(1, 1_000_000))
def test_a_line_that_it_was_killed_in_is_cut_off(tmp_path_factory: pytest.TempPathFactory, n: int) -> None:
    whole = "".join(one.as_line() for one in LOOKUPS).encode()
    path = tmp_path_factory.getbasetemp() / "torn"
    n %= len(whole) + 1
    path.write_bytes(whole[:n])
    n_sound = whole[:n].count(b"\n")
    assert [*read_journal(path)] == LOOKUPS[:n_sound]
    assert path.read_bytes() == b"".join(line + b"\n" for line in whole.split(b"\n")[:n_sound])
    with open(path, "a") as file:
        file.writelines(one.as_line() for one in LOOKUPS[n_sound:])
    assert [*read_journal(path)] == LOOKUPS


class Portions:
    """Stands where a model would, and finds the question itself."""

    def __init__(self) -> None:
        self.seen: list[Sequence[Question]] = []

    def found(self, questions: Sequence[Question]) -> Iterator[dict[str, Found]]:
        self.seen.append(questions)
        for one in questions:
            yield {f"of {id(self)}": Found((Candidate(one.id, 0, 1, 0.0),))}


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from([1, 1000, 1 << 20, 5 << 20]), st.integers(1, 400)), max_size=8))
def test_all_models_answer_a_portion_that_fits_before_the_next_is_read(contexts: list[tuple[int, int]]) -> None:
    texts = [("x" * length, n) for length, n in contexts]
    n_read = 0

    def questions() -> Iterator[Question]:
        nonlocal n_read
        for number, (text, n) in enumerate(texts):
            for i in range(n):
                n_read += 1
                yield Question(f"{number}.{i}", "", text, document=str(number))

    models: list[Any] = [Portions(), Portions()]
    lookups = []
    for lookup in looked_up(models, questions()):
        lookups.append(lookup)
        assert n_read <= len(lookups) + 256
    assert [one.id for one in lookups] == [f"{number}.{i}" for number, (_, n) in enumerate(texts) for i in range(n)]
    for one in lookups:
        assert [each.candidates[0].text for each in one.found.values()] == [one.id, one.id]
    first, second = (model.seen for model in models)
    assert first == second
    for portion in first:
        held = {one.document: len(one.context) for one in portion}
        assert len(portion) <= 256
        assert sum(held.values()) <= 1 << 22 or len(held) == 1
    for portion, after in pairwise(first):  # no smaller than they have to be
        held = {one.document: len(one.context) for one in [*portion, after[0]]}
        assert len(portion) == 256 or sum(held.values()) > 1 << 22


@pytest.mark.slow
@given(st.integers(1, 4), st.integers(1, 4), st.booleans(), st.data())
def test_questions_are_told_in_order_once_found_everywhere(n: int, m: int, has_null: bool, data: st.DataObject) -> None:
    asked = {str(i): Question(str(i), "", "") for i in range(n)}
    logits = iter(data.draw(st.permutations(range(n * m * 3))))
    each = [
        Lookup(
            name,
            str(document),
            {
                model: Found(
                    tuple(
                        Candidate(str(logit % 3), 0, 1, float(logit), str(document))
                        for logit in sorted((next(logits) for _ in range(3)), reverse=True)
                    )
                    if model == "mean"
                    else (),
                    float(document) if has_null else None,
                )
                for model in ("mean", "base")
            },
        )
        for document in range(m)
        for name in asked
    ]
    arrive = data.draw(st.permutations(each))
    waiting = Waiting(Inquiry(asked, dict.fromkeys(asked, m), m, lambda: iter(())), 5)
    told: list[Lookup] = []
    left = dict.fromkeys(asked, m)
    for lookup in arrive:
        waiting.add(lookup)
        left[lookup.id] -= 1
        told += waiting.complete()
        n_ready = next((i for i, count in enumerate(left.values()) if count), n)
        assert [one.id for one in told] == [*asked][:n_ready]
    for one in told:
        for model, found in one.found.items():
            parts = [each.found[model] for each in arrive if each.id == one.id]
            assert found == together(parts, 5)
            assert found.null == (0.0 if has_null else None)
            all_of_it = [one for part in parts for one in part.candidates]
            best = {(one.document, one.text): one.logit for one in sorted(all_of_it, key=lambda one: one.logit)}
            assert [one.logit for one in found.candidates] == sorted(best.values(), reverse=True)[:5]
    assert [*waiting.complete()] == []


def test_no_question_waits_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the virus")
    found = read_inquiry(InquirySources(documents=(str(tmp_path / "a.txt"),), asked=("who", "when")), Silent())
    waiting = Waiting(found, 20)
    assert [*waiting.complete()] == []
    waiting.add(Lookup("2", "a", {"mean": Found(())}))
    assert [*waiting.complete()] == []
    waiting.add(Lookup("1", "a", {"mean": Found(())}))
    assert [one.id for one in waiting.complete()] == ["1", "2"]


@pytest.fixture
def reader(tiny_model: TinyModel) -> Callable[..., QaModel]:
    folder = TaskFolder.open_questions(find_model(str(adapted(tiny_model, architecture="BertForQuestionAnswering"))))
    opened = OpenedModel.open(folder, ReadingOptions(max_length=32))

    def build(**config: Any) -> QaModel:
        return QaModel(opened, QuestionTask(), {"mean": "mean", "base": "base"}, QaConfig(**config))

    return build


def test_sentences_are_kept_of_what_may_be_told(reader: Callable[..., QaModel]) -> None:
    context = "The heart rate.\nIt was isolated from the virus. A protein is in the cell."
    questions = [Question(str(i), f"what {i}", context, document="a.txt") for i in range(3)]
    for sets in reader(top=2).found(questions):
        assert [*sets] == ["mean", "base"]
        for found in sets.values():
            assert len(found.candidates) == 20
            for one in found.candidates[:2]:
                assert one.start is not None
                assert one.sentence_start is not None
                assert (context[one.start :].startswith(one.text), one.document) == (True, "a.txt")
                assert one.sentence[one.start - one.sentence_start :].startswith(one.text)
                assert context[one.sentence_start :].startswith(one.sentence)
            assert {one.sentence for one in found.candidates[2:]} == {""}
            assert json.loads(Lookup("1", "", sets).as_line())


def test_questions_that_fill_the_window_are_named(reader: Callable[..., QaModel]) -> None:
    def said(*questions: str) -> list[str]:
        notes = Notes()
        reader().warn_long({text: f"q{i}" for i, text in enumerate(questions)}, notes)
        return notes.warnings

    assert said() == said("heart " * 27) == []  # 32 pieces, of which 3 are special and 2 are left for the context
    (warning,) = said("heart " * 27, "heart " * 28, "virus " * 40)
    assert "longer than the 27 pieces that the model reads beside a context: 2;" in warning
    assert "the first is q1 with 28" in warning
    # One piece with the new words, several without: the longer counts.
    (warning,) = said("tachycardia " * 20)
    assert int(warning.rsplit(" ", 1)[1]) > 20 + 20
