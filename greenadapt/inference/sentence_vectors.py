"""Sentence vectors of texts, in either tokenization or the mean of both."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.sentence_modules import SentenceModules
from greenadapt.config import Pool, Precision
from greenadapt.corpus.opening import Decoder
from greenadapt.errors import InputError, require_torch
from greenadapt.progress import Progress
from greenadapt.storage.arrays import FloatArray, IntArray
from greenadapt.tasks.features import Encoder, Feature, Input

if TYPE_CHECKING:
    from greenadapt.models.sentence_vectors import SentenceModel
    from greenadapt.models.streaming import Inference

_BLOCK = 256
"""Texts that are tokenized at once."""
_UNIT = np.zeros(1, np.int32)


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """A model opened for sentence vectors."""

    model: "SentenceModel"
    rows: Any
    encoder: Encoder
    modules: SentenceModules
    run: "Inference"

    @classmethod
    def open(cls, folder: Path, precision: Precision = "float32") -> "SentenceEncoder":
        """Load the encoder of a model's folder, adapted or not.

        Raises ``MissingError`` if torch is not installed, ``InputError`` if the folder lacks weights or has modules of
        sentence-transformers that are not known.
        """
        require_torch("sentence vectors")
        from greenadapt.models.machine import Machine
        from greenadapt.models.sentence_vectors import open_sentence_model
        from greenadapt.models.streaming import Inference

        checkpoint, modules = Checkpoint.open(folder), SentenceModules.read(folder)
        encoder = Encoder.of(checkpoint)
        if modules.max_length is not None:
            encoder = replace(encoder, max_length=min(modules.max_length, encoder.max_length))
        machine = Machine.start(precision)
        model, rows = open_sentence_model(checkpoint, modules)
        model.to(machine.device)
        run = Inference(0, encoder.special.pad, machine.autocast)
        return cls(model, rows, encoder, modules, run)

    def vectors(self, texts: Sequence[str], view: Pool, batch_size: int, progress: Progress) -> FloatArray:
        """One vector for each text, (n_texts, dim) float32.

        ``mean`` is the mean of both views, of length 1 if the model's vectors have length 1. At most ``batch_size``
        texts of full length go through the model at once, and more short ones.
        """
        from greenadapt.models.forward import outputs
        from greenadapt.models.streaming import pooled

        run = replace(self.run, pool=view, max_tokens=batch_size * self.encoder.max_length)
        found: FloatArray = np.empty((len(texts), 0), np.float32)
        with progress.bar("encode", len(texts), "texts") as bar:
            for i, output in enumerate(outputs(self.model, self.rows, self._inputs(texts), run)):
                [vector] = pooled(output, view)
                if not i:
                    found = np.empty((len(texts), len(vector)), np.float32)
                found[i] = vector
                bar.advance(1)
        if self.modules.normalizes and view == "mean":
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.float32(1e-12))
        return found

    def _inputs(self, texts: Iterable[str]) -> Iterator[Input]:
        pending = iter(texts)
        while block := list(islice(pending, _BLOCK)):
            for both in self.encoder.tokenizer.encode_batch([self.modules.prompt + text for text in block]):
                base = [self._feature(both.base.ids)]
                expanded = [self._feature(both.expanded.ids)] if self.encoder.has_words else base
                yield Input(base, expanded, 1)

    def _feature(self, pieces: IntArray) -> Feature:
        ids, types, _ = self.encoder.single(pieces[: self.encoder.max_length - 2])
        return Feature(ids, types, _UNIT)


def check_texts(texts: Iterable[Any]) -> list[str]:
    """The texts as a tokenizer takes them; raises ``InputError`` naming one that is none."""
    decoder, found = Decoder(), []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"item {number} is of type {type(text).__name__}, not a text", "give texts")
        found.append(decoder.without_surrogates(text, f"item {number}"))
    return found
