import copy
from itertools import product
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from greenadapt.config import MemoryConfig
from greenadapt.errors import UsageError
from greenadapt.models.memory.fusion import attach_logits_fusion, attach_memory
from tests.support.small_encoders import (
    ARCHITECTURES,
    PAD,
    STRATEGIES,
    VARIANTS,
    WITH_MEMORY,
    Batch,
    attention_of,
    batch,
    call,
    context,
    encoder,
)
from tests.support.small_inputs import ROUNDING

pytestmark = pytest.mark.usefixtures("one_thread")

READ = {
    "single": {1: [4]},
    "multiple": {0: [2], 1: [4]},
    "gated": {1: [1, 2, 3, 4]},
    "chunk": {0: [1, 2], 1: [3, 4]},
}
"""Strategy → layer, from 0, of a domain model of two → states that it sees of a general model of four."""
CHUNK, LOGITS = MemoryConfig(), MemoryConfig("logits")
CLASSIFICATION, TOKENS, QA = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"


def with_memory(
    config: MemoryConfig = CHUNK, architecture: str = "Bert", head: str = "Model", general: Any = None, **sizes: Any
) -> Any:
    """A domain model of two layers with a general model of four as memory; gates and biases lean somewhere."""
    model = encoder(architecture, head, **sizes)
    general = encoder(architecture, seed=1, num_hidden_layers=4) if general is None else general
    attach = attach_logits_fusion if config.strategy == "logits" else attach_memory
    memory = attach(model, general, config, seed=0)
    assert memory is model.memory
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in (*memory.gates.parameters(), *memory.biases.parameters()):
            weight.normal_(generator=generator)
    return model


def weighed(states: list[Tensor], gate: Any) -> Tensor:
    """Equations 9 to 11, state by state."""
    scores = [(states[i] * gate.weight[0]).sum(-1, keepdim=True) + gate.bias for i in range(len(states))]
    total = sum(score.exp() for score in scores)
    fused = sum(score.exp() / total * state for score, state in zip(scores, states, strict=True))
    assert isinstance(fused, Tensor)
    return fused


@pytest.mark.parametrize(
    ("architecture", "strategy", "variant"),
    [*product(["Bert"], STRATEGIES, VARIANTS), *((name, "chunk", "memory") for name in ARCHITECTURES)],
)
def test_it_is_the_formula(architecture: str, strategy: Any, variant: Any) -> None:
    config = MemoryConfig(strategy, variant)
    model = with_memory(config, architecture).double()
    calls: list[tuple[Tensor, Tensor]] = []
    for layer in attention_of(model):
        layer.register_forward_hook(lambda layer, args, output: calls.append((args[0], output[0])))
    draw = torch.Generator().manual_seed(3)
    n, m = (torch.randint(1, 9, (3,), generator=draw).tolist() for _ in range(2))
    inputs, memory = batch(n, 0, PAD[architecture]), batch(m, 1, PAD[architecture])
    call(model, inputs, memory)
    for i in range(3):
        alone = model.memory.general(input_ids=memory.ids[i : i + 1, : m[i]], output_hidden_states=True)
        for layer in (0, 1):
            hidden, mixed = (tensor[i, : n[i]] for tensor in calls[layer])
            states = [alone.hidden_states[state][0] for state in READ[strategy].get(layer, [])]
            number = [*READ[strategy], 9].index(layer) if states else 0
            seen = torch.zeros(0, 16).double()
            if states:
                seen = weighed(states, model.memory.gates[number]) if strategy in ("gated", "chunk") else states[0]
            bias = model.memory.biases[number] if variant == "gate" else None
            expected = context(attention_of(model)[layer], hidden, seen, variant, bias).flatten(1)
            torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-6)


def test_gates_begin_as_the_mean_of_the_states_that_are_read() -> None:
    model, general = (encoder("Electra", seed=i, num_hidden_layers=2 + 2 * i, embedding_size=8) for i in (0, 1))
    memory = attach_memory(model, general, MemoryConfig(source="0-2,4"), seed=0)
    inputs = batch([4, 6, 5])
    read = memory(memory_ids=inputs.ids, memory_mask=inputs.mask)
    hidden = memory.general(input_ids=inputs.ids, attention_mask=inputs.mask, output_hidden_states=True).hidden_states
    expected = torch.stack([hidden[state] for state in (0, 1, 2)]).mean(0)
    torch.testing.assert_close(read.states[0], expected, rtol=0, atol=ROUNDING)
    assert torch.equal(read.mask, inputs.real)


@pytest.mark.slow
def test_random_gates_are_those_of_the_seed_and_take_no_numbers_from_others() -> None:
    width = 512
    general = encoder("Bert", seed=1, hidden_size=width)

    def gates(seed: int) -> Tensor:
        model = encoder("Bert", hidden_size=width)
        before = torch.get_rng_state()
        memory = attach_memory(model, general, MemoryConfig(gate_init="normal", project=True), seed)
        assert torch.equal(torch.get_rng_state(), before)
        assert memory.project is not None
        assert abs(memory.project.weight.std().item() * width**0.5 - 1) < 0.01
        assert all(not layer.bias.any() for layer in (*memory.gates, memory.project))  # type: ignore[union-attr, operator]
        return torch.cat([gate.weight for gate in memory.gates])  # type: ignore[misc]

    first = gates(0)
    assert torch.equal(first, gates(0))
    assert not torch.equal(first, gates(1))
    assert abs(first.std().item() - 0.02) < 0.001
    assert not torch.equal(first[0], first[1])
    same_seed = torch.empty(2, width).normal_(0, 0.02, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(first, same_seed)  # which a head of that seed may begin with


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(("architecture", "strategy"), [("Bert", "chunk"), ("Roberta", "logits")])
def test_training_leaves_a_frozen_general_model_as_it_is(architecture: str, strategy: Any, frozen: bool) -> None:
    general = encoder(architecture, seed=1, num_hidden_layers=4)
    checkpoint = copy.deepcopy(general.state_dict())
    model = with_memory(MemoryConfig(strategy, frozen=frozen), architecture, CLASSIFICATION, general)
    before = copy.deepcopy(model.state_dict())
    assert all(torch.equal(weight, before[f"memory.general.{name}"]) for name, weight in checkpoint.items())
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)  # with the frozen ones
    model.train()
    torch.manual_seed(0)
    for step in range(3):
        logits = call(model, batch([7, 3, 5], step), batch([4, 9, 6], step)).logits
        optimiser.zero_grad()
        nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
        optimiser.step()
    assert {module.training for module in model.memory.general.modules()} == {not frozen}
    unchanged = {name for name, weight in model.state_dict().items() if torch.equal(before[name], weight)}
    assert unchanged == {name for name in before if frozen and name.startswith("memory.general.")}


def test_gradients_reach_all_that_is_learnt() -> None:
    general = encoder("Bert", seed=1, num_hidden_layers=4, hidden_size=24)
    model = with_memory(MemoryConfig(attention="gate", project=True), head="ForTokenClassification", general=general)
    model.train()
    with torch.autocast("cpu", torch.bfloat16, enabled=True):
        logits = call(model, batch([7, 3, 5]), batch([4, 9, 6], seed=1)).logits
    logits.float().square().sum().backward()
    learnt = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    assert all(weight.grad is not None and torch.isfinite(weight.grad).all() for weight in learnt.values())
    idle = {name for name, weight in learnt.items() if weight.grad.abs().max() == 0}
    assert idle <= {"memory.gates.0.bias", "memory.gates.1.bias"}
    assert len([name for name in learnt if name.startswith("memory.")]) == 8  # of two gates, two biases, a projection


def test_the_general_model_may_be_another_one() -> None:
    general = encoder("Roberta", seed=1, num_hidden_layers=5, hidden_size=24, vocab_size=200)
    model = with_memory(MemoryConfig(project=True), "Electra", general=general, embedding_size=8)
    inputs, memory = batch([7, 3, 5]), batch([20, 9, 13], seed=1, pad=1)
    assert call(model, inputs, memory).last_hidden_state.shape == (3, 7, 16)
    seen = model.memory(memory_ids=memory.ids, memory_mask=memory.mask)
    hidden = general(input_ids=memory.ids, attention_mask=memory.mask, output_hidden_states=True).hidden_states
    fused = weighed([hidden[3], hidden[4], hidden[5]], model.memory.gates[1])
    project = model.memory.project
    expected = torch.einsum("bmg,dg->bmd", fused, project.weight) + project.bias
    torch.testing.assert_close(seen.states[1], expected, rtol=0, atol=1e-5)


def last_states(encoder: Any, inputs: Batch) -> Tensor:
    return encoder(input_ids=inputs.ids, attention_mask=inputs.mask).last_hidden_state


def by_head(model: Any, states: Tensor) -> Tensor:
    """Logits of the head of ``model`` for last states (b, n, d), computed by transformers."""

    def replace(encoder: Any, args: Any, output: Any) -> Any:
        output.last_hidden_state = states
        if getattr(encoder, "pooler", None) is not None:
            output.pooler_output = encoder.pooler(states)
        return output

    hook = model.base_model.register_forward_hook(replace)
    output = model(input_ids=torch.full(states.shape[:2], 7))
    hook.remove()
    return logits_of(output)


def logits_of(output: Any) -> Tensor:
    """(b, n_labels), (b, n, n_labels), or the two of a span (b, n, 2)."""
    return output.logits if "logits" in output else torch.stack([output.start_logits, output.end_logits], -1)


SUMS = [(name, TOKENS, [7, 3, 5]) for name in WITH_MEMORY if hasattr(transformers, name + TOKENS)]
SUMS += [("Bert", QA, [7, 3, 5])]
SUMS += [(name, CLASSIFICATION, lengths) for name in ("Bert", "Electra") for lengths in ([4, 2, 1], [9, 12, 6])]
"""Architecture, head and lengths of the general model's inputs, which classification does not need to be the same."""


@pytest.mark.parametrize(("architecture", "head", "lengths"), SUMS)
def test_it_is_the_sum_of_one_heads_logits_for_two_plain_models(
    architecture: str, head: str, lengths: list[int]
) -> None:
    inputs, memory = batch([7, 3, 5], 0, PAD[architecture]), batch(lengths, 1, PAD[architecture])
    plain, general = encoder(architecture, head), encoder(architecture, seed=1, num_hidden_layers=4)
    expected = by_head(plain, last_states(plain.base_model, inputs)) + by_head(plain, last_states(general, memory))
    model = with_memory(LOGITS, architecture, head)
    output = call(model, inputs, memory)
    real = slice(None) if head == CLASSIFICATION else inputs.real
    torch.testing.assert_close(logits_of(output)[real], expected[real], rtol=0, atol=1e-5)
    names = [name for name in model.state_dict() if not name.startswith("memory.")]
    assert names == list(plain.state_dict())


def test_logits_of_other_widths_need_a_projection() -> None:
    general = encoder("Bert", seed=1, hidden_size=24)
    with pytest.raises(UsageError, match="general model is 24 wide and the domain model 16: use --memory-project"):
        with_memory(LOGITS, head=TOKENS, general=general)
    model = with_memory(MemoryConfig("logits", project=True), head=TOKENS, general=general)
    inputs, memory = batch([7, 3, 5]), batch([7, 3, 5], seed=1)
    second = last_states(general, memory) @ model.memory.project.weight.T + model.memory.project.bias
    plain = encoder("Bert", TOKENS)
    expected = by_head(plain, last_states(plain.base_model, inputs)) + by_head(plain, second)
    torch.testing.assert_close(call(model, inputs, memory).logits, expected, rtol=0, atol=1e-5)


def test_what_cannot_be() -> None:
    averages = encoder("ModernBert", CLASSIFICATION, classifier_pooling="mean")
    with pytest.raises(UsageError, match="reads the mean"):
        attach_logits_fusion(averages, encoder("ModernBert"), LOGITS, seed=0)
