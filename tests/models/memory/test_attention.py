from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from greenadapt.errors import UsageError
from greenadapt.models.memory.fusion import NAME, Memory, use_memory_attention
from tests.support.small_encoders import (
    PAD,
    VARIANTS,
    WITH_MEMORY,
    Batch,
    attention_of,
    batch,
    context,
    encoder,
    output_of,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def with_attention(architecture: str = "Bert", head: str = "Model", **config: Any) -> Any:
    model = encoder(architecture, head, **config)
    use_memory_attention(model)
    return model


def memory_of(lengths: list[int], layers: tuple[int, ...], variant: str, seed: int = 0) -> Memory:
    """Random states, other ones for each layer, and biases that differ by head."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths), 16)
    states = {layer: torch.randn(shape, generator=generator, dtype=torch.float64) for layer in layers}
    biases = {layer: torch.randn(4, generator=generator, dtype=torch.float64) for layer in layers}
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Memory(states, mask, variant, biases if variant == "gate" else {})  # type: ignore[arg-type]


def run(model: Any, inputs: Batch, memory: Memory | None = None) -> Tensor:
    arguments = {} if memory is None else {"memory": memory}
    return model(input_ids=inputs.ids, attention_mask=inputs.mask, **arguments).last_hidden_state


def contexts(model: Any, inputs: Batch, memory: Memory) -> list[tuple[Tensor, Tensor]]:
    """Input (b, n, d) and output (b, n, d) of the self-attention of each layer."""
    calls: list[tuple[Tensor, Tensor]] = []
    hooks = [
        layer.register_forward_hook(
            lambda layer, args, kwargs, output: calls.append(((args or tuple(kwargs.values()))[0], output[0])),
            with_kwargs=True,
        )
        for layer in attention_of(model)
    ]
    run(model, inputs, memory)
    for hook in hooks:
        hook.remove()
    return calls


def norm_of(model: Any) -> Any:
    """What the second layer does with states before it attends to them."""
    return model.layers[1].attn_norm if model.config.model_type == "modernbert" else torch.nn.Identity()


@pytest.mark.parametrize("architecture", WITH_MEMORY)
def test_without_memory_it_is_plain_attention(architecture: str) -> None:
    inputs = batch([7, 3, 5], pad=PAD[architecture])
    plain, model = encoder(architecture).double(), with_attention(architecture).double()
    is_exact = architecture not in ("MPNet", "DebertaV2")  # which have a function of their own
    assert (plain.config._attn_implementation == "sdpa") == (model.config._attn_implementation == NAME) == is_exact
    tolerance = 0.0 if is_exact else 1e-6  # DeBERTa's divides by a root in float32
    for memory in (None, Memory({7: torch.randn(3, 4, 16)})):
        got, expected = run(model, inputs, memory)[inputs.real], run(plain, inputs)[inputs.real]
        torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("architecture", "variant"),
    [*product(["Bert", "MPNet", "DebertaV2"], VARIANTS), *((name, "memory") for name in WITH_MEMORY)],
)
def test_it_is_the_formula(architecture: str, variant: str) -> None:
    model = with_attention(architecture).double()
    draw = torch.Generator().manual_seed(len(architecture))
    for seed in range(3):
        n, m = (torch.randint(1, 9, (4,), generator=draw).tolist() for _ in range(2))
        m[seed % 4] = 0
        inputs, memory = batch(n, seed, PAD[architecture]), memory_of(m, (1,), variant, seed)
        (row, plain), (hidden, mixed) = contexts(model, inputs, memory)
        for i in range(4):
            bias = memory.biases.get(1)
            attention = attention_of(model)
            seen = memory.states[1][i, : m[i]]
            alone = context(attention[0], row[i, : n[i]], seen[:0], model=model).flatten(1)
            expected = context(attention[1], hidden[i, : n[i]], norm_of(model)(seen), variant, bias, model).flatten(1)
            torch.testing.assert_close(plain[i, : n[i]], output_of(attention[0], alone), rtol=0, atol=1e-6)
            torch.testing.assert_close(mixed[i, : n[i]], output_of(attention[1], expected), rtol=0, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_without_memory_have_finite_gradients(variant: str) -> None:
    inputs, model = batch([5, 3]), with_attention()
    memory = memory_of([4, 0], (0, 1), variant)
    run(model, inputs, memory).square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert len(gradients) > 20
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("variant", VARIANTS)
def test_dropout_falls_on_memory_too(variant: str) -> None:
    model = with_attention(num_hidden_layers=1, attention_probs_dropout_prob=0.5, hidden_dropout_prob=0.0)
    inputs, memory = batch([6, 6]), memory_of([1, 1], (0,), variant)
    assert torch.equal(run(model, inputs, memory), run(model, inputs, memory))
    model.train()
    drawn = torch.stack([contexts(model, inputs, memory)[0][1] for _ in range(20)])
    assert (drawn.std(0) > 1e-3).all()
    if variant == "cross":  # the one value it reads is left out or doubled
        value = attention_of(model)[0].value(memory.states[0].float())
        times = (drawn / value).round(decimals=3).unique().tolist()
        assert times == [0.0, 2.0]


def test_what_is_saved_knows_nothing_of_it(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    plain, model = (
        encoder("Roberta", "ForSequenceClassification"),
        with_attention("Roberta", "ForSequenceClassification"),
    )
    assert list(model.state_dict()) == list(plain.state_dict())
    model.save_pretrained(tmp_path)
    assert NAME not in model.config.to_json_string()
    assert all(NAME.encode() not in path.read_bytes() for path in tmp_path.iterdir())
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert again.config._attn_implementation == "sdpa"
    inputs = batch([7, 3], pad=1)
    expected = plain(input_ids=inputs.ids, attention_mask=inputs.mask).logits
    assert torch.equal(again(input_ids=inputs.ids, attention_mask=inputs.mask).logits, expected)


@pytest.mark.parametrize(
    ("architecture", "head", "config", "reason"),
    [
        ("Albert", "Model", {}, "albert .*share their weights"),
        ("Roberta", "Model", {"position_embedding_type": "relative_key"}, "roberta .*relative position"),
    ],
)
def test_other_architectures_are_refused_by_name(
    architecture: str, head: str, config: dict[str, Any], reason: str
) -> None:
    model = encoder(architecture, head, **config)
    before = model.config._attn_implementation
    with pytest.raises(UsageError, match=reason) as caught:
        use_memory_attention(model)
    assert {"bert", "roberta", "electra"} <= {*caught.value.hint.replace(",", "").split()}
    assert model.config._attn_implementation == before
