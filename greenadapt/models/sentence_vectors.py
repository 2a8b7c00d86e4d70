"""An encoder with what sentence-transformers computes after it: pooling, dense layers, normalization."""

from typing import Any

import torch

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.sentence_modules import DenseLayer, Pooling, SentenceModules
from greenadapt.models.rows import Rows, RowTable
from greenadapt.models.weights import (
    ENCODER,
    InferenceModel,
    StreamedRows,
    load_model,
    read_tensors,
    read_weights,
    refuse_lost,
)

_ACTIVATIONS = {"Identity": torch.nn.Identity, "Tanh": torch.nn.Tanh, "ReLU": torch.nn.ReLU, "GELU": torch.nn.GELU}


class SentenceModel(torch.nn.Module):
    """Inputs (b, n) → one vector each, (b, dim) float32, under ``logits`` as from the heads of tasks."""

    def __init__(self, encoder: Any, modules: SentenceModules) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config
        self._pooling = modules.pooling
        self.layers = torch.nn.ModuleList(map(_dense, modules.dense))
        self._normalizes = modules.normalizes

    def get_input_embeddings(self) -> Any:
        """The word embeddings of the encoder."""
        return self.encoder.get_input_embeddings()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        **arguments: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """The vectors; arguments as in transformers' encoders, ``inputs_embeds`` only with a mask."""
        if attention_mask is None:
            assert input_ids is not None
            attention_mask = torch.ones_like(input_ids)
        optional = {"input_ids": input_ids, "token_type_ids": token_type_ids}
        arguments |= {name: tensor for name, tensor in optional.items() if tensor is not None}
        states = self.encoder(attention_mask=attention_mask, **arguments).last_hidden_state.float()
        vectors = torch.cat([pooled(states, attention_mask, pooling) for pooling in self._pooling], dim=1)
        for layer in self.layers:
            vectors = layer(vectors)
        return {"logits": torch.nn.functional.normalize(vectors) if self._normalizes else vectors}


def open_sentence_model(checkpoint: Checkpoint, modules: SentenceModules) -> InferenceModel:
    """The encoder of ``checkpoint``, followed by ``modules``.

    Never runs code of the folder. Raises ``InputError`` if the checkpoint lacks weights of the encoder.
    """
    rows = Rows.of((), int(checkpoint.config.get("pad_token_id") or 0), ())
    encoder, new, _ = load_model(checkpoint, ENCODER, read_weights(checkpoint), rows)
    refuse_lost(checkpoint, new)
    model = SentenceModel(encoder, modules).eval()
    return InferenceModel(model, StreamedRows(model, rows, RowTable.of(checkpoint.embedding())), checkpoint)


def pooled(states: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """The states (b, n, dim) of each input as one vector, (b, dim), by the name of sentence-transformers' pooling.

    ``mask`` (b, n) is 1 for pieces and 0 for the padding behind them.
    """
    weights = mask.unsqueeze(-1).to(states.dtype)
    if pooling == "cls":
        return states[:, 0]
    if pooling == "lasttoken":
        return states[torch.arange(len(states)), mask.sum(dim=1) - 1]
    if pooling == "max":
        return states.masked_fill(weights == 0, -torch.inf).amax(dim=1)
    if pooling == "weightedmean":
        weights = weights * torch.arange(1, states.shape[1] + 1, device=states.device)[None, :, None]
    total, n = (states * weights).sum(dim=1), weights.sum(dim=1).clamp(min=1e-9)
    return total / (n.sqrt() if pooling == "mean_sqrt_len_tokens" else n)


def _dense(layer: DenseLayer) -> torch.nn.Module:
    weights = read_tensors(layer.weights)
    weight, bias = weights["linear.weight"], weights.get("linear.bias")
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return torch.nn.Sequential(linear, _ACTIVATIONS[layer.activation]())
