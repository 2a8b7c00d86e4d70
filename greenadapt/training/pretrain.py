"""A run of masked language modeling: train on text, evaluate, resume after a kill, and write a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.layout import HEAD_STATE, HISTORY, SCORES, STATE
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import PretrainConfig, SessionOptions, TrainConfig
from greenadapt.models.machine import Machine
from greenadapt.models.memory.general_model import GeneralModel, MemoryReader
from greenadapt.models.mlm import OpenedMaskedLM, open_masked_lm, write_masked_lm
from greenadapt.models.rows import Rows
from greenadapt.models.weights import begin_memory
from greenadapt.progress import Progress
from greenadapt.store.files import Json, write_json, write_lines
from greenadapt.tasks.base import Encoder
from greenadapt.training.loop import RunRecord, Step, Training
from greenadapt.training.masking import MaskedDataset, MaskedSample, Masking
from greenadapt.training.packed_text import PackedText
from greenadapt.training.sampling import BatchSampler

TRAIN, HELDOUT = "train", "heldout"
HEAD_LEARNING_RATE = 1e-3
"""The peak rate of a new head's training alone."""
EVAL_INPUTS = 2000
"""The largest number of inputs per set that losses are measured on."""


@dataclass
class _Record(RunRecord):
    before: Json = field(default_factory=dict)
    """The losses before training, by set and view."""


@dataclass(kw_only=True, eq=False)
class PretrainRun:
    """Trains in ``folder``, and resumes from the states of a killed run there."""

    checkpoint: Checkpoint
    encoder: Encoder
    texts: Mapping[str, PackedText]
    """``train``, and those that are measured: ``heldout``, of the domain, and ``general``, which shows forgetting."""
    config: PretrainConfig
    train_config: TrainConfig
    machine: Machine
    progress: Progress
    folder: Path
    max_tokens: int = SessionOptions.max_tokens
    general: GeneralModel | None = None
    """The general model that is the memory of the trained one."""
    record: _Record = field(init=False, default_factory=_Record)

    def __post_init__(self) -> None:
        texts, config, source = self.texts, self.config, self.checkpoint.folder
        n_base_rows = self.encoder.tokenizer.added.first_id
        is_used = np.any([text.used_rows(self.checkpoint.n_rows) for text in texts.values()], axis=0)
        is_used[:n_base_rows] = True
        rows = Rows(np.flatnonzero(is_used))
        self.opened: OpenedMaskedLM = open_masked_lm(self.checkpoint, rows, n_base_rows, config.seed)
        reader: MemoryReader | None = None
        if self.general is not None:
            reader = MemoryReader.of(self.encoder, self.general.checkpoint)
            self.general.attach(self.opened.model.encoder, self.encoder, self.machine, config.seed)
            if begin_memory(self.opened.model.encoder, source):
                self.progress.note(f"the memory starts with the weights that {source} has learnt")
        masking = Masking.of(self.encoder.tokenizer, config.mask_share)
        pad = self.encoder.special.pad
        self._dataset = MaskedDataset(texts[TRAIN], self.opened.rows, masking, pad, config.seed, reader)
        self._measured = {
            name: MaskedSample(replace(self._dataset, text=text, is_fixed=True), EVAL_INPUTS)
            for name, text in texts.items()
            if name != TRAIN
        }

    def train(self) -> None:
        """Make the remaining steps; raises ``KeyboardInterrupt`` or ``SystemExit`` for a stop, once the state is
        saved.
        """
        if self.opened.has_new_head and self.config.head_steps:
            self._train_head()
        state = self.folder / STATE
        if self._restore(self.training, state):
            self.progress.note(f"resuming from step {self.training.number:,}")
        else:
            self.record.before = self._losses(self._measured)
        self.training.run(state, self.record, self.progress, "training", self._after_step)

    @cached_property
    def training(self) -> Training:
        """The training of the model, after the training of a new head alone."""
        return self._training_of(self.train_config)

    def _training_of(self, train: TrainConfig) -> Training:
        sampler = BatchSampler([self._dataset], train, self.config.seed)
        return Training(self.opened.model, sampler, self.machine, self.max_tokens)

    def _train_head(self) -> None:
        """Train a new head with a frozen encoder."""
        model, steps = self.opened.model, self.config.head_steps
        requires_grad = {weight: weight.requires_grad for weight in model.parameters()}
        model.requires_grad_(False)
        for weight in model.head_parameters:
            weight.requires_grad_(True)
        # max_steps ends the training: an epoch has at least one step.
        train = replace(self.train_config, epochs=steps, max_steps=steps, learning_rate=HEAD_LEARNING_RATE)
        training = self._training_of(train)
        state = self.folder / HEAD_STATE
        if self._restore(training, state) and training.number < training.n_steps:
            self.progress.note(f"resuming from step {training.number:,} of the new head")
        if training.number < training.n_steps:
            training.run(state, self.record, self.progress, "new head")
        for weight, is_trained in requires_grad.items():
            weight.requires_grad_(is_trained)

    def _restore(self, training: Training, state: Path) -> bool:
        is_restored = training.restore(state)
        if is_restored:
            self.record = _Record.of_state(state)
        return is_restored

    def _after_step(self, step: Step, ended: bool) -> None:
        """Record a step, and evaluate at the end of an epoch."""
        record = self.record
        record.loss += step.loss
        if not ended:
            return
        row = record.end_epoch(step)
        row |= self._losses({name: sample for name, sample in self._measured.items() if name == HELDOUT})
        record.epochs.append(row)

    def _losses(self, sets: Mapping[str, MaskedSample]) -> Json:
        """Set → view → loss, measured by the first process, for all processes."""
        return self.machine.run_on_first(lambda: self._measure(sets))

    def _measure(self, sets: Mapping[str, MaskedSample]) -> Json:
        losses: Json = {}
        for name, sample in sets.items():
            n_inputs = sum(map(len, sample.samples.values()))
            with self.progress.bar(f"{name} text", n_inputs, "inputs") as bar:
                losses[name] = sample.losses(self.opened.model, self.machine, self.max_tokens, bar)
        return losses

    def finish(self, whole: Path) -> None:
        """Evaluate on all texts, and write model, history and scores into ``whole``; only the first process does so."""
        record = self.record
        if not self.machine.is_first:
            return
        after = {HELDOUT: record.epochs[-1].get(HELDOUT)}
        after |= self._measure({name: sample for name, sample in self._measured.items() if name != HELDOUT})
        write_lines(whole / HISTORY, record.epochs)
        write_masked_lm(self.opened, self.training.shrink, whole)
        if self.general is not None and not self.general.config.frozen:
            self.general.copy_tokenizer(whole)
        sets = {
            name: {
                "inputs": min(len(sample.dataset.text), sample.n_inputs),
                "targets": sample.n_targets(),
                "before": record.before[name],
                "after": after[name],
            }
            for name, sample in self._measured.items()
        }
        head_steps = self.config.head_steps if self.opened.has_new_head else None
        scores = {"steps": self.training.number, "epochs": len(record.epochs), "new_head_steps": head_steps}
        write_json(whole / SCORES, {**scores, "max_length": self.encoder.max_length, "losses": sets})

    def counts(self) -> Json:
        """The numbers of documents, pieces and inputs, and of rows of the embedding in the model."""
        counted = {name: text.counts["inputs"] for name, text in self.texts.items()}
        rows = {"rows": self.checkpoint.n_rows, "rows_used": len(self.opened.rows)}
        train = self.texts[TRAIN].counts
        return {"documents": train["documents"], "pieces": train["pieces"], **counted, **rows}
