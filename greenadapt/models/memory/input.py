"""The general model's input: the domain model's text in base pieces (arXiv 2212.03613, section 3.1)."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import InputError, UsageError
from greenadapt.storage.arrays import offsets_of
from greenadapt.tasks.base import Encoder, Features, Input
from greenadapt.tokenization.added_words import AddedWords


@dataclass(frozen=True, eq=False)
class MemoryReader:
    """Replaces added words by their base pieces, so that the general model reads its own tokenizer's ids.

    The general model reads the same text as the domain model, with its own length and mask; texts longer than
    ``max_length`` pieces are truncated to the first ones and the last special token.
    """

    added: AddedWords
    pad_id: int
    max_length: int
    has_segments: bool

    @classmethod
    def of(cls, encoder: Encoder, general: Checkpoint) -> "MemoryReader":
        """For a domain model whose inputs are by ``encoder``, and a general one.

        Raises ``InputError`` if their base tokenizers give different ids, ``UsageError`` if the words were added by
        longest match, so that their pieces are not those of the base tokenizer.
        """
        theirs = Encoder.of(general)
        ours = encoder.tokenizer.base.get_vocab()
        n_same = len(ours.items() & theirs.tokenizer.base.get_vocab().items())
        n_theirs = theirs.tokenizer.base.get_vocab_size()
        if not n_same == len(ours) == n_theirs:
            raise InputError(
                f"{general.folder} has a different vocabulary: {n_same:,} of its {n_theirs:,} entries are among the "
                f"{len(ours):,} of the domain model's own tokenizer",
                "give a general model with the tokenizer of the domain model, such as the one it was adapted from",
            )
        added = encoder.tokenizer.added
        if added.oov == "greedy":
            raise UsageError("the words were added with --oov greedy", "memory needs a model expanded with --oov base")
        has_segments = int(general.config.get("type_vocab_size", 0)) > 1
        return cls(added, encoder.special.pad, theirs.max_length, has_segments)

    def in_base_pieces(self, inputs: Features) -> Features:
        """What the general model reads for the domain model's ``inputs``."""
        read = self._base_pieces(inputs)
        return read if read.lengths.max(initial=0) <= self.max_length else self._cut(read)

    def _base_pieces(self, inputs: Features) -> Features:
        pieces, ids = self.added.pieces.stored, inputs.ids
        is_new = ids >= self.added.first_id
        sizes = np.ones(len(ids), np.int64)
        entries = ids[is_new] - self.added.first_id
        sizes[is_new] = np.diff(pieces.offsets)[entries]
        base = np.repeat(ids, sizes)
        base[np.repeat(is_new, sizes)] = pieces.take(entries).values
        ends = offsets_of(sizes)[np.cumsum(inputs.lengths)]
        return Features(base, np.repeat(inputs.types, sizes), np.diff(ends, prepend=0))

    def of_input(self, views: Input) -> Features:
        """What the general model reads for all inputs of an example, in both views."""
        return self.in_base_pieces(_inputs_of(views))

    def n_cut(self, views: Iterable[Input]) -> int:
        """How many of the examples have an input that is truncated for the general model."""
        lengths = (self._base_pieces(_inputs_of(one)).lengths for one in views)
        return sum(int(each.max(initial=0)) > self.max_length for each in lengths)

    def read(self, inputs: Features) -> dict[str, torch.Tensor]:
        """``memory_ids`` (b, m) int64; ``memory_mask`` if there is padding, ``memory_types`` if the general model
        has segment embeddings.
        """
        read = self.in_base_pieces(inputs)
        arrays = {"memory_ids": read.padded(read.ids, self.pad_id)}
        if not read.is_piece.all():
            arrays["memory_mask"] = read.mask
        if self.has_segments:
            arrays["memory_types"] = read.padded(read.types, 0)
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _cut(self, inputs: Features) -> Features:
        lengths = inputs.lengths
        places = np.arange(len(inputs.ids)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        is_last = places == np.repeat(lengths - 1, lengths)
        kept = (places < self.max_length - 1) | is_last
        return Features(inputs.ids[kept], inputs.types[kept], np.minimum(lengths, self.max_length))


def _inputs_of(views: Input) -> Features:
    """All inputs of an example, those shared by both views once."""
    return Features.of([*views.base, *(views.expanded if views.expanded is not views.base else [])])
