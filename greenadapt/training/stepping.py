"""Training steps, reported, stopped by a signal, and resumed."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Self

from greenadapt.config import RunConfig
from greenadapt.models.machine import Machine
from greenadapt.progress import Progress, stoppable
from greenadapt.storage.files import Json
from greenadapt.storage.own_json import read_own_object
from greenadapt.training.loop import Step, Training
from greenadapt.training.state import RECORD, STATE_HINT


@dataclass
class RunRecord:
    """What a run knows beyond its model; kept beside the training state."""

    epochs: list[Json] = field(default_factory=list)
    """Results of those that are finished."""
    loss: float = 0.0
    """Sum over the steps of the epoch that is under way."""
    seconds: float = 0.0
    stopped: bool = False
    """Whether the steps that are left are not made."""

    @classmethod
    def of_state(cls, state: Path) -> Self:
        """What was kept beside the training state in the folder ``state``; raises ``InputError`` if it is broken."""
        values = read_own_object(state / RECORD, cls, "training state", STATE_HINT)
        return cls(**{one.name: values[one.name] for one in fields(cls)})  # none may be missing, default or not

    def end_epoch(self, step: Step) -> Json:
        """The history entry of the epoch that ends with ``step``; its loss is the mean over its steps."""
        began = self.epochs[-1]["step"] if self.epochs else 0
        row: Json = {"epoch": step.epoch, "step": step.number, "seconds": round(self.seconds, 2)}
        row |= {"loss": self.loss / max(step.number - began, 1), "learning_rate": step.learning_rate}
        self.loss = 0.0
        return row


@dataclass(frozen=True, eq=False)
class Stepping:
    """How a run makes its steps."""

    run: RunConfig
    machine: Machine
    progress: Progress

    def make(
        self,
        training: Training,
        state: Path,
        record: RunRecord,
        label: str,
        after: Callable[[Step, bool], None] | None = None,
    ) -> None:
        """Make the steps that are left, with a state in ``state`` now and then, at the end of each epoch too.

        ``after`` is called with each step, and whether an epoch ended with it. Raises ``KeyboardInterrupt`` or
        ``SystemExit`` once the state is on disk.
        """
        started = time.monotonic() - record.seconds
        steps = training.steps()
        with self.progress.bar(label, training.n_steps, "steps") as bar, stoppable() as stop:
            bar.advance(training.number)
            while not record.stopped and (step := next(steps, None)) is not None:
                record.seconds = time.monotonic() - started
                bar.advance(1, loss=f"{step.loss:.3f}", lr=f"{step.learning_rate:.1e}")
                ended = step.number % training.steps_an_epoch == 0 or step.number == training.n_steps
                if after is not None:
                    after(step, ended)
                stop.agree(self.machine.largest)
                if stop.wanted or ended or step.number % self.run.checkpoint_steps == 0:
                    training.save(state, asdict(record))
                stop.leave()
