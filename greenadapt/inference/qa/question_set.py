"""Questions with their contexts: their own, each document, or the paragraphs that match best."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby, zip_longest
from operator import attrgetter

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
from greenadapt.errors import InputError, UsageError, json_kind, list_names, require
from greenadapt.inference.entries import NamedText, Names, read_texts
from greenadapt.inference.search.index import Index
from greenadapt.inference.search.store import Passage, TextSearch, find_spans
from greenadapt.inference.search.words import Words
from greenadapt.progress import Progress, Silent
from greenadapt.store.files import Json
from greenadapt.tasks.qa import gold_texts, has_impossible
from greenadapt.tasks.questions import PassageFacts, Question, read_questions
from greenadapt.tasks.records import records, refuse_repeated

_LIKE_JSON = re.compile(r'\s*(\{\s*"|\[\s*([{"]|$))')


def read_bare_questions(source: str, progress: Progress) -> list[Question]:
    """The questions of a file, or of standard input for ``-``, without contexts.

    A question is the field ``question`` or ``text`` of a JSON object or of a row, or a line of text that is not empty.
    Without an ``id`` its place is its id, such as ``q.txt:3``. Raises ``MissingError`` if there is no such file,
    ``InputError`` if it is broken, has no questions, or two with the same id.
    """
    if data_suffix(source) in TABLE_SUFFIXES:
        questions = [_bare_question(row, where) for where, row in records(source, progress)]
    else:
        decoder = Decoder()
        note_terminal(source, progress)
        with open_input(source) as (stream, name):
            lines = decoder.lines(stream, name)
            first = next(((number, line) for number, line in lines if line.strip()), (1, ""))
            lines = chain([first], lines)
            if data_suffix(source) in JSON_SUFFIXES or _LIKE_JSON.match(first[1]):
                questions = [_bare_question(entry.fields, entry.where) for entry in json_rows(lines, name, decoder)]
            else:
                texts = [(f"{name}:{number}", text) for number, line in lines if (text := line.strip())]
                questions = [Question(where, text, "", where=where) for where, text in texts]
        decoder.warn_replaced(name, progress)
    if not questions:
        raise InputError(f"{source} has no questions", "give one per line, or JSON lines with the field question")
    refuse_repeated((question.id, question.where) for question in questions)
    return questions


def _bare_question(record: Json, where: str) -> Question:
    question = next((record[name] for name in ("question", "text") if record.get(name) is not None), None)
    if question is None:
        raise InputError(f"{where}: no 'question'", f"it has: {list_names(record)}")
    if not isinstance(question, str):
        raise InputError(f"{where}: the question is {json_kind(question)}, not a string", "correct it")
    if not question.strip():
        raise InputError(f"{where}: the question is empty", "correct it")
    name = where if record.get("id") is None else record["id"]
    if type(name) not in (str, int):
        raise InputError(f"{where}: 'id' is {json_kind(name)}, not a string or an integer", "correct it")
    return Question(str(name), question, "", where=where)


_SEARCH_WEIGHT = 5.0


def pair_passages(question: Question, passages: Sequence[Passage]) -> Iterator[Question]:
    """The question on each paragraph that a search found for it, best first.

    The logits of its answers are lowered by 5 · (1 - score / best score): logits of different paragraphs are hardly
    comparable, and the score of the search says which one the question is about.
    """
    best = passages[0].score if passages else 0.0
    for passage in passages:
        penalty = _SEARCH_WEIGHT * (1 - passage.score / best) if best > 0 else 0.0
        yield replace(
            question,
            context=passage.text,
            document=passage.document,
            passage=PassageFacts(passage.start, passage.title, penalty),
            answers=(),
            impossible=False,
        )


@dataclass(frozen=True)
class QuestionSources:
    """Where questions and contexts come from.

    Questions are in ``data``, in the file ``questions``, or are ``question_texts``. Contexts are those in ``data``, the
    ``documents``, or the paragraphs of an ``index``. Raises ``UsageError`` if one is missing or given twice.
    """

    data: str | None = None
    documents: tuple[str, ...] = ()
    questions: str | None = None
    """A file, see ``read_bare_questions``."""
    question_texts: tuple[str, ...] = ()
    format: str | None = None
    """The documents' format, if their names do not show it."""
    fields: tuple[str, ...] = ("text",)
    """The documents' fields, in JSON lines and tables."""
    sample_by: SampleBy | None = None
    """The unit of plain text that is a document; ``None``: a line."""
    single: bool = False
    """Whether ``documents`` must be one text."""
    index: str | None = None
    """The folder of an index, whose paragraphs are the contexts."""

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
        if self.data is not None and (self.questions or self.question_texts):
            raise UsageError("--data has its own questions", "leave out --question and --questions, or --data")
        if self.data is None and (self.questions is None) == (not self.question_texts):
            raise UsageError("need questions on the documents", "give either --question TEXT or --questions FILE")
        paths = self.paths()
        if "" in paths:
            raise UsageError("a path is empty", "name a file or a folder")
        refuse_twice(paths)
        for path in paths:
            require_names(path)

    def paths(self) -> list[str]:
        """All files, folders and data sets that are read."""
        return [source for source in (self.data, self.questions, *self.documents) if source is not None]


@dataclass(frozen=True)
class QuestionSet:
    """All questions, and the contexts to look for answers in."""

    questions: dict[str, Question]
    """By id, in the order in which they are answered."""
    n_lookups: dict[str, int]
    """In how many contexts each question is looked up, by its id."""
    n_contexts: int
    lookups: Callable[[], Iterator[Question]] = field(repr=False)
    """Yields each question on each of its contexts, those on one document together; reads the documents again."""

    @cached_property
    def is_second(self) -> bool:
        """Whether answers are scored as in SQuAD 2."""
        return has_impossible(self.questions.values())

    def golds(self) -> dict[str, list[str]]:
        """Id of each labelled question → its gold answers that count."""
        labelled = (question for question in self.questions.values() if question.is_labelled)
        return {question.id: gold_texts(question, is_second=self.is_second) for question in labelled}


def read_question_set(
    sources: QuestionSources,
    progress: Progress,
    retrieval: RetrievalConfig = RetrievalConfig(),  # noqa: B008
    words: Words | None = None,
) -> QuestionSet:
    """Read the questions, and read all documents once or search the index, which finds what is broken before work
    begins.

    Answers are then looked for in the best paragraphs of the index, in the best of each context by their ``words``, or
    without ``words`` in the whole contexts. Raises ``InputError`` if a file is broken, two questions share an id or a
    document is empty, ``MissingError`` if one is not there, ``UsageError`` for a question without text and for several
    documents with ``single``.
    """
    index = None if sources.index is None else Index(sources.index)
    if sources.data is not None:
        questions = read_questions(sources.data, progress, labelled=None)
    elif sources.questions is not None:
        questions = read_bare_questions(sources.questions, progress)
    else:
        questions = []
        for number, text in enumerate(sources.question_texts, start=1):
            if not text.strip():
                raise UsageError(f"--question number {number} is empty")
            questions.append(Question(str(number), Decoder().replace_surrogates(text, "--question"), ""))
    if index is not None:
        return _search(questions, index, retrieval, progress)
    paired = pair_contexts(questions) if sources.data is not None else _pair_documents(questions, sources, progress)
    return paired if words is None else narrow(paired, words, retrieval.n_passages)


def _pair_documents(questions: Sequence[Question], sources: QuestionSources, progress: Progress) -> QuestionSet:
    """Each question on each document. The documents are read once to check them, and again for the lookups."""
    names: list[str] = []
    piped: dict[str, list[NamedText]] = {}
    taken = Names()
    for source in sources.documents:
        for text in read_texts(source, progress, sources.format, sources.fields, taken, sources.sample_by):
            names.append(text.name)
            if is_read_once(source):
                piped.setdefault(source, []).append(text)
    if sources.single and len(names) > 1:
        raise UsageError(
            f"--context {sources.documents[0]} holds {len(names):,} documents", "give them with --documents"
        )

    def lookups() -> Iterator[Question]:
        texts = chain.from_iterable(
            piped.get(source)
            or read_texts(source, Silent(), sources.format, sources.fields, sample_by=sources.sample_by)
            for source in sources.documents
        )
        for text, name in zip_longest(texts, names):
            if text is None or name is None:
                raise InputError("the documents changed while they were read", "run the command again")
            for question in questions:
                yield replace(question, context=text.text, document=name, title=text.title)

    by_id = {question.id: question for question in questions}
    return QuestionSet(by_id, dict.fromkeys(by_id, len(names)), len(names), lookups)


def _search(questions: Sequence[Question], index: Index, retrieval: RetrievalConfig, progress: Progress) -> QuestionSet:
    """Each question on the best paragraphs of the index."""
    passages: dict[tuple[str, int], Passage] = {}  # once, however many questions find them
    matches: dict[str, list[tuple[Passage, float]]] = {}
    with progress.bar("search", len(questions), "questions") as bar:
        for question in questions:
            matches[question.id] = [
                (passages.setdefault((passage.document, passage.start), passage), passage.score)
                for passage in index.search(question.question, retrieval.n_passages)
            ]
            bar.advance(1)

    def lookups() -> Iterator[Question]:
        for question in questions:
            best = [replace(passage, score=score) for passage, score in matches[question.id]]
            yield from pair_passages(question, best)

    n_lookups = {name: len(pairs) for name, pairs in matches.items()}
    return QuestionSet({question.id: question for question in questions}, n_lookups, len(passages), lookups)


def narrow(question_set: QuestionSet, words: Words, n: int) -> QuestionSet:
    """The questions on the ``n`` best paragraphs of each context instead of on all of it, by BM25 among the paragraphs
    of that context, which ``words`` splits into words.

    Raises ``MissingError`` if a package is missing.
    """
    require("search", "tantivy", by="a search")
    n_lookups = dict.fromkeys(question_set.questions, 0)
    for context, group in groupby(question_set.lookups(), key=attrgetter("context")):
        n_of_context = min(n, len(find_spans(context)))
        for question in group:
            n_lookups[question.id] += n_of_context

    def lookups() -> Iterator[Question]:
        for (context, document), group in groupby(question_set.lookups(), key=attrgetter("context", "document")):
            search = None  # a context is cut once for the questions on it that follow each other
            for question in group:
                search = search or TextSearch(context, words, document, question.title)
                yield from pair_passages(question, search.find_best(question.question, n))

    return QuestionSet(question_set.questions, n_lookups, question_set.n_contexts, lookups)


def pair_contexts(questions: Sequence[Question]) -> QuestionSet:
    """Each question on its own context; their ids differ."""
    by_context: dict[str, list[Question]] = {}
    for question in questions:
        by_context.setdefault(question.context, []).append(question)

    def lookups() -> Iterator[Question]:
        for context, group in by_context.items():  # one object for equal contexts, which are compared by identity
            yield from (replace(question, context=context) for question in group)

    by_id = {question.id: question for question in questions}
    return QuestionSet(by_id, dict.fromkeys(by_id, 1), len(by_context), lookups)
