"""Sentence vectors of texts, in either tokenization or the mean of both."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.sentence_modules import SentenceModules
from greenadapt.config import Pool, ReadingOptions
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, UsageError
from greenadapt.models.graphs import GraphSource, choose_backend, open_graph
from greenadapt.models.streaming import Inference, Runner, pooled_output, stream_task
from greenadapt.progress import Progress
from greenadapt.storage.arrays import FloatArray
from greenadapt.storage.files import plain
from greenadapt.tasks.base import Encoder
from greenadapt.tasks.classification import ClassificationTask, Text

if TYPE_CHECKING:
    from greenadapt.models.weights import InferenceModel


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """A model opened for sentence vectors."""

    runner: Runner
    encoder: Encoder
    modules: SentenceModules
    settings: Inference

    @classmethod
    def open(cls, folder: Path, options: ReadingOptions = ReadingOptions(precision="float32")) -> "SentenceEncoder":  # noqa: B008
        """Load the encoder of a model's folder, adapted or not, compiled or not.

        Raises ``InputError`` if the folder lacks weights or has modules of sentence-transformers that are not known,
        and what ``choose_backend`` raises.
        """
        backend, quantize = choose_backend(folder, options)
        checkpoint, modules = Checkpoint.open(folder), SentenceModules.read(folder)
        encoder = Encoder.of(checkpoint)
        if modules.max_length is not None:
            encoder = replace(encoder, max_length=min(modules.max_length, encoder.max_length))
        settings = Inference(0, encoder.special.pad)
        if backend == "torch":
            from greenadapt.models.forward import TorchRunner
            from greenadapt.models.machine import Machine
            from greenadapt.models.sentence_vectors import open_sentence_model

            machine = Machine.start("bfloat16" if quantize == "bf16" else options.precision)
            opened = open_sentence_model(checkpoint, modules)
            runner = TorchRunner(opened.model.to(machine.device), opened.rows)
            return cls(runner, encoder, modules, replace(settings, autocast=machine.autocast))

        def export() -> "InferenceModel":
            from greenadapt.models.sentence_vectors import open_sentence_model

            return open_sentence_model(checkpoint, modules)

        weights = tuple(layer.weights for layer in modules.dense)
        source = GraphSource(folder, folder, weights, {"modules": plain(asdict(modules))}, export)
        graph = open_graph(source, backend, quantize)
        if graph.head is not None:
            raise UsageError(
                f"{folder} was compiled for its task, not for sentence vectors", "compile the encoder itself"
            )
        return cls(graph, encoder, modules, settings)

    def vectors(self, texts: Sequence[str], view: Pool, batch_size: int, progress: Progress) -> FloatArray:
        """One vector for each text, (n_texts, dim) float32.

        ``mean`` is the mean of both views, of length 1 if the model's vectors have length 1. At most ``batch_size``
        texts of full length go through the model at once, and more short ones.
        """
        settings = replace(self.settings, pool=view, max_tokens=batch_size * self.encoder.max_length)
        vectors: FloatArray = np.empty((len(texts), 0), np.float32)
        prompted = (Text(self.modules.prompt + text) for text in texts)
        inputs = ClassificationTask().inference(prompted, self.encoder)  # a vector, like a class, is of a whole text
        with progress.bar("encode", len(texts), "texts") as bar:
            for i, output in enumerate(stream_task(self.runner, inputs, settings)):
                [vector] = pooled_output(output, view)
                if not i:
                    vectors = np.empty((len(texts), len(vector)), np.float32)
                vectors[i] = vector
                bar.advance(1)
        if self.modules.normalizes and view == "mean":
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return vectors


def check_texts(texts: Iterable[Any], progress: Progress) -> list[str]:
    """The texts as a tokenizer takes them: lone surrogates are replaced, with a warning that counts them.

    Raises ``InputError`` naming one that is no text.
    """
    decoder, checked = Decoder(), []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"item {number} is of type {type(text).__name__}, not a text", "give texts")
        checked.append(decoder.without_surrogates(text, f"item {number}"))
    decoder.warn_replaced("the texts", progress)
    return checked
