"""Interpolate two models: every encoder weight is a weighted mean of theirs."""

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
# Settings that leave the shapes as they are, but say what the weights mean.
_SETTINGS = ("num_attention_heads", "n_heads", "hidden_act", "activation", "hidden_activation")


@dataclass(frozen=True)
class Interpolation:
    """The weights w · ``general`` + (1 - w) · ``domain``, w = ``weight``: a baseline of the code of arXiv 2212.03613.

    Only the encoder is interpolated, in float32 (float64 where the domain model is), and keeps the domain model's
    element types. The rows of added words stay the domain model's, and so does what only it has: a head, or a pooler
    where the general model has none. Raises ``InputError`` if the models differ in type, shapes, settings or base
    vocabulary.
    """

    domain: Checkpoint
    general: Checkpoint
    weight: float
    """The general model's share, from 0 to 1."""

    def __post_init__(self) -> None:
        _check_alike(self.domain, self.general)

    @property
    def pairs(self) -> dict[str, str]:
        """Name of each weight of the domain model that is interpolated → its name in the general model."""
        ours, theirs = _encoder(self.domain), _encoder(self.general)
        return {ours[name]: theirs[name] for name in ours if name in theirs}

    def tensors(self) -> dict[str, Tensor]:
        """All weights of the domain model by name, in its order; interpolated ones are streamed."""
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
    """The weighted mean of two arrays in blocks, computed in each iteration; rows beyond ``general`` are kept."""

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
    """Rows of the embedding without those of added words."""
    words = checkpoint.folder / WORDS_FILE
    return AddedWords.open(words).first_id if words.is_file() else checkpoint.n_rows


def _encoder(checkpoint: Checkpoint) -> dict[str, str]:
    """Name without the encoder's prefix, as transformers has it → name in the file; only floating point numbers."""
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


def _check_names(one: Checkpoint, other: Checkpoint) -> None:
    """Refuse ``other`` if it lacks weights of the encoder of ``one``."""
    there = _encoder(other)
    lacking = [name for name in _encoder(one) if name not in there and not name.startswith(_POOLER)]
    if lacking:
        raise InputError(
            f"{other.folder} lacks {len(lacking)} weights that {one.folder} has, such as {lacking[0]}",
            "give models with the same number of layers",
        )


def _check_shapes(domain: Checkpoint, general: Checkpoint) -> None:
    ours, theirs = _encoder(domain), _encoder(general)
    for name in (name for name in ours if name in theirs):
        is_table = ours[name] == domain.embedding_name  # whose rows may be more
        first, second = domain[ours[name]].shape[is_table:], general[theirs[name]].shape[is_table:]
        if first != second:
            raise _differ(domain, general, f"has {name} of {_shape(first)}", f"of {_shape(second)}")


def _check_vocabularies(domain: Path, general: Path) -> None:
    """Refuse base tokenizers that give a token different ids."""
    ours, theirs = (_vocabulary(folder) for folder in (domain, general))
    if ours != theirs:
        token = min(token for token, _ in ours.items() ^ theirs.items())
        ids = [f"{vocabulary[token]}" if token in vocabulary else "none" for vocabulary in (ours, theirs)]
        raise InputError(
            f"{domain} and {general} have different base vocabularies, of {len(ours)} and {len(theirs)} tokens: "
            f"{token!r} has the ids {ids[0]} and {ids[1]}",
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
