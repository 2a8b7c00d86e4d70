"""Whether an adapted model helps: without labels, by how well rows of known words are predicted."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np

from greenadapt.checkpoints.provenance import check_model
from greenadapt.config import AlignConfig, AssessConfig, ExpandConfig, RowRecipe
from greenadapt.corpus.contexts import Context, find_contexts
from greenadapt.corpus.words import PreparedCorpus
from greenadapt.errors import InputError, MissingError, require_torch
from greenadapt.inference.opened_models import one_process
from greenadapt.stages.align import fitted_vectors
from greenadapt.stages.expand import Expansion
from greenadapt.stages.session import ALIGN, CORPUS, EXPAND, W2V, OpenedBase, Session, model_of
from greenadapt.storage.arrays import FloatArray
from greenadapt.storage.files import Json
from greenadapt.storage.results import Result, open_result, verified
from greenadapt.tasks.features import Encoder
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.diagnostics import PredictedRows

RANDOM = "random"
"""The baseline beside the recipes: random rows at the base rows' norm."""
_CONTEXTS = 3  # texts of each word
_WIDTH = 64  # words of each text
_SEED = 0  # which words, and the random rows


def assess_rows(session: Session, model: str, config: AssessConfig) -> Json:
    """How well each recipe predicts rows that the base model of the adapted ``model`` has, from a fit without them.

    ``rows`` has, by recipe and for ``random``, the figures of ``HeldOut``, and as ``state_cosine`` the mean cosine of
    the base model's last state at the word, with its own row and with the recipe's: over at most ``config.words``
    held-out words, each the mean over at most 3 texts of the corpus. ``substitution`` says how many words and texts
    that were; it is ``None``, and so are the cosines, if torch is not installed.

    Raises ``InputError`` or ``MissingError`` if ``model`` is not the folder of an expand result, or if what it was made
    from is gone or has changed.
    """
    one_process("assess")
    expanded = open_result(Path(model), EXPAND)
    entry = expanded.manifest.inputs["alignment"]
    aligned = open_result(Path(entry["path"]), ALIGN)
    if aligned.manifest.digest != entry["sha256"]:
        raise InputError(
            f"{aligned.path} changed since {expanded.path} was made from it", "run greenadapt expand again"
        )
    base = OpenedBase(model_of(aligned))
    base.require_unchanged(aligned)
    check_model(base.model)
    settings = expanded.manifest.config
    expansion = Expansion(
        base,
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
    return {
        "folder": str(expanded.path),
        "base": base.model.source,
        "corpus": expanded.manifest.facts["corpus"],
        "recipe": (expanded.manifest.facts.get("rows") or {}).get("recipe", settings["rows"]),
        "substitution": None if tested is None else tested[0],
        "rows": {
            name: {**figures, "state_cosine": None if tested is None else tested[1][name]}
            for name, figures in measured.items()
        },
    }


def _corpus_of(session: Session, aligned: Result) -> PreparedCorpus | None:
    """The text that the vectors were trained on; ``None`` if they were imported or the text is gone."""
    vectors = fitted_vectors(aligned)
    if vectors.imported:
        return None
    entry = open_result(Path(vectors.entry["path"]), W2V).manifest.inputs["corpus"]
    try:
        prepared = open_result(Path(entry["path"]), CORPUS)
    except MissingError as error:
        session.progress.note(f"words are substituted without a text around them, since {error.message}")
        return None
    return PreparedCorpus.open(verified(prepared).folder)


def _substitute(
    session: Session,
    base: OpenedBase,
    predicted: PredictedRows,
    rows: dict[str, FloatArray],
    corpus: PreparedCorpus | None,
    n_words: int,
) -> tuple[Json, dict[str, float]] | None:
    """How many words and texts the test has, and its mean cosine by recipe."""
    try:
        require_torch("the substitution test")
    except MissingError as error:
        session.progress.note(str(error))
        return None
    chosen = np.sort(np.random.default_rng(_SEED).permutation(len(predicted.heldout))[:n_words])
    words = [predicted.known.words[i] for i in predicted.heldout[chosen].tolist()]
    alone = [Context([word], 0) for word in words]
    found = {} if corpus is None else find_contexts(corpus, words, _CONTEXTS, _WIDTH)

    from greenadapt.inference.substitution import Occurrence, state_cosines
    from greenadapt.models.machine import Machine
    from greenadapt.models.weights import open_encoder

    encoder, vocabulary = Encoder.of(base.checkpoint), base.vocabulary
    occurrences = []
    for number, one in enumerate(alone):
        for context in found.get(words[number]) or [one]:
            pieces = vocabulary.pieces(context.words)
            place = sum(map(len, pieces[: context.position]))
            ids, begin = _cut([i for own in pieces for i in own], place, encoder.max_length - 2)
            whole, _, first = encoder.single(np.array(ids, np.int32))
            occurrences.append(Occurrence(whole, first + place - begin, number))
    model: Any = open_encoder(base.checkpoint, vocabulary.size)
    model.to(Machine.start("float32").device)
    with session.progress.bar("substituting rows", len(occurrences), "texts") as bar:
        cosines = state_cosines(
            model, occurrences, {name: made[chosen] for name, made in rows.items()}, encoder.special.pad, bar
        )
    of_word = np.array([one.word for one in occurrences])
    n_texts = np.bincount(of_word, minlength=len(words))
    means = {name: float((np.bincount(of_word, each, len(words)) / n_texts).mean()) for name, each in cosines.items()}
    return {"words": len(words), "texts": sum(map(len, found.values()))}, means


def _cut(ids: list[int], place: int, most: int) -> tuple[list[int], int]:
    """At most ``most`` of the ids, around the one at ``place``, and where they begin."""
    begin = max(0, min(place - most // 2, len(ids) - most))
    return ids[begin : begin + most], begin
