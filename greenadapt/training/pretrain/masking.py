"""Which pieces of an input a masked language model has to guess, and what it reads in their place.

BERT's recipe (Devlin et al., arXiv 1810.04805, section 3.1), drawn again for every input and epoch. A draw is a
function of its key alone, so that neither batches nor processes nor an interruption change what is learnt.
"""

from dataclasses import dataclass

import numpy as np

from greenadapt.storage.arrays import BoolArray, IntArray, offsets_of
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.training.random_draws import random_bits

_ALL_BITS = float(2**64)
_MASKED, _REPLACED = 0.8, 0.1  # shares of the targets; the others stay as they are


@dataclass(frozen=True, eq=False)
class Corrupted:
    """An input as the model reads it, and what it has to guess.

    ``ids`` (n,) int32; ``places`` (t,) int64, ascending, where the targets are; ``targets`` (t,) int64, the ids that
    were there. t may be 0.
    """

    ids: IntArray
    places: IntArray
    targets: IntArray


@dataclass(frozen=True, eq=False)
class Masking:
    """How inputs are corrupted.

    Of n pieces that may be targets, ``share`` · n are, rounded up or down by a draw so that the mean is exact: a short
    input may have none, and is then no part of the loss. Of the targets 80 % are read as ``mask_id``, 10 % as any of
    ``pieces``, and 10 % as they are. ``pieces`` (k,), ascending, are the ids that may be targets: the base tokenizer's
    but the special ones, and no added words. With ``whole_words`` words are drawn, and all pieces of each are targets,
    where they still fit into the number that was drawn.
    """

    share: float
    whole_words: bool
    mask_id: int
    pieces: IntArray

    @classmethod
    def of(cls, tokenizer: DualTokenizer, share: float, *, whole_words: bool) -> "Masking":
        """For a model that reads by ``tokenizer``."""
        special = tokenizer.special
        ids = set(tokenizer.base.get_vocab().values())
        ids -= {special.cls, special.sep, special.pad, special.unk, special.mask}
        ids -= {row for row, token in tokenizer.base.get_added_tokens_decoder().items() if token.special}
        return cls(share, whole_words, special.mask, np.array(sorted(ids), np.int32))

    def corrupt(self, ids: IntArray, begins: BoolArray, *key: int) -> Corrupted:
        """Draw for one input of n pieces, where ``begins`` (n,) is true at the first piece of each word."""
        n = len(ids)
        bits = random_bits(3 * n + 1, *key)
        order, action, other = bits[1:].reshape(3, n)
        may = self._may_be_target(ids)
        wanted = self.share * np.count_nonzero(may) + bits[0] / _ALL_BITS
        choose = _choose_words if self.whole_words else _choose_pieces
        places = choose(may, begins, order, int(wanted))
        draw = action[places] / _ALL_BITS
        read = ids.astype(np.int32)
        read[places[draw < _MASKED]] = self.mask_id
        replaced = places[(draw >= _MASKED) & (draw < _MASKED + _REPLACED)]
        read[replaced] = self.pieces[(other[replaced] % np.uint64(len(self.pieces))).astype(np.int64)]
        return Corrupted(read, places, ids[places].astype(np.int64))

    def _may_be_target(self, ids: IntArray) -> BoolArray:
        places = np.minimum(np.searchsorted(self.pieces, ids), len(self.pieces) - 1)
        may: BoolArray = self.pieces[places] == ids
        return may


def _choose_pieces(may: BoolArray, begins: BoolArray, order: IntArray, wanted: int) -> IntArray:
    """The ``wanted`` pieces that come first in the order of the draw; (t,), ascending."""
    candidates = np.flatnonzero(may)
    return np.sort(candidates[np.argsort(order[candidates], kind="stable")[:wanted]])


def _choose_words(may: BoolArray, begins: BoolArray, order: IntArray, wanted: int) -> IntArray:
    """Words in the order of the draw at their first pieces, as long as there is room; (t,), ascending."""
    firsts = np.flatnonzero(begins | ~may | np.append(True, ~may[:-1]))
    sizes = np.diff(firsts, append=len(may))
    chosen: list[int] = []
    for word in np.argsort(order[firsts], kind="stable").tolist():
        if not wanted:
            break
        if may[firsts[word]] and sizes[word] <= wanted:
            chosen.append(word)
            wanted -= int(sizes[word])
    words = np.sort(np.array(chosen, np.int64))
    starts = offsets_of(sizes[words])
    return np.repeat(firsts[words] - starts[:-1], sizes[words]) + np.arange(starts[-1])
