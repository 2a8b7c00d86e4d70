"""Running text for tiny masked language models."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.corpus.text import Document
from greenadapt.inference.search.words import words_of
from greenadapt.models.rows import Rows
from greenadapt.models.streaming import MemoryInput
from greenadapt.tasks.base import Encoder
from greenadapt.training.masking import MaskedDataset, Masking
from greenadapt.training.packed_text import PackedText, pack
from tests.support.small_tasks import sentences

WORDS_OF_TEXT = words_of(None)
"""Splits text as a search without a model does."""
MEASURED: dict[str, Any] = {
    "inputs": 2000,
    "targets": {"base": 12345, "expanded": 40},
    "before": {"base": 6.5, "expanded": 7.25},
    "after": {"base": 2.25, "expanded": 7.5},
}
"""What ``scores.json`` has of the losses on one text."""


def documents(n: int = 30, seed: int = 0) -> list[Document]:
    return [Document((" ".join(words),), f"{i}") for i, words in enumerate(sentences(n, seed))]


def text_file(path: Path, n: int = 60, seed: int = 0) -> Path:
    path.write_text("".join(f"{document.lines[0]}\n" for document in documents(n, seed)), "utf-8")
    return path


def packed(model: Path, folder: Path, texts: Iterable[Document], max_length: int = 32) -> tuple[PackedText, Encoder]:
    checkpoint = Checkpoint(model)
    encoder = Encoder.of(checkpoint, max_length)
    pack(texts, encoder, [folder])
    text = PackedText.open(folder)
    assert text is not None
    return text, encoder


def masked_dataset(
    model: Path, folder: Path, memory: MemoryInput | None = None, *, is_fixed: bool = False, share: float = 0.3
) -> MaskedDataset:
    """A data set with all rows, and with the masks of seed 7."""
    text, encoder = packed(model, folder, documents())
    masking = Masking.of(encoder.tokenizer, share)
    rows = Rows.all(Checkpoint(model).n_rows)
    return MaskedDataset(text, rows, masking, encoder.special.pad, 7, memory, is_fixed)
