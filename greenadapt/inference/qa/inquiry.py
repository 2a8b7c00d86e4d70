"""Which question is put to which contexts: its own, each document, or the paragraphs that match it best."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby, zip_longest

from greenadapt.config import RetrievalConfig, SampleBy
from greenadapt.corpus.opening import (
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    data_suffix,
    is_read_once,
    note_terminal,
    open_input,
    refuse_twice,
    require_names,
)
from greenadapt.corpus.rows import json_rows
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, UsageError, json_kind, require
from greenadapt.inference.entries import Context, Names, read_texts
from greenadapt.inference.search.index import Index
from greenadapt.inference.search.store import Passage, TextSearch, n_paragraphs
from greenadapt.inference.search.words import Words
from greenadapt.progress import Progress, Silent
from greenadapt.storage.files import Json
from greenadapt.tasks.qa import gold_texts, has_impossible
from greenadapt.tasks.questions import PassageFacts, Question, read_questions, refuse_squad
from greenadapt.tasks.records import records, refuse_repeated

_LIKE_JSON = re.compile(r'\s*(\{\s*"|\[\s*([{"]|$))')


def read_asked(source: str, progress: Progress) -> list[Question]:
    """The questions of a file, or of standard input for ``-``, without contexts.

    They are the field ``question``, or else ``text``, of JSON lines, of one JSON array of objects or of a table, or
    lines of text, of which empty ones are skipped. The ``id`` of one that has none is its place, such as ``q.txt:3``.
    Raises ``MissingError`` if there is no such file, ``InputError`` if it is broken, has no questions, or two of
    the same id, naming both places.
    """
    try:
        found = list(_source_asked(source, progress))
    except InputError:
        refuse_squad(source)
        raise
    if not found:
        raise InputError(f"{source} has no questions", "give one per line, or JSON lines with the field question")
    refuse_repeated((asked.id, where) for where, asked in found)
    return [asked for _, asked in found]


def _source_asked(source: str, progress: Progress) -> Iterator[tuple[str, Question]]:
    """The questions, each with its place."""
    if data_suffix(source) in TABLE_SUFFIXES:
        for where, row in records(source, progress):
            yield where, _asked_record(row, where)
        return
    decoder = Decoder()
    note_terminal(source, progress)
    with open_input(source) as (stream, name):
        lines = decoder.lines(stream, name)
        first = list(_up_to_text(lines))
        if first and (data_suffix(source) in JSON_SUFFIXES or _LIKE_JSON.match(first[-1][1])):
            for entry in json_rows(chain(first, lines), name, decoder):
                yield entry.where, _asked_record(entry.fields, entry.where)
        else:
            for number, line in chain(first, lines):
                if text := line.strip():
                    yield f"{name}:{number}", Question(f"{name}:{number}", text, "")
    decoder.warn_replaced(name, progress)


def _up_to_text(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines up to the first that is not empty."""
    for number, line in lines:
        yield number, line
        if line.strip():
            return


def _asked_record(record: Json, where: str) -> Question:
    question = next((record[name] for name in ("question", "text") if record.get(name) is not None), None)
    if question is None:
        raise InputError(f"{where}: no 'question'", f"it has: {', '.join([*record][:20])}")
    if not isinstance(question, str):
        raise InputError(f"{where}: the question is {json_kind(question)}, not a string", "correct it")
    if not question.strip():
        raise InputError(f"{where}: the question is empty", "correct it")
    name = where if record.get("id") is None else record["id"]
    if type(name) not in (str, int):
        raise InputError(f"{where}: 'id' is {json_kind(name)}, not a string or an integer", "correct it")
    return Question(str(name), question, "")


def on_passages(question: Question, passages: Sequence[Passage], weight: float) -> Iterator[Question]:
    """The question on each paragraph that was found for it, best first.

    ``weight`` times how far the paragraph's score is below the best one, as a share of that, is subtracted from the
    logits of its answers: logits of different paragraphs are hardly comparable, and the score of the search says which
    one the question is about. Scores that are not positive, as cosines may be, count as 0.
    """
    best = passages[0].score if passages else 0.0
    for one in passages:
        penalty = weight * (1 - max(one.score, 0.0) / best) if best > 0 else 0.0
        facts = PassageFacts(one.start, one.title, penalty)
        yield replace(question, context=one.text, document=one.document, passage=facts, answers=(), impossible=False)


@dataclass(frozen=True)
class OwnPassages:
    """Finds the best paragraphs of a question's own context, by BM25 among the paragraphs of that context.

    Raises ``MissingError`` if a package is missing.
    """

    words: Words
    """What splits text into the words that are compared."""
    n: int
    """How many paragraphs of a context are read, at most."""
    weight: float
    """See ``on_passages``; scores are compared within a context."""

    def __post_init__(self) -> None:
        require("search", "tantivy", by="a search")

    def questions(self, questions: Iterable[Question]) -> Iterator[Question]:
        """Each question on its paragraphs, best first; a context is cut once for the questions on it that follow each
        other.
        """
        for _, together in groupby(questions, key=lambda one: (one.context, one.document)):
            search = None
            for one in together:
                search = search or TextSearch(one.context, self.words, one.document, one.title)
                yield from on_passages(one, search.best(one.question, self.n), self.weight)

    def n_of(self, text: str) -> int:
        """How many paragraphs of a text are read."""
        return min(self.n, n_paragraphs(text))


@dataclass(frozen=True)
class InquirySources:
    """Where questions and contexts come from: ``data`` has both, else ``documents`` have the contexts. An ``index`` has
    contexts, too, for the questions of ``data`` as well.

    Raises ``UsageError`` if it is said that something is missing, or given twice.
    """

    data: str | None = None
    documents: tuple[str, ...] = ()
    questions: str | None = None
    """A file, see ``read_asked``."""
    asked: tuple[str, ...] = ()
    """Questions themselves."""
    format: str | None = None
    """Of the documents, where their names do not say it."""
    fields: tuple[str, ...] = ("text",)
    """Of the documents, in JSON lines and tables."""
    sample_by: SampleBy | None = None
    """What a document is in plain text; ``None`` is a line, or all of it where it has to be one text."""
    single: bool = False
    """Whether ``documents`` has to be one text."""
    index: str | None = None
    """What ``index`` wrote; its paragraphs take the place of the contexts."""

    def __post_init__(self) -> None:
        if self.index is not None and self.documents:
            raise UsageError("an index has its own documents", "leave out --documents and --context, or the index")
        if self.index is None and (self.data is None) == (not self.documents):
            raise UsageError(
                "need either questions with their contexts, or documents",
                "give --data FILE, or --context FILE, --documents PATH or --index INDEX with --question or --questions",
            )
        if self.data is not None and is_read_once(self.data):
            raise UsageError("questions with their contexts are not read from a pipe", "name a file with --data")
        if self.data is not None and (self.questions or self.asked):
            raise UsageError("--data has its own questions", "leave out --question and --questions, or --data")
        if self.data is None and (self.questions is None) == (not self.asked):
            raise UsageError("need questions on the documents", "give either --question TEXT or --questions FILE")
        paths = self.paths()
        if "" in paths:
            raise UsageError("a path is empty", "name a file or a folder")
        refuse_twice(paths)
        for path in paths:
            require_names(path)

    @property
    def sampled_by(self) -> SampleBy | None:
        """What a document is in plain text, as far as it is said: what ``single`` is one text."""
        return "document" if self.single and self.sample_by is None else self.sample_by

    def paths(self) -> list[str]:
        """All files, folders and data sets that are read."""
        return [source for source in (self.data, self.questions, *self.documents) if source is not None]


@dataclass(frozen=True)
class Inquiry:
    """All questions, and the contexts to look for answers in."""

    asked: dict[str, Question]
    """By id, in the order in which they are answered; of questions to documents without context."""
    n_lookups: dict[str, int]
    """In how many contexts each question is looked up, by its id."""
    n_contexts: int
    """How many contexts there are in all."""
    _stream: Callable[[], Iterator[Question]] = field(repr=False)

    def lookups(self) -> Iterator[Question]:
        """Each question on each of its contexts, those on one document together; read again each time."""
        return self._stream()

    @cached_property
    def is_second(self) -> bool:
        """Whether answers are scored as in SQuAD 2."""
        return has_impossible(self.asked.values())

    def golds(self) -> dict[str, list[str]]:
        """The gold answers that count, by the id of the question, of those that are labelled."""
        labelled = (question for question in self.asked.values() if question.is_labelled)
        return {question.id: gold_texts(question, is_second=self.is_second) for question in labelled}


def read_inquiry(
    sources: InquirySources,
    progress: Progress,
    retrieval: RetrievalConfig = RetrievalConfig(),  # noqa: B008
    own: OwnPassages | None = None,
) -> Inquiry:
    """Read the questions, and look through all documents once, or search the index, so that what is broken is said
    before work begins. Without an index contexts are read whole, or with ``own`` their best paragraphs.

    Raises ``InputError`` if a file is broken, two questions share an id or a document is empty, ``MissingError``
    if one is not there, ``UsageError`` for a question without text and for several documents where one is wanted.
    """
    if sources.index is not None:
        return _searched(sources, Index(sources.index), retrieval, progress)
    if sources.data is not None:
        return on_contexts(read_questions(sources.data, progress, labelled=None), own)
    return _on_documents(sources, progress, own)


def _on_documents(sources: InquirySources, progress: Progress, own: OwnPassages | None) -> Inquiry:
    """Each question on each document, or on its best paragraphs."""
    asked = _asked(sources, progress)
    documents = _Documents(sources, progress)
    stubs = {one.id: one for one in asked}

    def stream() -> Iterator[Question]:
        for text in documents.read():
            for stub in stubs.values():
                yield replace(stub, context=text.text, document=text.name, title=text.title)

    return _narrowed(Inquiry(stubs, dict.fromkeys(stubs, documents.n), documents.n, stream), own)


def _searched(sources: InquirySources, index: Index, retrieval: RetrievalConfig, progress: Progress) -> Inquiry:
    """Each question on the best paragraphs of the index."""
    asked = _asked(sources, progress) if sources.data is None else read_questions(sources.data, progress, labelled=None)
    index.warn_unfinished(progress)
    passages: dict[tuple[str, int], Passage] = {}  # once, however many questions find them
    found: dict[str, list[tuple[Passage, float]]] = {}
    with progress.bar("search", len(asked), "questions") as bar:
        for one in asked:
            best = index.search(one.question, retrieval.n_passages, retrieval.by)
            found[one.id] = [(passages.setdefault((each.document, each.start), each), each.score) for each in best]
            bar.advance(1)

    def stream() -> Iterator[Question]:
        for one in asked:
            own = [replace(passage, score=score) for passage, score in found[one.id]]
            yield from on_passages(one, own, retrieval.search_weight)

    n_lookups = {name: len(each) for name, each in found.items()}
    return Inquiry({one.id: one for one in asked}, n_lookups, len(passages), stream)


def _narrowed(inquiry: Inquiry, own: OwnPassages | None) -> Inquiry:
    """The same, with the best paragraphs of each context instead of all of it."""
    if own is None:
        return inquiry
    n_lookups = dict.fromkeys(inquiry.asked, 0)
    for context, together in groupby(inquiry.lookups(), key=lambda one: one.context):
        n = own.n_of(context)
        for one in together:
            n_lookups[one.id] += n
    return Inquiry(inquiry.asked, n_lookups, inquiry.n_contexts, lambda: own.questions(inquiry.lookups()))


def on_contexts(questions: Sequence[Question], own: OwnPassages | None = None) -> Inquiry:
    """Each question on its own context, or with ``own`` on the best paragraphs of that; their ids differ."""
    by_context: dict[str, list[Question]] = {}
    for question in questions:
        by_context.setdefault(question.context, []).append(question)

    def stream() -> Iterator[Question]:
        for context, together in by_context.items():  # one object for equal contexts, which are compared by identity
            yield from (replace(question, context=context) for question in together)

    asked = {question.id: question for question in questions}
    return _narrowed(Inquiry(asked, dict.fromkeys(asked, 1), len(by_context), stream), own)


def _asked(sources: InquirySources, progress: Progress) -> list[Question]:
    if sources.questions is not None:
        return read_asked(sources.questions, progress)
    if empty := [number for number, text in enumerate(sources.asked, start=1) if not text.strip()]:
        raise UsageError(f"--question number {empty[0]} is empty")
    texts = (Decoder().without_surrogates(text, "--question") for text in sources.asked)
    return [Question(str(number), text, "") for number, text in enumerate(texts, start=1)]


class _Documents:
    """The documents, read once to see that they are sound, then as often as they are wanted."""

    def __init__(self, sources: InquirySources, progress: Progress) -> None:
        self._sources = sources
        self._piped: dict[str, list[Context]] = {}
        self._names: list[str] = []
        names = Names()
        for source in sources.documents:
            for text in read_texts(source, progress, sources.format, sources.fields, names, sources.sampled_by):
                self._names.append(text.name)
                if is_read_once(source):
                    self._piped.setdefault(source, []).append(text)
        names.note_lines(progress)
        if sources.single and self.n > 1:
            raise UsageError(
                f"--context {sources.documents[0]} holds {self.n:,} documents", "give them with --documents"
            )

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self._names)

    def read(self) -> Iterator[Context]:
        """The documents again, by the same names; what was to be said of them has been."""
        texts = chain.from_iterable(map(self._texts, self._sources.documents))
        for text, name in zip_longest(texts, self._names):
            if text is None or name is None:
                raise InputError("the documents changed while they were read", "run the command again")
            yield replace(text, name=name)

    def _texts(self, source: str) -> Iterable[Context]:
        sources = self._sources
        if source in self._piped:
            return self._piped[source]
        return read_texts(source, Silent(), sources.format, sources.fields, sample_by=sources.sampled_by)
