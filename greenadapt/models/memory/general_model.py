"""Open a general model, and attach it to a domain model."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from greenadapt.checkpoints.layout import MEMORY_FOLDER
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig, RunConfig
from greenadapt.errors import UsageError
from greenadapt.models.machine import Machine
from greenadapt.models.memory.cache import (
    CachedMemory,
    DistinctTexts,
    GeneralStates,
    MemoryReader,
    open_cache,
)
from greenadapt.models.memory.fusion import attach_logits_fusion, attach_memory
from greenadapt.models.weights import open_encoder
from greenadapt.progress import Progress
from greenadapt.tasks.base import Encoder, Input
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER
from greenadapt.tokenization.export import copy_tokenizers


@dataclass(frozen=True, eq=False)
class GeneralModel:
    """A general model on disk, and how its states enter a domain model."""

    checkpoint: Checkpoint
    config: MemoryConfig
    sha256: str
    """Of its configuration, tokenizer and weights."""

    def reader(self, encoder: Encoder) -> MemoryReader:
        """Converts the inputs of a domain model, made by ``encoder``, to those of this model."""
        return MemoryReader.of(encoder, self.checkpoint)

    def attach(self, model: Any, encoder: Encoder, machine: Machine, seed: int) -> None:
        """Attach this model as memory to ``model``, whose inputs ``encoder`` makes; move both to the machine's device.

        ``seed`` draws the gates. A frozen general model is in half precision if the machine uses it. Raises
        ``UsageError`` if the two do not fit.
        """
        reads_pieces = not type(model).__name__.endswith("SequenceClassification")
        if self.config.strategy == "logits" and reads_pieces and encoder.has_words:
            raise UsageError(
                "--strategy logits adds the logits of each piece, and added words are other pieces than the general "
                "model's",
                "use the model without added words, or another strategy",
            )
        n_rows = Encoder.of(self.checkpoint).tokenizer.added.first_id  # without added words, which it never reads
        general: Any = open_encoder(self.checkpoint, n_rows)
        if self.config.frozen and machine.is_bfloat16:
            general = general.to(torch.bfloat16)
        attach = attach_logits_fusion if self.config.strategy == "logits" else attach_memory
        attach(model, general, self.config, seed)
        model.to(machine.device)

    def copy_tokenizer(self, folder: Path) -> None:
        """Copy the tokenizer to the folder of the trained general model in ``folder``."""
        source = self.checkpoint.folder
        base = source / BASE_FOLDER
        copy_tokenizers(base if base.is_dir() else source, folder / MEMORY_FOLDER)


@dataclass(frozen=True, eq=False)
class StatesOnDisk:
    """A folder of cached states of general models."""

    folder: Path
    run: RunConfig
    machine: Machine
    progress: Progress

    def open(self, general: GeneralModel, model: Any, reader: MemoryReader, views: Iterable[Input]) -> CachedMemory:
        """The states for all inputs of ``views``, computed if not cached.

        ``model``, which has ``general`` as its memory, computes them in the first process. Raises the errors of
        ``open_cache``.
        """
        states = GeneralStates(model.memory, general.sha256, self.run.max_tokens)
        texts = DistinctTexts.of(map(reader.of_input, views))
        if not self.machine.is_first:
            self.machine.wait()
        cached = open_cache(self.folder, self.run.max_cache, states, reader, texts, self.progress)
        if self.machine.is_first:
            self.machine.wait()
        return cached
