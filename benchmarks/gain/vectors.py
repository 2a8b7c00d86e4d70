"""The word vectors of the adapted model's text beside the states of the network, on trial.

A word's vector v (as ``w2v`` trains it; less the mean of the most frequent words, and scaled to the norm √dim) comes to
each of its pieces, 0 for a word without one:

- ``mid``: h + B v after a layer in the middle, where h is the layer's state (d,), and B (d, dim) is learned.
- ``late``: U gelu(A v) beside the logits of each piece, with A (128, dim), U (n_outputs, 128). This is the same as
  gelu(A v) beside the last state before a linear head: stacked embeddings (Akbik et al. 2018).

B, A and U move five times as fast as the other weights: Adam's steps do not depend on the scale of a weight, so each
is written as 5 θ. For models of BERT's architecture with WordPiece.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, linear

from greenadapt.models.weights import find_last_linear
from greenadapt.store.arrays import Array, BoolArray, IntArray, Sequences, offsets_of
from greenadapt.tasks.base import Features, Item
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.training.finetune import FinetuneRun
from greenadapt.vectors.word_vectors import WordVectors

_SPEED = 5.0
_STD = 0.02
_DROPOUT = 0.3
_WIDTH = 128
_FREQUENT = 20_000
_KEYWORD = "word_vectors"


@dataclass(frozen=True)
class Variant:
    """Where vectors enter, and which."""

    late: bool = False
    layer: int | None = None
    """They are added after this layer, from 1; 0: to the embeddings."""
    source: str = "text"
    """``text``; ``random``: others of the same words; ``none``: one vector for all words; or the name of a corpus."""
    window: bool = False
    """Whether ``late`` reads the vectors of the pieces before and after, too."""


VARIANTS = {
    "late": Variant(late=True),
    "mid": Variant(layer=3),
    "mid1": Variant(layer=1),
    "mid5": Variant(layer=5),
    "input": Variant(layer=0),
    "midlate": Variant(late=True, layer=3),
    "late-window": Variant(late=True, window=True),
    "mid-random": Variant(layer=3, source="random"),
    "late-random": Variant(late=True, source="random"),
    "midlate-random": Variant(late=True, layer=3, source="random"),
    "mid-none": Variant(layer=3, source="none"),
    "midlate-none": Variant(late=True, layer=3, source="none"),
    "mid-other": Variant(layer=3, source="other"),
    "midlate-other": Variant(late=True, layer=3, source="other"),
}
"""Name of a trial → its variant."""
_OTHERS = {"biomedical": "software", "software": "cyber", "cyber": "biomedical"}
"""Name of a corpus → the corpus of another domain."""


class FastLinear(nn.Module):
    """A linear layer (n_outputs, n_inputs) that moves ``_SPEED`` times as fast as the other weights."""

    def __init__(self, n_inputs: int, n_outputs: int, random: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_outputs, n_inputs, generator=random) * _STD / _SPEED)
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, n_outputs) from (…, n_inputs)."""
        return linear(inputs, _SPEED * self.weight, _SPEED * self.bias)


class Stacked(nn.Module):
    """The weights that read vectors, (n_words + 1, dim), of which the first is 0."""

    def __init__(self, model: Any, vectors: Array, variant: Variant, seed: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.register_buffer("vectors", torch.from_numpy(vectors), persistent=False)
        dim, self.current = vectors.shape[1], None
        self.window = variant.window
        if variant.late:
            n_read = dim * (3 if variant.window else 1)
            self.inner = FastLinear(n_read, _WIDTH, random)
            self.outer = FastLinear(_WIDTH, find_last_linear(model)[1].out_features, random)
            find_last_linear(model)[1].register_forward_hook(self._add_late)
        if variant.layer is not None:
            self.map = FastLinear(dim, model.config.hidden_size, random)
            encoder = model.base_model
            place = encoder.encoder.layer[variant.layer - 1] if variant.layer else encoder.embeddings
            place.register_forward_hook(self._add_mid)
        model.register_forward_pre_hook(self._look_up, with_kwargs=True)

    def _look_up(self, _: Any, arguments: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self.current = self.vectors[named.pop(_KEYWORD)]  # (b, n, dim)
        return arguments, named

    def _read(self) -> Tensor:
        return dropout(self.current, _DROPOUT, self.training)

    def _add_mid(self, _: Any, __: Any, output: Any) -> Any:
        added = self.map(self._read()) * (self.current != 0).any(-1, keepdim=True)
        return (output[0] + added, *output[1:]) if isinstance(output, tuple) else output + added

    def _add_late(self, _: Any, __: Any, output: Tensor) -> Tensor:
        values = self._read()
        if self.window:
            padded = nn.functional.pad(values, (0, 0, 1, 1))
            values = torch.cat([padded[:, :-2], values, padded[:, 2:]], -1)
        hidden = dropout(gelu(self.inner(values)), 0.1, self.training)
        with torch.autocast(hidden.device.type, enabled=False):
            return output + self.outer(hidden.float())


@dataclass(frozen=True, eq=False)
class VectorReader:
    """Tells which vector each piece has, in both tokenizations; a ``MemoryInput``."""

    tokenizer: DualTokenizer
    row_of_id: IntArray
    """(n_rows,): the row of the vector of each piece or added word, 0 if it has none."""
    is_inside: BoolArray
    """(n_rows,): whether a piece continues a word."""

    @classmethod
    def of(cls, tokenizer: DualTokenizer, words: Sequence[str]) -> "VectorReader":
        base, added = tokenizer.base, tokenizer.added
        index = {word: i for i, word in enumerate(words, start=1)}
        names = [base.id_to_token(i) or "" for i in range(added.first_id)] + added.all_surfaces()
        rows = np.fromiter((index.get(name, 0) for name in names), np.int64, len(names))
        return cls(tokenizer, rows, np.array([name.startswith("##") for name in names]))

    def read(self, inputs: Features) -> dict[str, Tensor]:
        """``word_vectors`` (b, n) int64."""
        begins = ~self.is_inside[inputs.ids]
        begins[offsets_of(inputs.lengths)[:-1]] = True
        starts = np.flatnonzero(begins)
        words = Sequences(inputs.ids, np.append(starts, len(inputs.ids)))
        sizes = np.diff(words.offsets)
        rows = np.where(sizes == 1, self.row_of_id[inputs.ids[starts]], 0)
        several = np.flatnonzero(sizes > 1)
        ids = self.tokenizer.added.find(words.take(several))
        rows[several] = np.where(ids >= 0, self.row_of_id[ids], 0)
        return {_KEYWORD: torch.from_numpy(inputs.pad(np.repeat(rows, sizes), 0))}


def read_vectors(adapted: Path, source: str) -> tuple[list[str], Array]:
    """The words of a model's text, and their vectors, (n_words + 1, dim) float32, of which the first is 0."""
    words, matrix = _prepared(adapted)
    if source == "random":
        matrix = np.random.default_rng(0).standard_normal(matrix.shape)
    elif source == "none":
        matrix = np.ones_like(matrix)
    elif source == "other":
        corpus = adapted.parents[1]
        other_corpus = _OTHERS[corpus.name.split("-")[0]]
        [adapted] = corpus.parent.glob(f"{other_corpus}-*/{adapted.parent.name}/expand-*")
        words, matrix = _prepared(adapted)
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    scaled = matrix / np.maximum(norms, 1e-9) * np.sqrt(matrix.shape[1])
    return words, np.concatenate([np.zeros((1, matrix.shape[1])), scaled]).astype(np.float32)


def _prepared(adapted: Path) -> tuple[list[str], Array]:
    [folder] = adapted.parent.glob("w2v-*")
    vectors = WordVectors.load(folder)
    matrix = np.array(vectors.matrix, np.float32)
    return vectors.words, matrix - matrix[:_FREQUENT].mean(0)


@contextmanager
def stacked(name: str) -> Iterator[None]:
    """Fine-tune with the vectors of the variant ``name``."""
    variant, attached = VARIANTS[name], FinetuneRun._attach

    def attach(self: FinetuneRun, items: Sequence[Item]) -> VectorReader:
        attached(self, items)
        tokenizer, model = self.setup.first_encoder.tokenizer, self._parts.host
        words, vectors = read_vectors(self.setup.checkpoint.folder.resolve(), variant.source)
        model.stacked_vectors = Stacked(model, vectors, variant, self.seed)
        model.train(model.training)
        return VectorReader.of(tokenizer, words)

    with patch.object(FinetuneRun, "_attach", attach):
        yield
