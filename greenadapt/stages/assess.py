"""Assess an adapted model without labels, by how well rows of known words are predicted."""

from dataclasses import asdict
from pathlib import Path
from typing import get_args

from greenadapt.checkpoints.provenance import check_model
from greenadapt.config import ExpandConfig, RecipeName
from greenadapt.inference.models import require_one_process
from greenadapt.stages.align import vectors_of_map
from greenadapt.stages.expand import alignment_of, open_expansion
from greenadapt.stages.session import EXPAND, OpenedBase, model_of
from greenadapt.store.arrays import FloatArray
from greenadapt.store.files import Json
from greenadapt.store.results import Result, open_result, verify_result
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.vectors.quality import bands, has_counts
from greenadapt.vectors.word_vectors import WordVectors

RANDOM = "random"
"""The baseline beside the recipes: random rows at the base rows' norm."""
_SEED = 0  # of the random rows


def assess_rows(model: str) -> Json:
    """How well each recipe predicts rows of the base model of the adapted ``model``, from a fit without these rows.

    ``rows`` has, by recipe and for ``random``, the ``HeldOutFigures``. ``added`` has the share of the corpus's words
    that have a new row, and the number of new rows in each band of ``by_count``; it is ``None`` for vectors without
    counts.

    Raises ``InputError`` or ``MissingError`` if ``model`` is not the folder of an expand result, or if an input that it
    was made from is missing or has changed.
    """
    require_one_process("assess")
    expanded = open_result(Path(model), EXPAND)
    aligned = alignment_of(Path(model))
    base = OpenedBase(model_of(aligned))
    base.require_unchanged(aligned)
    check_model(base.model)
    expansion = open_expansion(base, aligned, vectors_of_map(aligned), ExpandConfig())
    predicted = expansion.predict(get_args(RecipeName))
    rows: dict[str, FloatArray] = {str(recipe): vectors for recipe, vectors in predicted.rows.items()}
    rows[RANDOM] = predicted.random(expansion.norm, _SEED)
    return {
        "folder": str(expanded.path),
        "base": base.model.source,
        "corpus": expanded.manifest.facts["corpus"],
        "recipe": expanded.manifest.facts["rows"]["recipe"],
        "added": _count_added(expanded, expansion.vectors),
        "rows": {recipe: asdict(predicted.measure(vectors)) for recipe, vectors in rows.items()},
    }


def _count_added(expanded: Result, vectors: WordVectors) -> Json | None:
    """See ``added`` of ``assess_rows``."""
    if not has_counts(vectors.counts):
        return None
    words = set(AddedWords.open(verify_result(expanded).folder / WORDS_FILE).all_surfaces())
    counts = vectors.counts[[row for row, word in enumerate(vectors.words) if word in words]]
    return {
        "share": float(counts.sum() / vectors.counts.sum()),
        "by_count": [{"min_count": min_count, "n_words": int(in_band.sum())} for min_count, in_band in bands(counts)],
    }
