"""What a model reads: pieces with special tokens around them, in both tokenizations."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from greenadapt.architectures.base import Architecture
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import InputError, UsageError
from greenadapt.storage.arrays import Array, BoolArray, Int64Array, IntArray
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.files import SpecialIds

IGNORED = -100
"""The target of pieces that are not part of the loss, as torch has it."""


@dataclass(frozen=True, eq=False)
class Feature:
    """One sequence that goes through the model, in one tokenization.

    ``ids`` (n,) int32 with special tokens, rows of the model's whole embedding; ``types`` (n,) int32, the segment of
    each piece; ``units`` int32, which unit of the example (a word of a sentence, a word of a context, the text itself:
    0) each output of the model is for, -1 for none: (n,) for a head with one output per piece, (1,) for one with one
    output per text. ``target`` is what training wants: NER (n,) int64, ``IGNORED`` for pieces without a label;
    classification () int64 or float32; QA (2,) int64, first and last piece; ``None`` when predicting.
    """

    ids: IntArray
    types: IntArray
    units: IntArray
    target: Array | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Features:
    """b inputs end to end: ``ids`` and ``types`` (total,), the segment of each piece, and ``lengths`` (b,)."""

    ids: IntArray
    types: IntArray
    lengths: IntArray

    @classmethod
    def of(cls, features: Sequence[Feature]) -> "Features":
        """The inputs that ``features`` are, of which there may be none."""
        if not features:
            return cls(*(np.zeros(0, np.int32) for _ in range(3)))
        ids, types = (np.concatenate([getattr(one, name) for one in features]) for name in ("ids", "types"))
        return cls(ids, types, np.array([len(one) for one in features]))

    @cached_property
    def is_piece(self) -> BoolArray:
        """(b, longest): what is not padding in the inputs as a padded array."""
        is_piece: BoolArray = np.arange(self.lengths.max(initial=0)) < self.lengths[:, None]
        return is_piece

    @property
    def mask(self) -> Int64Array:
        """``is_piece`` as models want it: (b, longest) int64."""
        return self.is_piece.astype(np.int64)

    def padded(self, values: Array, fill: int) -> Int64Array:
        """``values`` (total,) below each other, (b, longest) int64, with ``fill`` behind the shorter ones."""
        array = np.full(self.is_piece.shape, fill, np.int64)
        array[self.is_piece] = values
        return array


@dataclass(frozen=True, eq=False)
class Input:
    """What a model reads of one example: in both tokenizations one feature or several (chunks, windows).

    ``expanded`` is the same object as ``base`` where the model has no added words.
    """

    base: list[Feature]
    expanded: list[Feature]
    n_units: int
    """How many units the example has; the two views speak for the same ones."""
    example: Any = None
    """Passed on with the model's outputs; ``None`` in training."""


def flattened(inputs: Sequence[Input]) -> tuple[list[Feature], IntArray, IntArray]:
    """The features of all inputs, those that both views share once, and by input and view (0: base, 1: expanded) which
    is the first and how many there are, (n, 2) int64 each.
    """
    features: list[Feature] = []
    firsts, counts = np.zeros((2, len(inputs), 2), np.int64)
    for i, one in enumerate(inputs):
        firsts[i], counts[i] = len(features), len(one.base)
        features += one.base
        if one.expanded is not one.base:
            firsts[i, 1], counts[i, 1] = len(features), len(one.expanded)
            features += one.expanded
    return features, firsts, counts


@dataclass(frozen=True)
class Encoder:
    """A model's tokenizer, and how its inputs are put together."""

    tokenizer: DualTokenizer
    architecture: Architecture
    max_length: int
    """Pieces that the model reads at once, special tokens included."""

    @classmethod
    def of(cls, checkpoint: Checkpoint, max_length: int | None = None) -> "Encoder":
        """That of a model's folder, expanded or not; raises ``UsageError`` if the model has fewer places."""
        tokenizer = DualTokenizer.of_model(checkpoint.folder, checkpoint.n_rows)
        kind, config = checkpoint.architecture, checkpoint.config
        places = int(config.get("max_position_embeddings", 512))
        if kind.counts_from_padding:
            pad = config.get("pad_token_id")
            places -= (tokenizer.special.pad if pad is None else int(pad)) + 1
        if max_length is not None and max_length > places:
            raise UsageError(f"--max-length is {max_length}, but {checkpoint.folder} reads at most {places} pieces")
        return cls(tokenizer, kind, max_length or places)

    @property
    def special(self) -> SpecialIds:
        """The special tokens' ids."""
        return self.tokenizer.special

    @property
    def has_words(self) -> bool:
        """Whether the model has added words, so that the two views can differ."""
        return len(self.tokenizer.added) > 0

    @property
    def n_special_pair(self) -> int:
        """Special tokens around a pair."""
        has_two = self.architecture.has_two_separators
        if has_two is None:
            has_two = self.tokenizer.base.id_to_token(self.special.sep) == "</s>"
        return 4 if has_two else 3

    def n_pieces(self, text: str) -> int:
        """The pieces of ``text`` in the view that has more."""
        pieces = self.tokenizer.encode(text)
        return max(len(pieces.base.ids), len(pieces.expanded.ids))

    def single(self, pieces: IntArray) -> tuple[IntArray, IntArray, int]:
        """``[CLS] pieces [SEP]``: ids (n + 2,), types (n + 2,), and where ``pieces`` begin.

        Raises ``InputError`` if that is longer than the model reads.
        """
        ids = _join([self.special.cls], pieces, [self.special.sep])
        self._check(ids)
        return ids, np.zeros(len(ids), np.int32), 1

    def pair(self, first: IntArray, second: IntArray) -> tuple[IntArray, IntArray, int]:
        """``[CLS] first [SEP] second [SEP]``, or with two ``[SEP]`` between: ids, types, and
        where ``second`` begins.

        Raises ``InputError`` if that is longer than the model reads.
        """
        special = self.special
        between = [special.sep] * (self.n_special_pair - 2)
        ids = _join([special.cls], first, between, second, [special.sep])
        self._check(ids)
        begin = 1 + len(first) + len(between)
        types = np.zeros(len(ids), np.int32)
        if self.architecture.has_segments:
            types[begin:] = 1
        return ids, types, begin

    def _check(self, ids: IntArray) -> None:
        if len(ids) > self.max_length:
            raise InputError(f"an input of {len(ids)} pieces, the model reads {self.max_length}")


def _join(*parts: Sequence[int] | IntArray) -> IntArray:
    joined: np.ndarray[Any, np.dtype[np.int32]] = np.concatenate([np.asarray(part, np.int32) for part in parts])
    return joined
