"""Masking of pieces, and datasets of masked language modeling.

The masks are BERT's (Devlin et al., arXiv 1810.04805, section 3.1), drawn again for every input and pass. A draw is a
function of its key, so that the batch size, the number of processes and interruptions do not change it.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from greenadapt.models.machine import Machine, too_large
from greenadapt.models.rows import Rows
from greenadapt.models.streaming import MemoryInput
from greenadapt.models.weights import share_memory, takes_segments
from greenadapt.progress import Bar
from greenadapt.store.arrays import BoolArray, IntArray
from greenadapt.tasks.base import Features
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.training.batches import Batch, BatchDivider, loss_sum
from greenadapt.training.packed_text import VIEWS, PackedText
from greenadapt.training.sampling import Purpose, random_bits

_ALL_BITS = float(2**64)
_MASKED, _REPLACED = 0.8, 0.1  # shares of the targets; the others are unchanged


@dataclass(frozen=True, eq=False)
class MaskedInput:
    """A masked input and its targets.

    ``ids`` (n,) int32; ``positions`` (t,) int64, ascending, of the targets; ``targets`` (t,) int64, the original ids
    there. t may be 0.
    """

    ids: IntArray
    positions: IntArray
    targets: IntArray


@dataclass(frozen=True, eq=False)
class Masking:
    """How inputs are masked.

    Of n pieces that can be targets, ``share`` · n are, rounded randomly so that the mean is exact: a short input may
    have none. 80 % of the targets are replaced by ``mask_id``, 10 % by any of ``pieces``, and 10 % are unchanged.
    ``pieces`` (k,), ascending, are the ids that can be targets: those of the base tokenizer without special tokens.
    """

    share: float
    mask_id: int
    pieces: IntArray

    @classmethod
    def of(cls, tokenizer: DualTokenizer, share: float) -> "Masking":
        """The masking for a model with ``tokenizer``."""
        special = tokenizer.special
        ids = set(tokenizer.base.get_vocab().values())
        ids -= {special.cls, special.sep, special.pad, special.unk, special.mask}
        ids -= {row for row, token in tokenizer.base.get_added_tokens_decoder().items() if token.special}
        return cls(share, special.mask, np.array(sorted(ids), np.int32))

    def corrupt(self, ids: IntArray, *key: int) -> MaskedInput:
        """Mask an input of n pieces."""
        n = len(ids)
        bits = random_bits(3 * n + 1, *key)
        order, action, replacement = bits[1:].reshape(3, n)
        indices = np.minimum(np.searchsorted(self.pieces, ids), len(self.pieces) - 1)
        is_candidate: BoolArray = self.pieces[indices] == ids
        n_targets = self.share * np.count_nonzero(is_candidate) + bits[0] / _ALL_BITS
        candidates = np.flatnonzero(is_candidate)
        positions = np.sort(candidates[np.argsort(order[candidates], kind="stable")[: int(n_targets)]])
        draw = action[positions] / _ALL_BITS
        corrupted = ids.astype(np.int32)
        corrupted[positions[draw < _MASKED]] = self.mask_id
        replaced = positions[(draw >= _MASKED) & (draw < _MASKED + _REPLACED)]
        corrupted[replaced] = self.pieces[(replacement[replaced] % np.uint64(len(self.pieces))).astype(np.int64)]
        return MaskedInput(corrupted, positions, ids[positions].astype(np.int64))


@dataclass(frozen=True, eq=False)
class MaskedDataset:
    """A ``Dataset``: the inputs of ``text``, masked by ``masking``; input i has the number i · n_views + v in view v.

    ``rows`` maps ids to the rows of the embedding in the model. The general model of a ``memory`` reads the masked
    inputs. With ``is_fixed``, for evaluation, masks are drawn only once, else in every pass.
    """

    text: PackedText
    rows: Rows
    masking: Masking
    pad_id: int
    seed: int
    memory: MemoryInput | None = None
    is_fixed: bool = False
    head: str = "MaskedLM"
    task: None = None
    _masked: dict[tuple[int, int], MaskedInput] = field(init=False, default_factory=dict)
    """(n_passes, number) → the input that ``n_terms`` masked for the current step, since masking costs time."""

    @property
    def n_items(self) -> int:
        return len(self.text)

    n_examples = n_items

    @property
    def n_views(self) -> int:
        """1 if the model has no added words, else 2."""
        return len(self.text.views)

    def inputs_of(self, items: IntArray, expanded: BoolArray) -> IntArray:
        view = expanded.astype(np.int64) if self.n_views > 1 else 0
        numbers = items * self.n_views + view
        return numbers[np.argsort(self.lengths(numbers), kind="stable")]

    def lengths(self, numbers: IntArray) -> IntArray:
        lengths = np.zeros(len(numbers), np.int64)
        items, views = np.divmod(numbers, self.n_views)
        for v, view in enumerate(self.text.views):
            view_items = items[views == v]
            lengths[views == v] = view.offsets[view_items + 1] - view.offsets[view_items]
        return lengths

    def n_terms(self, numbers: IntArray, n_passes: int) -> int:
        """The number of targets in these inputs after ``n_passes`` passes over the text."""
        self._masked.clear()
        for number in numbers.tolist():
            self._masked[n_passes, number] = self._corrupt(number, n_passes)
        return sum(len(self._masked[n_passes, number].targets) for number in numbers.tolist())  # numbers may repeat

    def batch(self, numbers: IntArray, n_passes: int) -> Batch:
        """The masked inputs; ``positions`` (t,) are those of the targets in (b · n,)."""
        masked = self._masked
        inputs = [masked.get((n_passes, number)) or self._corrupt(number, n_passes) for number in numbers.tolist()]
        lengths = np.array([len(item.ids) for item in inputs], np.int64)
        ids = np.concatenate([item.ids for item in inputs])
        types = np.zeros(len(ids), np.int64)
        features = Features(ids, types, lengths)
        positions = np.concatenate([i * lengths.max() + item.positions for i, item in enumerate(inputs)])
        extra = {"positions": torch.from_numpy(positions)}
        if self.memory is not None:
            extra |= share_memory(self.memory.read(features))
        return Batch(
            torch.from_numpy(features.pad(self.rows.compact(ids), self.pad_id)),
            torch.from_numpy(features.mask),
            torch.from_numpy(features.pad(types, 0)),
            torch.from_numpy(np.concatenate([item.targets for item in inputs])),
            extra,
        )

    def sample(self, n: int, view: int) -> IntArray:
        """The numbers of at most ``n`` inputs in a view, drawn by the seed, the shortest first."""
        items = np.argsort(random_bits(self.n_items, self.seed, Purpose.EVALUATION, 1), kind="stable")[:n]
        return self.inputs_of(items, np.full(len(items), view == 1))

    def _corrupt(self, number: int, n_passes: int) -> MaskedInput:
        item, v = divmod(number, self.n_views)
        view = self.text.views[v]
        part = slice(int(view.offsets[item]), int(view.offsets[item + 1]))
        key = (Purpose.EVALUATION, 0) if self.is_fixed else (Purpose.MASKING, n_passes)
        return self.masking.corrupt(view.values[part], self.seed, *key, number)


@dataclass(frozen=True, eq=False)
class MaskedSample:
    """An evaluation set: at most ``n_inputs`` inputs, always the same, of a text with fixed masks."""

    dataset: MaskedDataset
    n_inputs: int

    @cached_property
    def samples(self) -> dict[str, IntArray]:
        """View → numbers of the inputs, of the same texts in both views."""
        return {VIEWS[v]: self.dataset.sample(self.n_inputs, v) for v in range(self.dataset.n_views)}

    def n_targets(self) -> dict[str, int]:
        """View → number of targets."""
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
        for part in BatchDivider(max_tokens, machine.overhead).divide(dataset.lengths(numbers)):
            batch = dataset.batch(numbers[part], 0).to(machine.device)
            try:
                with torch.inference_mode(), machine.autocast():
                    output = model(**batch.inputs(has_segments))
                    sums.append(loss_sum(dataset.head, output, batch))
            except torch.cuda.OutOfMemoryError:
                raise too_large(len(batch.ids), batch.ids.shape[1], max_tokens) from None
            n_targets += len(batch.targets)
            bar.advance(len(numbers[part]))
        return float(torch.stack(sums).cpu().double().sum()) / n_targets if n_targets else None
