"""Two-layer encoders that differ in every weight, padded batches for them, and attention written down once more."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

N_IDS = 90
PAD = {"Bert": 0, "Roberta": 1, "Electra": 0, "XLMRoberta": 1}
ARCHITECTURES = tuple(PAD)
STRATEGIES = ("single", "multiple", "gated", "chunk")
VARIANTS = ("memory", "cross", "gate")


def encoder(architecture: str, head: str = "Model", seed: int = 0, **config: Any) -> Any:
    """A model in evaluation mode, without pooler where it has no head; no weight is zero, no bias either."""
    import transformers

    model_class: Any = getattr(transformers, architecture + head)
    sizes = {
        "vocab_size": N_IDS,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "max_position_embeddings": 40,
        "num_labels": 2 if head == "ForQuestionAnswering" else 3,
    }
    settings = model_class.config_class(**{**sizes, "pad_token_id": PAD.get(architecture, 0), **config})
    has_pooler = head == "Model" and architecture in ("Bert", "Roberta", "XLMRoberta")
    torch.manual_seed(seed)
    model = model_class(settings, **({"add_pooling_layer": False} if has_pooler else {}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.eval()


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs (b, n) of random lengths, padded."""

    ids: Tensor
    mask: Tensor

    @property
    def real(self) -> Tensor:
        return self.mask.bool()

    def other_padding(self, seed: int = 9) -> "Batch":
        """The same, but every piece of padding is another."""
        return replace(self, ids=torch.where(self.real, self.ids, other_ids(self.ids, seed)))


def batch(lengths: list[int], seed: int = 0, pad: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, N_IDS, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return Batch(torch.where(mask.bool(), ids, pad), mask)


def other_ids(ids: Tensor, seed: int) -> Tensor:
    """Random ids, each unlike the one in its place."""
    shift = torch.randint(1, N_IDS - 6, ids.shape, generator=torch.Generator().manual_seed(seed))
    return (ids - 5 + shift) % (N_IDS - 5) + 5


def call(model: Any, own: Batch, other: Batch, **more: Any) -> Any:
    """The output of a model that has ``other`` as its memory."""
    arguments = {"input_ids": own.ids, "attention_mask": own.mask}
    return model(**arguments, memory_ids=other.ids, memory_mask=other.mask, **more)


def attention_of(model: Any) -> list[Any]:
    """Every layer's self-attention."""
    return [layer.attention.self for layer in model.base_model.encoder.layer]


def context(attention: Any, row: Tensor, memory: Tensor, variant: str = "memory", bias: Any = None) -> Tensor:
    """What heads read from one ``row`` (n, d) and its ``memory`` (m, d), neither with padding: (n, n_heads, d_head)."""

    def heads(layer: Any, states: Tensor) -> Tensor:
        projected = torch.einsum("td,od->to", states, layer.weight) + layer.bias
        return projected.unflatten(1, (attention.num_attention_heads, -1))

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = torch.einsum("qhe,khe->hqk", query, key) / math.sqrt(query.shape[-1])
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
        return torch.einsum("hqk,khe->qhe", weights, value)

    query, key, value = (heads(layer, row) for layer in (attention.query, attention.key, attention.value))
    own = attend(query, key, value)
    if not len(memory):
        return own
    memory_key, memory_value = heads(attention.key, memory), heads(attention.value, memory)
    if variant == "memory":
        return attend(query, torch.cat([key, memory_key]), torch.cat([value, memory_value]))
    of_memory = attend(own if variant == "cross" else query, memory_key, memory_value)
    if variant == "cross":
        return of_memory
    share = 1 / (1 + torch.exp(-bias))[:, None]
    return (1 - share) * own + share * of_memory
