"""Each question looked up in each of its contexts, the answers put together, and their sentences for people to read."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from greenadapt.config import Pool, QaConfig
from greenadapt.errors import InputError
from greenadapt.inference.models import OpenedModel
from greenadapt.inference.qa.inquiry import Inquiry
from greenadapt.inference.search.paragraphs import sentence_gaps
from greenadapt.models.streaming import pooled
from greenadapt.progress import Progress
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json
from greenadapt.storage.own_json import parse_own_object
from greenadapt.tasks.qa import QuestionTask, longest_question
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import AnswerCandidates, Candidate, ranked, together

MAX_CHARS = 300


@dataclass(frozen=True)
class Excerpt:
    """A piece of a context, ``start`` its first character in there."""

    text: str
    start: int


def sentence_around(context: str, start: int, end: int, max_chars: int = MAX_CHARS) -> Excerpt:
    """The sentence, or the sentences, that hold the characters ``start`` to before ``end`` of ``context``.

    For where sentences end see ``sentence_gaps``. What has more than ``max_chars`` characters is
    cut between words on both sides of the span, of which nothing is ever left out.

    Looks at ``max_chars`` characters on either side, however long the context is. Raises ``ValueError`` for a span that
    is none of the context's.
    """
    if not 0 <= start <= end <= len(context):
        raise ValueError(f"characters {start} to {end} of a context that has {len(context)}")
    first, last = max(0, start - max_chars - 1), min(len(context), end + max_chars + 1)  # what is longer is cut
    for gap_start, gap_end in sentence_gaps(context, first, last):
        if gap_end <= start:
            first = gap_end
        elif gap_start >= end:
            last = gap_start
            break
    first, last = _cut(context, (first, start), (end, last), max_chars)
    while first < start and context[first].isspace():
        first += 1
    while last > end and context[last - 1].isspace():
        last -= 1
    return Excerpt(context[first:last], first)


def _cut(context: str, before: tuple[int, int], after: tuple[int, int], max_chars: int) -> tuple[int, int]:
    """First character of ``before`` and the one after the last of ``after``, so that with what is between them there
    are at most ``max_chars``: half of the room on either side, and what one side leaves is for the other.
    """
    (first, start), (end, last) = before, after
    room = max(0, max_chars - (end - start))
    n_before, n_after = start - first, last - end
    if n_before + n_after <= room:
        return first, last
    n_before = min(n_before, max(room // 2, room - n_after))
    n_after = min(n_after, room - n_before)
    return _word_begin(context, start - n_before, start), _word_end(context, end, end + n_after)


def _word_begin(context: str, first: int, start: int) -> int:
    """The first character from ``first`` on that begins a word, or ``start``."""
    while first < start and not (first == 0 or context[first - 1].isspace()):
        first += 1
    return first


def _word_end(context: str, end: int, last: int) -> int:
    """The last place up to ``last`` where a word ends, or ``end``."""
    while last > end and not (last == len(context) or context[last].isspace()):
        last -= 1
    return last


# Questions that all models answer before the next ones; their contexts are held.
_BLOCK, _BLOCK_CHARACTERS = 256, 1 << 22


@dataclass(frozen=True)
class Lookup:
    """What was found for one question in one document, or in all of them: by the name of each set of answers."""

    id: str
    document: str
    found: dict[str, AnswerCandidates]
    start: int = 0
    """First character of what was read of the document."""

    def as_line(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of_line(cls, line: bytes, place: Path) -> "Lookup":
        """What ``as_line`` wrote into the file ``place``; raises ``InputError`` for anything else."""
        values = parse_own_object(line, cls, place, "run the command again")
        found = {
            name: AnswerCandidates(tuple(Candidate(**one) for one in each["candidates"]), each["null"])
            for name, each in values["found"].items()
        }
        return cls(values["id"], values["document"], found, values.get("start", 0))


@dataclass(frozen=True)
class QaModel:
    """One model, and the sets of answers that it gives."""

    model: OpenedModel
    task: QuestionTask
    sets: Mapping[str, Pool]
    """Name of the set → whose logits decide."""
    config: QaConfig

    def found(self, questions: Iterable[Question]) -> Iterator[dict[str, AnswerCandidates]]:
        """What the model says about each question on its context, in order."""
        for output in self.model.outputs(self.model.inputs(questions)):
            yield {name: self._located(output.example, pooled(output, pool)) for name, pool in self.sets.items()}

    def _located(self, question: Question, logits: Array) -> AnswerCandidates:
        """What is found, with the sentences of those that may be shown."""
        found = self.task.find_candidates(question, logits, self.config.n_best)
        top = self.config.top
        located = (_in_sentence(one, question) for one in found.candidates[:top])
        candidates = (*located, *found.candidates[top:])
        return AnswerCandidates(tuple(_in_document(one, question) for one in candidates), found.null)

    def shown(self, lookup: Lookup) -> list[Json]:
        """The best answers among what it found; its sets are one."""
        found = next(iter(lookup.found.values()), AnswerCandidates(()))
        best = ranked(found, self.task.null_threshold)[: self.config.top]
        return [one.candidate.as_dict(one.score) for one in best]

    def warn_long(self, questions: dict[str, str], progress: Progress) -> None:
        """Say which questions leave no room for the context; text → id."""
        encoder = self.model.encoder
        room = longest_question(encoder.max_length, encoder.n_special_pair)
        long = []
        for text, name in questions.items():
            if (n := encoder.n_pieces(text)) > room:
                long.append((name, n))
        if long:
            progress.warn(
                f"questions longer than the {room} pieces that the model reads beside a context: {len(long):,}; "
                f"they are cut, the first is {long[0][0]} with {long[0][1]}"
            )


def _in_sentence(one: Candidate, question: Question) -> Candidate:
    assert one.start is not None  # spans have both
    assert one.end is not None
    around = sentence_around(question.context, one.start, one.end)
    return replace(one, document=question.document, sentence=around.text, sentence_start=around.start)


def _in_document(one: Candidate, question: Question) -> Candidate:
    """A candidate in the paragraph that a search found, with its characters in the document."""
    found = question.passage
    if found is None or one.start is None:
        return one
    is_shown = one.sentence_start is not None
    return replace(
        one.moved(one.document, found.start),
        sentence_start=found.start + (one.sentence_start or 0) if is_shown else None,
        title=found.title,
        paragraph=question.context if is_shown else "",
        paragraph_start=found.start,
    )


def looked_up(models: Iterable[QaModel], questions: Iterator[Question]) -> Iterator[Lookup]:
    """Look each question up in its context with every model, in order."""
    for block in in_blocks(questions):
        each = (model.found(block) for model in models)
        for question, *founds in zip(block, *each, strict=True):
            found = {name: one for sets in founds for name, one in sets.items()}
            id, document, start = place_of(question)  # noqa: A001
            yield Lookup(id, document, found, start)


def place_of(question: Question) -> tuple[str, str, int]:
    """The question's id, the document, and the first character of the document that is read."""
    return question.id, question.document, 0 if question.passage is None else question.passage.start


def in_blocks(questions: Iterator[Question]) -> Iterator[Sequence[Question]]:
    """``questions`` as they are looked up together."""
    block: list[Question] = []
    size = 0
    for question in questions:
        if not block or block[-1].context is not question.context:
            size += len(question.context)
        if block and (len(block) == _BLOCK or size > _BLOCK_CHARACTERS):
            yield block
            block, size = [], len(question.context)
        block.append(question)
    if block:
        yield block


def answers(model: QaModel, inquiry: Inquiry) -> Iterator[list[Json]]:
    """The ``top`` best answers of the model to each question, in order, see ``Candidate.as_dict``."""
    waiting = Waiting(inquiry, model.config.n_best)
    for lookup in looked_up([model], inquiry.lookups()):
        waiting.add(lookup)
        yield from map(model.shown, waiting.complete())
    yield from map(model.shown, waiting.rest())


class Waiting:
    """Questions of which some contexts are still to be looked up, or earlier questions are."""

    def __init__(self, inquiry: Inquiry, n_best: int) -> None:
        self._n_best = n_best
        self._missing = dict(inquiry.n_lookups)
        self._order = deque(self._missing)
        self._found: dict[str, dict[str, AnswerCandidates]] = {}

    def add(self, lookup: Lookup) -> None:
        """Put what was found on one more context to what is there."""
        before = self._found.get(lookup.id, {name: AnswerCandidates(()) for name in lookup.found})
        self._found[lookup.id] = {
            name: together([before[name], one], self._n_best) for name, one in lookup.found.items()
        }
        self._missing[lookup.id] -= 1

    def complete(self) -> Iterator[Lookup]:
        """Take out those that are complete, as far as all before them are."""
        while self._order and not self._missing[self._order[0]]:
            name = self._order.popleft()
            yield Lookup(name, "", self._found.pop(name, {}))

    def rest(self) -> Iterator[Lookup]:
        """The last of them, for which nothing was read; raises ``InputError`` if not all was looked up that should be,
        or more.
        """
        yield from self.complete()
        if self._order or self._found:
            raise InputError("the documents changed while they were read", "run the command again")


def read_journal(journal: Path | None) -> Iterator[Lookup]:
    """What an earlier attempt looked up; from a line on that is not whole or damaged, the file is cut off."""
    if journal is None or not journal.is_file():
        return
    sound = 0
    with open(journal, "rb+") as file:
        for line in file:
            try:
                lookup = Lookup.of_line(line, journal) if line.endswith(b"\n") else None
            except InputError:
                lookup = None
            if lookup is None:
                file.truncate(sound)
                return
            sound += len(line)
            yield lookup
