import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from greenadapt.config import TrainConfig
from greenadapt.errors import InputError, ResourceError
from greenadapt.models.machine import Machine
from greenadapt.models.rows import Rows
from greenadapt.tasks.base import Item
from greenadapt.training import loop
from greenadapt.training.batches import TaskDataset
from greenadapt.training.loop import RunRecord, Training, learning_rate, load_state, save_state
from greenadapt.training.sampling import BatchSampler, draw_pass
from tests.conftest import Notes
from tests.support.small_inputs import NER, QA, ROUNDING, TEXTS, assert_same, by_hand, items_of, weights_of

pytestmark = pytest.mark.usefixtures("one_thread")
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
TRAIN = TrainConfig(epochs=2, batch_size=4, learning_rate=1e-3)
SEED = 5
Build = Callable[..., Path]


def _model(build: Build, head: str = NER, **config: Any) -> Any:
    labels = {} if head == QA else {"num_labels": 3}
    folder = build(f"BertFor{head}", name=f"{head}{len(config)}", **labels, **config)
    return getattr(transformers, f"BertFor{head}").from_pretrained(folder)


def _training(
    model: Any, train: TrainConfig = TRAIN, head: str = NER, items: list[Item] | None = None, max_tokens: int = 4096
) -> Training:
    sampler = BatchSampler([TaskDataset.of(items or items_of(head), Rows.all(400), head, 0)], train, SEED)
    return Training(model, sampler, Machine.start("float32"), max_tokens)


def _plain(model: Any, items: list[Item], train: TrainConfig) -> list[float]:
    """The same training as one would write it by hand with transformers: one batch a step, its own loss."""
    n = len(items)
    per_epoch = -(-n // train.batch_size)
    n_steps = train.epochs * per_epoch
    decayed = [w for name, w in model.named_parameters() if not name.endswith("bias") and "LayerNorm" not in name]
    undecayed = [w for name, w in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    groups = [{"params": decayed, "weight_decay": train.weight_decay}, {"params": undecayed, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=train.learning_rate)
    warmup = train.warmup * n_steps
    schedule = transformers.get_linear_schedule_with_warmup(adam, warmup, n_steps)  # type: ignore[arg-type]
    losses = []
    model.train()
    for epoch in range(train.epochs):
        order, expanded = draw_pass(n, train.mix, train.batch_size, SEED, epoch)
        for begin in range(0, n, train.batch_size):
            among = slice(begin, begin + train.batch_size)
            chosen = zip(order[among].tolist(), expanded[among].tolist(), strict=True)
            features = [f for i, is_expanded in chosen for f in (items[i].expanded if is_expanded else items[i].base)]
            loss = model(**by_hand(features)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), loop.MAX_NORM)
            adam.step()
            schedule.step()
            adam.zero_grad()
            losses.append(loss.item())
    return losses


@pytest.mark.usefixtures("steady_adam")
@pytest.mark.parametrize(("head", "longest", "max_tokens"), [(NER, 20, 30), (TEXTS, 20, 4096), (QA, 4, 30)])
def test_it_learns_what_plain_transformers_learns(
    tiny_model: Build, head: str, longest: int, max_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MAX_NORM", 0.5)
    # The inputs of QA are of one length here: transformers takes padding for possible answers.
    items = items_of(head, longest=longest)
    train = replace(TRAIN, weight_decay=0.1)
    ours, theirs = _model(tiny_model, head, **NO_DROPOUT), _model(tiny_model, head, **NO_DROPOUT)
    training = _training(ours, train, head, items, max_tokens)
    steps = list(training.train_steps())
    losses = _plain(theirs, items, train)
    assert [step.loss for step in steps] == pytest.approx(losses, abs=1e-5)
    assert_same(weights_of(theirs), weights_of(ours), atol=2e-6)
    rates = [learning_rate(k, 6, 0.1, 1e-3) for k in range(6)]
    assert training.shrink == pytest.approx(np.prod([1 - 0.1 * rate for rate in rates]), abs=1e-12)


@pytest.mark.parametrize("batch_size", [11, 1])
def test_two_processes_compute_the_gradient_of_one(
    tiny_model: Build, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    """Also where one of them has no example; ``tests/cli/test_finetune.py`` starts two by a launcher."""

    class OneOfTwo(Machine):
        processes = 2

        def total(self, tensor: torch.Tensor) -> torch.Tensor:
            return tensor

        def alone(self, model: Any) -> Any:
            return nullcontext()

    monkeypatch.setattr(loop, "MAX_NORM", 1e9)
    losses, gradients = [], []
    for rank in (None, 0, 1):
        machine = Machine.start("float32")
        if rank is not None:
            machine = type("", (OneOfTwo,), {"rank": rank})(**vars(machine))
        model = _model(tiny_model, **NO_DROPOUT)
        sampler = BatchSampler(
            [TaskDataset.of(items_of(), Rows.all(400), NER, 0)], replace(TRAIN, batch_size=batch_size), SEED
        )
        training = Training(model, sampler, machine, max_tokens=40)
        losses.append(next(training.train_steps()).loss)
        gradients.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
    assert sum(losses[1:]) == pytest.approx(losses[0], abs=1e-6)
    mean = {name: (gradient + gradients[2][name]) / 2 for name, gradient in gradients[1].items()}
    assert_same(gradients[0], mean, atol=ROUNDING)


def test_the_first_steps_tell_how_long_all_trainings_take(
    tiny_model: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = count(step=40)
    monkeypatch.setattr("greenadapt.training.loop.time.monotonic", lambda: float(next(seconds)))
    training, notes = _training(_model(tiny_model), replace(TRAIN, epochs=4)), Notes()
    training.run(tmp_path / "state", RunRecord(), notes, "seed 0", later=2)
    [note] = [note for note in notes.notes if "left" in note]
    assert re.fullmatch(r"seed 0: about \d+ minutes left for this and 2 more trainings", note)


def test_the_learning_rate_rises_and_falls_linearly() -> None:
    peak, n = 2e-5, 60_000
    assert learning_rate(6000, n, 0.1, peak) == pytest.approx(2e-5)
    assert learning_rate(33_000, n, 0.1, peak) == pytest.approx(1e-5)
    assert learning_rate(60_000, n, 0.1, peak) == 0
    rates = np.array([learning_rate(k, n, 0.1, peak) for k in range(n + 1)])
    assert np.abs(np.diff(rates)).max() <= peak / 6000 * 1.001
    for warmup, expected in ((0.0, [1, 0.75, 0.5, 0.25, 0]), (1.0, [0, 0.25, 0.5, 0.75, 0])):
        assert [learning_rate(k, 4, warmup, 1.0) for k in range(5)] == expected


def test_a_loss_that_is_no_number_stops_before_the_weights_are_touched(tiny_model: Build) -> None:
    model = _model(tiny_model)
    training = _training(model)
    steps = training.train_steps()
    for _ in range(4):
        next(steps)
    with torch.no_grad():
        model.classifier.bias[0] = torch.nan
    before = weights_of(model)
    with pytest.raises(InputError, match=r"step 5 \(epoch 2\)"):
        next(steps)
    assert training.number == 4
    torch.testing.assert_close(weights_of(model), before, equal_nan=True, atol=0, rtol=0)


def test_too_little_gpu_memory_names_the_batch_and_the_option(
    tiny_model: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _model(tiny_model)
    training = _training(model, replace(TRAIN, batch_size=11, mix="base"))
    n = max(len(item.base[0]) for item in items_of())

    def full(*_: Any, **__: Any) -> None:
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(model, "forward", full)
    with pytest.raises(ResourceError, match=rf"11 inputs of {n} pieces .* --max-tokens below {11 * n}"):
        next(training.train_steps())


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_state(file, {"w": torch.ones(100)}, 4)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match="state is truncated"):
        load_state(file)


@pytest.mark.parametrize("killed_at", ["training.loop.write_tensors", "store.files.sync_file"])
def test_a_kill_while_saving_leaves_a_whole_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    def save(number: int) -> None:
        save_state(tmp_path / "state", {"w": torch.full((2,), float(number))}, number, record={"loss": number / 2})

    assert load_state(tmp_path / "state") is None
    save(1)
    with monkeypatch.context() as patch:
        patch.setattr(f"greenadapt.{killed_at}", kill)
        with pytest.raises(Killed):
            save(2)
    for number in (1, 2):
        state = load_state(tmp_path / "state")
        assert state is not None
        assert (state[1], state[0]["w"].tolist()) == (number, [number, number])
        assert RunRecord.of_state(tmp_path / "state").loss == number / 2
        save(2)
