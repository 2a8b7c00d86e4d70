"""The neighbours of words among the rows of an adapted model, and among its word vectors."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches

from greenadapt.corpus.text import Decoder
from greenadapt.errors import GreenadaptError, MissingError, UsageError
from greenadapt.progress import Progress
from greenadapt.stages.align import vectors_of_map
from greenadapt.stages.expand import alignment_of
from greenadapt.stages.session import EXPAND, Session, require_made_for
from greenadapt.store.files import expand_home
from greenadapt.store.results import MANIFEST, open_result, read_manifest, verify_result
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.vocabulary import WordSplitter
from greenadapt.vectors.neighbours import ModelRows, Neighbours, vector_table
from greenadapt.vectors.quality import has_counts


def neighbours(
    session: Session, corpus: str | None, model: str | None, words: Sequence[str], top: int
) -> list[Neighbours]:
    """The ``top`` wordpieces and added words with the rows nearest to those of ``words``, and the nearest word vectors.

    The rows are those of an adapted model: of the folder ``model``, or of a corpus and a base model in the workspace.

    Warns of unknown words, with similar ones, and of input that is not one word. Raises the error of the first of
    these met if no word is known: ``MissingError`` or ``UsageError``, which is also raised for ``top`` < 1.
    """
    if top < 1:
        raise UsageError(f"--top is {top}, must be at least 1")
    folder = None if model is None else expand_home(model)
    if folder is None or not (folder / WORDS_FILE).is_file():
        folder = verify_result(session.find_only(corpus, model, EXPAND)).folder
    elif corpus is not None and (folder / MANIFEST).is_file() and read_manifest(folder).stage == EXPAND:
        require_made_for(session, open_result(folder, EXPAND), "--model", corpus, None)
    rows, vectors = ModelRows.open(folder), None
    try:
        vectors = vectors_of_map(alignment_of(folder)).vectors
    except MissingError as error:
        session.progress.note(f"the neighbours of word vectors are left out: {error}")
    known = [rows.words] if vectors is None else [rows.words, vectors.index]
    queries = _find_known(words, rows.splitter, known, session.progress)
    table = rows.table(queries, top)
    if vectors is not None:
        table += vector_table(queries, vectors, top)
        if has_counts(vectors.counts):
            counts = {word: int(vectors.counts[vectors.index[word]]) for word in queries if word in vectors.index}
            table = [replace(row, count=counts.get(row.word)) for row in table]
    return sorted(table, key=lambda row: queries.index(row.word))  # stable: the views stay in order


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
