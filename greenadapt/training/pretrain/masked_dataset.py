"""Running text as what a masked language model is trained on, and how well it guesses on a sample of it."""

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
from greenadapt.storage.arrays import BoolArray, IntArray, row_blocks
from greenadapt.tasks.base import Features
from greenadapt.training.batches import Batch, Cut
from greenadapt.training.losses import loss_sum
from greenadapt.training.pretrain.masking import Corrupted, Masking
from greenadapt.training.pretrain.packed_text import PackedText
from greenadapt.training.random_draws import Purpose, random_bits

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
