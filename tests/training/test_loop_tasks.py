"""Training on several tasks: what a step touches, what plain torch learns, and that a stopped run goes on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

from greenadapt.config import AdapterConfig, SamplingConfig, TrainConfig
from greenadapt.models.adapters.multitask import MultitaskModel, TaskHeadSpec
from greenadapt.models.machine import Machine
from greenadapt.models.rows import Rows
from greenadapt.tasks.base import Feature
from greenadapt.training import loop
from greenadapt.training.batches import TaskDataset
from greenadapt.training.loop import Training, learning_rate
from greenadapt.training.sampling import BatchSampler
from tests.support.small_inputs import NER, QA, TEXTS, assert_same, by_hand, items_of, weights_of

pytestmark = pytest.mark.usefixtures("one_thread")
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
HEADS = {"tags": NER, "texts": TEXTS, "answers": QA}
SEED = 5
Build = Callable[..., Path]


def _model(build: Build) -> MultitaskModel:
    encoder = transformers.BertModel.from_pretrained(build(name="bert", **NO_DROPOUT))
    adapter = AdapterConfig("pals", size=34)
    specs = {name: TaskHeadSpec(head, 2 if head == QA else 3, adapter) for name, head in HEADS.items()}
    return MultitaskModel.of(encoder, specs, SEED)


def _plain(model: MultitaskModel, items: Any, sampler: BatchSampler) -> list[float]:
    """The same training as one would write it by hand: one task a step, its own loss, AdamW."""
    train, n_steps = sampler.train, sampler.n_steps
    decayed = [w for _, w in model.named_parameters() if w.ndim > 1]
    undecayed = [w for _, w in model.named_parameters() if w.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": train.weight_decay}, {"params": undecayed, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=train.learning_rate, foreach=False, fused=False)
    schedule = transformers.get_linear_schedule_with_warmup(adam, int(train.warmup * n_steps), n_steps)
    losses = []
    model.train()
    for step in range(n_steps):
        draw = sampler.draw(step)
        task = draw.dataset.task
        assert task is not None
        features: list[Feature] = []
        for i, is_expanded in zip(draw.items.tolist(), draw.expanded.tolist(), strict=True):
            features += items[task][i].expanded if is_expanded else items[task][i].base
        batch = by_hand(features)
        output = model(batch["input_ids"], batch["attention_mask"], task=task)
        if "logits" in output:
            loss = cross_entropy(output["logits"].flatten(0, -2), batch["labels"].flatten())
        else:
            first, last = (batch[f"{end}_positions"] for end in ("start", "end"))
            loss = (cross_entropy(output["start_logits"], first) + cross_entropy(output["end_logits"], last)) / 2
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), loop.MAX_NORM)
        adam.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
@pytest.mark.usefixtures("steady_adam")
def test_it_learns_what_plain_torch_learns(tiny_model: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_NORM", 0.5)
    items = {
        "tags": items_of(NER, 11, 20, 0),
        "texts": items_of(TEXTS, 11, 20, 1),
        "answers": items_of(QA, 5, 4),  # of one length, as plain torch takes padding for possible answers
    }
    datasets = [
        replace(TaskDataset.of(inputs, Rows.all(400), HEADS[name], 0), task=name, n_examples=len(inputs))
        for name, inputs in items.items()
    ]
    train = TrainConfig(epochs=2, batch_size=4, learning_rate=1e-3, weight_decay=0.1, warmup=0.25, max_steps=12)
    sampler = BatchSampler(datasets, train, SEED, SamplingConfig("anneal"))
    ours, theirs = _model(tiny_model), _model(tiny_model)
    training = Training(ours, sampler, Machine.start("float32"), max_tokens=30)
    assert [step.loss for step in training.train_steps()] == pytest.approx(_plain(theirs, items, sampler), abs=1e-5)
    assert_same(weights_of(theirs), weights_of(ours), atol=2e-6)
    rates = [learning_rate(k, 12, 0.25, 1e-3) for k in range(12)]
    assert training.shrink == pytest.approx(np.prod([1 - 0.1 * rate for rate in rates]), abs=1e-12)
