"""``houlsby-pals`` beside a model that is written from the released code of BERT and PALs, which alone has it."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from greenadapt.config import AdapterConfig
from tests.support.small_encoders import batch
from tests.support.small_shared import moved, multitask, shared_encoder

pytestmark = pytest.mark.usefixtures("one_thread")
HEADS, PAL_HEADS = 4, 6


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def attention(layer: Any, x: Tensor, mask: Tensor, heads: int) -> Tensor:
    """BERTSelfAttention: ``layer`` has ``query``, ``key`` and ``value``; ``mask`` (b, 1, 1, m) is added."""
    size = x.shape[-1] // heads
    query, key, value = (
        getattr(layer, name)(x).view(*x.shape[:2], heads, size).permute(0, 2, 1, 3)
        for name in ("query", "key", "value")
    )
    scores = query @ key.transpose(-1, -2) / math.sqrt(size) + mask
    return (scores.softmax(-1) @ value).permute(0, 2, 1, 3).flatten(2)


class Layer(nn.Module):
    """BERTLayer with ``houlsby`` and ``pals``: BERTLowRank in BERTSelfOutput, BERTPals in BERTOutput."""

    def __init__(self, layer: Any, adapter: Any, number: str) -> None:
        super().__init__()
        self.bert, self.pal = layer, adapter.second.functions[number]
        self.low_rank = adapter.first.encode[number], adapter.first.decode[number]
        self.aug = adapter.second.encode["shared"], adapter.second.decode["shared"]

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        attention_output = self.self_output(
            attention(self.bert.attention.self, hidden_states, mask, HEADS), hidden_states
        )
        return self.output(gelu(self.bert.intermediate.dense(attention_output)), attention_output, mask)

    def self_output(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        hidden_states = self.bert.attention.output.dense(hidden_states)
        down, up = self.low_rank
        hidden_states = hidden_states + up(gelu(down(hidden_states)))
        return self.bert.attention.output.LayerNorm(hidden_states + input_tensor)

    def output(self, hidden_states: Tensor, input_tensor: Tensor, mask: Tensor) -> Tensor:
        hidden_states = self.bert.output.dense(hidden_states)
        down, up = self.aug
        pals = gelu(up(attention(self.pal, down(input_tensor), mask, PAL_HEADS)))
        return self.bert.output.LayerNorm(hidden_states + pals + input_tensor)


def test_it_is_the_released_code() -> None:
    base = shared_encoder()
    adapter = AdapterConfig("houlsby-pals", 12, form="reference")
    model = moved(multitask({"t": adapter}, "TokenClassification", base)).double()
    inputs, part = batch([7, 3, 5]), model.part("t")
    mask = (1.0 - inputs.mask[:, None, None].double()) * -10000.0
    states = base.embeddings(input_ids=inputs.ids)
    for number, layer in enumerate(base.encoder.layer):
        states = Layer(layer, part.adapter, str(number))(states, mask)
    got = model(inputs.ids, inputs.mask, task="t")["logits"]
    torch.testing.assert_close(got[inputs.real], part.head(states)[inputs.real], rtol=0, atol=1e-9)
