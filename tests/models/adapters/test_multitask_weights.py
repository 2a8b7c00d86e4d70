"""Models of several tasks on disk: the base for plain transformers, a task's own file, and nothing else's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from greenadapt.checkpoints.layout import task_names
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.models.adapters.multitask import head_spec, open_multitask, open_tasks, write_part
from greenadapt.models.rows import Rows
from greenadapt.models.weights import TrainedRows
from tests.support.small_multitask import CONFIGS, PALS, describe, fitted, moved_model, write_multitask
from tests.support.small_tasks import TinyModel, expanded

SHRINK = 0.9
NAMES = tuple(CONFIGS)


class Written:
    """A model of all four tasks under the seeds 3 and 7, with some rows of its embedding, written into ``folder``."""

    def __init__(self, tiny_model: TinyModel, tmp_path: Path, architecture: str) -> None:
        self.source = expanded(tiny_model, tmp_path, architecture)
        self.tasks = {name: fitted(tmp_path, name) for name in NAMES}
        self.rows = Rows(np.array([*range(8), 50, 99, self.source.n_rows - 1]))
        self.models = {seed: moved_model(self.source, self.tasks, self.rows, seed) for seed in (3, 7)}
        self.folder = tmp_path / "many"
        trained = TrainedRows(self.rows, SHRINK)
        write_multitask(self.models[3], trained, self.source, self.folder)
        full = Checkpoint.open(self.folder)
        write_multitask(self.models[7], trained, self.source, self.folder / "seeds" / "7", full)
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
        opened = open_tasks(self.folder, names, seed)
        return outputs(opened.model, torch.from_numpy(opened.rows.compact(ids.numpy())), mask, name)


def outputs(model: Any, ids: torch.Tensor, mask: torch.Tensor, name: str) -> list[torch.Tensor]:
    with torch.no_grad():
        return list(model.eval()(ids, mask, task=name).values())


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture
def written(tiny_model: TinyModel, tmp_path: Path) -> Written:
    return Written(tiny_model, tmp_path, "Roberta")


@pytest.mark.parametrize("architecture", ["Bert", "Roberta"])
def test_the_base_alone_is_a_plain_model(architecture: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    written = Written(tiny_model, tmp_path, architecture)
    plain, info = transformers.AutoModel.from_pretrained(written.folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids, mask = written.inputs()
    encoder = written.models[3].encoder
    with torch.no_grad():
        found = plain(ids, mask)
        expected = encoder(torch.from_numpy(written.rows.compact(ids.numpy())), mask)
    assert torch.equal(found.last_hidden_state, expected.last_hidden_state)
    assert torch.equal(found.pooler_output, expected.pooler_output)
    before, after = written.source.embedding(), Checkpoint.open(written.folder).embedding()
    others = np.setdiff1d(np.arange(written.source.n_rows), written.rows.ids)
    assert np.array_equal(after[others], before[others] * np.float32(SHRINK))
    assert not any("task" in name or "adapter" in name for name in load_file(written.folder / "model.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 3, 7])
def test_each_task_comes_back_bit_for_bit(seed: int | None, written: Written) -> None:
    for name in NAMES:
        expected = written.logits(seed or 3, name)
        assert equal(written.opened((name,), name, seed), expected)
        assert equal(written.opened(NAMES, name, seed), expected)
    assert not equal(written.logits(3, "ner"), written.logits(7, "ner"))


def test_no_other_task_is_read(written: Written) -> None:
    for base in (written.folder, written.folder / "seeds" / "7"):
        (base / "tasks" / "ner" / "weights.safetensors").unlink()
        (base / "tasks" / "qa" / "weights.safetensors").write_bytes(b"broken")
    (written.folder / "tasks" / "qa" / "task.json").write_text("{")
    for seed in (None, 7):
        assert equal(written.opened(("ill.1",), "ill.1", seed), written.logits(seed or 3, "ill.1"))
    with pytest.raises(MissingError, match=r"tasks/ner has no weights\.safetensors: train the task again"):
        open_tasks(written.folder, ["ner"])
    with pytest.raises(InputError, match=r"qa/task\.json is not JSON"):
        open_tasks(written.folder, ["qa"])


def test_broken_weights_are_one_line(written: Written) -> None:
    file = written.folder / "tasks" / "ner" / "weights.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    with pytest.raises(InputError, match=r"ner/weights\.safetensors is truncated"):
        open_tasks(written.folder, ["ner"])
    file.write_bytes(b"{}")
    with pytest.raises(InputError, match="is not a safetensors file, or is truncated"):
        open_tasks(written.folder, ["ner"])
    file.write_bytes((written.folder / "tasks" / "qa" / "weights.safetensors").read_bytes())
    with pytest.raises(InputError, match=r"head\.weight is \(2, 32\), need \(5, 32\): train the task again"):
        open_tasks(written.folder, ["ner"])
    weights = load_file(written.folder / "model.safetensors")
    del weights["encoder.layer.0.output.dense.bias"]
    save_file(weights, written.folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 1 weights of RobertaModel, such as encoder\.layer\.0\.output"):
        open_tasks(written.folder, ["ill.1"])


def test_names_are_no_paths(written: Written) -> None:
    folder = written.folder
    elsewhere = folder.parent / "elsewhere"
    (folder / "tasks" / "ner").rename(elsewhere)
    names = ["../../elsewhere", str(elsewhere), "..", ".", "", "qa/../qa"]
    (folder / "multitask.json").write_text(json.dumps({"tasks": ["qa", *names]}))
    assert task_names(folder) == ("qa", "ill.1", "number")
    for name in [*names, "nothing"]:
        with pytest.raises(MissingError, match=r"many has no task '.*': it has qa, ill\.1, number"):
            open_tasks(folder, [name])
    (folder / "tasks" / "link").symlink_to(elsewhere)
    (folder / "tasks" / ".hidden").mkdir()
    (folder / "tasks" / ".hidden" / "task.json").write_text("{}")
    for broken in ("ner", ["qa", None], ["qa", 3]):
        (folder / "multitask.json").write_text(json.dumps({"tasks": broken}))
        with pytest.raises(InputError, match=r"multitask\.json: tasks"):
            task_names(folder)


def test_an_added_task_reads_by_the_first_seeds_encoder(written: Written, tmp_path: Path) -> None:
    task = {"new": fitted(tmp_path, "ill.1")}
    own = written.folder / "tasks" / "new"
    describe(written.folder, {**written.tasks, **task}, (3, 7))
    settings = json.loads((own / "task.json").read_text())
    (own / "task.json").write_text(json.dumps({**settings, "added": True}))
    (own / "scores.json").write_text('{"seeds": [{"seed": 3}, {"seed": 5}]}')
    encoder = Checkpoint.open(written.folder)
    parts = {seed: moved_model(encoder, task, written.rows, seed) for seed in (3, 5)}
    write_part(parts[3], "new", own)
    write_part(parts[5], "new", own / "seeds" / "5")
    ids, mask = written.inputs()
    held = torch.from_numpy(written.rows.compact(ids.numpy()))
    for seed, part in parts.items():
        written.models[3].parts.update({"task_new": part.part("new")})  # beside the encoder as it was trained
        assert equal(written.opened(("new",), "new", seed), outputs(written.models[3], held, mask, "new"))
    opened = open_tasks(written.folder, ["ner", "new"]).model
    assert opened.tasks == ("ner", "new")
    with pytest.raises(MissingError, match="new has no seed 7: it has 3, 5"):
        open_tasks(written.folder, ["new"], 7)
    (own / "scores.json").write_text('{"seeds": [{"seed": 3}, {"seed": 7}]}')
    with pytest.raises(UsageError, match=r"ner and new of .*many have different encoders under seed 7"):
        open_tasks(written.folder, ["ner", "new"], 7)


def test_settings_that_are_broken(written: Written) -> None:
    file = written.folder / "tasks" / "ner" / "task.json"
    settings = json.loads(file.read_text())
    for broken in ({"adapter": {"size": -1}}, {"adapter": {"nothing": 1}}, {"adapter": 3}, {"task": 1}, {"labels": 3}):
        file.write_text(json.dumps({**settings, **broken}))
        with pytest.raises(InputError, match=r"ner/task\.json|1 is not a task"):
            open_tasks(written.folder, ["ner"])


def test_a_checkpoint_without_a_pooler_gets_one_by_the_seed(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = Checkpoint.open(tiny_model("BertForMaskedLM"))
    heads = {"ill.1": head_spec(fitted(tmp_path, "ill.1"), PALS)}
    models = [open_multitask(source, heads, Rows.all(source.n_rows), seed) for seed in (0, 0, 1)]
    poolers = [model.encoder.pooler.dense.weight for model in models]  # type: ignore[union-attr]
    assert torch.equal(poolers[0], poolers[1])
    assert not torch.equal(poolers[0], poolers[2])
    weights = load_file(source.folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, source.folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="lacks 1 of the encoder's weights"):
        open_multitask(Checkpoint.open(source.folder), heads, Rows.all(source.n_rows), 0)
