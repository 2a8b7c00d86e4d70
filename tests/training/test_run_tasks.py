"""One seed on several tasks: what is measured, kept and written, and that a stopped run goes on to the same bits."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from greenadapt.checkpoints.layout import STATE
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig, MemoryConfig, SamplingConfig, TrainConfig
from greenadapt.models.machine import Machine
from greenadapt.models.memory.general_model import GeneralModel
from greenadapt.progress import Silent
from greenadapt.store.arrays import ArrayFile
from greenadapt.tasks.base import Encoder, TaskData, make_task
from greenadapt.training.finetune import FinetuneRun, FinetuneSetup
from tests.support.processes import digests
from tests.support.small_multitask import CONFIGS, PALS, task_file
from tests.support.small_tasks import Json, Notes, Signalling, TinyModel, adapted, lines, read_json

pytestmark = pytest.mark.usefixtures("one_thread")
METRICS = {"ner": "f1", "ill.1": "by_class.ill.f1", "number": "pearson", "qa": "f1"}
TRAIN = TrainConfig(epochs=3, learning_rate=7e-3, batch_size=8)


def _data(folder: Path, checkpoint: Checkpoint, name: str, adapter: AdapterConfig = PALS) -> TaskData:
    """A task with two development sets, of which one has the name of the test set."""
    task = make_task(CONFIGS[name])
    read = {part: task.read(str(task_file(folder, name, part)), Silent()) for part in ("train", "dev", "test")}
    half = len(read["dev"]) // 2
    dev = {"m": read["dev"][:half], "test": read["dev"][half:]}
    fitted = task.fit(read["train"], Silent())
    encoder = Encoder.of(checkpoint, 64)
    return TaskData(name, fitted, encoder, read["train"], dev, {"test": read["test"]}, adapter, METRICS[name])


def make_setup(
    model: Path, names: tuple[str, ...] = ("ner", "ill.1"), adapter: AdapterConfig = PALS, **train: Any
) -> FinetuneSetup:
    checkpoint = Checkpoint(model)
    return FinetuneSetup(
        tasks=tuple(_data(model.parent, checkpoint, name, adapter) for name in names),
        checkpoint=checkpoint,
        train=replace(TRAIN, **train),
        sampling=SamplingConfig(steps_per_epoch=5),
        machine=Machine.start("float32"),
        progress=Notes(),
    )


@pytest.fixture
def model(tiny_model: TinyModel) -> Path:
    return adapted(tiny_model)


def train_and_finish(run: FinetuneRun, whole: Path) -> Json:
    run.train()
    run.finish(whole)
    return read_json(run.folder / "scores.json")


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in module.state_dict().items()}


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> list[str]:
    assert before.keys() == after.keys()
    return [name for name in before if not torch.equal(before[name], after[name])]


@pytest.mark.slow
def test_every_set_of_every_task_is_scored_whole(model: Path, tmp_path: Path) -> None:
    setup = make_setup(model, ("ner", "ill.1", "number", "qa"), epochs=1)
    run = FinetuneRun(setup, 2, tmp_path / "seed")
    scores = train_and_finish(run, tmp_path / "whole")
    for data in setup.tasks:
        predictions = lines(tmp_path / "seed" / "tasks" / data.name / "predictions-test.jsonl")
        test_scores = scores["tasks"][data.name]["test"]["test"]
        assert data.task.score(data.test["test"], predictions).items() <= test_scores.items()
        assert {*test_scores["views"]} == {"mean", "base", "expanded"}
    for kind, n in (("dev", 8), ("test", 4)):
        columns = [
            row["by_class"]["ill"]["f1"] if name == "ill.1" else row[METRICS[name]]
            for name, kinds in scores["tasks"].items()
            for row in kinds[kind].values()
        ]
        assert len(columns) == n
        assert scores["average"][kind] == pytest.approx(sum(column or 0 for column in columns) / n)
    sizes = {"train": 24, "inputs": 24, "dev": {"m": 4, "test": 4}, "test": {"test": 10}}
    assert scores["counts"]["tasks"]["ner"] == sizes
    assert scores["counts"]["rows_used"] == len(run.rows) < scores["counts"]["rows"]


@pytest.mark.slow
def test_the_encoder_is_one_that_plain_transformers_loads(model: Path, tmp_path: Path) -> None:
    setup = make_setup(model, weight_decay=0.1)
    run = FinetuneRun(setup, 0, tmp_path / "seed")
    train_and_finish(run, tmp_path / "whole")
    plain = transformers.AutoModel.from_pretrained(tmp_path / "whole")
    ours, theirs = state_of(run.model.encoder), state_of(plain)
    name = "embeddings.word_embeddings.weight"
    assert torch.equal(theirs[name][run.rows.ids], ours[name])
    del ours[name], theirs[name]
    assert changed(ours, theirs) == []
    for data in setup.tasks:
        part = load_file(tmp_path / "whole" / "tasks" / data.name / "weights.safetensors")
        assert changed(state_of(run.model.part(data.name)), part) == []


@pytest.mark.slow
def test_stopped_by_a_signal_it_goes_on_to_the_same_bits(model: Path, tmp_path: Path) -> None:
    setup = make_setup(model, ("ner", "ill.1", "qa"), keep="best", epochs=2, weight_decay=0.1)
    train_and_finish(FinetuneRun(setup, 3, tmp_path / "seed"), tmp_path / "whole")
    stopped = FinetuneRun(replace(setup, progress=Signalling(signal.SIGTERM, 8)), 3, tmp_path / "again")
    with pytest.raises(SystemExit):
        stopped.train()
    assert ArrayFile(tmp_path / "again" / STATE).metadata["number"] == "8"
    resumed = replace(setup, progress=Notes())
    train_and_finish(FinetuneRun(resumed, 3, tmp_path / "again"), tmp_path / "whole2")
    assert isinstance(resumed.progress, Notes)
    assert resumed.progress.notes == ["seed 3: resuming from step 8"]
    assert digests(tmp_path / "whole") == digests(tmp_path / "whole2")
    averages = [row["dev"]["average"] for row in lines(tmp_path / "again" / "history.jsonl")]
    assert read_json(tmp_path / "again" / "scores.json")["epoch"] == np.argmax(averages) + 1


@pytest.mark.slow
def test_a_frozen_encoder_is_written_as_it_was(model: Path, tmp_path: Path) -> None:
    setup = make_setup(model, adapter=replace(PALS, freeze_encoder=True), weight_decay=0.1)
    train_and_finish(FinetuneRun(setup, 0, tmp_path / "seed"), tmp_path / "whole")
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "whole"))
    assert changed(before, after) == []


@pytest.mark.slow
def test_a_general_models_memory_serves_all_tasks(model: Path, tmp_path: Path) -> None:
    """The gates learn from every task."""
    general = GeneralModel(Checkpoint(model.parent / "base"), MemoryConfig(strategy="gated"))
    setup = replace(make_setup(model), general=general)
    run = FinetuneRun(setup, 0, tmp_path / "seed")
    memory = state_of(run.model.encoder.memory)
    scores = train_and_finish(run, tmp_path / "whole")
    learnt = changed(memory, state_of(run.model.encoder.memory))
    assert learnt
    assert all(name.startswith("gates.") for name in learnt)
    assert (tmp_path / "whole" / "memory.safetensors").is_file()
    assert scores["average"].keys() == {"dev", "test"}
