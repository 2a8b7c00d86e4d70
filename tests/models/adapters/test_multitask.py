import copy
from collections import Counter
from typing import Any, get_args

import pytest
import torch

from greenadapt.config import AdapterConfig, AdapterName, MemoryConfig
from greenadapt.errors import MissingError, UsageError
from greenadapt.models.adapters.multitask import MultitaskModel
from greenadapt.models.memory.fusion import attach_memory
from tests.support.small_encoders import PAD, batch, encoder
from tests.support.small_shared import ARCHITECTURES, N_OUTPUTS, moved, multitask, plain_model, shared_encoder

pytestmark = pytest.mark.usefixtures("one_thread")

NONE = AdapterConfig("none")
PALS = AdapterConfig("pals", 12, 4)
NAMES = get_args(AdapterName)
OWN = batch([7, 3, 5])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("head", N_OUTPUTS)
def test_without_adapters_it_is_the_model_of_transformers(head: str, training: bool) -> None:
    model = moved(multitask({"t": NONE}, head)).train(training)
    plain = plain_model(model, "t")
    outputs, gradients = [], []
    for called, task, layer in ((model, {"task": "t"}, model.encoder), (plain, {}, plain.base_model)):
        torch.manual_seed(0)
        output = called(input_ids=OWN.ids, attention_mask=OWN.mask, **task)
        logits = {name: value for name, value in output.items() if "logits" in name}
        sum(value.square().sum() for value in logits.values()).backward()
        outputs.append(logits)
        gradients.append(layer.encoder.layer[0].attention.self.query.weight.grad)
    assert list(outputs[0]) == list(outputs[1])
    for name, logits in outputs[0].items():
        assert torch.equal(logits, outputs[1][name])
    assert torch.equal(*gradients)


@pytest.mark.parametrize("architecture", ["Roberta", "XLMRoberta"])
@pytest.mark.parametrize("head", ["TokenClassification", "QuestionAnswering"])
def test_without_adapters_it_is_the_model_of_transformers_for_other_encoders(architecture: str, head: str) -> None:
    model = moved(multitask({"t": NONE}, head, shared_encoder(architecture)))
    own = batch([7, 3, 5], 0, PAD[architecture])
    plain = plain_model(model, "t", architecture)(input_ids=own.ids, attention_mask=own.mask)
    for name, logits in model(own.ids, own.mask, task="t").items():
        assert torch.equal(logits, plain[name])


def test_segments_and_a_dropout_of_the_head_reach_it() -> None:
    base = shared_encoder(classifier_dropout=0.4)
    model = moved(multitask({"t": NONE, "qa": NONE}, encoder=base))
    assert model.part("t").dropout.p == 0.4
    assert moved(multitask({"qa": NONE}, "QuestionAnswering")).part("qa").dropout.p == 0.0
    types = torch.zeros_like(OWN.ids)
    types[:, 2:] = 1
    plain = plain_model(model, "t")(input_ids=OWN.ids, attention_mask=OWN.mask, token_type_ids=types).logits
    assert torch.equal(model(OWN.ids, OWN.mask, types, task="t")["logits"], plain)
    assert not torch.equal(model(OWN.ids, OWN.mask, task="t")["logits"], plain)


def counted(model: MultitaskModel) -> Counter[int]:
    """How often each layer of the encoder runs from now on."""
    calls: Counter[int] = Counter()
    for number, layer in enumerate(model.encoder.get_submodule("encoder.layer").children()):
        layer.register_forward_hook(lambda layer, args, output, number=number: calls.update([number]))
    return calls


EACH: dict[str, tuple[dict[str, AdapterConfig], int, list[int]]] = {
    "on top": ({"a": AdapterConfig("top-attention"), "b": NONE, "c": AdapterConfig("bert-layer")}, 4, [1, 1, 1, 1]),
    "top half": (
        {
            "a": AdapterConfig("pals", 12, layers="top"),
            "b": AdapterConfig("houlsby", layers="3,4"),
            "c": AdapterConfig("low-rank", layers="top"),
        },
        2,
        [1, 1, 3, 3],
    ),
    "last": (
        {"a": AdapterConfig("lhuc", layers="4"), "b": AdapterConfig("attention", 12, layers="4")},
        3,
        [1, 1, 1, 2],
    ),
    "all": ({"a": PALS, "b": AdapterConfig("low-rank")}, 0, [2, 2, 2, 2]),
    "mixed": (
        {"a": PALS, "b": NONE, "c": AdapterConfig("pals", 12, layers="3"), "d": AdapterConfig("top-ffn")},
        0,
        [2, 2, 3, 3],
    ),
}
"""Adapters, how many layers none of them touches, and how often each layer runs."""


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
def test_each_is_every_task_by_itself_and_runs_shared_layers_once(kind: str, remembers: bool, head: str) -> None:
    adapters, n_shared, runs = EACH[kind]
    model = moved(multitask(adapters, head, shared_encoder(num_hidden_layers=4)))
    given: dict[str, Any] = {}
    if remembers:
        attach_memory(model.encoder, encoder("Bert", seed=1), MemoryConfig(), seed=0)  # type: ignore[arg-type]
        other = batch([2, 8, 5], seed=1)
        given = {"memory_ids": other.ids, "memory_mask": other.mask}
    tasks = list(adapters)
    assert min(map(model.n_untouched, tasks)) == n_shared
    expected = {task: model(OWN.ids, OWN.mask, task=task, **given) for task in tasks}
    calls = counted(model)
    got = model.each(tasks, OWN.ids, OWN.mask, **given)
    assert calls == dict(enumerate(runs))
    assert list(got) == tasks
    for task in tasks:
        assert torch.equal(got[task]["logits"], expected[task]["logits"])
    alone = model.each(tasks[1:2], OWN.ids, OWN.mask, **given)
    assert torch.equal(alone[tasks[1]]["logits"], expected[tasks[1]]["logits"])


def test_each_without_padding_and_without_tasks() -> None:
    model = moved(multitask(EACH["top half"][0], encoder=shared_encoder(num_hidden_layers=4)))
    got = model.each(["c", "a"], OWN.ids)
    assert list(got) == ["c", "a"]
    assert torch.equal(got["a"]["logits"], model(OWN.ids, task="a")["logits"])
    assert model.each([], OWN.ids) == {}


@pytest.mark.parametrize("adapter", NAMES)
def test_a_step_of_one_task_has_no_gradients_for_others(adapter: AdapterName) -> None:
    model = multitask({"a": AdapterConfig(adapter), "b": AdapterConfig(adapter)})
    model.train()
    for task, other in ("ab", "ba"):  # also after the other one was trained
        for parameter in model.parameters():
            parameter.grad = None
        model(OWN.ids, OWN.mask, task=task)["logits"].square().sum().backward()
        assert all(parameter.grad is None for parameter in model.part(other).parameters())
        own = dict(model.part(task).named_parameters())
        assert [name for name, parameter in own.items() if parameter.grad is None] == []
        of_encoder = dict(model.encoder.named_parameters())
        assert [name for name, parameter in of_encoder.items() if parameter.grad is None] == []


def test_a_frozen_encoder_gets_no_gradients() -> None:
    model = multitask({"t": AdapterConfig("pals", freeze_encoder=True)})
    model.freeze()
    model(OWN.ids, OWN.mask, task="t")["logits"].sum().backward()
    assert all(not parameter.requires_grad and parameter.grad is None for parameter in model.encoder.parameters())
    assert all(parameter.grad is not None for parameter in model.part("t").parameters())


def test_a_task_starts_alike_whatever_the_others_are() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    base = shared_encoder()
    torch.set_rng_state(state)
    alone = multitask({"b": PALS}, encoder=base)
    both = multitask({"a": NONE, "b": PALS}, encoder=shared_encoder())
    torch.set_rng_state(state)
    other = multitask({"b": PALS}, seed=2, encoder=base)
    assert torch.equal(torch.get_rng_state(), state)
    for name, weight in alone.part("b").state_dict().items():
        assert torch.equal(weight, both.part("b").state_dict()[name])
    twins = multitask({"a": PALS, "b": PALS}, encoder=base)
    for model, task in ((other, "b"), (twins, "a")):
        head = model.part(task).head.weight
        assert not torch.equal(head, alone.part("b").head.weight)
    assert torch.equal(both.part("b").head.weight, multitask({"b": NONE}, encoder=base).part("b").head.weight)


def test_nothing_stays_behind_a_call() -> None:
    model = moved(multitask({"t": AdapterConfig("houlsby-pals", 12)}))
    plain = model.encoder(input_ids=OWN.ids).last_hidden_state
    adapted = model(OWN.ids, task="t")["logits"]
    assert torch.equal(model.encoder(input_ids=OWN.ids).last_hidden_state, plain)
    with pytest.raises(IndexError):
        model(OWN.ids + 1000, task="t")
    assert torch.equal(model.encoder(input_ids=OWN.ids).last_hidden_state, plain)
    assert torch.equal(model(OWN.ids, task="t")["logits"], adapted)


def test_a_copy_is_a_model_of_its_own() -> None:
    model = moved(multitask({"t": PALS}))
    before = model(OWN.ids, task="t")["logits"]
    twin = copy.deepcopy(model)
    assert torch.equal(twin(OWN.ids, task="t")["logits"], before)
    moved(twin.part("t").adapter)
    assert not torch.equal(twin(OWN.ids, task="t")["logits"], before)
    assert torch.equal(model(OWN.ids, task="t")["logits"], before)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_are_those_of_the_encoder_and_of_each_task(architecture: str) -> None:
    base = shared_encoder(architecture)
    model = multitask({"a.b": PALS, "keys": NONE}, encoder=base)
    own = dict.fromkeys(("head.weight", "head.bias"))
    assert list(model.part("keys").state_dict()) == list(own)
    names = [name for name in model.state_dict() if name.startswith("encoder.")]
    assert names == [f"encoder.{name}" for name in base.state_dict()]
    assert len(model.state_dict()) == len(names) + 2 + len(model.part("a.b").state_dict())
    assert model.tasks == ("a.b", "keys")
    assert model.get_input_embeddings() is base.get_input_embeddings()
    assert model.config is base.config
    twin = multitask({"a.b": PALS, "keys": NONE}, encoder=shared_encoder(architecture), seed=7)
    twin.load_state_dict(moved(model).state_dict())
    assert torch.equal(twin(OWN.ids, task="a.b")["logits"], model(OWN.ids, task="a.b")["logits"])


def test_parts_are_where_and_what_the_encoder_is() -> None:
    base = shared_encoder().to(torch.bfloat16).train()
    model = multitask({"t": PALS}, encoder=base)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert model.part("t").training
    with torch.device("meta"):
        shapes = multitask({"t": PALS}, encoder=shared_encoder().to("meta"))
    assert {weight.device.type for weight in shapes.parameters()} == {"meta"}


@pytest.mark.parametrize("adapter", NAMES)
def test_logits_are_exact_under_autocast(adapter: AdapterName) -> None:
    for head in N_OUTPUTS:
        model = multitask({"t": AdapterConfig(adapter)}, head)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(OWN.ids, OWN.mask, task="t")
        assert {logits.dtype for logits in output.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("architecture", "config", "message"),
    [
        ("Albert", {}, "a model of type albert cannot be shared by tasks: it has one layer"),
        (
            "GPT2",
            {"bos_token_id": 0, "eos_token_id": 0},
            "gpt2 cannot be shared by tasks: it sees only",
        ),
        ("Bert", {"is_decoder": True}, "a model of type bert cannot be shared by tasks: it is a decoder"),
        ("Bert", {"chunk_size_feed_forward": 4}, "it uses chunked feed-forward"),
    ],
)
def test_other_encoders_are_refused(architecture: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        multitask({"t": NONE}, encoder=encoder(architecture, **config))
    assert message in str(caught.value)


def test_a_task_that_is_not_there_is_named() -> None:
    model = multitask({"a": NONE, "b": NONE})
    with pytest.raises(MissingError, match="the model has no task c: it has a, b"):
        model(OWN.ids, task="c")
    with pytest.raises(UsageError, match="--layers has layer 3, the model has 2"):
        multitask({"a": AdapterConfig(layers="3")})
