"""Two-layer encoders with random weights and biases, padded batches for them, and a second version of attention."""

import copy
import inspect
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from greenadapt.architectures import ARCHITECTURES as KNOWN
from greenadapt.architectures.base import LayerAttention
from tests.conftest import DEBERTA

N_IDS = 90
HEADS = 4
PAD = {"Bert": 0, "Roberta": 1, "Electra": 0, "XLMRoberta": 1}
ARCHITECTURES = tuple(PAD)
PAD |= {"Camembert": 1, "Ernie": 0, "DistilBert": 0, "MPNet": 1, "DebertaV2": 0}
PAD |= {"NomicBert": 0, "Gte": 1, "ModernBert": 1}
WITH_MEMORY = tuple(PAD)
"""All that can have a memory, and adapters."""
SETTINGS: dict[str, dict[str, Any]] = {
    "DebertaV2": {**DEBERTA, "position_buckets": 4},
    "ModernBert": {
        **{"bos_token_id": 0, "cls_token_id": 0, "eos_token_id": 2, "sep_token_id": 2},
        **{"local_attention": 4, "global_attn_every_n_layers": 2},
    },
}
_PROJECTIONS = {"DistilBert": "{}_lin", "MPNet": "{}", "NomicBert": "{}_proj", "Gte": "{}_proj"}
_DEBERTA_TERMS = 3  # of content, and between content and positions
STRATEGIES = ("single", "multiple", "gated", "chunk")
VARIANTS = ("memory", "cross", "gate")


def encoder(architecture: str, head: str = "Model", seed: int = 0, *, pooler: bool = False, **config: Any) -> Any:
    """A model in evaluation mode whose weights and biases all differ from zero; a ``pooler`` only without a head."""
    model, random_state = _encoder(architecture, head, seed, pooler, json.dumps(config, sort_keys=True))
    torch.set_rng_state(random_state)
    return copy.deepcopy(model)


@cache
def _encoder(architecture: str, head: str, seed: int, pooler: bool, changes: str) -> tuple[Any, Tensor]:
    """The model, cached, and torch's random state after it was made."""
    import transformers

    model_class: Any = getattr(transformers, architecture + head)
    sizes = {
        "vocab_size": N_IDS,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "intermediate_size": 24,
        "max_position_embeddings": 40,
        "num_labels": 2 if head == "ForQuestionAnswering" else 3,
    }
    architecture_sizes = {"pad_token_id": PAD.get(architecture, 0), **SETTINGS.get(architecture, {})}
    settings = model_class.config_class(**{**sizes, **architecture_sizes, **json.loads(changes)})
    may_have_pooler = head == "Model" and "add_pooling_layer" in inspect.signature(model_class).parameters
    torch.manual_seed(seed)
    model = model_class(settings, **({"add_pooling_layer": pooler} if may_have_pooler else {}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.eval(), torch.get_rng_state()


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs (b, n) of random lengths, padded."""

    ids: Tensor
    mask: Tensor

    @property
    def real(self) -> Tensor:
        return self.mask.bool()


def batch(lengths: list[int], seed: int = 0, pad: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, N_IDS, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return Batch(torch.where(mask.bool(), ids, pad), mask)


def call(model: Any, inputs: Batch, memory: Batch, **options: Any) -> Any:
    """The output of a model with the states of ``memory`` as its memory."""
    arguments = {"input_ids": inputs.ids, "attention_mask": inputs.mask}
    return model(**arguments, memory_ids=memory.ids, memory_mask=memory.mask, **options)


def attention_of(model: Any) -> list[Any]:
    """The self-attention of every layer."""
    architecture = KNOWN[model.config.model_type]
    assert isinstance(architecture.memory, LayerAttention)
    path = architecture.memory.path
    return [layer.get_submodule(path) for layer in model.base_model.get_submodule(architecture.layers)]


def _projections(attention: Any) -> list[Any]:
    """The projections of states to queries, keys and values."""
    if hasattr(attention, "Wqkv"):
        return [lambda states, i=i: attention.Wqkv(states).chunk(3, -1)[i] for i in range(3)]
    if hasattr(attention, "query_proj"):
        return [attention.query_proj, attention.key_proj, attention.value_proj]
    names = next((name for name in _PROJECTIONS.values() if hasattr(attention, name.format("q"))), None)
    if names is not None:
        return [getattr(attention, names.format(letter)) for letter in "qkv"]
    return [attention.query, attention.key, attention.value]


def output_of(attention: Any, context: Tensor) -> Tensor:
    """The output projection of the attention's module for the context of its heads (…, d)."""
    names = ("out_lin", "o", "o_proj", "Wo")
    layer: Any = next((getattr(attention, name) for name in names if hasattr(attention, name)), torch.nn.Identity())
    return layer(context)


def context(
    attention: Any, row: Tensor, memory: Tensor, variant: str = "memory", bias: Any = None, model: Any = None
) -> Tensor:
    """What heads read from one ``row`` (n, d) and its ``memory`` (m, d), neither with padding: (n, n_heads, d_head).

    ``model`` is the attention's, if that knows relative positions.
    """

    def heads(projection: Any, states: Tensor) -> Tensor:
        return torch.as_tensor(projection(states)).unflatten(1, (HEADS, -1))

    def attend(query: Tensor, key: Tensor, value: Tensor, bias_of_positions: Tensor | float = 0.0) -> Tensor:
        scores = torch.einsum("qhe,khe->hqk", query, key) / math.sqrt(query.shape[-1] * n_terms)
        if isinstance(bias_of_positions, Tensor):
            scores[:, :, : bias_of_positions.shape[-1]] += bias_of_positions
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
        return torch.einsum("hqk,khe->qhe", weights, value)

    kind = "" if model is None else model.config.model_type
    n_terms = _DEBERTA_TERMS if kind == "deberta-v2" else 1
    query, key, value = (heads(projection, row) for projection in _projections(attention))
    query, key, bias_of_positions, rotate = _positioned(attention, model, query, key)
    read = attend(query, key, value, bias_of_positions)
    if not len(memory):
        return read
    memory_key, memory_value = (heads(projection, memory) for projection in _projections(attention)[1:])
    memory_key = memory_key if variant == "cross" else rotate(memory_key)
    if variant == "memory":
        if isinstance(bias_of_positions, Tensor) and kind == "mpnet":  # memory is far away
            places = model.encoder.relative_position_bucket(torch.tensor([-1000, 1000]))
            far = model.encoder.relative_attention_bias(places).mean(0)[:, None, None]
            bias_of_positions = torch.cat([bias_of_positions, far.expand(-1, len(row), len(memory))], -1)
        return attend(query, torch.cat([key, memory_key]), torch.cat([value, memory_value]), bias_of_positions)
    of_memory = attend(read if variant == "cross" else query, memory_key, memory_value)
    if variant == "cross":
        return of_memory
    share = 1 / (1 + torch.exp(-bias))[:, None]
    return (1 - share) * read + share * of_memory


def _positioned(
    attention: Any, model: Any, query: Tensor, key: Tensor
) -> tuple[Tensor, Tensor, Tensor | float, Callable[[Tensor], Tensor]]:
    """Queries and keys (n, n_heads, d_head) with what ``model`` does about positions, what it adds to the scores,
    (n_heads, n, n), and how it turns keys.
    """
    kind = "" if model is None else model.config.model_type
    if kind == "mpnet":
        return query, key, model.encoder.compute_position_bias(query[None])[0], Tensor.clone
    if kind == "deberta-v2":
        flat = [states.transpose(0, 1) for states in (query, key)]
        relative = model.encoder.get_rel_pos(query[None, :, 0])
        embeddings = model.encoder.get_rel_embedding()
        bias = attention.disentangled_attention_bias(*flat, relative, embeddings, _DEBERTA_TERMS)
        return query, key, bias, Tensor.clone
    if kind not in ("nomic_bert", "gte", "modernbert"):
        return query, key, 0.0, Tensor.clone
    layer_types = [model.config.layer_types[attention.layer_idx]] if kind == "modernbert" else []

    def rotate(states: Tensor) -> Tensor:
        cos, sin = model.rotary_emb(states, torch.arange(len(states))[None], *layer_types)
        return rotated(states, cos[0], sin[0])

    n = len(query)
    if kind == "modernbert" and attention.sliding_window:
        distance = (torch.arange(n)[:, None] - torch.arange(n)).abs()
        mask = torch.zeros(HEADS, n, n).masked_fill(distance >= attention.sliding_window, -1e9)
        return rotate(query), rotate(key), mask, rotate
    return rotate(query), rotate(key), 0.0, rotate


def rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """States (n, n_heads, d_head) turned by angles (n, d_head), whose halves are alike."""
    half = states.shape[-1] // 2
    first, second = states[..., :half], states[..., half:]
    cosines, sines = cos[:, None, :half], sin[:, None, :half]
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)
