"""How well a masked language model guesses: its mean loss over the masked pieces of a sample of a text."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from greenadapt.models.machine import Machine, too_large
from greenadapt.models.weights import takes_segments
from greenadapt.progress import Bar
from greenadapt.storage.arrays import IntArray
from greenadapt.training.batches import Cut
from greenadapt.training.losses import loss_sum
from greenadapt.training.pretrain.masked_dataset import MaskedDataset

VIEWS = ("base", "expanded")


@dataclass(frozen=True, eq=False)
class Measured:
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
        """View → mean of -log p over the targets, in nats; ``None`` where there are none."""
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
