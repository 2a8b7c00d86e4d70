"""Questions looked up in contexts one by one: what is kept, and how it is put together again."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenadapt.config import QaConfig, ReadingOptions
from greenadapt.inference.models import OpenedModel
from greenadapt.inference.qa.lookups import Lookup, QaModel, look_up, merge_lookups, sentence_around, warn_long
from greenadapt.models.task_folder import TaskFolder
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import AnswerCandidates, Candidate, merge_candidates
from tests.conftest import Notes
from tests.support.small_tasks import TinyModel, adapted

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
@given(st.integers(1, 4), st.integers(1, 4), st.booleans(), st.data())
def test_questions_come_in_order_once_found_everywhere(n: int, m: int, has_null: bool, data: st.DataObject) -> None:
    questions = [str(i) for i in range(n)]
    logits = iter(data.draw(st.permutations(range(n * m * 3))))

    def candidates(document: int) -> tuple[Candidate, ...]:
        highest = sorted((next(logits) for _ in range(3)), reverse=True)
        return tuple(Candidate(str(logit % 3), 0, 1, float(logit), str(document)) for logit in highest)

    lookups = []
    for document in range(m):
        null = float(document) if has_null else None
        for name in questions:
            sets = {"mean": AnswerCandidates(candidates(document), null), "base": AnswerCandidates((), null)}
            lookups.append(Lookup(name, sets))
    lookups = data.draw(st.permutations(lookups))
    complete: list[Lookup] = []
    n_missing = dict.fromkeys(questions, m)

    def arriving() -> Iterator[Lookup]:
        for lookup in lookups:
            yield lookup
            n_missing[lookup.id] -= 1
            n_ready = next((i for i, count in enumerate(n_missing.values()) if count), n)
            assert [answers.id for answers in complete] == [*questions][:n_ready]

    for answers in merge_lookups(arriving(), dict.fromkeys(questions, m), 5):
        complete.append(answers)
    assert len(complete) == n
    for answers in complete:
        for name, best in answers.found.items():
            parts = [lookup.found[name] for lookup in lookups if lookup.id == answers.id]
            assert best == merge_candidates(parts, 5)
            assert best.null == (0.0 if has_null else None)
            by_logit = sorted((c for part in parts for c in part.candidates), key=lambda c: c.logit)
            highest = {(c.document, c.text): c.logit for c in by_logit}
            assert [c.logit for c in best.candidates] == sorted(highest.values(), reverse=True)[:5]


@pytest.fixture
def opened(tiny_model: TinyModel) -> OpenedModel:
    folder = TaskFolder.open(str(adapted(tiny_model, architecture="BertForQuestionAnswering")))
    return OpenedModel.open(folder, ReadingOptions(max_length=32))


def test_sentences_are_kept_of_what_may_be_told(opened: OpenedModel) -> None:
    context = "The heart rate.\nIt was isolated from the virus. A protein is in the cell."
    questions = [Question(str(i), f"what {i}", context, document="a.txt") for i in range(3)]
    reader = QaModel(opened, QuestionTask(), {"mean": "mean", "base": "base"})
    for lookup in look_up([reader], questions, QaConfig(top=2)):
        assert [*lookup.found] == ["mean", "base"]
        for answers in lookup.found.values():
            assert len(answers.candidates) == 20
            for candidate in answers.candidates[:2]:
                assert candidate.start is not None
                assert candidate.sentence_start is not None
                assert (context[candidate.start :].startswith(candidate.text), candidate.document) == (True, "a.txt")
                assert candidate.sentence[candidate.start - candidate.sentence_start :].startswith(candidate.text)
                assert context[candidate.sentence_start :].startswith(candidate.sentence)
            assert {candidate.sentence for candidate in answers.candidates[2:]} == {""}
            assert {candidate.document for candidate in answers.candidates} == {"a.txt"}


def test_questions_that_fill_the_window_are_named(opened: OpenedModel) -> None:
    def warnings_of(*questions: str) -> list[str]:
        notes = Notes()
        warn_long(opened.encoder, {text: f"q{i}" for i, text in enumerate(questions)}, notes)
        return notes.warnings

    # 32 pieces, of which 3 are special and 2 are for the context
    assert warnings_of() == warnings_of("heart " * 27) == []
    (warning,) = warnings_of("heart " * 27, "heart " * 28, "virus " * 40)
    assert "longer than the 27 pieces that the model reads beside a context: 2;" in warning
    assert "the first is q1 with 28" in warning
    # One piece with the new words, several without: the longer counts.
    (warning,) = warnings_of("tachycardia " * 20)
    assert int(warning.rsplit(" ", 1)[1]) > 20 + 20


WITH_STOPS = ["e.g.", "Fig.", "al.", "A.", "2012.", "“Yes.”"]
WORDS = st.sampled_from([*WITH_STOPS, "virus", "The", "3", "isolated!", "\n", "\n\n", " ", "。", "(x)", "—"])
TEXTS = st.lists(WORDS | st.text(max_size=4), max_size=60).map(" ".join)


def around(text: str, answer: str, max_chars: int = 300) -> str:
    start = text.index(answer)
    return text[slice(*sentence_around(text, start, start + len(answer), max_chars))]


@given(TEXTS, st.data(), st.integers(0, 60))
@example("one two", None, 0)
@example("a" * 30, None, 20)
def test_the_answer_is_always_inside_and_the_rest_within_bounds(
    text: str, data: st.DataObject | None, max_chars: int
) -> None:
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2))) if data else (0, 0)
    begin, stop = sentence_around(text, start, end, max_chars)
    assert begin <= start <= end <= stop
    assert stop - begin <= max(max_chars, end - start)
    # Never within a word that the answer does not begin or end in itself.
    assert begin in (0, start) or text[begin - 1].isspace() or text[begin - 1] in "。」”"
    assert stop in (len(text), end) or text[stop].isspace() or text[stop - 1] in "。」”"
    # No white space around it but the answer's own.
    assert begin == start or not text[begin].isspace()
    assert stop == end or not text[stop - 1].isspace()
    # An empty line on either side of an answer that is no white space itself is never inside.
    if text[start:end] and text[start:end] == text[start:end].strip():
        assert "\n\n" not in text[begin:start]
        assert "\n\n" not in text[end:stop]


@pytest.mark.parametrize(
    "text",
    [
        "Before it. [It was isolated in 2012 by ANSWER.] After it.",
        "Shown before. [Bats, e.g. Rousettus, i.e. ANSWER vs. MERS, are known.] Not so.",
        "Some. [As Smith et al. 2020 (Fig. 3; cf. Table 2) say, ANSWER, see ref. 7, vol. 2, no. 5.] More.",
        "A heading\n[The virus of ANSWER\nwhich was isolated\r\nin 2012.] The next.",
        "وهذا هو. [هذا ANSWER هنا؟] ثم",
        "[ANSWER]",
    ],
)
def test_where_sentences_end(text: str) -> None:
    assert around(text.replace("[", "").replace("]", ""), "ANSWER") == text[text.index("[") + 1 : text.index("]")]


@pytest.mark.parametrize("gap", ["\r\n", "..."])
def test_runs_of_anything_take_no_longer_than_their_length(gap: str) -> None:
    text = gap * 100_000
    begin = time.perf_counter()
    first, last = sentence_around(text, len(text) // 2, len(text) // 2 + 1, max_chars=40_000)
    assert last - first <= 40_000
    assert time.perf_counter() - begin < 2  # quadratic, it would be minutes
