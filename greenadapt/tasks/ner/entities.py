"""Entities of tagged sentences, tagging schemes, and scores of whole entities."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from greenadapt.storage.arrays import Array

UNTYPED = "entity"
"""The type of entities in data whose tags are a bare ``B`` and ``I``."""

_OPENS = frozenset("BSU")
_CLOSES = frozenset("ESLU")
_PREFIXES = frozenset("BIESLU")


@dataclass(frozen=True)
class Entity:
    """Words ``first`` to ``last`` (inclusive, from 0) of a sentence, which are one ``type``."""

    first: int
    last: int
    type: str


def is_tag(tag: str) -> bool:
    """Whether ``tag`` is ``O``, or one of B I E S L U alone or with ``-`` and a type behind."""
    return tag == "O" or (tag[:1] in _PREFIXES and (len(tag) == 1 or (tag[1] == "-" and len(tag) > 2)))


def iob2(tags: Iterable[str]) -> list[str]:
    """Tags of any of IOB1, IOB2, BIOES and BILOU as IOB2, in which every entity begins with ``B-``.

    As in CoNLL's conlleval script, an I (or E or L) that nothing of its type stands open before begins an entity.
    """
    converted = []
    open_type = None
    for tag in tags:
        if tag == "O":
            open_type = None
            converted.append(tag)
            continue
        prefix, kind = tag[0], tag[2:] or UNTYPED
        converted.append(f"B-{kind}" if prefix in _OPENS or kind != open_type else f"I-{kind}")
        open_type = None if prefix in _CLOSES else kind
    return converted


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence's tags, of any scheme that ``iob2`` reads, in order."""
    found = []
    first, kind = 0, ""
    for position, tag in enumerate([*iob2(tags), "O"]):
        if tag.startswith("I-"):
            continue
        if kind:
            found.append(Entity(first, position - 1, kind))
        first, kind = position, tag[2:]
    return found


def entity_counts(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Array:
    """True positives, predicted and gold entities of each sentence, (n, 3) float64; raises ``ValueError`` for lists
    of different length.
    """
    counts = np.zeros((len(gold), 3))
    for row, (true, guess) in enumerate(zip(gold, predicted, strict=True)):
        wanted, found = set(entities(true)), set(entities(guess))
        counts[row] = len(wanted & found), len(found), len(wanted)
    return counts


def entity_f1(counts: Array) -> Array:
    """F1 = 2 tp / (predicted + gold), 0 if there is nothing: (…, 3) sums of ``entity_counts`` → (…)."""
    total = counts[..., 1] + counts[..., 2]
    f1: Array = np.divide(2 * counts[..., 0], total, out=np.zeros(np.shape(total)), where=total > 0)
    return f1


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, object]:
    """Precision, recall and F1 of exact entities (conlleval; equal to seqeval) over all types, and by type.

    Precision, recall and F1 lie between 0 and 1, 0 if nothing was predicted or nothing is there; ``support`` is the
    number of gold entities.
    """
    hits, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for true, guess in zip(gold, predicted, strict=True):
        true_set, guess_set = set(entities(true)), set(entities(guess))
        wanted.update(entity.type for entity in true_set)
        found.update(entity.type for entity in guess_set)
        hits.update(entity.type for entity in true_set & guess_set)
    types = sorted(found.keys() | wanted.keys())
    by_type = {kind: _scores(hits[kind], found[kind], wanted[kind]) for kind in types}
    return {**_scores(hits.total(), found.total(), wanted.total()), "by_type": by_type}


def _scores(hits: int, found: int, wanted: int) -> dict[str, float | int]:
    return {
        "precision": hits / found if found else 0.0,
        "recall": hits / wanted if wanted else 0.0,
        "f1": 2 * hits / (found + wanted) if found + wanted else 0.0,
        "support": wanted,
    }
