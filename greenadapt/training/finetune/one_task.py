"""One seed of a fine-tuning run on one task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from greenadapt.checkpoints.layout import LOGITS, PREDICTIONS
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.models.embedding_rows import Rows
from greenadapt.models.weights import TrainedRows, open_model, write_model, write_rows
from greenadapt.storage.arrays import write_arrays
from greenadapt.storage.files import Json, write_lines
from greenadapt.tasks.base import Task
from greenadapt.tasks.features import Encoder, Input
from greenadapt.training.batches import TaskDataset
from greenadapt.training.evaluation import KeptInputs, stacked
from greenadapt.training.feed import Feed
from greenadapt.training.finetune.run import Measured, RunSetup, SeedRun, float_scores


@dataclass(frozen=True)
class Examples:
    """The labelled examples of one task, by what they are for."""

    train: Sequence[Any]
    dev: Sequence[Any] | None = None
    test: Sequence[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class TaskSetup(RunSetup):
    """What all seeds of a run on one task share."""

    task: Task[Any]
    encoder: Encoder
    examples: Examples
    save_logits: bool = False

    @property
    def first_encoder(self) -> Encoder:
        """The task's."""
        return self.encoder


class TaskRun(SeedRun[TaskSetup]):
    """Trains ``setup`` under one seed in ``folder``, where a killed run has left its state."""

    def __init__(self, setup: TaskSetup, seed: int, folder: Path, steps_before: int = 0) -> None:
        super().__init__(setup, seed, folder, steps_before)
        task, encoder = setup.task, setup.encoder
        items = task.training(setup.examples.train, encoder, seed, setup.progress)
        self.rows = Rows.seen(chain(items, self._seen()), encoder.special)
        self.model = open_model(setup.checkpoint, task.head, task.head_config(), self.rows, seed)
        self._memory = self.attach(self.model, items, self._inputs("dev"))
        dataset = TaskDataset.of(items, self.rows, task.head, encoder.special.pad, self._memory["train"])
        self.n_inputs = dataset.n_items
        self.training = self.begin(Feed([dataset], self.plan))

    def _seen(self) -> Iterator[Input]:
        """What is read but not trained on."""
        return chain(self._inputs("dev"), self._inputs("test"))

    def _inputs(self, kind: str) -> KeptInputs:
        examples = self.setup.examples.dev if kind == "dev" else self.setup.examples.test
        return self.setup.inputs(self.setup.task, self.setup.encoder, examples or (), f"--{kind}")

    def dev_scores(self) -> Json | None:
        """Those of the development set."""
        dev = self.setup.examples.dev
        return None if dev is None else self.evaluate(self._measured(dev, "dev")).scores

    def score_of(self, dev: Json) -> float | None:
        """The task's main score."""
        score: float | None = dev[self.setup.task.main]
        return score

    def numbers_of(self, dev: Json) -> dict[str, float]:
        """All scores that are numbers."""
        return float_scores(dev)

    def final_scores(self, dev: Json | None) -> Json:
        """``dev`` and ``test``, where there are such sets."""
        scores: Json = {} if dev is None else {"dev": dev}
        test, save_logits = self.setup.examples.test, self.setup.save_logits
        if test is not None:
            evaluation = self.evaluate(self._measured(test, "test"), keep_logits=save_logits)
            write_lines(self.folder / PREDICTIONS, evaluation.predictions)
            if save_logits:
                write_arrays(self.folder / LOGITS, stacked(evaluation.logits))
            scores["test"] = evaluation.as_dict()
        return scores

    def write(self, trained: TrainedRows, whole: Path, *, is_whole: bool) -> None:
        """See ``write_model`` and ``write_rows``."""
        source = self.setup.checkpoint
        if is_whole:
            write_model(self.model, trained, source, whole)
        else:
            write_rows(self.model, trained, source, Checkpoint.open(whole), self.folder)
        self.copy_general_tokenizer(whole if is_whole else self.folder)

    def counts(self) -> Json:
        """``train``, ``dev`` and ``test`` examples, ``inputs`` that training has of them, ``rows``, ``rows_used``."""
        examples = self.setup.examples
        return {
            "train": len(examples.train),
            "inputs": self.n_inputs,
            "dev": len(examples.dev or ()),
            "test": len(examples.test or ()),
            "rows": self.setup.checkpoint.n_rows,
            "rows_used": len(self.rows),
        }

    def _measured(self, examples: Sequence[Any], label: str) -> Measured:
        setup = self.setup
        return Measured(setup.task, setup.encoder, examples, self._inputs(label), label, self._memory[label])
