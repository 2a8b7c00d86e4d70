"""One seed: what is kept, when it stops, and that a stopped run goes on to the same bits."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import Precision
from greenadapt.models.machine import Machine
from greenadapt.progress import Silent
from greenadapt.tasks.base import Encoder, TaskData
from greenadapt.tasks.classification import ClassificationTask
from greenadapt.training import loop
from greenadapt.training.finetune import FinetuneRun, FinetuneSetup
from greenadapt.training.loop import learning_rate
from tests.support.small_inputs import assert_same
from tests.support.small_tasks import TRAIN, Json, Notes, TinyModel, adapted, lines, read_json, texts_file, watch_steps

pytestmark = pytest.mark.usefixtures("one_thread")
Weights = dict[str, torch.Tensor]


def make_setup(model: Path, folder: Path, *, contrary: bool = False, **train: Any) -> FinetuneSetup:
    """Two classes of texts; a ``contrary`` development set has the labels the other way round."""
    task = ClassificationTask()
    files = [texts_file(folder / f"{seed}.jsonl", 24, seed) for seed in range(3)]
    train_set, dev, test = (task.read(str(file), Silent()) for file in files)
    if contrary:
        dev = [replace(text, label={"ill": "well", "well": "ill"}[str(text.label)]) for text in dev]
    checkpoint = Checkpoint(model)
    fitted, encoder = task.fit(train_set, Silent()), Encoder.of(checkpoint, 64)
    return FinetuneSetup(
        tasks=(TaskData("", fitted, encoder, train_set, {"dev": dev}, {"test": test}, None, fitted.main),),
        checkpoint=checkpoint,
        train=replace(TRAIN, **train),
        machine=Machine.start("float32"),
        progress=Notes(),
    )


@pytest.fixture
def model(tiny_model: TinyModel) -> Path:
    return adapted(tiny_model)


def train_and_finish(run: FinetuneRun, whole: Path) -> tuple[Weights, Json]:
    run.train()
    run.finish(whole)
    return load_file(whole / "model.safetensors"), read_json(run.folder / "scores.json")


class Recorded(FinetuneRun):
    """Remembers the weights after every epoch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.after: list[Weights] = []

    def _end_epoch(self, step: Any) -> None:
        super()._end_epoch(step)
        self.after.append({name: weight.detach().clone() for name, weight in self.model.state_dict().items()})


@pytest.mark.slow
def test_the_best_epoch_is_kept(model: Path, tmp_path: Path) -> None:
    setup = make_setup(
        model, tmp_path, contrary=True, keep="best", patience=2, epochs=6, learning_rate=3e-3, weight_decay=0.1
    )
    run = Recorded(setup, 0, tmp_path / "seed")
    steps = watch_steps(run)
    weights, scores = train_and_finish(run, tmp_path / "whole")
    history = lines(tmp_path / "seed" / "history.jsonl")
    for row in history:
        assert row["loss"] == pytest.approx(np.mean([step.loss for step in steps if step.epoch == row["epoch"]]))
    dev = [row["dev"]["macro_f1"] for row in history]
    best = int(np.argmax(dev))  # the first of equals
    assert best < len(dev) - 1
    assert len(history) == best + 1 + 2
    assert (scores["epoch"], scores["epochs"]) == (best + 1, len(history))
    assert scores["dev"] == history[best]["dev"]
    name = "bert.embeddings.word_embeddings.weight"
    assert_same(run.after[best], {**weights, name: weights[name][run.rows.ids]})
    assert not torch.equal(weights["classifier.weight"], run.after[-1]["classifier.weight"])
    # Rows that do not occur have shrunk as far as decay had come in that epoch.
    peak, n = setup.train.learning_rate, run.training.n_steps
    shrink = math.prod(1 - 0.1 * learning_rate(k, n, 0.1, peak) for k in range(history[best]["step"]))
    table = setup.checkpoint.embedding()
    unused = np.setdiff1d(np.arange(len(table)), run.rows.ids)
    assert len(unused) > 50
    np.testing.assert_allclose(weights[name][unused].numpy(), table[unused] * np.float32(shrink), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "in_bfloat16"), [("bfloat16", ("train", "dev", "test")), ("auto", ("train",))])
def test_training_and_evaluation_run_in_the_precision(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Precision, in_bfloat16: tuple[str, ...]
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    setup = replace(make_setup(model, tmp_path, max_steps=3), machine=Machine.start(precision))
    run, seen = FinetuneRun(setup, 0, tmp_path / "seed"), Counter[tuple[str, bool]]()
    phase = "train"

    def look(module: torch.nn.Module, *_: Any) -> None:
        seen["train" if module.training else phase, torch.is_autocast_enabled("cpu")] += 1

    run.model.register_forward_hook(look)
    phase = "dev"
    run.train()
    phase = "test"
    run.finish(tmp_path / "whole")
    assert set(seen) == {(name, name in in_bfloat16) for name in ("train", "dev", "test")}


@pytest.mark.slow
def test_the_kept_weights_are_those_of_the_named_epoch_after_a_kill(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is killed when a better epoch's weights are on disk, but the state names the first epoch; on a GPU the
    repeated epochs may then be worse."""
    monkeypatch.setattr(loop, "CHECKPOINT_STEPS", 2)
    setup = make_setup(model, tmp_path, keep="best", epochs=4)

    def scored(folder: str, scores: list[float], *, is_killed: bool = False) -> Recorded:
        run = Recorded(setup, 0, tmp_path / folder)
        values = iter(scores)
        monkeypatch.setattr(type(run._parts), "score", lambda parts, tasks: next(values))
        if is_killed:
            save, n_epochs = run.training.save, len(scores)

            def save_unless_killed(state: Path, record: Json) -> None:
                if len(record["epochs"]) == n_epochs:
                    raise KeyboardInterrupt
                if len(record["epochs"]) < 2:
                    save(state, record)

            monkeypatch.setattr(run.training, "save", save_unless_killed)
        return run

    with pytest.raises(KeyboardInterrupt):
        scored("seed", [0.5, 0.6, 0.7], is_killed=True).train()
    resumed = scored("seed", [0.3, 0.4, 0.2])
    resumed_weights, resumed_scores = train_and_finish(resumed, tmp_path / "whole")
    weights, scores = train_and_finish(scored("undisturbed", [0.5, 0.3, 0.4, 0.2]), tmp_path / "whole2")
    assert resumed_scores["epoch"] == scores["epoch"] == 1
    assert_same(resumed_weights, weights)


def test_without_a_development_set_a_small_loss_is_noted(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greenadapt.training.finetune._LEARNT", 100.0)
    setup = replace(make_setup(model, tmp_path, max_steps=5), hint_seed=1)
    for seed in (0, 1):
        FinetuneRun(setup, seed, tmp_path / str(seed)).train()
    assert isinstance(setup.progress, Notes)
    [note] = setup.progress.notes
    assert "with --dev" in note
