"""Inspect a map: neighbours of words within and across the two spaces."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from greenadapt.corpus.text import Decoder
from greenadapt.errors import GreenadaptError, MissingError, UsageError
from greenadapt.progress import Progress
from greenadapt.stages.align import find_alignment, fitted_vectors
from greenadapt.stages.session import OpenedBase, Session, model_of
from greenadapt.storage.files import Json
from greenadapt.storage.results import verified
from greenadapt.tokenization.vocabulary import WordSplitter
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.neighbours import Neighbours, Space, near_names, neighbour_table
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

    Warns of unknown words, with similar ones, and of input that is not one word. Raises the error of the first of
    these met if no word is known: ``MissingError`` or ``UsageError``, which is also raised for ``top`` < 1.
    """
    if top < 1:
        raise UsageError(f"--top is {top}, must be at least 1")
    aligned = find_alignment(session, corpus, model, alignment)
    opened = OpenedBase(model_of(verified(aligned)))
    opened.require_unchanged(aligned)
    vectors, tokenizer, vocabulary = fitted_vectors(aligned).vectors, opened.tokenizer, opened.vocabulary
    domain = Space(vectors.words, vectors.index, vectors.matrix)
    base_rows = opened.checkpoint.embedding()[: vocabulary.size]
    labels = [tokenizer.id_to_token(row) or f"[{row}]" for row in range(len(base_rows))]
    base = Space(labels, vocabulary.whole_words, base_rows, vocabulary.special_ids)
    queries = _words_with_vectors(words, WordSplitter(tokenizer), domain, base, session.progress)
    table = neighbour_table(queries, domain, base, Alignment.load(aligned.folder).apply, top)
    figures = aligned.manifest.facts["heldout"]["figures"] or {}
    return [replace(row, **_trust(row.word, vectors, figures.get("by_count", ()))) for row in table]


def _trust(word: str, vectors: WordVectors, bands: Sequence[Json]) -> Json:
    """``count`` of a word, and ``precision_at_10`` of the last of ``bands`` that begins at it or below.

    Vectors without counts have no bands.
    """
    if not bands or word not in vectors.index:
        return {}
    count = int(vectors.counts[vectors.index[word]])
    reached = [band["precision_at_10"] for band in bands if band["min_count"] <= count]
    return {"count": count, "precision_at_10": reached[-1] if reached else None}


def _words_with_vectors(
    words: Sequence[str], splitter: WordSplitter, domain: Space, base: Space, progress: Progress
) -> list[str]:
    """The ``words`` that have a vector, as the tokenizer splits them; warns of the others.

    Raises the error of the first word if no word has a vector.
    """
    queries: dict[str, None] = {}
    errors: list[GreenadaptError] = []
    decoder = Decoder()
    for text in dict.fromkeys(decoder.without_surrogates(word, "a word") for word in words):
        parts = splitter.split(text)
        word = parts[0] if parts else ""
        if len(parts) != 1:
            message = f"{text!r} is {len(parts)} words as the model's tokenizer splits it ({' '.join(parts)})"
            errors.append(UsageError(message, "give one word at a time"))
        elif word in domain.rows or word in base.rows:
            queries[word] = None
        else:
            similar = near_names(word, dict.fromkeys([*domain.rows, *base.rows]))
            hint = "it is not in the corpus, or too rare (--min-count of w2v)"
            hint = f"near: {', '.join(similar)}" if similar else hint
            message = f"no vector for {word!r}, neither among {len(domain.rows):,} words nor the model's"
            errors.append(MissingError(message, hint))
    if not queries:
        raise errors[0]
    for error in errors:
        progress.warn(str(error))
    return list(queries)
