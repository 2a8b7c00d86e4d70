import math
from typing import Any

import pytest
import torch
from torch import Tensor

from greenadapt.config import AdapterConfig, MemoryConfig
from greenadapt.errors import UsageError
from greenadapt.models.adapters.kinds import draw_weights, make_adapter
from greenadapt.models.memory.fusion import attach_memory
from tests.support.small_encoders import PAD, batch, context, encoder
from tests.support.small_shared import ARCHITECTURES, moved, multitask, shared_encoder

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIGS = {
    "pals": AdapterConfig("pals", 68),
    "pals, reference": AdapterConfig("pals", 12, form="reference"),
    "pals, serial": AdapterConfig("pals", 51, placement="serial"),
    "pals, layer 2": AdapterConfig("pals", 34, layers="2"),
    "low-rank": AdapterConfig("low-rank", 5),
    "low-rank, reference": AdapterConfig("low-rank", 5, form="reference"),
    "low-rank, serial": AdapterConfig("low-rank", 5, placement="serial", layers="top"),
    "attention": AdapterConfig("attention", 34),
    "ffn": AdapterConfig("ffn", 6),
    "lhuc": AdapterConfig("lhuc"),
    "lhuc, layer 1": AdapterConfig("lhuc", layers="1"),
    "houlsby": AdapterConfig("houlsby", 5),
    "houlsby, reference": AdapterConfig("houlsby", 5, form="reference"),
    "houlsby-pals": AdapterConfig("houlsby-pals", 68),
    "houlsby-pals, reference": AdapterConfig("houlsby-pals", 12, form="reference"),
    "top-attention": AdapterConfig("top-attention", 34),
    "top-ffn": AdapterConfig("top-ffn", 6),
    "top-ffn, 3 layers": AdapterConfig("top-ffn", 6, top_layers=3),
    "top-ffn-2": AdapterConfig("top-ffn-2", 6, top_layers=2),
    "bert-layer": AdapterConfig("bert-layer"),
    "none": AdapterConfig("none"),
}
HEADS = {"pals": 4, "pals, reference": 6, "pals, serial": 3, "pals, layer 2": 2, "attention": 2, "houlsby-pals": 4}
HEADS |= {"houlsby-pals, reference": 6, "top-attention": 2}
NO_MEMORY = [torch.zeros(0, 16).double()] * 2


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.special.erf(x / math.sqrt(2))) / 2


def linear(layer: Any, x: Tensor) -> Tensor:
    return torch.einsum("td,od->to", x, layer.weight) + layer.bias


def norm(layer: Any, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + layer.eps) * layer.weight + layer.bias


def heads_of(function: Any, x: Tensor, heads: int) -> Tensor:
    """[Att_1; …; Att_n]."""
    query, key, value = (linear(getattr(function, name), x) for name in ("query", "key", "value"))
    width = query.shape[1] // heads
    parts = []
    for head in range(heads):
        of = slice(head * width, (head + 1) * width)
        scores = torch.exp(torch.einsum("qe,ke->qk", query[:, of], key[:, of]) / math.sqrt(width))
        parts.append(torch.einsum("qk,ke->qe", scores / scores.sum(1, keepdim=True), value[:, of]))
    return torch.cat(parts, 1)


def task_function(name: str, function: Any, layer: int, x: Tensor) -> Tensor:
    """TS(h) of the parallel and serial methods."""
    kind = name.split(",")[0]
    key = "shared" if kind in ("pals", "ffn", "houlsby-pals") else str(layer)
    small = linear(function.encode[key], x)
    if kind == "ffn":
        inner = function.functions[str(layer)]
        small = linear(inner.outer, gelu(linear(inner.inner, small)))
    elif kind == "low-rank":
        small = gelu(small) if name == "low-rank, reference" else small
    else:
        small = heads_of(function.functions[str(layer)], small, HEADS[name])
    large = linear(function.decode[key], small)
    return gelu(large) if name in ("pals, reference", "houlsby-pals, reference") else large


def bottleneck(function: Any, layer: int, x: Tensor) -> Tensor:
    return linear(function.decode[str(layer)], gelu(linear(function.encode[str(layer)], x)))


def run_layer(layer: Any, name: str, adapter: Any, number: int, h: Tensor, seen: Tensor) -> Tensor:
    """One layer of BERT with what ``adapter`` adds, for one row (n, d) without padding."""
    attended = linear(layer.attention.output.dense, context(layer.attention.self, h, seen).flatten(1))
    is_adapted = {"pals, layer 2": number == 1, "lhuc, layer 1": number == 0, "low-rank, serial": number == 1}
    if not is_adapted.get(name, True):
        name = "none"
    kind = name.split(",")[0]
    if kind.startswith("houlsby"):
        attended = attended + bottleneck(adapter.first, number, attended)
    a = norm(layer.attention.output.LayerNorm, attended + h)
    fed = linear(layer.output.dense, gelu(linear(layer.intermediate.dense, a)))
    if name == "houlsby":
        fed = fed + bottleneck(adapter.second, number, fed)
    elif name == "houlsby, reference":
        fed = fed + bottleneck(adapter.second, number, a)
    elif kind == "houlsby-pals":
        fed = fed + task_function(name, adapter.second, number, a)
    elif kind in ("pals", "low-rank", "attention", "ffn") and not name.endswith("serial"):
        fed = fed + task_function(name, adapter.function, number, h)
    out = norm(layer.output.LayerNorm, fed + a)
    if name.endswith("serial"):
        return norm(adapter.norms[str(number)], out + task_function(name, adapter.function, number, out))
    if kind == "lhuc":
        return out * 2 / (1 + torch.exp(-adapter.scales[str(number)]))
    return out


def on_top(name: str, adapter: Any, h: Tensor) -> Tensor:
    if name == "bert-layer":
        return run_layer(adapter.layer, "none", None, 0, h, NO_MEMORY[0])
    if not name.startswith("top"):
        return h
    x = linear(adapter.encode, h)
    assert len(adapter.stack) == {"top-ffn, 3 layers": 3, "top-ffn-2": 2}.get(name, 6)
    for layer in adapter.stack:
        f = layer.function
        if name.startswith("top-ffn"):
            inner = gelu(linear(f.inner, x))
            if name == "top-ffn-2":
                inner = gelu(linear(f.middle, inner))
            x = norm(layer.norm, x + linear(f.outer, inner))
        else:
            x = norm(layer.norm, x + linear(f.mix, heads_of(f, x, HEADS[name])))
    return linear(adapter.decode, x)


def states_of(name: str, model: Any, row: Tensor, seen: list[Tensor] | None = None) -> Tensor:
    """The adapted states (n, d) of one row of ids (n,), all by the formulas."""
    part = model.part(name)
    h = model.encoder.embeddings(input_ids=row[None])[0]
    for number, layer in enumerate(model.encoder.encoder.layer):
        h = run_layer(layer, name, part.adapter, number, h, (seen or NO_MEMORY)[number])
    return on_top(name, part.adapter, h)


@pytest.mark.parametrize(
    ("name", "architecture"), [*((name, "Bert") for name in CONFIGS), *(("pals", name) for name in ARCHITECTURES)]
)
def test_it_is_the_formula(name: str, architecture: str) -> None:
    base = shared_encoder(architecture)
    models = [
        moved(multitask({name: CONFIGS[name]}, head, base)).double()
        for head in ("SequenceClassification", "TokenClassification")
    ]
    lengths = [7, 3, 5]
    inputs = batch(lengths, 0, PAD[architecture])
    logits = [model(inputs.ids, inputs.mask, task=name)["logits"] for model in models]
    for i, length in enumerate(lengths):
        for model, got in zip(models, logits, strict=True):
            states, head = states_of(name, model, inputs.ids[i, :length]), model.part(name).head
            if model is models[0]:
                pooled = torch.tanh(linear(base.pooler.dense, states[:1]))
                torch.testing.assert_close(got[i], linear(head, pooled)[0], rtol=0, atol=1e-6)
            else:
                torch.testing.assert_close(got[i, :length], linear(head, states), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["pals", "bert-layer"])
def test_it_goes_with_memory_of_a_general_model(name: str) -> None:
    model = moved(multitask({name: CONFIGS[name]}, "TokenClassification"))
    general = encoder("Bert", seed=1, num_hidden_layers=4)
    attach_memory(model.encoder, general, MemoryConfig("multiple"), seed=0)
    model.double()
    inputs, memory = batch([7, 3, 5]), batch([2, 8, 5], seed=1)
    got = model(inputs.ids, inputs.mask, task=name, memory_ids=memory.ids, memory_mask=memory.mask)["logits"]
    for i, (n, m) in enumerate([(7, 2), (3, 8), (5, 5)]):
        hidden = model.encoder.memory.general(input_ids=memory.ids[i : i + 1, :m], output_hidden_states=True)
        seen = [hidden.hidden_states[2][0], hidden.hidden_states[4][0]]
        expected = linear(model.part(name).head, states_of(name, model, inputs.ids[i, :n], seen))
        torch.testing.assert_close(got[i, :n], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("adapter", "placement"), [("attention", "parallel"), ("pals", "serial")])
def test_tasks_may_share_their_projections(adapter: Any, placement: Any) -> None:
    config = AdapterConfig(adapter, 12, placement=placement, share_projections=True)
    model = multitask({"a": config, "b": config, "c": AdapterConfig("low-rank", 5)})
    model.share_projections()
    a, b = (dict(model.part(task).adapter.named_parameters()) for task in "ab")
    for name, weight in a.items():
        assert (b[name] is weight) == name.startswith(("function.encode", "function.decode"))


def test_a_task_may_have_a_pooler_of_its_own() -> None:
    base = shared_encoder()
    inputs = batch([7, 3, 5])
    with_pooler = AdapterConfig("pals", 12, init="zero", own_pooler=True)
    model = multitask({"a": with_pooler, "b": AdapterConfig("none")}, encoder=base)
    plain = base(input_ids=inputs.ids, attention_mask=inputs.mask).pooler_output
    assert torch.equal(model(inputs.ids, inputs.mask, task="a")["logits"], model.part("a").head(plain))
    moved(base.pooler)  # it is a copy
    assert torch.equal(model(inputs.ids, inputs.mask, task="a")["logits"], model.part("a").head(plain))
    alone = multitask({"a": with_pooler})
    alone.freeze()
    assert [weight.requires_grad for weight in alone.encoder.pooler.parameters()] == [False, False]
    assert multitask({"t": with_pooler}, "TokenClassification").part("t").pooler is None
    with pytest.raises(UsageError, match="--own-pooler, but a model of type electra has no pooler"):
        multitask({"a": with_pooler}, encoder=shared_encoder("Electra"))


def test_weights_start_as_in_the_paper() -> None:
    base = shared_encoder(hidden_size=64)
    for config in (AdapterConfig("pals", 48, placement="serial"), AdapterConfig("top-attention", 48)):
        adapter = make_adapter(config, base)
        draw_weights(adapter, torch.Generator().manual_seed(0))
        weights = torch.cat([weight.flatten() for weight in adapter.parameters() if weight.ndim == 2])
        assert weights.std().item() == pytest.approx(0.02, rel=0.05)
        for name, vector in adapter.named_parameters():
            if vector.ndim == 1:
                assert vector.unique().tolist() == [1.0 if "norm" in name and "weight" in name else 0.0], name
