"""Whether an adapted model helps: without labels, by how well rows of known words are predicted."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from greenadapt.checkpoints.provenance import check_model
from greenadapt.config import AlignConfig, AssessConfig, ExpandConfig, RowRecipe
from greenadapt.corpus.lookup import Context, find_contexts
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.errors import MissingError, require_torch
from greenadapt.inference.models import one_process
from greenadapt.stages.align import fitted_vectors
from greenadapt.stages.expand import alignment_of
from greenadapt.stages.session import CORPUS, EXPAND, W2V, OpenedBase, Session, model_of
from greenadapt.storage.arrays import FloatArray, IntArray
from greenadapt.storage.files import Json
from greenadapt.storage.results import Result, found_at, open_result, verified
from greenadapt.tasks.base import Encoder
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.quality import SPLIT, bands, has_counts
from greenadapt.vectors.rows import Expansion, PredictedRows
from greenadapt.vectors.word_vectors import WordVectors

RANDOM = "random"
"""The baseline beside the recipes: random rows at the base rows' norm."""
_CONTEXTS = 3  # texts of each word
_WIDTH = 64  # words of each text
_NO_STATES: Json = {"state_cosine": None, "state_by_count": []}
_SEED = 0  # which words, and the random rows


def assess_rows(session: Session, model: str, config: AssessConfig) -> Json:
    """How well each recipe predicts rows that the base model of the adapted ``model`` has, from a fit without them.

    ``rows`` has, by recipe and for ``random``, the figures of ``HeldOut``, and as ``state_cosine`` the mean cosine of
    the base model's last state at the word, with its own row and with the recipe's: over at most ``config.words``
    held-out words, each the mean over at most 3 texts of the corpus. ``state_by_count`` has its means by the words'
    counts, in the bands of ``by_count``. ``substitution`` says how many words and texts that were, and as ``split`` has
    the same of the words without a row, in pieces; it is ``None``, and so are the cosines, if torch is not installed.
    ``added`` has the share of the corpus's words that have a new row, and how many of the rows are of words in each
    band; it is ``None`` for vectors without counts.

    Raises ``InputError`` or ``MissingError`` if ``model`` is not the folder of an expand result, or if what it was made
    from is gone or has changed.
    """
    one_process("assess")
    expanded = open_result(Path(model), EXPAND)
    aligned = alignment_of(Path(model))
    base = OpenedBase(model_of(aligned))
    base.require_unchanged(aligned)
    check_model(base.model)
    settings = expanded.manifest.config
    expansion = Expansion(
        base.checkpoint,
        base.vocabulary,
        fitted_vectors(aligned).vectors,
        Alignment.load(verified(aligned).folder),
        ExpandConfig(blend=settings["blend"]),
        AlignConfig(**aligned.manifest.config),
    )
    predicted = expansion.predicted(get_args(RowRecipe))
    rows: dict[str, FloatArray] = {str(name): made for name, made in predicted.rows.items()}
    rows[RANDOM] = predicted.random(expansion.blank.norm, _SEED)
    measured = {name: asdict(predicted.measure(made)) for name, made in rows.items()}
    tested = _substitute(session, base, predicted, rows, _corpus_of(session, aligned), config.words)
    states = {} if tested is None else tested.by_recipe
    return {
        "folder": str(expanded.path),
        "base": base.model.source,
        "corpus": expanded.manifest.facts["corpus"],
        "recipe": (expanded.manifest.facts.get("rows") or {}).get("recipe", settings["rows"]),
        "added": _added(expanded, expansion.vectors),
        "substitution": None if tested is None else {**tested.size, "split": states[SPLIT]},
        "rows": {name: {**figures, **states.get(name, _NO_STATES)} for name, figures in measured.items()},
    }


def _added(expanded: Result, vectors: WordVectors) -> Json | None:
    """How often the words with new rows occur."""
    if not has_counts(vectors.counts):
        return None
    added = AddedWords.open(verified(expanded).folder / WORDS_FILE)
    words = {added.surface(entry) for entry in range(len(added))}
    counts = vectors.counts[[row for row, word in enumerate(vectors.words) if word in words]]
    return {
        "share": float(counts.sum() / vectors.counts.sum()),
        "by_count": [{"min_count": least, "n_words": int(some.sum())} for least, some in bands(counts)],
    }


def _corpus_of(session: Session, aligned: Result) -> PreparedCorpus | None:
    """The text that the vectors were trained on; ``None`` if they were imported or the text is gone."""
    vectors = fitted_vectors(aligned)
    if vectors.imported:
        return None
    try:
        trained = open_result(found_at(vectors.entry, aligned.path), W2V)
        prepared = open_result(found_at(trained.manifest.inputs["corpus"], trained.path), CORPUS)
    except MissingError as error:
        session.progress.note(f"words are substituted without a text around them, since {error.message}")
        return None
    return PreparedCorpus.open(verified(prepared).folder)


@dataclass(frozen=True)
class _Tested:
    """What the substitution test found."""

    size: Json
    """How many words and texts it has."""
    by_recipe: dict[str, Json]
    """Recipe → ``state_cosine`` and ``state_by_count``."""


def _substitute(
    session: Session,
    base: OpenedBase,
    predicted: PredictedRows,
    rows: dict[str, FloatArray],
    corpus: PreparedCorpus | None,
    n_words: int,
) -> _Tested | None:
    try:
        require_torch("the substitution test")
    except MissingError as error:
        session.progress.note(str(error))
        return None
    chosen = np.sort(np.random.default_rng(_SEED).permutation(len(predicted.heldout))[:n_words])
    known = predicted.heldout[chosen]
    words = [predicted.known.words[i] for i in known.tolist()]
    alone = [Context([word], 0) for word in words]
    texts = {} if corpus is None else find_contexts(corpus, words, _CONTEXTS, _WIDTH)

    from greenadapt.inference.substitution import Occurrence, state_cosines
    from greenadapt.models.machine import Machine
    from greenadapt.models.weights import open_encoder

    encoder, vocabulary = Encoder.of(base.checkpoint), base.vocabulary
    occurrences = []
    for number, one in enumerate(alone):
        for context in texts.get(words[number]) or [one]:
            pieces = vocabulary.pieces(context.words)
            row, own = pieces[context.position], list(predicted.known.pieces[known[number]])
            split = [own if one == row else one for one in pieces]
            whole, position = _cut(encoder, pieces, context.position)
            occurrences.append(Occurrence(whole, position, number, *_cut(encoder, split, context.position)))
    model: Any = open_encoder(base.checkpoint, vocabulary.size)
    model.to(Machine.start("float32").device)
    with session.progress.bar("substituting rows", len(occurrences), "texts") as bar:
        cosines = state_cosines(
            model, occurrences, {name: made[chosen] for name, made in rows.items()}, encoder.special.pad, bar
        )
    of_word = np.array([one.word for one in occurrences])
    n_texts = np.bincount(of_word, minlength=len(words))
    means = {name: np.bincount(of_word, each, len(words)) / n_texts for name, each in cosines.items()}
    counts = predicted.known.counts[known]
    each = bands(counts) if has_counts(predicted.known.counts) else []
    found = {
        name: {
            "state_cosine": float(mean.mean()),
            "state_by_count": [float(mean[some].mean()) if some.any() else None for _, some in each],
        }
        for name, mean in means.items()
    }
    return _Tested({"words": len(words), "texts": sum(map(len, texts.values()))}, found)


def _cut(encoder: Encoder, pieces: Sequence[Sequence[int]], word: int) -> tuple[IntArray, int]:
    """The ids of words in ``pieces`` as the model reads them, at most as many as it can, and where ``word`` begins."""
    ids, place = [i for own in pieces for i in own], sum(map(len, pieces[:word]))
    most = encoder.max_length - 2
    begin = max(0, min(place - most // 2, len(ids) - most))
    whole, _, first = encoder.single(np.array(ids[begin : begin + most], np.int32))
    return whole, first + place - begin
