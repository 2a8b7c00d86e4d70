"""Models of several tasks on disk: the base for plain transformers, a task's own file, and nothing else's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from greenadapt.checkpoints.layout import task_names
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig, AdapterName
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.models.adapters.multitask import open_tasks
from greenadapt.models.rows import Rows
from greenadapt.models.task_folder import TaskFolder
from greenadapt.models.weights import InferenceModel, trained_table
from tests.support.small_encoders import PAD, batch, encoder
from tests.support.small_multitask import CONFIGS, describe, fitted, moved_model, write_multitask
from tests.support.small_shared import N_OUTPUTS, moved, multitask, plain_model, shared_encoder
from tests.support.small_tasks import TinyModel, expanded

pytestmark = pytest.mark.usefixtures("one_thread")

NONE = AdapterConfig("none")
PALS_12 = AdapterConfig("pals", 68)
INPUTS = batch([7, 3, 5])


@pytest.mark.parametrize(
    ("architecture", "head"), [*(("Bert", head) for head in N_OUTPUTS), ("Roberta", "QuestionAnswering")]
)
def test_without_adapters_it_is_the_model_of_transformers(architecture: str, head: str) -> None:
    model = moved(multitask({"t": NONE}, head, shared_encoder(architecture, classifier_dropout=0.4))).train()
    plain, inputs = plain_model(model, "t", architecture), batch([7, 3, 5], 0, PAD[architecture])
    types = torch.zeros_like(inputs.ids)
    types[:, 2:] = 1
    outputs, gradients = [], []
    for called, task, base in ((model, {"task": "t"}, model.encoder), (plain, {}, plain.base_model)):
        torch.manual_seed(0)
        output = called(input_ids=inputs.ids, attention_mask=inputs.mask, token_type_ids=types, **task)
        logits = {name: value for name, value in output.items() if "logits" in name}
        sum(value.square().sum() for value in logits.values()).backward()
        outputs.append(logits)
        gradients.append(base.encoder.layer[0].attention.self.query.weight.grad)
    assert list(outputs[0]) == list(outputs[1])
    for name, logits in outputs[0].items():
        assert torch.equal(logits, outputs[1][name])
    assert torch.equal(*gradients)


@pytest.mark.parametrize("adapter", ["pals", "top-attention"])
def test_a_step_of_one_task_has_no_gradients_for_others(adapter: AdapterName) -> None:
    model = multitask({"a": AdapterConfig(adapter), "b": AdapterConfig(adapter)})
    model.train()
    for task, idle in ("ab", "ba"):
        for parameter in model.parameters():
            parameter.grad = None
        model(INPUTS.ids, INPUTS.mask, task=task)["logits"].square().sum().backward()
        assert all(parameter.grad is None for parameter in model.part(idle).parameters())
        for module in (model.part(task), model.encoder):
            assert [name for name, parameter in module.named_parameters() if parameter.grad is None] == []


def test_a_frozen_encoder_gets_no_gradients() -> None:
    model = multitask({"t": AdapterConfig("pals", freeze_encoder=True)})
    model.freeze()
    model(INPUTS.ids, INPUTS.mask, task="t")["logits"].sum().backward()
    assert all(not parameter.requires_grad and parameter.grad is None for parameter in model.encoder.parameters())
    assert all(parameter.grad is not None for parameter in model.part("t").parameters())


def test_a_task_starts_alike_whatever_the_others_are() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    base = shared_encoder()
    torch.set_rng_state(state)
    alone = multitask({"b": PALS_12}, encoder=base)
    beside = multitask({"a": NONE, "b": PALS_12}, encoder=shared_encoder())
    torch.set_rng_state(state)
    reseeded = multitask({"b": PALS_12}, seed=2, encoder=base)
    assert torch.equal(torch.get_rng_state(), state)
    for name, weight in alone.part("b").state_dict().items():
        assert torch.equal(weight, beside.part("b").state_dict()[name])
    twins = multitask({"a": PALS_12, "b": PALS_12}, encoder=base)
    for model, task in ((reseeded, "b"), (twins, "a")):
        head = model.part(task).head.weight
        assert not torch.equal(head, alone.part("b").head.weight)
    assert torch.equal(beside.part("b").head.weight, multitask({"b": NONE}, encoder=base).part("b").head.weight)


def test_logits_are_exact_under_autocast() -> None:
    for head in N_OUTPUTS:
        model = multitask({"t": PALS_12}, head)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(INPUTS.ids, INPUTS.mask, task="t")
        assert {logits.dtype for logits in output.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("architecture", "config", "message"),
    [
        ("Albert", {}, "a model of type albert cannot be shared by tasks: all its layers share"),
        ("Bert", {"chunk_size_feed_forward": 4}, "it uses chunked feed-forward"),
    ],
)
def test_other_encoders_are_refused(architecture: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        multitask({"t": NONE}, encoder=encoder(architecture, **config))
    assert message in str(caught.value)


SHRINK = 0.9
TASKS = tuple(CONFIGS)


class Written:
    """A model of all four tasks under the seeds 3 and 7, with some rows of its embedding, written into ``folder``."""

    def __init__(self, tiny_model: TinyModel, tmp_path: Path) -> None:
        self.source = expanded(tiny_model, tmp_path, "Roberta")
        self.tasks = {name: fitted(tmp_path, name) for name in TASKS}
        self.rows = Rows(np.array([*range(8), 50, 99, self.source.n_rows - 1]))
        self.models = {seed: moved_model(self.source, self.tasks, self.rows, seed) for seed in (3, 7)}
        self.folder = tmp_path / "many"
        tables = [trained_table(model.encoder, self.rows, self.source, SHRINK) for model in self.models.values()]
        write_multitask(self.models[3], tables[0], self.folder)
        write_multitask(self.models[7], tables[1], self.folder / "seeds" / "7")
        describe(self.folder, self.tasks, (3, 7))

    def inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids of the whole embedding that the trained model holds: (2, 6), and the mask of the second's padding."""
        pad = int(self.source.config["pad_token_id"])
        ids = torch.tensor([[2, 50, 99, 5, int(self.rows.ids[-1]), 3], [2, 7, 99, 3, pad, pad]])
        return ids, (torch.arange(6) < torch.tensor([[6], [4]])).long()

    def logits(self, seed: int, name: str) -> list[torch.Tensor]:
        ids, mask = self.inputs()
        held = torch.from_numpy(self.rows.compact(ids.numpy()))
        return outputs(self.models[seed], held, mask, name)

    def opened(self, names: tuple[str, ...], name: str, seed: int | None = None) -> list[torch.Tensor]:
        ids, mask = self.inputs()
        opened = open_named(self.folder, names, seed)
        return outputs(opened.model, torch.from_numpy(opened.rows.compact(ids.numpy())), mask, name)


def open_named(folder: Path, names: Sequence[str], seed: int | None = None) -> InferenceModel:
    return open_tasks([TaskFolder.open_without_weights(folder, seed, name) for name in names])


def outputs(model: Any, ids: torch.Tensor, mask: torch.Tensor, name: str) -> list[torch.Tensor]:
    with torch.no_grad():
        return list(model.eval()(ids, mask, task=name).values())


def equal(got: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return len(got) == len(expected) and all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.fixture
def written(tiny_model: TinyModel, tmp_path: Path) -> Written:
    return Written(tiny_model, tmp_path)


def test_the_base_alone_is_a_plain_model(written: Written) -> None:
    plain, info = transformers.AutoModel.from_pretrained(written.folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids, mask = written.inputs()
    encoder = written.models[3].encoder
    with torch.no_grad():
        got = plain(ids, mask)
        expected = encoder(torch.from_numpy(written.rows.compact(ids.numpy())), mask)
    assert torch.equal(got.last_hidden_state, expected.last_hidden_state)
    assert torch.equal(got.pooler_output, expected.pooler_output)
    before, after = written.source.embedding(), Checkpoint(written.folder).embedding()
    untrained = np.setdiff1d(np.arange(written.source.n_rows), written.rows.ids)
    assert np.array_equal(after[untrained], before[untrained] * np.float32(SHRINK))
    assert not any("task" in name or "adapter" in name for name in load_file(written.folder / "model.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 7])
def test_each_task_comes_back_bit_for_bit(seed: int | None, written: Written) -> None:
    for name in TASKS:
        expected = written.logits(seed or 3, name)
        assert equal(written.opened((name,), name, seed), expected)
        assert equal(written.opened(TASKS, name, seed), expected)
    assert not equal(written.logits(3, "ner"), written.logits(7, "ner"))


def test_no_other_task_is_read(written: Written) -> None:
    for base in (written.folder, written.folder / "seeds" / "7"):
        (base / "tasks" / "ner" / "weights.safetensors").unlink()
        (base / "tasks" / "qa" / "weights.safetensors").write_bytes(b"broken")
    (written.folder / "tasks" / "qa" / "task.json").write_text("{")
    for seed in (None, 7):
        assert equal(written.opened(("ill.1",), "ill.1", seed), written.logits(seed or 3, "ill.1"))
    with pytest.raises(MissingError, match=r"tasks/ner has no weights\.safetensors: train the task again"):
        open_named(written.folder, ["ner"])
    with pytest.raises(InputError, match=r"qa/task\.json is not JSON"):
        open_named(written.folder, ["qa"])


def test_weights_of_another_task_are_refused(written: Written) -> None:
    tasks = written.folder / "tasks"
    (tasks / "ner" / "weights.safetensors").write_bytes((tasks / "qa" / "weights.safetensors").read_bytes())
    with pytest.raises(InputError, match="does not fit the settings of its task beside it: train the task again"):
        open_named(written.folder, ["ner"])


def test_names_are_no_paths(written: Written) -> None:
    folder = written.folder
    elsewhere = folder.parent / "elsewhere"
    (folder / "tasks" / "ner").rename(elsewhere)
    names = ["../../elsewhere", str(elsewhere), "..", "", "qa/../qa"]
    (folder / "multitask.json").write_text(json.dumps({"tasks": ["qa", *names]}))
    assert task_names(folder) == ("qa", "ill.1", "number")
    for name in [*names, "nothing"]:
        with pytest.raises(MissingError, match=r"many has no task '.*': it has qa, ill\.1, number"):
            open_named(folder, [name])
    (folder / "multitask.json").write_text(json.dumps({"tasks": ["qa", None]}))
    with pytest.raises(InputError, match=r"multitask\.json: tasks"):
        task_names(folder)
