"""Texts and pairs of texts as what a model reads, one input each."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np

from greenadapt.storage.arrays import Array, IntArray
from greenadapt.tasks.features import Encoder, Feature, Input

_BLOCK = 256
"""Examples that are tokenized at once."""
_UNIT = np.zeros(1, np.int32)


@dataclass(frozen=True)
class Text:
    """A text or a pair of texts, and its label as the file has it (true and false as these words)."""

    text: str
    second: str | None = None
    label: str | float | None = None
    where: str = field(default="", compare=False)
    """File and line, for messages."""


def longest_first(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """How many pieces of each part are kept where a pair has to fit into ``room`` pieces.

    The longer part is cut down to the other, then both alike. Of an odd room the part that was longer gets one more,
    of equal ones the second, as in the tokenizers library.
    """
    if n_first + n_second <= room:
        return n_first, n_second
    shorter = min(n_first, n_second, room // 2)
    return (shorter, room - shorter) if n_first <= n_second else (room - shorter, shorter)


def text_inputs(texts: Iterable[Text], encoder: Encoder, counts: Counter[str]) -> Iterator[Input]:
    """The inputs for each text, without targets; ``counts["cut"]`` counts those that the base tokenization cuts."""
    rest = iter(texts)
    while block := list(islice(rest, _BLOCK)):
        parts = [[text.text] if text.second is None else [text.text, text.second] for text in block]
        encoded = iter(encoder.tokenizer.encode_batch(list(chain.from_iterable(parts))))
        for text, part in zip(block, parts, strict=True):
            both = list(islice(encoded, len(part)))
            base = [_feature([one.base.ids for one in both], encoder, counts)]
            expanded = base
            if encoder.has_words:
                expanded = [_feature([one.expanded.ids for one in both], encoder, Counter())]
            yield Input(base, expanded, 1, text)


def _feature(parts: list[IntArray], encoder: Encoder, counts: Counter[str]) -> Feature:
    n_pieces = sum(map(len, parts))
    room = encoder.max_length - (2 if len(parts) == 1 else encoder.n_special_pair)
    counts["cut"] += n_pieces > room
    if len(parts) == 1:
        ids, types, _ = encoder.single(parts[0][:room])
    else:
        first, second = parts
        n_first, n_second = longest_first(len(first), len(second), room)
        ids, types, _ = encoder.pair(first[:n_first], second[:n_second])
    return Feature(ids, types, _UNIT)


def with_target(views: Input, target: Array) -> Input:
    """``views`` with the same target for both."""
    base = [replace(feature, target=target) for feature in views.base]
    if views.expanded is views.base:
        return Input(base, base, views.n_units)
    return Input(base, [replace(feature, target=target) for feature in views.expanded], views.n_units)
