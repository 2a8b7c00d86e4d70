"""Questions on contexts from files: SQuAD's JSON of both versions, JSON lines, CSV, and data sets of the hub."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from greenadapt.corpus.opening import (
    TABLE_SUFFIXES,
    data_suffix,
    input_errors,
    is_hub_id,
    open_binary,
    refuse_read_once,
)
from greenadapt.corpus.rows import parse_json
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, json_kind, list_names
from greenadapt.progress import Progress
from greenadapt.store.arrays import IntArray
from greenadapt.store.files import Json
from greenadapt.tasks.records import records, refuse_repeated

_CORRECTION = "correct the file, or leave the question out"
_FORMATS = "give SQuAD's JSON, JSON lines with question and context, or a table with these columns"
_FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": False, "none": False}
"""What JSON, SQL and pandas write for a flag, and for a missing value."""
_DOCUMENT_FIELDS = ("document_id", "document", "title")


@dataclass(frozen=True)
class GoldAnswer:
    """A gold answer: ``start`` is its first character in the context, -1 if the context does not have it."""

    text: str
    start: int


@dataclass(frozen=True)
class PassageFacts:
    """Location and penalty of a context that a search found in a document."""

    start: int
    """The first character of the context in the document."""
    title: str = ""
    penalty: float = 0.0
    """Subtracted from the logits of its answers, since the search found better matches."""


@dataclass(frozen=True)
class Question:
    """A question on a context; ``impossible`` if the context has no answer."""

    id: str
    question: str
    context: str
    answers: tuple[GoldAnswer, ...] = ()
    impossible: bool = False
    document: str = ""
    """Name of the context."""
    where: str = field(default="", compare=False)
    """File and location in it, for messages."""
    words: IntArray | None = field(default=None, compare=False, repr=False)
    """The words of the context, see ``word_units``, after tokenization."""
    sizes: IntArray | None = field(default=None, compare=False, repr=False)
    """The number of base pieces of each of ``words``."""
    passage: "PassageFacts | None" = None
    """Set if the context is a part of a document that a search found."""
    title: str = field(default="", compare=False)
    """Title of the document, if it has one."""

    @property
    def group(self) -> str:
        """Questions on the same context are not independent."""
        return self.context

    @property
    def is_labelled(self) -> bool:
        """Whether the gold answer, or that there is none, is known."""
        return bool(self.answers) or self.impossible


def read_questions(source: str, progress: Progress, *, labelled: bool | None = True) -> list[Question]:
    """The questions of a file or data set with their gold answers; warns of answers that are not where the file says.

    ``source`` is a file of SQuAD's JSON, or a source of ``records`` with the fields ``question``, ``context``,
    ``answers`` and optionally ``id``; ``data`` in JSON may also hold such rows. ``labelled=False`` ignores answers;
    with ``labelled=None`` they may be missing, and an empty list means "no answer" if other questions of the source
    have answers.

    The name of a context is the ``document_id`` of its paragraph, else the ``title`` of its article, which all of the
    article's paragraphs share, else its path, such as ``data[3].paragraphs[0]``. In rows it is the ``document_id``,
    ``document`` or ``title``, if there is one.

    Raises ``InputError`` with line and column, or with the path in the JSON, of invalid content, and with both
    locations if two questions have the same id.
    """
    reader = _QuestionReader(labelled)
    document = _document(source, reader.decoder)
    if document is None:
        refuse_read_once(source)
        rows = records(source, progress)
        questions = [reader.question(row, row, where, _name(row, reader.decoder)) for where, row in rows]
    else:
        questions = list(_squad_questions(document, source, reader))
    if not questions:
        raise InputError(f"{source} has no questions", "give a file with questions")
    refuse_repeated((question.id, question.where) for question in questions)
    reader.report(source, progress)
    if any(question.answers for question in questions):
        return [
            replace(question, impossible=True) if question.where in reader.empty else question for question in questions
        ]
    return questions


def parse_unlabelled(record: Json, where: str) -> Question:
    """The question of a JSON object with ``question``, ``context`` and optionally ``id``, by default ``where``."""
    reader = _QuestionReader(labelled=False)
    return reader.question(record, record, where, _name(record, reader.decoder))


def locate(text: str, start: int, context: str) -> GoldAnswer:
    """The answer ``text`` where it occurs in ``context`` nearest to the character ``start``.

    White space around it is stripped if it occurs only without. If it does not occur at all, or is empty, its start is
    -1.
    """
    if not text.strip():
        return GoldAnswer(text, -1)
    start = max(start, 0)
    for answer in (text, text.strip()):
        before, after = context.rfind(answer, 0, start + len(answer)), context.find(answer, start)
        matches = [match for match in (before, after) if match >= 0]
        if matches:
            return GoldAnswer(answer, min(matches, key=lambda match: abs(match - start)))
    return GoldAnswer(text, -1)


@dataclass
class _QuestionReader:
    """Makes questions from JSON objects, and counts answers that are not where the object says."""

    labelled: bool | None = True
    n_answers: int = 0
    n_moved: int = 0
    n_missing: int = 0
    decoder: Decoder = field(default_factory=Decoder)
    empty: set[str] = field(default_factory=set)
    """Locations of the questions with an empty list of answers, if answers are optional."""

    def question(self, record: Json, passage: Json, where: str, document: str, *, needs_id: bool = False) -> Question:
        """The question of ``record``, on the context of ``passage``."""
        context = self.text(passage, "context", where)
        answers, impossible = self._gold(record, context, where)
        name = _get(record, "id", where) if needs_id or record.get("id") is not None else where
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise InputError(f"{where}: 'id' is {json_kind(name)}, not a string or an integer", _CORRECTION)
        name = self.decoder.replace_surrogates(str(name), where)
        return Question(name, self.text(record, "question", where), context, answers, impossible, document, where)

    def _gold(self, record: Json, context: str, where: str) -> tuple[tuple[GoldAnswer, ...], bool]:
        """The gold answers, and whether the gold answer is "no answer"."""
        if self.labelled is False:
            return (), False
        flag = record.get("is_impossible")
        impossible = _FLAGS.get(str(flag).lower())
        if impossible is None:
            raise InputError(f"{where}: 'is_impossible' is {flag!r}, not true or false", _CORRECTION)
        if impossible:
            return (), True
        if self.labelled is None and record.get("answers") in (None, ""):  # tables have "" for missing values
            return (), False
        pairs = _answers(_get(record, "answers", where), where)
        answers = tuple(self._locate(text, start, context, where) for text, start in pairs)
        if self.labelled is None and not answers:
            if "is_impossible" not in record:
                self.empty.add(where)
            return (), False
        return answers, not answers

    def text(self, record: Json, name: str, where: str) -> str:
        """The string of a field, without surrogates."""
        text = _get(record, name, where)
        if not isinstance(text, str):
            raise InputError(f"{where}: '{name}' is {json_kind(text)}, not a string", _CORRECTION)
        return self.decoder.replace_surrogates(text, where)

    def _locate(self, text: str, start: int | None, context: str, where: str) -> GoldAnswer:
        answer = locate(self.decoder.replace_surrogates(text, where), start or 0, context)
        self.n_answers += 1
        self.n_missing += answer.start < 0
        self.n_moved += start is not None and answer.start >= 0 and answer != GoldAnswer(text, start)
        return answer

    def report(self, source: str, progress: Progress) -> None:
        """Warn of answers that were moved or are not in their context."""
        if self.labelled is None and self.n_missing:
            progress.warn(f"{source}: of {self.n_answers:,} answers {self.n_missing:,} are not in their context")
        if self.labelled and (self.n_moved or self.n_missing):
            progress.warn(
                f"{source}: of {self.n_answers:,} answers {self.n_moved:,} are not where answer_start says and were "
                f"looked up nearby, {self.n_missing:,} are not in their context and are not trained on"
            )
        self.decoder.warn_replaced(source, progress)


def _document(source: str, decoder: Decoder) -> Json | None:
    """The content of a SQuAD file; ``None`` if ``source`` is in another format."""
    if data_suffix(source) in TABLE_SUFFIXES or is_hub_id(source):
        return None
    with input_errors(source), open_binary(source) as stream:
        lines = decoder.lines(stream, source)
        number, first = next(((number, line) for number, line in lines if line.strip()), (1, ""))
        if first.lstrip()[:1] != "{":
            return None
        try:
            row = json.loads(first)
        except (ValueError, RecursionError):
            row = None  # an object on several lines, or a broken one
        if row is None:
            row = parse_json(decoder.join(chain([(number, first)], lines), source), source, number)
            if "data" not in row:
                raise InputError(f"{source}: no 'data'", "give SQuAD's JSON, or JSON lines")
    return row if "data" in row and "question" not in row else None


def _squad_questions(document: Json, source: str, reader: _QuestionReader) -> Iterator[Question]:
    for article, article_path in _items(document, "data", f"{source}: "):
        if "question" in article:  # a row, as in the files of transformers' run_qa
            name = _name(article, reader.decoder) or article_path.removeprefix(f"{source}: ")
            yield reader.question(article, article, article_path, name)
            continue
        for passage, passage_path in _items(article, "paragraphs", f"{article_path}."):
            names = (_name(passage, reader.decoder, "document_id"), _name(article, reader.decoder, "title"))
            name = next(filter(None, names), passage_path.removeprefix(f"{source}: "))
            for record, where in _items(passage, "qas", f"{passage_path}."):
                yield reader.question(record, passage, where, name, needs_id=reader.labelled is True)


def _name(record: Json, decoder: Decoder, *fields: str) -> str:
    """The name of the document in a record, "" if it has none."""
    values = (record.get(key) for key in fields or _DOCUMENT_FIELDS)
    name = next((str(value) for value in values if type(value) in (str, int) and str(value).strip()), "")
    return decoder.replace_surrogates(name, "")


def _items(parent: Json, name: str, prefix: str) -> Iterator[tuple[Json, str]]:
    """The objects in the list ``name``, with their paths."""
    items = _get(parent, name, prefix.rstrip(".: "))
    if not isinstance(items, list):
        raise InputError(f"{prefix}{name} is {json_kind(items)}, not a list", _FORMATS)
    for i, item in enumerate(items):
        where = f"{prefix}{name}[{i}]"
        if not isinstance(item, dict):
            raise InputError(f"{where} is {json_kind(item)}, not an object", _FORMATS)
        yield item, where


def _get(record: Json, name: str, where: str) -> Any:
    if record.get(name) is None:
        raise InputError(f"{where}: no '{name}'", f"it has: {list_names(record)}")
    return record[name]


def _answers(value: Any, where: str) -> list[tuple[str, int | None]]:
    """Text and start of each answer, in any of the common layouts."""
    if isinstance(value, str) and value.startswith(("{", "[{")):
        with suppress(ValueError, RecursionError):  # an answer may begin so, too
            value = json.loads(value)
    if isinstance(value, dict):  # data sets of the hub have a list per field
        texts = _get(value, "text", where)
        starts = value.get("answer_start") or [None] * (len(texts) if isinstance(texts, list) else 1)
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise InputError(f"{where}: 'answers' has lists of texts and of starts that do not match", _CORRECTION)
        value = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    pairs = []
    for answer in [value] if isinstance(value, str) else value if isinstance(value, list) else [None]:
        entry = {"text": answer} if isinstance(answer, str) else answer
        text, start = (entry.get("text"), entry.get("answer_start")) if isinstance(entry, dict) else (None, None)
        if not isinstance(text, str) or not isinstance(start, int | None) or isinstance(start, bool):
            raise InputError(
                f"{where}: 'answers' has {json.dumps(answer)[:80]}", 'need {"text": "…", "answer_start": …}'
            )
        pairs.append((text, start))
    return pairs
