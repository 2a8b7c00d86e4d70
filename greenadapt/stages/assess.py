"""Whether an adapted model helps: without labels, by how well rows of known words are predicted."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np

from greenadapt.checkpoints.provenance import check_model
from greenadapt.config import AlignConfig, AssessConfig, ExpandConfig, RowRecipe
from greenadapt.corpus.prepared import Context, PreparedCorpus, find_contexts
from greenadapt.errors import MissingError, require_torch
from greenadapt.inference.models import require_one_process
from greenadapt.stages.align import fitted_vectors
from greenadapt.stages.expand import alignment_of, folders_behind
from greenadapt.stages.session import CORPUS, EXPAND, OpenedBase, Session, model_of
from greenadapt.store.arrays import FloatArray, IntArray
from greenadapt.store.files import Json
from greenadapt.store.results import Result, open_result, verified
from greenadapt.tasks.base import Encoder
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.quality import SPLIT, bands, has_counts
from greenadapt.vectors.rows import Expansion, PredictedRows
from greenadapt.vectors.word_vectors import WordVectors

RANDOM = "random"
"""The baseline beside the recipes: random rows at the base rows' norm."""
_CONTEXTS = 3  # texts per word
_WIDTH = 64  # words per text
_NO_STATES: Json = {"state_cosine": None, "state_by_count": []}
_SEED = 0  # of the sample of words, and of the random rows


def assess_rows(session: Session, model: str, config: AssessConfig) -> Json:
    """How well each recipe predicts rows of the base model of the adapted ``model``, from a fit without these rows.

    ``rows`` has, by recipe and for ``random``, the figures of ``HeldOut`` and ``state_cosine``: the cosine of the base
    model's last states at a word, with the word's own row and with the recipe's row, as the mean over at most
    ``config.words`` held-out words, of each the mean over at most 3 texts of the corpus. ``state_by_count`` has the
    means by the words' counts, in the bands of ``by_count``. ``substitution`` has the number of words and texts, and as
    ``split`` the same cosines for the words in pieces, without a row; without torch it is ``None``, and so are the
    cosines. ``added`` has the share of the corpus's words that have a new row, and the number of new rows in each band;
    it is ``None`` for vectors without counts.

    Raises ``InputError`` or ``MissingError`` if ``model`` is not the folder of an expand result, or if an input that it
    was made from is missing or has changed.
    """
    require_one_process("assess")
    expanded = open_result(Path(model), EXPAND)
    aligned = alignment_of(Path(model))
    base = OpenedBase(model_of(aligned))
    base.require_unchanged(aligned)
    check_model(base.model)
    expansion = Expansion(
        base.checkpoint,
        base.vocabulary,
        fitted_vectors(aligned).vectors,
        Alignment.load(verified(aligned).folder),
        ExpandConfig(),
        AlignConfig(**aligned.manifest.config),
    )
    predicted = expansion.predicted(get_args(RowRecipe))
    rows: dict[str, FloatArray] = {str(recipe): vectors for recipe, vectors in predicted.rows.items()}
    rows[RANDOM] = predicted.random(expansion.norm, _SEED)
    figures = {recipe: asdict(predicted.measure(vectors)) for recipe, vectors in rows.items()}
    size, states = _substitute(session, base, predicted, rows, _corpus_of(session, aligned), config.words)
    return {
        "folder": str(expanded.path),
        "base": base.model.source,
        "corpus": expanded.manifest.facts["corpus"],
        "recipe": expanded.manifest.facts["rows"]["recipe"],
        "added": _added(expanded, expansion.vectors),
        "substitution": None if size is None else {**size, "split": states[SPLIT]},
        "rows": {recipe: {**figures[recipe], **states.get(recipe, _NO_STATES)} for recipe in rows},
    }


def _added(expanded: Result, vectors: WordVectors) -> Json | None:
    """See ``added`` of ``assess_rows``."""
    if not has_counts(vectors.counts):
        return None
    words = set(AddedWords.open(verified(expanded).folder / WORDS_FILE).all_surfaces())
    counts = vectors.counts[[row for row, word in enumerate(vectors.words) if word in words]]
    return {
        "share": float(counts.sum() / vectors.counts.sum()),
        "by_count": [{"min_count": min_count, "n_words": int(in_band.sum())} for min_count, in_band in bands(counts)],
    }


def _corpus_of(session: Session, aligned: Result) -> PreparedCorpus | None:
    """The corpus that the vectors were trained on; ``None`` if they were imported or the corpus is missing."""
    first, *rest = folders_behind(aligned)
    if len(rest) < 2:
        session.progress.note(f"words are substituted without a text around them: {first} has no corpus any more")
        return None
    return PreparedCorpus.open(verified(open_result(first, CORPUS)).folder)


def _substitute(
    session: Session,
    base: OpenedBase,
    predicted: PredictedRows,
    rows: dict[str, FloatArray],
    corpus: PreparedCorpus | None,
    n_words: int,
) -> tuple[Json | None, dict[str, Json]]:
    """The number of words and texts of the substitution test, ``None`` without torch, and the cosines by recipe."""
    try:
        require_torch("the substitution test")
    except MissingError as error:
        session.progress.note(str(error))
        return None, {}
    sample = np.sort(np.random.default_rng(_SEED).permutation(len(predicted.heldout))[:n_words])
    heldout = predicted.heldout[sample]
    words = [predicted.known.words[i] for i in heldout.tolist()]
    texts = {} if corpus is None else find_contexts(corpus, words, _CONTEXTS, _WIDTH)

    from greenadapt.inference.substitution import Occurrence, state_cosines
    from greenadapt.models.machine import Machine
    from greenadapt.models.weights import open_encoder

    encoder, vocabulary = Encoder.of(base.checkpoint), base.vocabulary
    occurrences = []
    for number, word in enumerate(words):
        in_pieces = list(predicted.known.pieces[heldout[number]])
        for context in texts.get(word) or [Context([word], 0)]:
            pieces = vocabulary.pieces(context.words)
            row = pieces[context.position]
            split = [in_pieces if ids == row else ids for ids in pieces]
            whole, position = _cut(encoder, pieces, context.position)
            occurrences.append(Occurrence(whole, position, number, *_cut(encoder, split, context.position)))
    model: Any = open_encoder(base.checkpoint, vocabulary.size)
    model.to(Machine.start("float32").device)
    sampled_rows = {recipe: vectors[sample] for recipe, vectors in rows.items()}
    with session.progress.bar("substituting rows", len(occurrences), "texts") as bar:
        cosines = state_cosines(model, occurrences, sampled_rows, encoder.special.pad, bar)
    of_word = np.array([occurrence.word for occurrence in occurrences])
    n_texts = np.bincount(of_word, minlength=len(words))
    counts = predicted.known.counts[heldout]
    count_bands = bands(counts) if has_counts(predicted.known.counts) else []
    states = {}
    for recipe, of_texts in cosines.items():
        means = np.bincount(of_word, of_texts, len(words)) / n_texts
        by_count = [float(means[in_band].mean()) if in_band.any() else None for _, in_band in count_bands]
        states[recipe] = {"state_cosine": float(means.mean()), "state_by_count": by_count}
    return {"words": len(words), "texts": sum(map(len, texts.values()))}, states


def _cut(encoder: Encoder, pieces: Sequence[Sequence[int]], word: int) -> tuple[IntArray, int]:
    """The ids of the words in ``pieces`` as model input, cut around ``word`` if it is too long, and where that begins.

    ``pieces`` has the ids of each word.
    """
    ids, start = [i for word_ids in pieces for i in word_ids], sum(map(len, pieces[:word]))
    limit = encoder.max_length - 2
    begin = max(0, min(start - limit // 2, len(ids) - limit))
    whole, _, first = encoder.single(np.array(ids[begin : begin + limit], np.int32))
    return whole, first + start - begin
