"""Masked language models opened from a checkpoint, with a head of their own where it has none, and written again."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from greenadapt.arrays import Array, Streamed, row_blocks
from greenadapt.checkpoint import MODEL_TYPES, Checkpoint
from greenadapt.models.mlm import MaskedLM
from greenadapt.surgery import write_weights
from greenadapt.training.memory_files import write_memory
from greenadapt.training.models import load_model, read_weights, refuse_lost, write_config
from greenadapt.training.rows import Rows, RowTable
from greenadapt.training.tensors import as_array

_MAPPING = "MODEL_FOR_MASKED_LM_MAPPING"
_POOLER = "pooler."
_FLOAT32 = np.dtype("<f4")


@dataclass(frozen=True, eq=False)
class OpenedMaskedLM:
    """A masked language model of a checkpoint, float32, whose embedding has only ``rows``, the old ones first."""

    model: MaskedLM
    rows: Rows
    checkpoint: Checkpoint
    has_new_head: bool
    """Whether the head was made anew, since the checkpoint has none."""
    left_out: tuple[str, ...]
    """Names of the checkpoint's weights that the model has no use for, such as those of another head."""


def open_masked_lm(checkpoint: Checkpoint, rows: Rows, n_old: int, seed: int) -> OpenedMaskedLM:
    """The masked language model of ``checkpoint``, of whose embedding it holds ``rows``: the ``n_old`` old ones, and
    any of the others.

    A head that the checkpoint has is kept, its bias too; one that it has not is drawn from ``seed`` as transformers
    does, with a bias of zero. Runs none of the folder's code. Raises ``InputError`` where weights of the encoder are
    missing, ``UsageError`` for an architecture that ``MaskedLM`` does not know.
    """
    weights = read_weights(checkpoint)
    weights[checkpoint.embedding_name] = torch.from_numpy(RowTable.of(checkpoint.embedding()).read(rows.ids))
    if checkpoint.decoder_name is not None:
        weights[checkpoint.decoder_name] = torch.from_numpy(
            RowTable.of(checkpoint[checkpoint.decoder_name]).read(rows.ids)
        )
    for name in checkpoint.bias_names:
        weights[name] = torch.from_numpy(checkpoint[name][rows.ids].astype(np.float32))
    plain, new = load_model(checkpoint, _MAPPING, {"vocab_size": len(rows)}, weights, seed)
    encoder = f"{plain.base_model_prefix}."
    refuse_lost(checkpoint, [name for name in new if name.startswith(encoder)])
    kind = MODEL_TYPES[checkpoint.model_type]
    has_new_head = any(not name.startswith(encoder) and name not in (kind.decoder, *kind.biases) for name in new)
    known = plain.state_dict()
    others = tuple(name for name in weights if _full_name(checkpoint, name) not in known)
    model = MaskedLM(plain, n_old)
    return OpenedMaskedLM(model, rows, checkpoint, has_new_head, others)


def write_masked_lm(opened: OpenedMaskedLM, shrink: float, folder: Path) -> None:
    """Write the whole model, float32, that plain ``AutoModelForMaskedLM`` and ``AutoModel`` load.

    The embedding is the checkpoint's with the model's rows in their places, streamed; rows that the model did not hold
    are multiplied by ``shrink``. The decoder's bias for added rows is the smallest of the old ones, and a decoder of
    its own has zeros there, so that no added word is guessed. A pooler, which no masked language model has, stays as it
    was. What was learnt about a memory goes into a file of its own. Copies no tokenizer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model, source = opened.model, opened.checkpoint
    write_memory(model.encoder, folder)
    kind = MODEL_TYPES[source.model_type]
    rows = as_array(model.embedding.weight)
    table = RowTable(source.embedding(), opened.rows, rows, shrink)
    tensors: dict[str, Array | Streamed] = {
        f"{kind.prefix}{kind.embedding}": Streamed(source.embedding().shape, _FLOAT32, table.blocks())
    }
    own = {id(weight) for module in (model.embedding, model.decoder) for weight in module.parameters()}
    memory = {id(weight) for weight in _memory_weights(model)}
    for name, weight in model.model.state_dict(keep_vars=True).items():
        if id(weight) not in own | memory:
            tensors[name] = as_array(weight)
    tensors |= _decoder(opened)
    for name in opened.left_out:
        if _full_name(source, name).startswith(kind.prefix + _POOLER):
            tensors[_full_name(source, name)] = np.asarray(source[name], np.float32)
    write_weights(folder, tensors)
    write_config(model.model, source, folder)


def _memory_weights(model: MaskedLM) -> list[torch.Tensor]:
    memory = getattr(model.encoder, "memory", None)
    return [] if memory is None else list(memory.state_dict(keep_vars=True).values())


def _decoder(opened: OpenedMaskedLM) -> dict[str, Array | Streamed]:
    """The weights of the head's last layer, for the whole vocabulary."""
    decoder, source = opened.model.decoder, opened.checkpoint
    kind = MODEL_TYPES[source.model_type]
    tensors: dict[str, Array | Streamed] = {}
    if decoder.bias is not None:
        bias = as_array(decoder.bias)
        tensors[kind.biases[0]] = np.append(bias, np.full(source.n_rows - len(bias), bias.min(), bias.dtype))
    if decoder.weight is not None:
        weight = as_array(decoder.weight)
        zeros = np.broadcast_to(_FLOAT32.type(0), (source.n_rows - len(weight), weight.shape[1]))
        pieces = chain(row_blocks(weight), row_blocks(zeros))
        tensors[kind.decoder] = Streamed((source.n_rows, weight.shape[1]), _FLOAT32, pieces)
    return tensors


def _full_name(checkpoint: Checkpoint, name: str) -> str:
    """The name that a weight of the checkpoint has in a model with a head."""
    prefix = MODEL_TYPES[checkpoint.model_type].prefix
    return name if checkpoint.embedding_name.startswith(prefix) else prefix + name
