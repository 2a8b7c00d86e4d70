"""Inspect an adapted model, or a map: neighbours of words among its rows and among the word vectors."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from greenadapt.corpus.text import Decoder
from greenadapt.errors import GreenadaptError, MissingError, UsageError
from greenadapt.progress import Progress
from greenadapt.stages.align import find_alignment, vectors_of_map
from greenadapt.stages.expand import alignment_of
from greenadapt.stages.session import EXPAND, OpenedBase, Session, model_of, require_made_for
from greenadapt.store.files import expand_home
from greenadapt.store.results import MANIFEST, Result, open_result, read_manifest, verify_result
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.vocabulary import WordSplitter
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.neighbours import ModelRows, Neighbours, Space, neighbour_table, pieces_of
from greenadapt.vectors.quality import has_counts
from greenadapt.vectors.word_vectors import WordVectors


def neighbours(
    session: Session,
    corpus: str | None,
    model: str | None,
    words: Sequence[str],
    top: int,
    alignment: Path | None = None,
) -> list[Neighbours]:
    """The ``top`` nearest wordpieces and domain words of ``words``, in every view.

    The rows are those of the adapted model: the folder ``model``, or that of a corpus and a base model in the
    workspace. With ``alignment``, or without an adapted model, mapped word vectors stand for them.

    Warns of unknown words, with similar ones, and of input that is not one word. Raises the error of the first of
    these met if no word is known: ``MissingError`` or ``UsageError``, which is also raised for ``top`` < 1.
    """
    if top < 1:
        raise UsageError(f"--top is {top}, must be at least 1")
    folder = None if model is None else expand_home(model)
    if alignment is None and folder is not None and (folder / WORDS_FILE).is_file():
        return _of_model(session, folder, corpus, words, top)
    aligned = find_alignment(session, corpus, model, alignment)
    opened = OpenedBase(model_of(verify_result(aligned)))
    opened.require_unchanged(aligned)
    adapted = None if alignment is not None else _find_adapted(session, aligned)
    vectors, vocabulary = vectors_of_map(aligned).vectors, opened.vocabulary
    if adapted is not None:
        return _tables(session, ModelRows.open(adapted.folder), vectors, words, top)
    base = pieces_of(vocabulary, opened.checkpoint.embedding()[: vocabulary.size])
    domain = Space(vectors.words, vectors.index, vectors.matrix)
    known = [domain.rows, base.rows]
    queries = _find_known(words, WordSplitter(vocabulary.tokenizer), known, session.progress)
    return _add_counts(neighbour_table(queries, domain, base, Alignment.load(aligned.folder).apply, top), vectors)


def _of_model(session: Session, folder: Path, corpus: str | None, words: Sequence[str], top: int) -> list[Neighbours]:
    """The table of an adapted model; without its word vectors or its map, of its rows alone."""
    is_adapted = (folder / MANIFEST).is_file() and read_manifest(folder).stage == EXPAND  # else trained, or pushed
    if is_adapted and corpus is not None:
        require_made_for(session, open_result(folder, EXPAND), "--model", corpus, None)
    vectors = None
    try:
        vectors = vectors_of_map(alignment_of(folder)).vectors
    except MissingError as error:
        session.progress.note(f"the neighbours of word vectors are left out: {error}")
    return _tables(session, ModelRows.open(folder), vectors, words, top)


def _find_adapted(session: Session, aligned: Result) -> Result | None:
    """The model in the workspace whose rows were made with ``aligned``; notes if there is none."""
    facts = aligned.manifest.facts
    with suppress(MissingError):
        adapted = session.workspace.find_result(facts["corpus"], facts["model"]["name"], EXPAND)
        if adapted.manifest.inputs["alignment"]["sha256"] == aligned.manifest.digest:
            return verify_result(adapted)
    session.progress.note(
        "the workspace has no adapted model for this map: these are mapped vectors; --model FOLDER shows a model's rows"
    )
    return None


def _tables(
    session: Session,
    rows: ModelRows,
    vectors: WordVectors | None,
    words: Sequence[str],
    top: int,
) -> list[Neighbours]:
    """Neighbours by the rows of an adapted model, then by its word ``vectors``."""
    if vectors is None:
        return rows.table(_find_known(words, rows.splitter, [rows.words], session.progress), top)
    domain = Space(vectors.words, vectors.index, vectors.matrix)
    queries = _find_known(words, rows.splitter, [rows.words, domain.rows], session.progress)
    table = [*rows.table(queries, top), *neighbour_table(queries, domain, rows.base, None, top)]
    return _add_counts(sorted(table, key=lambda row: queries.index(row.word)), vectors)


def _add_counts(table: Sequence[Neighbours], vectors: WordVectors) -> list[Neighbours]:
    """The rows with the counts of their words; vectors without counts leave them as they are."""
    if not has_counts(vectors.counts):
        return [*table]
    words = {row.word for row in table} & vectors.index.keys()
    counts = {word: int(vectors.counts[vectors.index[word]]) for word in words}
    return [replace(row, count=counts.get(row.word)) for row in table]


def _find_known(
    words: Sequence[str], splitter: WordSplitter, known: Sequence[Collection[str]], progress: Progress
) -> list[str]:
    """The ``words`` in one of the collections ``known``, as the tokenizer splits them; warns of the others.

    Raises the error of the first word if no word is known.
    """
    queries: dict[str, None] = {}
    errors: list[GreenadaptError] = []
    decoder = Decoder()
    for text in dict.fromkeys(decoder.replace_surrogates(word, "a word") for word in words):
        parts = splitter.split(text)
        word = parts[0] if parts else ""
        if len(parts) != 1:
            message = f"{text!r} is {len(parts)} words as the model's tokenizer splits it ({' '.join(parts)})"
            errors.append(UsageError(message, "give one word at a time"))
        elif any(word in names for names in known):
            queries[word] = None
        else:
            all_names = dict.fromkeys(name for names in known for name in names)
            similar = get_close_matches(word, all_names)
            hint = "it is not in the corpus, or too rare (w2v --min-count)"
            hint = f"near: {', '.join(similar)}; {hint}" if similar else hint
            errors.append(MissingError(f"no row and no vector for {word!r}", hint))
    if not queries:
        raise errors[0]
    for error in errors:
        progress.warn(str(error))
    return list(queries)
