"""A general model, attached to a domain model, whose inputs it reads in base pieces (arXiv 2212.03613, section 3.1)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.checkpoints.layout import MEMORY_FOLDER
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.models.machine import Machine
from greenadapt.models.memory.choice import MemoryChoice
from greenadapt.models.memory.fusion import attach_logits_fusion, attach_memory
from greenadapt.models.weights import open_encoder
from greenadapt.store.arrays import Array, offsets_of
from greenadapt.tasks.base import Encoder, Features, Item
from greenadapt.tokenization.added_words import AddedWords
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER
from greenadapt.tokenization.export import copy_tokenizers


@dataclass(frozen=True, eq=False)
class MemoryReader:
    """Replaces added words by their base pieces, the ids of the general model's own tokenizer.

    Texts longer than ``max_length`` pieces are truncated to their first pieces and the last special token.
    """

    added: AddedWords
    pad_id: int
    max_length: int
    has_segments: bool

    @classmethod
    def of(cls, encoder: Encoder, general: Checkpoint) -> "MemoryReader":
        """The reader for a domain model, whose inputs ``encoder`` makes, and the ``general`` model.

        Raises ``InputError`` if their base tokenizers give different ids, ``UsageError`` if the words were added by
        longest match, so that their pieces are not those of the base tokenizer.
        """
        reader = Encoder.of(general)
        domain = encoder.tokenizer.base.get_vocab()
        n_shared = len(domain.items() & reader.tokenizer.base.get_vocab().items())
        n_general = reader.tokenizer.base.get_vocab_size()
        if not n_shared == len(domain) == n_general:
            raise InputError(
                f"{general.folder} has a different vocabulary: {n_shared:,} of its {n_general:,} entries are among the "
                f"{len(domain):,} of the domain model's own tokenizer",
                "give a general model with the tokenizer of the domain model, such as the one it was adapted from",
            )
        added = encoder.tokenizer.added
        if added.oov == "greedy":
            raise UsageError("the words were added with --oov greedy", "memory needs a model expanded with --oov base")
        has_segments = int(general.config.get("type_vocab_size", 0)) > 1
        return cls(added, encoder.special.pad, reader.max_length, has_segments)

    def to_base_pieces(self, inputs: Features) -> Features:
        """The inputs of the general model for ``inputs`` of the domain model."""
        pieces = self._base_pieces(inputs)
        return pieces if pieces.lengths.max(initial=0) <= self.max_length else self._truncate(pieces)

    def _base_pieces(self, inputs: Features) -> Features:
        pieces, ids = self.added.pieces, inputs.ids
        is_new = ids >= self.added.first_id
        sizes = np.ones(len(ids), np.int64)
        entries = ids[is_new] - self.added.first_id
        sizes[is_new] = np.diff(pieces.offsets)[entries]
        base = np.repeat(ids, sizes)
        base[np.repeat(is_new, sizes)] = pieces.take(entries).values
        ends = offsets_of(sizes)[np.cumsum(inputs.lengths)]
        return Features(base, np.repeat(inputs.types, sizes), np.diff(ends, prepend=0))

    def n_cut(self, examples: Iterable[Item]) -> int:
        """The number of examples with an input that is truncated for the general model."""
        lengths = (self._base_pieces(_inputs_of(views)).lengths for views in examples)
        return sum(int(of_example.max(initial=0)) > self.max_length for of_example in lengths)

    def read(self, inputs: Features) -> dict[str, Array]:
        """``memory_ids`` (b, m) int64; ``memory_mask`` if there is padding, ``memory_types`` if the general model
        has segment embeddings.
        """
        pieces = self.to_base_pieces(inputs)
        arrays: dict[str, Array] = {"memory_ids": pieces.pad(pieces.ids, self.pad_id)}
        if not pieces.is_piece.all():
            arrays["memory_mask"] = pieces.mask
        if self.has_segments:
            arrays["memory_types"] = pieces.pad(pieces.types, 0)
        return arrays

    def _truncate(self, inputs: Features) -> Features:
        lengths = inputs.lengths
        positions = np.arange(len(inputs.ids)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        is_last = positions == np.repeat(lengths - 1, lengths)
        mask = (positions < self.max_length - 1) | is_last
        return Features(inputs.ids[mask], inputs.types[mask], np.minimum(lengths, self.max_length))


def _inputs_of(views: Item) -> Features:
    """All inputs of an example, without duplicates where both views share them."""
    return Features.of([*views.base, *(views.expanded if views.expanded is not views.base else [])])


@dataclass(frozen=True, eq=False)
class GeneralModel:
    """A general model on disk, and how its states enter a domain model."""

    checkpoint: Checkpoint
    config: MemoryConfig

    @classmethod
    def open(cls, chosen: MemoryChoice) -> "GeneralModel":
        """The ``chosen`` model; raises ``InputError`` if its type is not supported."""
        return cls(Checkpoint(chosen.model.folder), chosen.config)

    def attach(self, model: Any, encoder: Encoder, machine: Machine, seed: int) -> None:
        """Attach this model as memory to ``model``, whose inputs ``encoder`` makes; move both to the machine's device.

        ``seed`` draws the gates. A frozen general model is in half precision if the machine uses it. Raises
        ``UsageError`` if the two do not fit.
        """
        own_encoder = Encoder.of(self.checkpoint)
        if self.config.strategy == "logits" and not type(model).__name__.endswith("SequenceClassification"):
            _require_same_pieces(encoder, own_encoder.max_length)
        n_rows = own_encoder.tokenizer.added.first_id  # without added words, which it never reads
        general: Any = open_encoder(self.checkpoint, n_rows)
        if self.config.frozen and machine.is_bfloat16:
            general = general.bfloat16()
        attach = attach_logits_fusion if self.config.strategy == "logits" else attach_memory
        attach(model, general, self.config, seed)
        model.to(machine.device)

    def copy_tokenizer(self, folder: Path) -> None:
        """Copy the tokenizer to the folder of the trained general model in ``folder``."""
        source = self.checkpoint.folder
        base = source / BASE_FOLDER
        copy_tokenizers(base if base.is_dir() else source, folder / MEMORY_FOLDER)


def _require_same_pieces(encoder: Encoder, limit: int) -> None:
    """Raise ``UsageError`` if a general model of at most ``limit`` pieces reads others than the domain model."""
    if encoder.has_words:
        problem, hint = "added words are other pieces than the general model's", "use the model without added words"
    elif limit < encoder.max_length:
        problem = f"the general model reads {limit} pieces at once, the domain model {encoder.max_length}"
        hint = f"give --max-length {limit}"
    else:
        return
    raise UsageError(f"--strategy logits adds the logits of each piece, and {problem}", f"{hint}, or another strategy")
