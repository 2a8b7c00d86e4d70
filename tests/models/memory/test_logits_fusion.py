import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from greenadapt.config import MemoryConfig
from greenadapt.errors import UsageError
from greenadapt.models.memory.fusion import attach_logits_fusion
from tests.support.small_encoders import ARCHITECTURES, PAD, WITH_MEMORY, Batch, batch, call, encoder

pytestmark = pytest.mark.usefixtures("one_thread")

LOGITS = MemoryConfig("logits")
CLASSIFICATION, TOKENS, QA = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"
HEADS = (CLASSIFICATION, TOKENS, QA)


def fused(architecture: str, head: str, config: MemoryConfig = LOGITS, general: Any = None) -> Any:
    """A domain model of two layers with a general model of three."""
    model = encoder(architecture, head)
    general = encoder(architecture, seed=1, num_hidden_layers=3) if general is None else general
    memory = attach_logits_fusion(model, general, config, seed=0)
    assert memory is model.memory
    return model


def last_states(encoder: Any, inputs: Batch) -> Tensor:
    states: Tensor = encoder(input_ids=inputs.ids, attention_mask=inputs.mask).last_hidden_state
    return states


def by_hand(model: Any, head: str, states: Tensor) -> Tensor:
    """Logits of the head of ``model`` for last states (b, n, d): (b, n_labels) or (b, n, n_labels)."""
    if head != CLASSIFICATION:
        layer = model.classifier if head == TOKENS else model.qa_outputs
        return states @ layer.weight.T + layer.bias
    is_bert = model.config.model_type == "bert"
    inner, outer = (
        (model.bert.pooler.dense, model.classifier) if is_bert else (model.classifier.dense, model.classifier.out_proj)
    )
    hidden = states[:, 0] @ inner.weight.T + inner.bias
    hidden = nn.functional.gelu(hidden) if model.config.model_type == "electra" else hidden.tanh()
    logits: Tensor = hidden @ outer.weight.T + outer.bias
    return logits


def by_head(model: Any, states: Tensor) -> Tensor:
    """The same by transformers' own code, whose encoder gives ``states``."""

    def give(encoder: Any, args: Any, output: Any) -> Any:
        output.last_hidden_state = states
        if getattr(encoder, "pooler", None) is not None:
            output.pooler_output = encoder.pooler(states)
        return output

    hook = model.base_model.register_forward_hook(give)
    output = model(input_ids=torch.full(states.shape[:2], 7))
    hook.remove()
    return logits_of(output)


def logits_of(output: Any) -> Tensor:
    """(b, n_labels), (b, n, n_labels), or the two of a span (b, n, 2)."""
    logits: Tensor = output.logits if "logits" in output else torch.stack([output.start_logits, output.end_logits], -1)
    return logits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("head", HEADS)
def test_it_is_the_sum_of_one_heads_logits_for_two_plain_models(architecture: str, head: str) -> None:
    own, other = (batch([7, 3, 5], seed, PAD[architecture]) for seed in (0, 1))
    plain = encoder(architecture, head)
    first = last_states(plain.base_model, own)
    second = last_states(encoder(architecture, seed=1, num_hidden_layers=3), other)
    expected = by_hand(plain, head, first) + by_hand(plain, head, second)
    torch.testing.assert_close(
        logits_of(plain(input_ids=own.ids, attention_mask=own.mask)), by_hand(plain, head, first), rtol=0, atol=1e-5
    )
    model = fused(architecture, head)
    output = call(model, own, other)
    assert [*output] == [*plain(input_ids=own.ids)]
    torch.testing.assert_close(logits_of(output), expected, rtol=0, atol=1e-5)
    names = [name for name in model.state_dict() if not name.startswith("memory.")]
    assert names == list(plain.state_dict())


@pytest.mark.parametrize("architecture", [name for name in WITH_MEMORY if name not in ARCHITECTURES])
@pytest.mark.parametrize("head", [CLASSIFICATION, TOKENS])
def test_it_is_the_sum_for_other_heads_too(architecture: str, head: str) -> None:
    own, other = (batch([7, 3, 5], seed, PAD[architecture]) for seed in (0, 1))
    plain, general = encoder(architecture, head), encoder(architecture, seed=1, num_hidden_layers=3)
    expected = by_head(plain, last_states(plain.base_model, own)) + by_head(plain, last_states(general, other))
    got = logits_of(call(fused(architecture, head), own, other))
    real = slice(None) if head == CLASSIFICATION else own.real
    torch.testing.assert_close(got[real], expected[real], rtol=0, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("lengths", [[4, 2, 1], [9, 12, 6]])
def test_classification_reads_inputs_of_other_lengths(architecture: str, lengths: list[int]) -> None:
    own, other = batch([7, 3, 5], 0, PAD[architecture]), batch(lengths, 1, PAD[architecture])
    plain = encoder(architecture, CLASSIFICATION)
    states = [
        last_states(plain.base_model, own),
        last_states(encoder(architecture, seed=1, num_hidden_layers=3), other),
    ]
    expected = sum(by_hand(plain, CLASSIFICATION, state) for state in states)
    got = call(fused(architecture, CLASSIFICATION), own, other).logits
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("head", [TOKENS, QA])
def test_heads_that_label_pieces_do_not(head: str) -> None:
    with pytest.raises(ValueError, match="domain model reads 7 pieces and the general model 9"):
        call(fused("Bert", head), batch([7, 3]), batch([4, 9]))


@pytest.mark.parametrize("head", HEADS)
def test_padding_on_neither_side_reaches_a_real_piece(head: str) -> None:
    model, own, other = fused("Bert", head), batch([7, 3, 5]), batch([7, 3, 5], seed=1)
    real = slice(None) if head == CLASSIFICATION else own.real
    expected = logits_of(call(model, own, other))[real]
    for left, right in ((own.other_padding(), other), (own, other.other_padding())):
        torch.testing.assert_close(logits_of(call(model, left, right))[real], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("head", HEADS)
def test_kept_states_and_half_precision(head: str) -> None:
    own, other = batch([7, 3, 5]), batch([7, 3, 5], seed=1)
    model = fused("Bert", head)
    expected = logits_of(call(model, own, other))
    states = model.memory.general_states(other.ids, other.mask)
    assert states.shape == (1, 3, 7, 16)
    arguments = {"input_ids": own.ids, "attention_mask": own.mask, "memory_mask": other.mask}
    assert torch.equal(logits_of(model(**arguments, memory_states=states)), expected)
    narrow = logits_of(model(**arguments, memory_states=states.bfloat16()))
    torch.testing.assert_close(narrow, expected, rtol=0, atol=0.1)
    half = fused("Bert", head, general=encoder("Bert", seed=1, num_hidden_layers=3).bfloat16())
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            got = logits_of(call(half, own, other))
        torch.testing.assert_close(got.float(), expected, rtol=0, atol=0.3)


def test_other_widths_need_a_projection() -> None:
    general = encoder("Bert", seed=1, hidden_size=24)
    with pytest.raises(UsageError, match="general model is 24 wide and the domain model 16: use --memory-project"):
        fused("Bert", TOKENS, general=general)
    model = fused("Bert", TOKENS, MemoryConfig("logits", project=True), general)
    own, other = batch([7, 3, 5]), batch([7, 3, 5], seed=1)
    second = last_states(general, other) @ model.memory.project.weight.T + model.memory.project.bias
    plain = encoder("Bert", TOKENS)
    expected = by_hand(plain, TOKENS, last_states(plain.base_model, own)) + by_hand(plain, TOKENS, second)
    torch.testing.assert_close(call(model, own, other).logits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_training(frozen: bool) -> None:
    model = fused("Bert", CLASSIFICATION, MemoryConfig("logits", frozen=frozen))
    before = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model.train()
    assert model.memory.general.training != frozen
    torch.manual_seed(0)
    for step in range(5):
        logits = call(model, batch([7, 3, 5], step), batch([4, 9, 6], step)).logits
        optimiser.zero_grad()
        nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
        optimiser.step()
    same = {name for name, weight in model.state_dict().items() if torch.equal(before[name], weight)}
    assert same == {name for name in before if frozen and name.startswith("memory.general.")}


def test_what_cannot_be() -> None:
    model, inputs = fused("Bert", CLASSIFICATION), batch([4, 6])
    with pytest.raises(ValueError, match="needs either memory_ids or memory_states"):
        model(input_ids=inputs.ids)
    with pytest.raises(ValueError, match="computes no loss"):
        model(input_ids=inputs.ids, memory_ids=inputs.ids, labels=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="computes no loss"):
        fused("Bert", QA)(input_ids=inputs.ids, memory_ids=inputs.ids, start_positions=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="strategy chunk adds no logits"):
        fused("Bert", CLASSIFICATION, MemoryConfig())
    with pytest.raises(UsageError, match="albert"):
        attach_logits_fusion(encoder("Albert", CLASSIFICATION), encoder("Bert"), LOGITS, seed=0)
    averages = encoder("ModernBert", CLASSIFICATION, classifier_pooling="mean")
    with pytest.raises(UsageError, match="reads the mean"):
        attach_logits_fusion(averages, encoder("ModernBert"), LOGITS, seed=0)
