"""The training loop, a generator of optimizer steps, and the training state from which a killed run resumes."""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file

from greenadapt.config import SessionOptions
from greenadapt.errors import InputError, pluralize, time_left
from greenadapt.models.machine import Machine, too_large
from greenadapt.models.weights import takes_segments, write_tensors
from greenadapt.progress import Progress, handle_signals
from greenadapt.store.arrays import ArrayFile
from greenadapt.store.files import Json, parse_own, replacing
from greenadapt.training.batches import Batch, BatchDivider, loss_sum
from greenadapt.training.sampling import BatchSampler, Purpose, SampledBatch, random_bits

MAX_NORM = 1.0
"""The largest norm of the gradient; a longer one is clipped."""
# Small sets have epochs of a few steps, and the state is three times the model.
CHECKPOINT_STEPS, _SECONDS_BETWEEN_EPOCHS_SAVED = 500, 60
_ENOUGH_STEPS, _ENOUGH_SECONDS = 10, 20
"""An estimate of time needs so many steps, or so long, after the first step, in which the model is set up."""
_WORTH_NOTING = 20  # seconds
STATE_HINT = "remove this file to train from the beginning"


def save_state(
    file: Path, tensors: Mapping[str, torch.Tensor], number: int, shrink: float = 1.0, record: Json | None = None
) -> None:
    """Write the state of a run: tensors by name, the ``number`` of finished steps, ``Training.shrink``, and the record
    of its caller.

    It is atomic: a kill at any moment leaves the previous state or the new one.
    """
    metadata = {"number": str(number), "shrink": repr(shrink), "record": json.dumps(record or {})}
    with replacing(file) as part:
        write_tensors(tensors, part, metadata)


def load_state(file: Path) -> tuple[dict[str, torch.Tensor], int, float] | None:
    """What ``save_state`` wrote but for the record, the tensors on the CPU; ``None`` if there is no file.

    Raises ``InputError`` if it is damaged.
    """
    if not file.is_file():
        return None
    metadata = ArrayFile(file).metadata
    return load_file(file), int(metadata["number"]), float(metadata["shrink"])


def remove_state(folder: Path) -> None:
    """Remove the hidden files and folders in ``folder``, which only an unfinished run needs."""
    for path in folder.glob(".*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


# The state of Adam per weight; weights of a single task have made fewer steps than shared ones.
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True)
class Step:
    """A completed optimizer step."""

    number: int
    """Number of the step, from 1."""
    epoch: int
    """From 1."""
    loss: float
    """Mean over the terms of the loss."""
    learning_rate: float
    grad_norm: float
    """Before clipping."""
    examples: int
    """Number of items, see ``sampling``."""
    pieces: int
    """Pieces in the model, in all processes, without padding."""
    task: str | None = None
    """The task of the examples, if there are several."""


@dataclass(eq=False)
class _StepShare:
    """The share of a process in a step."""

    sampled: SampledBatch
    batches: list[Batch]
    weight: float
    """The weight of the batches' loss in the gradient, which is 0 if the process has no example of its own."""
    pieces: int
    """Pieces in all processes."""


def learning_rate(step: float, n_steps: int, warmup: float, peak: float) -> float:
    """The learning rate of a step, from 0, of ``n_steps``: linear to ``peak`` in ``warmup · n_steps``, then linear to
    0, as in transformers' linear schedule.
    """
    rising = warmup * n_steps
    return peak * (step / rising if step < rising else (n_steps - step) / max(n_steps - rising, 1))


@dataclass
class RunRecord:
    """The results of a run so far, saved with the training state."""

    epochs: list[Json] = field(default_factory=list)
    """History entries of the finished epochs."""
    loss: float = 0.0
    """Sum over the steps of the current epoch."""
    seconds: float = 0.0
    stopped: bool = False
    """Whether training stopped before the last step."""

    @classmethod
    def of_state(cls, state: Path) -> Self:
        """The record saved with the training state in the file ``state``; raises ``InputError`` if it is damaged."""
        return parse_own(ArrayFile(state).metadata["record"], cls, state, STATE_HINT)

    def end_epoch(self, step: Step) -> Json:
        """The history entry of the epoch that ends with ``step``; its loss is the mean over its steps."""
        first_step = self.epochs[-1]["step"] if self.epochs else 0
        row: Json = {"epoch": step.epoch, "step": step.number, "seconds": round(self.seconds, 2)}
        row |= {"loss": self.loss / max(step.number - first_step, 1), "learning_rate": step.learning_rate}
        self.loss = 0.0
        return row


class Training:
    """Trains a model by AdamW (Loshchilov and Hutter, arXiv 1711.05101) with a linear schedule.

    ``model`` holds the embedding rows of the inputs of ``sampler``, and is trained in place. All draws (task, order,
    mixture, dropout) are a function of the seed and the number of the step, so that weights, moments and this number
    are the whole state. Steps do not change weights without a gradient, such as those of other tasks.
    """

    def __init__(
        self, model: Any, sampler: BatchSampler, machine: Machine, max_tokens: int = SessionOptions.max_tokens
    ) -> None:
        train = sampler.train
        self.model = model
        self.number = 0
        """The number of steps made."""
        self.shrink = 1.0
        """Factor by which weight decay has multiplied the rows of the embedding that the model does not hold."""
        self.steps_per_epoch = sampler.steps_per_epoch
        self.n_steps = sampler.n_steps
        self._sampler, self._machine, self._max_tokens = sampler, machine, max_tokens
        self._divider = BatchDivider(max_tokens, machine.overhead)
        self._has_segments = takes_segments(model)
        # A step of one of several tasks does not use the weights of the others.
        self._forward_model = machine.prepare(model, leaves_weights_out=len(sampler.datasets) > 1)
        self._has_decay = any(weight.requires_grad for weight in model.get_input_embeddings().parameters())
        trainable = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        matrices = {name: weight for name, weight in trainable.items() if weight.ndim > 1}
        vectors = {name: weight for name, weight in trainable.items() if weight.ndim <= 1}  # biases and layer norms
        self._weights = matrices | vectors
        groups = [
            {"params": [*matrices.values()], "weight_decay": train.weight_decay},
            {"params": [*vectors.values()], "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=train.learning_rate, fused=True)

    @property
    def epoch(self) -> int:
        """The epoch of the next step, from 1; after the last step, the last epoch."""
        return min(self.number, self.n_steps - 1) // self.steps_per_epoch + 1

    def train_steps(self) -> Iterator[Step]:
        """Make the remaining steps, and yield each when it is complete.

        Raises ``InputError`` if the loss or the gradient is not finite, with the weights before the step, and
        ``ResourceError`` if the step does not fit into the memory of the GPU.
        """
        next_share = self._share(self.number) if self.number < self.n_steps else None
        while next_share is not None:
            share, next_share = next_share, None
            try:
                loss = self._gradient(share)
                if self.number + 1 < self.n_steps:
                    next_share = self._share(self.number + 1)  # prepared while the GPU computes
                step = self._update(share, loss)
            except torch.cuda.OutOfMemoryError:
                n_inputs, n_pieces = max((batch.ids.shape for batch in share.batches), key=math.prod)
                raise too_large(n_inputs, n_pieces, self._max_tokens) from None
            yield step

    def run(
        self,
        state: Path,
        record: RunRecord,
        progress: Progress,
        label: str,
        after: Callable[[Step, bool], None] | None = None,
        later: int = 0,
    ) -> None:
        """Make the remaining steps, and save the training state in ``state`` every ``CHECKPOINT_STEPS``, after the last
        step, and after an epoch if the previous save is a minute old.

        ``after`` is called with each step, and whether it ended an epoch. Early on a note says how long all will take,
        with as many steps in each of ``later`` trainings, if that is worth noting. Raises ``KeyboardInterrupt`` or
        ``SystemExit`` for a stop, once the state is saved.
        """
        started = time.monotonic() - record.seconds
        saved = time.monotonic()
        steps = self.train_steps()
        first_step, first_ended, is_noted = self.number + 1, 0.0, False
        with progress.bar(label, self.n_steps, "steps") as bar, handle_signals() as stop:
            if self.number:
                bar.skip(self.number)
            while not record.stopped and (step := next(steps, None)) is not None:
                record.seconds = time.monotonic() - started
                bar.advance(1, loss=f"{step.loss:.3f}", lr=f"{step.learning_rate:.1e}")
                n_measured, seconds = step.number - first_step, time.monotonic() - first_ended
                if n_measured == 0:
                    first_ended = time.monotonic()
                elif not is_noted and (n_measured >= _ENOUGH_STEPS or seconds >= _ENOUGH_SECONDS):
                    n_left = self.n_steps * (later + 1) - step.number
                    _note_time(seconds / n_measured * n_left, label, later, progress)
                    is_noted = True
                ended = step.number % self.steps_per_epoch == 0 or step.number == self.n_steps
                if after is not None:
                    after(step, ended)
                stop.synchronize(self._machine.gather_max)
                is_last = step.number == self.n_steps or record.stopped
                is_due = step.number % CHECKPOINT_STEPS == 0
                is_old = ended and self._machine.gather_max(time.monotonic() - saved > _SECONDS_BETWEEN_EPOCHS_SAVED)
                if stop.is_requested or is_last or is_due or is_old:
                    self.save(state, asdict(record))
                    saved = time.monotonic()
                stop.raise_if_requested()

    def save(self, file: Path, record: Json | None = None) -> None:
        """Write the state and ``record`` atomically as ``file``; all processes call it, and the first writes."""
        if self._machine.is_first:
            tensors = {f"weights/{name}": weight for name, weight in self._weights.items()}
            for name, weight in self._weights.items():
                moments = self._optimizer.state.get(weight, {})
                tensors |= {f"{kind}/{name}": moments[kind] for kind in _MOMENTS if kind in moments}
            save_state(file, tensors, self.number, self.shrink, record)
        self._machine.wait()

    def restore(self, file: Path) -> bool:
        """Restore the state in ``file``, before ``train_steps``; return ``False`` if there is none.

        It must be of the same model, settings and examples, which the caller knows by the key of the result. Raises
        ``InputError`` if it is broken.
        """
        state = load_state(file)
        number = 0 if state is None else state[1]
        if self._machine.gather_max(number) != -self._machine.gather_max(-number):
            raise InputError(f"the processes do not see the same {file}", "train in a folder that all machines share")
        if state is None:
            return False
        tensors, self.number, self.shrink = state
        adam = {}
        with torch.no_grad():
            for i, (name, weight) in enumerate(self._weights.items()):
                weight.copy_(tensors[f"weights/{name}"])
                if f"exp_avg/{name}" in tensors:
                    adam[i] = {kind: tensors[f"{kind}/{name}"] for kind in _MOMENTS}
        settings = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": adam, "param_groups": settings})
        return True

    def _share(self, step: int) -> _StepShare:
        """This process's share of a step, from 0."""
        machine, sampled = self._machine, self._sampler.draw(step)
        dataset, n_passes = sampled.dataset, sampled.n_passes
        inputs = dataset.inputs_of(sampled.items, sampled.expanded)
        own_inputs = inputs[machine.rank :: machine.processes]  # they are sorted by length: shares are similar
        has_inputs = len(own_inputs) > 0
        if not has_inputs:  # processes synchronize gradients, so each needs a batch
            own_inputs = inputs[:1]
        # Gradients are averaged over processes, and the loss is the mean over the terms of all of them.
        weight = machine.processes / max(dataset.n_terms(inputs, n_passes), 1) if has_inputs else 0.0
        parts = self._divider.divide(dataset.lengths(own_inputs))
        batches = [dataset.batch(own_inputs[part], n_passes).to(machine.device) for part in parts]
        return _StepShare(sampled, batches, weight, int(dataset.lengths(inputs).sum()))

    def _gradient(self, share: _StepShare) -> torch.Tensor:
        """Compute the gradient of a step's batches; return the loss, () on the device."""
        machine, dataset = self._machine, share.sampled.dataset
        task = {} if dataset.task is None else {"task": dataset.task}
        self._forward_model.train()
        machine.seed(int(random_bits(1, self._sampler.seed, Purpose.DROPOUT, self.number, machine.rank)[0]))
        self._optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=machine.device)
        for number, batch in enumerate(share.batches, 1):
            is_last = number == len(share.batches)
            with nullcontext() if is_last else machine.no_sync(self._forward_model):
                with machine.autocast(is_training=True):
                    output = self._forward_model(**batch.inputs(self._has_segments), **task)
                loss = loss_sum(dataset.head, output, batch) * share.weight
                torch.autograd.backward(loss)
            total += loss.detach()
        return machine.total(total) / machine.processes

    def _update(self, share: _StepShare, mean_loss: torch.Tensor) -> Step:
        train, number = self._sampler.train, self.number + 1
        epoch = self.epoch
        norm = torch.nn.utils.clip_grad_norm_(self._weights.values(), MAX_NORM)
        loss, grad_norm = torch.stack([mean_loss, norm]).tolist()
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            self._optimizer.zero_grad(set_to_none=True)
            raise InputError(
                f"training diverged in step {number:,} (epoch {epoch}): loss {loss:g}, gradient norm {grad_norm:g}",
                "use a lower --learning-rate, or --precision float32; the last state on disk is kept",
            )
        rate = learning_rate(self.number, self.n_steps, train.warmup, train.learning_rate)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self.number = number
        self.shrink *= 1 - rate * train.weight_decay * self._has_decay
        sampled = share.sampled
        return Step(number, epoch, loss, rate, grad_norm, len(sampled.items), share.pieces, sampled.dataset.task)


def _note_time(seconds: float, label: str, later: int, progress: Progress) -> None:
    if seconds >= _WORTH_NOTING:
        trainings = f" for this and {pluralize(later, 'more training')}" if later else ""
        progress.note(f"{label}: {time_left(seconds)}{trainings}")
