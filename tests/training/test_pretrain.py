import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig, PretrainConfig, TrainConfig
from greenadapt.models.machine import Machine
from greenadapt.models.memory.general_model import GeneralModel
from greenadapt.progress import Silent
from greenadapt.training.pretrain import PretrainRun
from tests.conftest import Notes
from tests.support.small_tasks import Signalling, TinyModel, adapted, lines, read_json
from tests.support.small_texts import documents, packed

pytestmark = pytest.mark.usefixtures("one_thread", "small")
TRAIN = TrainConfig(epochs=2, learning_rate=2e-3, batch_size=8)
CONFIG = PretrainConfig(head_steps=10)
NOTHING = replace(TRAIN, learning_rate=1e-30)
"""So low a rate that no weight changes."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few inputs are measured, and ten steps train a head."""
    monkeypatch.setattr("greenadapt.training.pretrain.HEAD_LEARNING_RATE", 1e-2)
    monkeypatch.setattr("greenadapt.training.pretrain.EVAL_INPUTS", 20)


def setup(model: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    train, encoder = packed(model, folder / "train", documents(40))
    heldout, _ = packed(model, folder / "heldout", documents(20, 1))
    general, _ = packed(model, folder / "general", documents(10, 2))
    fields: dict[str, Any] = dict(
        checkpoint=Checkpoint(model),
        encoder=encoder,
        texts={"train": train, "heldout": heldout, "general": general},
        config=CONFIG,
        train_config=TRAIN,
        machine=Machine.start("float32"),
        progress=Silent(),
    )
    return {**fields, **changes}


def trained_weights(setup: dict[str, Any], folder: Path) -> dict[str, np.ndarray]:
    """The weights that a run leaves."""
    folder.mkdir(exist_ok=True)
    run = PretrainRun(**setup, folder=folder)
    run.train()
    run.finish(folder)
    return load_file(folder / "model.safetensors")


@pytest.mark.slow
def test_training_lowers_the_loss_and_tells_so(tiny_model: TinyModel, tmp_path: Path) -> None:
    pretraining = setup(adapted(tiny_model), tmp_path, train_config=replace(TRAIN, epochs=5))
    trained_weights(pretraining, tmp_path / "run")
    scores, history = read_json(tmp_path / "run" / "scores.json"), lines(tmp_path / "run" / "history.jsonl")
    assert (scores["epochs"], scores["new_head_steps"], scores["max_length"]) == (5, 10, 32)
    assert scores["steps"] == history[-1]["step"] == 5 * -(-len(pretraining["texts"]["train"]) // 8)
    assert set(scores["losses"]) == {"heldout", "general"}
    for measured in scores["losses"].values():
        for view in ("base", "expanded"):
            assert measured["after"][view] < measured["before"][view] - 0.3
            assert measured["targets"][view] > 4
    assert scores["losses"]["general"]["inputs"] == len(pretraining["texts"]["general"])
    assert scores["losses"]["heldout"]["inputs"] == 20 < len(pretraining["texts"]["heldout"])
    assert [row["epoch"] for row in history] == [1, 2, 3, 4, 5]
    assert history[-1]["heldout"] == scores["losses"]["heldout"]["after"]
    assert history[-1]["loss"] < history[0]["loss"]
    assert history[-1]["learning_rate"] < history[0]["learning_rate"]


@pytest.mark.slow
def test_a_new_head_is_trained_alone_first(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    source = Checkpoint(model)
    trained = trained_weights(setup(model, tmp_path, train_config=NOTHING), tmp_path / "run")
    for name in source.names:
        np.testing.assert_allclose(trained[f"bert.{name}"], source[name], rtol=0, atol=1e-20, err_msg=name)
    untrained = trained_weights(
        setup(model, tmp_path, train_config=NOTHING, config=replace(CONFIG, head_steps=0)), tmp_path / "other"
    )
    head = [name for name in trained if name.startswith("cls.")]
    assert len(head) == 5
    for name in head:
        assert (trained[name] != untrained[name]).any(), name
    losses = [read_json(tmp_path / name / "scores.json")["losses"]["heldout"]["before"] for name in ("run", "other")]
    assert losses[0]["base"] < losses[1]["base"] - 0.05


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_bits(tiny_model: TinyModel, tmp_path: Path) -> None:
    model, notes = adapted(tiny_model), list[str]()
    whole = trained_weights(setup(model, tmp_path), tmp_path / "whole")
    for steps in (5, 7):  # of the new head, and of the whole model
        progress: Notes = Signalling(signal.SIGINT, steps)
        with pytest.raises(KeyboardInterrupt):
            trained_weights(setup(model, tmp_path, progress=progress), tmp_path / "run")
        notes += progress.notes
    progress = Notes()
    again = trained_weights(setup(model, tmp_path, progress=progress), tmp_path / "run")
    assert [*notes, *progress.notes] == ["resuming from step 5 of the new head", "resuming from step 7"]
    assert set(again) == set(whole)
    for name, weight in whole.items():
        np.testing.assert_array_equal(again[name], weight, err_msg=name)
    scores = [read_json(tmp_path / name / "scores.json") for name in ("run", "whole")]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_with_memory(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    general = Checkpoint(model.parent / "base")
    source = {name: np.array(general[name]) for name in general.names}
    memory = GeneralModel(general, MemoryConfig("gated", frozen=False))
    pretraining = setup(model, tmp_path, general=memory)
    weights = trained_weights(pretraining, tmp_path / "run")
    plain = trained_weights(setup(model, tmp_path), tmp_path / "plain")
    assert set(weights) == set(plain)  # nothing of the memory is in the model itself
    assert any((weights[name] != plain[name]).any() for name in weights)
    gates = load_file(tmp_path / "run" / "memory.safetensors")
    assert sorted(gates) == ["gates.0.bias", "gates.0.weight"]
    assert gates["gates.0.weight"].any()
    for name, weight in source.items():
        np.testing.assert_array_equal(general[name], weight)
    changed = load_file(tmp_path / "run" / "memory" / "model.safetensors")
    name = "encoder.layer.0.attention.self.query.weight"
    difference = np.abs(changed[name] - source[name]).max()
    assert 0 < difference < 0.1  # it began where the checkpoint is
    scores = read_json(tmp_path / "run" / "scores.json")["losses"]["heldout"]
    assert scores["before"] != read_json(tmp_path / "plain" / "scores.json")["losses"]["heldout"]["before"]
    assert scores["after"]["base"] < scores["before"]["base"]
