"""Only the rows that occur are trained: the same as training the whole table, and transformers loads the result."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig, PretrainConfig, TrainConfig
from greenadapt.errors import InputError, MissingError
from greenadapt.models.adapters.multitask import open_multitask
from greenadapt.models.memory.fusion import attach_memory
from greenadapt.models.mlm import open_masked_lm
from greenadapt.models.rows import Rows
from greenadapt.models.weights import (
    begin_memory,
    find_last_linear,
    open_encoder,
    open_model,
    open_task_model,
    read_memory,
    trained_table,
    write_memory,
    write_model,
)
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.pretrain import PretrainRequest, pretrain
from greenadapt.tasks.base import HeadShape
from tests.support.small_encoders import encoder
from tests.support.small_tasks import (
    EVERY_FAMILY,
    EVERY_HEAD,
    TASK_MODELS,
    TinyModel,
    adapted,
    expanded,
    ner_request,
    session,
    set_config,
)
from tests.support.small_texts import text_file

Batches = list[tuple[torch.Tensor, torch.Tensor]]
LABELS = {"id2label": {"0": "O", "1": "B-drug", "2": "I-drug"}, "label2id": {"O": 0, "B-drug": 1, "I-drug": 2}}
STEPS = 5


def plain(folder: Path, head: str, seed: int = 0, **config: Any) -> transformers.PreTrainedModel:
    """What anyone gets from transformers."""
    torch.manual_seed(seed)
    model_class = getattr(transformers, f"AutoModelFor{head}")
    return model_class.from_pretrained(folder, **config)


def assert_same_weights(model: torch.nn.Module, reference: torch.nn.Module, tolerance: float) -> None:
    weights, expected = model.state_dict(), reference.state_dict()
    assert list(weights) == list(expected)
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], atol=tolerance, rtol=0, msg=name)


def random_batches(ids: np.ndarray, pad: int, seed: int) -> Batches:
    """Random sentences of two lengths from ``ids``, with a label a piece."""
    random = np.random.default_rng(seed)
    batches = []
    for _ in range(STEPS):
        inputs = random.choice(ids, (4, 12))
        labels = random.integers(0, 3, inputs.shape)
        inputs[:2, 8:], labels[:2, 8:] = pad, -100
        batches.append((torch.from_numpy(inputs), torch.from_numpy(labels)))
    return batches


def train(model: torch.nn.Module, batches: Batches, seed: int, rows: Rows) -> float:
    """AdamW with a falling rate, by hand; returns the product of 1 - rate · decay."""
    rate, pad, decay = 3e-3, model.config.pad_token_id, 0.1
    groups = [
        {"params": [p for p in model.parameters() if (p.ndim > 1) == is_matrix], "weight_decay": decay * is_matrix}
        for is_matrix in (True, False)
    ]
    optimiser = torch.optim.AdamW(groups, lr=rate)
    torch.manual_seed(seed)  # dropout draws the same for both
    model.train()
    shrink = 1.0
    for step, (inputs, labels) in enumerate(batches):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - step / STEPS)
        compact = torch.from_numpy(rows.compact(inputs.numpy()))
        model(compact, attention_mask=(inputs != pad).long(), labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        shrink *= 1 - group["lr"] * decay
    model.eval()
    return shrink


@pytest.mark.slow
@pytest.mark.parametrize("architecture", EVERY_FAMILY)
def test_only_the_rows_that_occur_train(tiny_model: TinyModel, tmp_path: Path, architecture: str) -> None:
    """The same training twice: of the whole table, and of the rows that occur."""
    checkpoint, seed = expanded(tiny_model, tmp_path, architecture), 3
    pad = int(checkpoint.config["pad_token_id"])
    ids = np.random.default_rng(seed).choice(np.arange(pad + 1, checkpoint.n_rows), 100, replace=False)
    batches = random_batches(ids, pad, seed)
    rows = Rows(np.union1d(ids, np.arange(pad + 1)))
    whole = plain(checkpoint.folder, "TokenClassification", seed, **LABELS)
    before = whole.get_input_embeddings().weight.detach().clone()
    compact = open_model(checkpoint, "TokenClassification", LABELS, rows, seed)
    assert compact.get_input_embeddings().weight.shape == (len(rows), checkpoint.dim)
    shrink = train(whole, batches, seed, Rows.all(checkpoint.n_rows))
    assert train(compact, batches, seed, rows) == shrink
    write_model(compact, trained_table(compact, rows, checkpoint, shrink), tmp_path / "task")
    assert (whole.get_input_embeddings().weight - before).abs().max() > 5e-3

    model = plain(tmp_path / "task", "TokenClassification")
    assert_same_weights(model, whole, 1e-6)
    assert model.config.vocab_size == checkpoint.n_rows
    assert model.config.id2label == {0: "O", 1: "B-drug", 2: "I-drug"}
    assert model.config.architectures == [f"{architecture}ForTokenClassification"]

    ids = torch.randint(5, checkpoint.n_rows, (3, 20), generator=torch.Generator().manual_seed(0))
    opened = open_task_model(tmp_path / "task")
    with torch.no_grad():
        logits = opened.model(torch.from_numpy(opened.rows.compact(ids.numpy()))).logits
        torch.testing.assert_close(logits, whole(ids).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("architecture", "head"), EVERY_HEAD)
def test_a_new_head_is_that_of_transformers(
    tiny_model: TinyModel, tmp_path: Path, architecture: str, head: str, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = expanded(tiny_model, tmp_path, architecture)
    config = {} if head == "QuestionAnswering" else LABELS
    expected = plain(checkpoint.folder, head, seed=5, **config)
    after = torch.rand(3)
    capfd.readouterr()
    rows = Rows(np.concatenate([np.arange(6), np.arange(100, 400, 7)]))
    torch.manual_seed(99)
    model = open_model(checkpoint, head, config, rows, seed=5)
    assert capfd.readouterr() == ("", "")
    assert torch.equal(torch.rand(3), after)
    assert not model.training
    assert type(model) is type(expected)
    with torch.no_grad():
        layer = expected.get_input_embeddings()
        layer.weight = torch.nn.Parameter(layer.weight[rows.ids])
    assert_same_weights(model, expected, 0.0)
    assert model.get_input_embeddings().padding_idx == layer.padding_idx


def test_half_precision_is_trained_and_written_in_full(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = tiny_model("BertForMaskedLM", tie_word_embeddings=False)
    weights = {name: weight.bfloat16() for name, weight in load_file(source / "model.safetensors").items()}
    save_file(weights, source / "model.safetensors", {"format": "pt"})
    checkpoint = Checkpoint(source)
    rows = Rows.all(50)
    model = open_model(checkpoint, "TokenClassification", LABELS, rows, seed=2)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    write_model(model, trained_table(model, rows, checkpoint), tmp_path / "task")
    expected = plain(source, "TokenClassification", 2, dtype=torch.float32, **LABELS)
    written = plain(tmp_path / "task", "TokenClassification")
    assert written.dtype == torch.float32
    assert_same_weights(written, expected, 0.0)


def test_a_head_for_other_labels_is_made_anew(tiny_model: TinyModel, tmp_path: Path) -> None:
    head = "SequenceClassification"
    source = Checkpoint(tiny_model(f"RobertaFor{head}", **LABELS))
    rows = Rows.all(source.n_rows)
    has_head = plain(source.folder, head)
    assert_same_weights(open_model(source, head, LABELS, rows, seed=1), has_head, 0.0)
    has_head.base_model.save_pretrained(tmp_path / "encoder")
    old = has_head.state_dict()
    for labels in (["B-drug", "O", "I-drug"], ["1", "2", "3", "4", "5"]):
        config = {"id2label": {str(i): label for i, label in enumerate(labels)}}
        model = open_model(source, head, config, rows, seed=1)
        assert_same_weights(model, plain(tmp_path / "encoder", head, 1, **config), 0.0)
        assert list(model.config.id2label.values()) == labels
        new = [name for name, weight in model.state_dict().items() if not torch.equal(weight, old[name])]
        assert new
        assert all(name.startswith("classifier.") for name in new)


@pytest.mark.parametrize(("architecture", "head"), [pair for pair in TASK_MODELS if pair[0] in ("Bert", "ModernBert")])
def test_the_last_layer_is_exact_under_autocast(tiny_model: TinyModel, architecture: str, head: str) -> None:
    config = {} if head == "QuestionAnswering" else LABELS
    checkpoint = Checkpoint(tiny_model(f"{architecture}Model", initializer_range=0.1))
    model = open_model(checkpoint, head, config, Rows.all(checkpoint.n_rows), seed=1)
    expected = plain(checkpoint.folder, head, 1, **config).eval()
    for classifier in (model, expected):
        torch.nn.init.constant_(find_last_linear(classifier)[1].bias, 0.3)  # a new bias is 0
    ids = torch.randint(5, checkpoint.n_rows, (4, 30), generator=torch.Generator().manual_seed(0))

    def logits_of(classifier: Any) -> torch.Tensor:
        output = classifier(ids)
        return torch.stack([output[name] for name in output if name.endswith("logits")])

    with torch.no_grad():
        exact = logits_of(model)
        assert torch.equal(exact, logits_of(expected))
        with torch.autocast("cpu", torch.bfloat16):
            half, rounded = logits_of(model), logits_of(expected)
    assert rounded.dtype == torch.bfloat16  # as autocast computes all other layers
    assert half.dtype == torch.float32
    assert (half != half.bfloat16().float()).float().mean() > 0.8
    assert not torch.equal(half, exact)
    torch.testing.assert_close(half, exact, atol=0.05 * float(exact.abs().max()), rtol=0)


def test_broken_models_are_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = tiny_model("BertModel")
    with pytest.raises(InputError, match="holds a BertModel, no task model"):
        open_task_model(source)
    with pytest.raises(MissingError, match=r"is not a task model: it has no config\.json: make one with finetune"):
        open_task_model(tmp_path / "nowhere")
    source = tiny_model("BertForTokenClassification")
    weights = load_file(source / "model.safetensors")
    del weights["classifier.bias"]
    save_file(weights, source / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 1 weights of BertForTokenClassification, such as classifier\.bias"):
        open_task_model(source)


OPENERS: dict[str, Callable[[Checkpoint], object]] = {
    "task": lambda checkpoint: open_model(checkpoint, "TokenClassification", {}, Rows.all(9), seed=0),
    "encoder": lambda checkpoint: open_encoder(checkpoint, 9),
    "masked language model": lambda checkpoint: open_masked_lm(checkpoint, Rows.all(9), 9, seed=0),
    "many tasks": lambda checkpoint: open_multitask(checkpoint, {}, Rows.all(9), seed=0),
}


@pytest.mark.parametrize("kind", OPENERS)
def test_a_checkpoint_without_all_weights_of_its_encoder(tiny_model: TinyModel, kind: str) -> None:
    file = tiny_model("BertModel") / "model.safetensors"
    weights = load_file(file)
    del weights["embeddings.LayerNorm.bias"]  # outside of the layers, whose weights the reader counts
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(
        InputError, match=r"lacks 1 of the encoder's weights, such as (bert\.)?embeddings\.LayerNorm\.b"
    ):
        OPENERS[kind](Checkpoint(file.parent))


def test_no_code_is_named_in_what_is_written(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = tiny_model("BertModel")
    (source / "evil.py").write_text("raise SystemExit(3)")
    set_config(source, auto_map={"AutoConfig": "evil.Config", "AutoModelForTokenClassification": "evil.Model"})
    checkpoint = Checkpoint(source)
    model = open_model(checkpoint, "TokenClassification", LABELS, Rows.all(9), seed=0)
    write_model(model, trained_table(model, Rows.all(9), checkpoint), tmp_path / "task")
    assert "auto_map" not in json.loads((tmp_path / "task" / "config.json").read_text())
    assert plain(tmp_path / "task", "TokenClassification").config.vocab_size == checkpoint.n_rows


def test_a_configuration_names_no_code(tiny_model: TinyModel) -> None:
    kinds = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal", "experts_implementation")
    named: dict[str, Any] = {**dict.fromkeys(kinds, "evil/kernels"), "quantization_config": {"quant_method": "gptq"}}
    folder = tiny_model()
    set_config(folder, **named)
    checkpoint = Checkpoint(folder)
    assert not named.keys() & checkpoint.config.keys()  # which is what expand copies
    model = open_encoder(checkpoint, 5)
    assert model.config._attn_implementation in ("sdpa", "eager")
    assert not [key for key in json.loads(model.config.to_json_string()) if key in named]


def test_a_configuration_that_transformers_refuses_is_named(tiny_model: TinyModel) -> None:
    folder = tiny_model()
    set_config(folder, hidden_act="os.system")
    with pytest.raises(InputError, match=r"config\.json does not describe a model"):
        open_encoder(Checkpoint(folder), 5)


def test_a_head_of_two_layers_is_the_models_own_with_another_one(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = expanded(tiny_model, tmp_path, "Roberta")
    rows, head = Rows.all(40), "SequenceClassification"
    config = {"problem_type": "single_label_classification", "num_labels": 3, **LABELS}
    plain_one = open_model(source, head, config, rows, 5)
    model: Any = open_model(source, head, config, rows, 5, HeadShape(2, 0.5))
    name, old = find_last_linear(plain_one)
    deep = model.get_submodule(name)
    assert torch.equal(deep.last.weight, old.weight)  # all else is drawn as without the layer
    ids = torch.tensor([[2, 7, 9, 3], [2, 8, 11, 3]])
    seen: list[torch.Tensor] = []
    plain_one.get_submodule(name).register_forward_pre_hook(lambda layer, args: seen.append(args[0]))
    with torch.no_grad():
        plain_one(input_ids=ids)
        hidden = torch.tanh(seen[0] @ deep.first.weight.T + deep.first.bias)
        expected = hidden @ deep.last.weight.T + deep.last.bias
        logits = model(input_ids=ids).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)
    assert deep.dropout.p == 0.5
    dropouts = [(label, part.p) for label, part in model.named_modules() if isinstance(part, torch.nn.Dropout)]
    assert all((p == 0.5) != label.startswith("roberta.") for label, p in dropouts)

    write_model(model, trained_table(model, rows, source), tmp_path / "deep")
    opened: Any = open_task_model(tmp_path / "deep").model
    for label, weight in opened.state_dict().items():
        if label.startswith(name):
            assert torch.equal(weight, model.state_dict()[label])
    fresh = open_model(Checkpoint(tmp_path / "deep"), head, config, Rows.all(40), 1)
    assert not torch.equal(fresh.get_submodule(name).weight, deep.last.weight)  # its input was another one


pytestmark = pytest.mark.usefixtures("one_thread")
NORMAL = MemoryConfig("gated", gate_init="normal")
NOTHING = TrainConfig(epochs=1, learning_rate=1e-30)
"""So low a rate that no weight changes."""


def with_memory(config: MemoryConfig, seed: int = 0) -> Any:
    model = encoder("Bert")
    attach_memory(model, encoder("Bert", seed=1), config, seed)
    return model


def gates(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight for name, weight in model.memory.state_dict().items() if name.startswith("gates.")}


@pytest.mark.parametrize("frozen", [True, False])
def test_it_comes_back(tmp_path: Path, frozen: bool) -> None:
    config = replace(NORMAL, frozen=frozen)
    written = with_memory(config)
    write_memory(written, tmp_path)
    assert load_file(tmp_path / "memory.safetensors").keys() == gates(written).keys()
    assert (tmp_path / "memory" / "model.safetensors").is_file() != frozen
    for read in (read_memory, begin_memory):
        model = with_memory(config, seed=5)
        assert not torch.equal(gates(model)["gates.0.weight"], gates(written)["gates.0.weight"])
        read(model, tmp_path)
        for name, weight in gates(model).items():
            assert torch.equal(weight, gates(written)[name])


def test_another_memory_is_refused_or_begins_anew(tmp_path: Path) -> None:
    model = with_memory(NORMAL)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    weights: dict[str, torch.Tensor] | None
    for weights in (None, {}, {**gates(model), "gates.0.bias": torch.ones(2)}):
        if weights is not None:
            save_file(weights, tmp_path / "memory.safetensors")
        with pytest.raises(InputError, match=r"has no memory.safetensors for this kind of memory"):
            read_memory(model, tmp_path)
        assert not begin_memory(model, tmp_path)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


@pytest.mark.slow
def test_fine_tuning_begins_with_the_memory_that_pretraining_learnt(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    memory: dict[str, Any] = {"memory": str(model.parent / "base"), "memory_config": NORMAL}
    config, train = PretrainConfig(max_length=32, head_steps=0), TrainConfig(epochs=1, learning_rate=1e-2)
    texts = (str(text_file(tmp_path / "text.txt")),)
    request = PretrainRequest(str(model), texts, config=config, training=train, **memory)
    first = pretrain(session(tmp_path, "first"), request).folder
    learnt = load_file(first / "memory.safetensors")
    run = session(tmp_path, "next")
    tune = replace(ner_request(tmp_path, first, seeds=(0, 1)), training=NOTHING, **memory)
    weights = load_file(finetune(run, tune).folder / "memory.safetensors")
    notes: Any = run.progress
    told = f"the memory starts with the weights that {first} has learnt"
    assert sum(note.endswith(told) for note in notes.notes) == 2
    assert weights.keys() == learnt.keys()
    for name, weight in weights.items():
        np.testing.assert_allclose(weight, learnt[name], rtol=0, atol=1e-20)
