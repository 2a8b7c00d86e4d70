"""Look up each question in each of its contexts, merge its answers, and find the sentences around them."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from greenadapt.config import Pool, QaConfig
from greenadapt.errors import InputError
from greenadapt.inference.models import OpenedModel
from greenadapt.inference.qa.question_set import QuestionSet
from greenadapt.inference.search.paragraphs import Span, sentence_gaps
from greenadapt.models.streaming import pool_views
from greenadapt.progress import Progress
from greenadapt.store.files import Json
from greenadapt.tasks.base import Encoder
from greenadapt.tasks.qa import QuestionTask, longest_question
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import AnswerCandidates, Candidate, merge_candidates, rank

MAX_CHARS = 300


def sentence_around(context: str, start: int, end: int, max_chars: int = MAX_CHARS) -> Span:
    """The span of the sentence, or the sentences, that hold the characters ``start`` to before ``end`` of ``context``.

    ``sentence_gaps`` finds the ends of sentences. A span of more than ``max_chars`` characters is cut between words
    on both sides of the answer, which is always whole.

    Only ``max_chars`` characters on either side are read, however long the context is.
    """
    first, last = max(0, start - max_chars - 1), min(len(context), end + max_chars + 1)  # what is longer is cut
    for gap_start, gap_end in sentence_gaps(context, first, last):
        if gap_end <= start:
            first = gap_end
        elif gap_start >= end:
            last = gap_start
            break
    first, last = _cut(context, (first, start), (end, last), max_chars)
    return start - len(context[first:start].lstrip()), end + len(context[end:last].rstrip())


def _cut(context: str, before: Span, after: Span, max_chars: int) -> Span:
    """Shorten the spans ``before`` and ``after`` of an answer so that all have at most ``max_chars`` characters.

    Each side gets half of the room, and what the other side does not need.
    """
    (first, start), (end, last) = before, after
    room = max(0, max_chars - (end - start))
    n_before, n_after = start - first, last - end
    if n_before + n_after <= room:
        return first, last
    n_before = min(n_before, max(room // 2, room - n_after))
    n_after = min(n_after, room - n_before)
    first, last = start - n_before, end + n_after
    while first < start and not (first == 0 or context[first - 1].isspace()):
        first += 1
    while last > end and not (last == len(context) or context[last].isspace()):
        last -= 1
    return first, last


# Questions that all models answer before the next ones; their contexts stay in memory.
_BLOCK, _BLOCK_CHARACTERS = 256, 1 << 22


@dataclass(frozen=True)
class Lookup:
    """The candidates for a question in one context, or in all of them, by the name of each set of answers."""

    id: str
    found: dict[str, AnswerCandidates]


@dataclass(frozen=True)
class QaModel:
    """One model, and the sets of answers that it gives."""

    model: OpenedModel
    task: QuestionTask
    pool_of_set: Mapping[str, Pool]
    """Name of the set → whose logits decide."""


def split_in_blocks(questions: Iterator[Question]) -> Iterator[list[Question]]:
    """The blocks of ``questions`` for ``look_up``."""
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


def look_up(readers: Sequence[QaModel], block: Sequence[Question], config: QaConfig) -> Iterator[Lookup]:
    """Look each question of a block up in its context with every model, in order."""
    outputs = [reader.model.outputs(reader.task.inference(block, reader.model.encoder)) for reader in readers]
    for question, *model_outputs in zip(block, *outputs, strict=True):
        sets = {}
        for reader, output in zip(readers, model_outputs, strict=True):
            for name, pool in reader.pool_of_set.items():
                best = reader.task.find_candidates(output.example, pool_views(output, pool), config.n_best)
                located = (
                    _locate(candidate, question, has_sentence=rank < config.top)
                    for rank, candidate in enumerate(best.candidates)
                )
                sets[name] = AnswerCandidates(tuple(located), best.null)
        yield Lookup(question.id, sets)


def _locate(candidate: Candidate, question: Question, *, has_sentence: bool) -> Candidate:
    """A candidate with its characters in the document, and with the sentence around it if it may be shown."""
    passage, start, end = question.passage, candidate.start, candidate.end
    assert start is not None  # "no answer" is not among the candidates
    assert end is not None
    begin = 0 if passage is None else passage.start
    located = replace(candidate, document=question.document, start=begin + start, end=begin + end)
    if passage is not None:
        located = replace(located, title=passage.title, paragraph_start=begin)
    if has_sentence:
        first, last = sentence_around(question.context, start, end)
        located = replace(
            located,
            sentence=question.context[first:last],
            sentence_start=begin + first,
            paragraph="" if passage is None else question.context,
        )
    return located


def answers(model: QaModel, question_set: QuestionSet, config: QaConfig) -> Iterator[list[Json]]:
    """The ``top`` best answers of the model to each question, in order, see ``Candidate.as_dict``."""
    lookups = chain.from_iterable(look_up([model], block, config) for block in split_in_blocks(question_set.lookups()))
    for lookup in merge_lookups(lookups, question_set.n_lookups, config.n_best):
        candidates = next(iter(lookup.found.values()), AnswerCandidates(()))  # of the model's only set
        best = rank(candidates, model.task.null_threshold)[: config.top]
        yield [candidate.as_dict(score) for candidate, score in best]


def merge_lookups(lookups: Iterable[Lookup], n_lookups: Mapping[str, int], n_best: int) -> Iterator[Lookup]:
    """Merge the candidates of each question from all its contexts, and keep the ``n_best``.

    ``n_lookups`` has the number of contexts of each question, by id. Questions come in its order, each as soon as it
    and all before it are complete. Raises ``InputError`` at the end if lookups are missing, or there are more.
    """
    n_missing = dict(n_lookups)
    order = deque(n_missing)
    sets: dict[str, dict[str, AnswerCandidates]] = {}
    for lookup in chain(lookups, [None]):  # after the last lookup come questions without contexts
        if lookup is not None:
            earlier = sets.get(lookup.id) or dict.fromkeys(lookup.found, AnswerCandidates(()))
            sets[lookup.id] = {
                name: merge_candidates([earlier[name], candidates], n_best) for name, candidates in lookup.found.items()
            }
            n_missing[lookup.id] -= 1
        while order and not n_missing[order[0]]:
            name = order.popleft()
            yield Lookup(name, sets.pop(name, {}))
    if order or sets:
        raise InputError("the documents changed while they were read", "run the command again")


def warn_long(encoder: Encoder, questions: Mapping[str, str], progress: Progress) -> None:
    """Warn of ``questions`` (text → id) that are too long to leave room for the context."""
    room = longest_question(encoder.max_length, encoder.n_special_pair)
    sizes = [(name, encoder.n_pieces(text)) for text, name in questions.items()]
    if long := [(name, n) for name, n in sizes if n > room]:
        progress.warn(
            f"questions longer than the {room} pieces that the model reads beside a context: {len(long):,}; "
            f"they are cut, the first is {long[0][0]} with {long[0][1]}"
        )
