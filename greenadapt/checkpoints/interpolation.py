"""Interpolate two models: every encoder weight is a weighted mean."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.writer import Tensor
from greenadapt.errors import InputError
from greenadapt.storage.arrays import Array, Streamed, row_blocks, same_arrays
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER
from greenadapt.tokenization.vocabulary import load_tokenizer

_BLOCK_BYTES = 1 << 20
_POOLER = "pooler."
# Settings that do not change the shapes of weights, but how they are used.
_SETTINGS = ("num_attention_heads", "n_heads", "hidden_act", "activation", "hidden_activation")


@dataclass(frozen=True)
class Interpolation:
    """The weights w · ``general`` + (1 - w) · ``domain``, w = ``weight``: a baseline in the code of arXiv 2212.03613.

    Interpolates only the encoder, in float32 (float64 if the domain model is), with the domain model's element types.
    Added words, and weights that only the domain model has (a head, a pooler), do not change. Raises ``InputError`` if
    the models differ in type, shapes, settings or base vocabulary.
    """

    domain: Checkpoint
    general: Checkpoint
    weight: float
    """The general model's share, from 0 to 1."""

    def __post_init__(self) -> None:
        _check_alike(self.domain, self.general)

    @property
    def pairs(self) -> dict[str, str]:
        """Interpolated weights: name in the domain model → name in the general model."""
        ours, theirs = _encoder(self.domain), _encoder(self.general)
        return {ours[name]: theirs[name] for name in ours if name in theirs}

    def tensors(self) -> dict[str, Tensor]:
        """All weights by name, in the order of the domain model; interpolated weights are streamed."""
        domain, pairs = self.domain, self.pairs
        tensors: dict[str, Tensor] = {name: domain[name] for name in domain.names}
        mixed = {name: self._mixed(name, theirs) for name, theirs in pairs.items()}
        decoder = domain.decoder_name
        if decoder is not None and same_arrays(domain[decoder], domain.embedding()):  # tied, yet stored
            mixed[decoder] = self._mixed(domain.embedding_name, pairs[domain.embedding_name])
        return tensors | mixed

    def _mixed(self, name: str, theirs: str) -> Streamed:
        ours, general = self.domain[name], self.general[theirs]
        if name == self.domain.embedding_name:
            general = general[: n_base_rows(self.general)]
        return Streamed(ours.shape, ours.dtype, _Mixed(ours, general, self.weight))


@dataclass(frozen=True, eq=False)
class _Mixed:
    """The weighted mean of two arrays, computed in blocks on iteration; rows that ``general`` lacks do not change."""

    domain: Array
    general: Array
    weight: float

    def __iter__(self) -> Iterator[Array]:
        precision = np.promote_types(self.domain.dtype, np.float32)
        general, begin = np.atleast_1d(self.general), 0
        for block in row_blocks(self.domain, _BLOCK_BYTES):
            mixed: Array = block.astype(precision)
            theirs = general[begin : begin + len(block)].astype(precision)
            mixed[: len(theirs)] *= 1 - self.weight
            mixed[: len(theirs)] += self.weight * theirs
            yield mixed
            begin += len(block)


def n_base_rows(checkpoint: Checkpoint) -> int:
    """Number of embedding rows without added words."""
    words = checkpoint.folder / WORDS_FILE
    return AddedWords.open(words).first_id if words.is_file() else checkpoint.n_rows


def _encoder(checkpoint: Checkpoint) -> dict[str, str]:
    """Name in transformers without the encoder's prefix → name in the file, for floating-point weights."""
    prefix = checkpoint.architecture.prefix
    prefix = prefix if checkpoint.embedding_name.startswith(prefix) else ""
    return {
        name.removeprefix(prefix): name
        for name in checkpoint.names
        if name.startswith(prefix) and _is_floating(checkpoint[name])
    }


def _check_alike(domain: Checkpoint, general: Checkpoint) -> None:
    ours, theirs = (model.architecture.model_type for model in (domain, general))
    if ours != theirs:
        raise _differ(domain, general, f"is of type {ours}", f"of type {theirs}")
    for name in _SETTINGS:
        values = [model.config.get(name) for model in (domain, general)]
        if None not in values and values[0] != values[1]:
            raise _differ(domain, general, f"has {name} {values[0]}", values[1])
    _check_vocabularies(domain.folder, general.folder)
    n_rows = [n_base_rows(model) for model in (domain, general)]
    if n_rows[0] != n_rows[1]:
        raise _differ(domain, general, f"has {n_rows[0]} rows that are not of added words", n_rows[1])
    _check_names(domain, general)
    _check_names(general, domain)
    _check_shapes(domain, general)


def _check_names(reference: Checkpoint, checkpoint: Checkpoint) -> None:
    """Raise ``InputError`` if ``checkpoint`` lacks encoder weights of ``reference``."""
    names = _encoder(checkpoint)
    missing = [name for name in _encoder(reference) if name not in names and not name.startswith(_POOLER)]
    if missing:
        raise InputError(
            f"{checkpoint.folder} lacks {len(missing)} weights that {reference.folder} has, such as {missing[0]}",
            "give models with the same number of layers",
        )


def _check_shapes(domain: Checkpoint, general: Checkpoint) -> None:
    ours, theirs = _encoder(domain), _encoder(general)
    for name in (name for name in ours if name in theirs):
        is_table = ours[name] == domain.embedding_name  # the number of rows may differ
        domain_shape, general_shape = domain[ours[name]].shape[is_table:], general[theirs[name]].shape[is_table:]
        if domain_shape != general_shape:
            raise _differ(domain, general, f"has {name} of {_shape(domain_shape)}", f"of {_shape(general_shape)}")


def _check_vocabularies(domain: Path, general: Path) -> None:
    """Raise ``InputError`` if the base tokenizers assign different ids to a token."""
    domain_vocabulary, general_vocabulary = (_vocabulary(folder) for folder in (domain, general))
    if domain_vocabulary != general_vocabulary:
        token = min(token for token, _ in domain_vocabulary.items() ^ general_vocabulary.items())
        ids = [
            f"{vocabulary[token]}" if token in vocabulary else "none"
            for vocabulary in (domain_vocabulary, general_vocabulary)
        ]
        raise InputError(
            f"{domain} and {general} have different base vocabularies, of {len(domain_vocabulary)} and "
            f"{len(general_vocabulary)} tokens: {token!r} has the ids {ids[0]} and {ids[1]}",
            "give the general model that the domain model was adapted from, or one with its tokenizer",
        )


def _vocabulary(folder: Path) -> dict[str, int]:
    base = folder / BASE_FOLDER if (folder / WORDS_FILE).is_file() else folder
    vocabulary: dict[str, int] = load_tokenizer(base).get_vocab(with_added_tokens=True)
    return vocabulary


def _differ(domain: Checkpoint, general: Checkpoint, ours: str, theirs: object) -> InputError:
    return InputError(f"{domain.folder} {ours}, {general.folder} {theirs}", "give models of one architecture")


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) + " numbers"


def _is_floating(array: Array) -> bool:
    return not (np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_)
