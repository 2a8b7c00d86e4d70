"""What a general model reads beside the domain model: the same text in base pieces (arXiv 2212.03613, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from greenadapt.added_words import AddedWords
from greenadapt.arrays import Array
from greenadapt.checkpoint import Checkpoint
from greenadapt.errors import InputError, UsageError
from greenadapt.features import Encoder, Feature, Views
from greenadapt.sequence_table import IntArray, offsets_of


class MemoryInput(Protocol):
    """Where the general model's part of a batch comes from."""

    def read(self, ids: IntArray, types: IntArray, lengths: IntArray) -> dict[str, torch.Tensor]:
        """What the model is called with beside its own, for b inputs that are given end to end.

        ``ids`` (total,) are of the domain model's whole vocabulary, ``types`` (total,) their segments.
        """


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of a model end to end: ``ids`` and ``types`` (total,), ``lengths`` (b,)."""

    ids: IntArray
    types: IntArray
    lengths: IntArray

    def padded(self, values: Array, fill: int) -> torch.Tensor:
        """``values`` (total,) below each other, (b, longest) int64, with ``fill`` behind the shorter ones."""
        array = np.full(self.is_piece.shape, fill, np.int64)
        array[self.is_piece] = values
        return torch.from_numpy(array)

    @property
    def is_piece(self) -> Array:
        """(b, longest) bool: where there is no padding."""
        is_piece: Array = np.arange(self.lengths.max(initial=0)) < self.lengths[:, None]
        return is_piece


def end_to_end(features: Sequence[Feature]) -> tuple[IntArray, IntArray, IntArray]:
    """Ids and types of all pieces (total,), and the lengths (b,)."""
    if not features:
        return (np.zeros(0, np.int32),) * 3
    ids, types = (np.concatenate([getattr(one, name) for one in features]) for name in ("ids", "types"))
    return ids, types, np.array([len(one) for one in features])


@dataclass(frozen=True, eq=False)
class MemoryReader:
    """Puts base pieces in the place of added words, so that the general model reads its own tokenizer's ids.

    Whatever the domain model reads, the general model reads the same text, with a length and a mask of its own; from a
    text that is longer than ``max_length`` pieces it reads the first ones and the last special token.
    """

    added: AddedWords
    pad_id: int
    max_length: int
    has_segments: bool

    @classmethod
    def of(cls, encoder: Encoder, general: Checkpoint) -> "MemoryReader":
        """For a domain model that reads by ``encoder``, and a general one.

        Raises ``InputError`` where their base tokenizers give other ids, ``UsageError`` where the words were added by
        longest match, so that their pieces are not those of the base tokenizer.
        """
        theirs = Encoder.of(general)
        ours = encoder.tokenizer.base.get_vocab()
        n_same = len(ours.items() & theirs.tokenizer.base.get_vocab().items())
        n_theirs = theirs.tokenizer.base.get_vocab_size()
        if not n_same == len(ours) == n_theirs:
            raise InputError(
                f"{general.folder} has another vocabulary: {n_same:,} of its {n_theirs:,} entries are among the "
                f"{len(ours):,} of the domain model's own tokenizer",
                "give a general model with the tokenizer of the domain model, such as the one it was adapted from",
            )
        added = encoder.tokenizer.added
        if added.oov == "greedy":
            raise UsageError("the words were added with --oov greedy", "memory needs a model expanded with --oov base")
        has_segments = int(general.config.get("type_vocab_size", 0)) > 1
        return cls(added, encoder.special.pad, theirs.max_length, has_segments)

    def sequences(self, ids: IntArray, types: IntArray, lengths: IntArray) -> Inputs:
        """What the general model reads for b inputs given end to end, unpadded."""
        pieces = self.added.pieces.stored
        is_new = ids >= self.added.first_id
        sizes = np.ones(len(ids), np.int64)
        entries = ids[is_new] - self.added.first_id
        sizes[is_new] = np.diff(pieces.offsets)[entries]
        base = np.repeat(ids, sizes)
        base[np.repeat(is_new, sizes)] = pieces.take(entries).values
        ends = offsets_of(sizes)[np.cumsum(lengths)]
        inputs = Inputs(base, np.repeat(types, sizes), np.diff(ends, prepend=0))
        return inputs if inputs.lengths.max(initial=0) <= self.max_length else self._cut(inputs)

    def of_views(self, views: Views) -> Inputs:
        """What the general model reads for all inputs of an example, in both views."""
        features = [*views.base, *(views.expanded if views.expanded is not views.base else [])]
        return self.sequences(*end_to_end(features))

    def read(self, ids: IntArray, types: IntArray, lengths: IntArray) -> dict[str, torch.Tensor]:
        """``memory_ids`` (b, m) int64; ``memory_mask`` where there is padding, ``memory_types`` where the general model
        tells segments.
        """
        inputs = self.sequences(ids, types, lengths)
        arrays = {"memory_ids": inputs.padded(inputs.ids, self.pad_id)}
        if not inputs.is_piece.all():
            arrays["memory_mask"] = torch.from_numpy(inputs.is_piece.astype(np.int64))
        if self.has_segments:
            arrays["memory_types"] = inputs.padded(inputs.types, 0)
        return arrays

    def _cut(self, inputs: Inputs) -> Inputs:
        lengths = inputs.lengths
        places = np.arange(len(inputs.ids)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        is_last = places == np.repeat(lengths - 1, lengths)
        kept = (places < self.max_length - 1) | is_last
        return Inputs(inputs.ids[kept], inputs.types[kept], np.minimum(lengths, self.max_length))
