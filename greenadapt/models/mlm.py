"""Masked language models: the module, and how it is opened and written."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from greenadapt.architectures import ARCHITECTURES
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.writer import write_weights
from greenadapt.models.rows import Rows, RowTable
from greenadapt.models.weights import (
    as_array,
    load_model,
    read_weights,
    refuse_lost,
    trained_table,
    write_config,
    write_memory,
)
from greenadapt.store.arrays import Array, StreamedArray, row_blocks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FLOAT32 = np.dtype("<f4")


class SplitEmbedding(nn.Module):
    """An embedding in two parts: ``old`` (n_old, d), the rows of the base vocabulary, and ``added`` (k, d) below them.

    ``added`` is ``None`` if there are none.
    """

    def __init__(self, embedding: nn.Embedding, n_old: int) -> None:
        super().__init__()
        weight = embedding.weight.detach()
        self.padding_idx = embedding.padding_idx
        self.old = nn.Parameter(weight[:n_old].clone())
        self.added = nn.Parameter(weight[n_old:].clone()) if len(weight) > n_old else None

    @property
    def weight(self) -> torch.Tensor:
        """Both parts below each other, (n_old + k, d)."""
        return self.old if self.added is None else torch.cat([self.old, self.added])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of ``ids`` (…): (…, d)."""
        n_old = len(self.old)
        if self.added is None:
            return F.embedding(ids, self.old, self.padding_idx)
        old = F.embedding(ids.clamp(max=n_old - 1), self.old, self.padding_idx)
        added = F.embedding((ids - n_old).clamp(min=0), self.added)
        return torch.where((ids >= n_old)[..., None], added, old)


class OldRowsDecoder(nn.Module):
    """The last layer of a head, with one output per old row: ``weight`` (n_old, d), ``None`` if it is tied, and
    ``bias`` (n_old,), ``None`` if there is none.
    """

    def __init__(self, decoder: nn.Linear, embedding: SplitEmbedding, *, is_tied: bool) -> None:
        super().__init__()
        n_old = len(embedding.old)
        self._embedding = (embedding,)  # in a tuple, so that its weights are not parameters of this module
        self.weight = None if is_tied else nn.Parameter(decoder.weight.detach()[:n_old].clone())
        bias = decoder.bias
        self.bias = None if bias is None else nn.Parameter(bias.detach()[:n_old].clone())

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Logits (t, n_old) float32, under autocast too, of transformed states (t, d)."""
        weight = self._embedding[0].old if self.weight is None else self.weight
        with torch.autocast(states.device.type, enabled=False):
            return F.linear(states.float(), weight, self.bias)


class MaskedLM(nn.Module):
    """A transformers model ``…ForMaskedLM`` whose head reads masked pieces only and predicts old rows only.

    The softmax then costs 15 % of that over all pieces, and added words are read but never predicted. Replaces the
    embedding and the decoder of ``model``, which has ``n_old`` old rows and any number of added ones.
    """

    def __init__(self, model: "PreTrainedModel", n_old: int) -> None:
        super().__init__()
        self.model = model
        self._apply_head = ARCHITECTURES[model.config.model_type].apply_head
        embedding, decoder = model.get_input_embeddings(), model.get_output_embeddings()
        if not isinstance(embedding, nn.Embedding) or not isinstance(decoder, nn.Linear):
            raise TypeError(f"{type(model).__name__} has no embedding or no decoder")
        is_tied = decoder.weight is embedding.weight
        rows = SplitEmbedding(embedding, n_old)
        model.set_input_embeddings(rows)
        _replace(model, decoder, OldRowsDecoder(decoder, rows, is_tied=is_tied))

    @property
    def config(self) -> Any:
        """The transformers configuration."""
        return self.model.config

    @property
    def encoder(self) -> Any:
        """The transformers model without its head."""
        return self.model.base_model

    def get_input_embeddings(self) -> SplitEmbedding:
        """The rows; the name is that of transformers' models."""
        return self.model.get_input_embeddings()

    @property
    def decoder(self) -> OldRowsDecoder:
        """The head's last layer."""
        return self.model.get_output_embeddings()

    @property
    def head_parameters(self) -> list[nn.Parameter]:
        """All weights outside the encoder; the weights of a tied decoder belong to the encoder."""
        encoder = {id(weight) for weight in self.encoder.parameters()}
        return [weight for weight in self.parameters() if id(weight) not in encoder]

    def forward(
        self, positions: torch.Tensor, token_type_ids: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """``logits`` (t, n_old) at ``positions`` (t,) among the b · n pieces; all else is passed to the encoder."""
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        states = self.encoder(**inputs).last_hidden_state
        return {"logits": self._apply_head(self.model, states.flatten(0, 1).index_select(0, positions))}


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Replace ``old`` by ``new``, and remove the copy of its bias that some parents have."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if child is old:
                setattr(parent, name, new)
                if isinstance(getattr(parent, "bias", None), nn.Parameter):
                    parent.register_parameter("bias", None)
                return


@dataclass(frozen=True, eq=False)
class OpenedMaskedLM:
    """A masked language model of a checkpoint, float32, whose embedding has only ``rows``, the old rows first."""

    model: MaskedLM
    rows: Rows
    checkpoint: Checkpoint
    has_new_head: bool
    """Whether the checkpoint has no head."""
    left_out: tuple[str, ...]
    """Names of weights in the checkpoint but not in the model, such as those of another head."""


def open_masked_lm(checkpoint: Checkpoint, rows: Rows, n_old: int, seed: int) -> OpenedMaskedLM:
    """The masked language model of ``checkpoint`` with ``rows`` of its embedding: all ``n_old`` old, some added ones.

    A missing head is drawn from ``seed`` as transformers does, with a bias of zero. Never runs code of the folder.
    Raises ``InputError`` if weights of the encoder are missing.
    """
    weights = read_weights(checkpoint)
    if checkpoint.decoder_name is not None:
        weights[checkpoint.decoder_name] = torch.from_numpy(
            RowTable.of(checkpoint[checkpoint.decoder_name]).read(rows.ids)
        )
    for name in checkpoint.bias_names:
        weights[name] = torch.from_numpy(checkpoint[name][rows.ids].astype(np.float32))
    plain, new, left_out = load_model(checkpoint, "MODEL_FOR_MASKED_LM_MAPPING", weights, rows, seed)
    encoder = f"{plain.base_model_prefix}."
    refuse_lost(checkpoint, [name for name in new if name.startswith(encoder)])
    kind = checkpoint.architecture
    has_new_head = any(not name.startswith(encoder) and name not in (kind.decoder, *kind.biases) for name in new)
    return OpenedMaskedLM(MaskedLM(plain, n_old), rows, checkpoint, has_new_head, tuple(left_out))


def write_masked_lm(opened: OpenedMaskedLM, shrink: float, folder: Path) -> None:
    """Write the whole model, float32, for plain ``AutoModelForMaskedLM`` and ``AutoModel``.

    The embedding is that of the checkpoint with the rows of the model, streamed; all other rows are multiplied by
    ``shrink``. The bias of added rows is the smallest bias of old rows, and an untied decoder has zeros there, so that
    added words are not predicted. A pooler, which no masked language model has, does not change. Weights of a memory
    are in their own file. Copies no tokenizer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model, source = opened.model, opened.checkpoint
    write_memory(model.encoder, folder)
    kind = source.architecture
    rows = model.get_input_embeddings()
    table = trained_table(model, opened.rows, source, shrink)
    tensors: dict[str, Array | StreamedArray] = {
        f"{kind.prefix}{kind.embedding}": StreamedArray(source.embedding().shape, _FLOAT32, table.blocks())
    }
    memory = getattr(model.encoder, "memory", None)
    modules = [rows, model.decoder, *([] if memory is None else [memory])]
    written = {id(weight) for module in modules for weight in module.state_dict(keep_vars=True).values()}
    for name, weight in model.model.state_dict(keep_vars=True).items():
        if id(weight) not in written:
            tensors[name] = as_array(weight)
    tensors |= _decoder(opened)
    prefix = "" if source.embedding_name.startswith(kind.prefix) else kind.prefix
    for name in opened.left_out:
        if f"{prefix}{name}".startswith(f"{kind.prefix}pooler."):
            tensors[f"{prefix}{name}"] = np.asarray(source[name], np.float32)
    write_weights(folder, tensors)
    write_config(model.model, source.n_rows, folder)


def _decoder(opened: OpenedMaskedLM) -> dict[str, Array | StreamedArray]:
    """The weights of the head's last layer, for the whole vocabulary."""
    decoder, source = opened.model.decoder, opened.checkpoint
    kind = source.architecture
    tensors: dict[str, Array | StreamedArray] = {}
    if decoder.bias is not None:
        bias = as_array(decoder.bias)
        tensors[kind.biases[0]] = np.append(bias, np.full(source.n_rows - len(bias), bias.min(), bias.dtype))
    if decoder.weight is not None:
        weight = as_array(decoder.weight)
        zeros = np.broadcast_to(_FLOAT32.type(0), (source.n_rows - len(weight), weight.shape[1]))
        pieces = chain(row_blocks(weight), row_blocks(zeros))
        tensors[kind.decoder] = StreamedArray((source.n_rows, weight.shape[1]), _FLOAT32, pieces)
    return tensors
