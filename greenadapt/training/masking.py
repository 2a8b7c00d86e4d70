"""Masked inputs: which pieces a masked language model has to guess, and running text as what it is trained on.

BERT's recipe (Devlin et al., arXiv 1810.04805, section 3.1), drawn again for every input and epoch. A draw is a
function of its key alone, so that neither batches nor processes nor an interruption change what is learnt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from greenadapt.models.machine import Machine, too_large
from greenadapt.models.rows import RowMap
from greenadapt.models.weights import MemoryInput, takes_segments
from greenadapt.progress import Bar
from greenadapt.storage.arrays import BoolArray, IntArray, offsets_of, row_blocks
from greenadapt.tasks.base import Features
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.training.batches import Batch, Cut, loss_sum
from greenadapt.training.feed import Purpose, random_bits
from greenadapt.training.packed_text import PackedText

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


VIEWS = ("base", "expanded")


@dataclass(frozen=True, eq=False)
class MaskedDataset:
    """The inputs of ``text``, corrupted by ``masking``; input i has in view v the number i · n_views + v.

    ``rows`` says where the model holds the rows of the embedding. The general model of a ``memory`` reads what the
    domain model reads, masks and all. With ``is_fixed`` the masks are drawn once, to measure by, else in every epoch.
    """

    text: PackedText
    rows: RowMap
    masking: Masking
    pad_id: int
    seed: int
    memory: MemoryInput | None = None
    is_fixed: bool = False
    head: str = "MaskedLM"
    task: None = None
    _made: dict[tuple[int, int], Corrupted] = field(init=False, default_factory=dict)
    """By epoch and number, what was drawn to count the targets of a step."""

    @property
    def n_items(self) -> int:
        """How many inputs there are."""
        return len(self.text)

    @property
    def n_examples(self) -> int:
        """As many: a document is cut into inputs once."""
        return self.n_items

    @property
    def n_views(self) -> int:
        """1 where the model has no added words, else 2."""
        return len(self.text.views)

    def inputs_of(self, items: IntArray, expanded: BoolArray) -> IntArray:
        """Numbers of the inputs in the chosen views, the shortest first."""
        view = expanded.astype(np.int64) if self.n_views > 1 else 0
        numbers = items * self.n_views + view
        return numbers[np.argsort(self.lengths(numbers), kind="stable")]

    def lengths(self, numbers: IntArray) -> IntArray:
        """Pieces of each input, special tokens included."""
        lengths = np.zeros(len(numbers), np.int64)
        items, views = np.divmod(numbers, self.n_views)
        for v, view in enumerate(self.text.views):
            among = items[views == v]
            lengths[views == v] = view.offsets[among + 1] - view.offsets[among]
        return lengths

    def n_pieces(self, numbers: IntArray) -> int:
        """How many pieces these inputs have."""
        return int(self.lengths(numbers).sum())

    def n_terms(self, numbers: IntArray, epoch: int) -> int:
        """How many pieces of these inputs are targets in an epoch."""
        self._made.clear()
        for number in numbers.tolist():
            self._made[epoch, number] = self._corrupted(number, epoch)
        return sum(len(self._made[epoch, number].targets) for number in numbers.tolist())  # one may be there twice

    def batch(self, numbers: IntArray, epoch: int) -> Batch:
        """The corrupted inputs below each other; ``positions`` (t,) are those of the targets in (b · n,)."""
        made = [self._made.get((epoch, number)) or self._corrupted(number, epoch) for number in numbers.tolist()]
        lengths = np.array([len(each.ids) for each in made], np.int64)
        ids = np.concatenate([each.ids for each in made])
        types = np.zeros(len(ids), np.int64)
        inputs = Features(ids, types, lengths)
        positions = np.concatenate([i * lengths.max() + each.places for i, each in enumerate(made)])
        extra = {"positions": torch.from_numpy(positions)}
        if self.memory is not None:
            extra |= self.memory.read(inputs)
        return Batch(
            torch.from_numpy(inputs.padded(self.rows.compact(ids), self.pad_id)),
            torch.from_numpy(inputs.mask),
            torch.from_numpy(inputs.padded(types, 0)),
            torch.from_numpy(np.concatenate([each.targets for each in made])),
            extra,
        )

    def digest(self, update: Any) -> None:
        """Give all that says what is trained on to ``update``, a hash's."""
        masking = self.masking
        update(repr((masking.share, masking.whole_words, masking.mask_id, self.seed, self.is_fixed)).encode())
        for array in (masking.pieces, *(array for view in self.text.views for array in (view.ids, view.offsets))):
            for block in row_blocks(array):
                update(block.tobytes())

    def sample(self, n: int, view: int) -> IntArray:
        """Numbers of at most ``n`` inputs in one view, drawn once for the seed, the shortest first."""
        drawn = np.argsort(random_bits(self.n_items, self.seed, Purpose.EVALUATION, 1), kind="stable")[:n]
        return self.inputs_of(drawn, np.full(len(drawn), view == 1))

    def _corrupted(self, number: int, epoch: int) -> Corrupted:
        item, v = divmod(number, self.n_views)
        view = self.text.views[v]
        part = slice(int(view.offsets[item]), int(view.offsets[item + 1]))
        key: Sequence[int] = (self.seed, Purpose.MASKING, epoch, number)
        if self.is_fixed:
            key = (self.seed, Purpose.EVALUATION, 0, number)
        return self.masking.corrupt(view.ids[part], view.begins[part], *key)


@dataclass(frozen=True, eq=False)
class MaskedSample:
    """A text with masks that were drawn once, of which at most ``n_inputs`` inputs are measured on, always the same."""

    dataset: MaskedDataset
    n_inputs: int

    @cached_property
    def samples(self) -> dict[str, IntArray]:
        """View → numbers of the inputs; the views of a model with added words have the same texts."""
        return {VIEWS[v]: self.dataset.sample(self.n_inputs, v) for v in range(self.dataset.n_views)}

    def n_targets(self) -> dict[str, int]:
        """View → pieces that are to be guessed."""
        return {view: self.dataset.n_terms(numbers, 0) for view, numbers in self.samples.items()}

    def losses(self, model: Any, machine: Machine, max_tokens: int, bar: Bar) -> dict[str, float | None]:
        """View → mean of -log p over the targets, in nats; ``None`` if there are none."""
        was_training = model.training
        model.eval()
        try:
            return {
                view: self._loss(model, numbers, machine, max_tokens, bar) for view, numbers in self.samples.items()
            }
        finally:
            model.train(was_training)

    def _loss(self, model: Any, numbers: IntArray, machine: Machine, max_tokens: int, bar: Bar) -> float | None:
        dataset, has_segments = self.dataset, takes_segments(model)
        sums: list[torch.Tensor] = []
        n_targets = 0
        for part in Cut(max_tokens, machine.overhead).parts(dataset.lengths(numbers)):
            batch = dataset.batch(numbers[part], 0).to(machine.device)
            try:
                with torch.inference_mode(), machine.autocast():
                    output = model(**batch.inputs(has_segments))
                    sums.append(loss_sum(dataset.head, output, batch.targets, batch.mask))
            except torch.cuda.OutOfMemoryError:
                raise too_large(len(batch.ids), batch.ids.shape[1], max_tokens) from None
            n_targets += len(batch.targets)
            bar.advance(len(numbers[part]))
        return float(torch.stack(sums).cpu().double().sum()) / n_targets if n_targets else None
