"""Requests for many tasks that are refused, and what training starts from."""

from pathlib import Path
from typing import Any

import pytest

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig, MemoryConfig, TrainConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.request import FinetuneRequest, StartingModel
from greenadapt.stages.finetune.train import find_undertrained
from greenadapt.tasks.base import Encoder
from tests.conftest import Notes
from tests.support.small_multitask import entry, request
from tests.support.small_tasks import TinyModel, adapted, facts_file, session


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adapter": AdapterConfig("none", own_pooler=True)}, "--own-pooler is for classification, and no task is one"),
        ({"training": TrainConfig(keep="best")}, "--keep best needs a development set: give one of the tasks"),
        (
            {"memory": "base", "memory_config": MemoryConfig(strategy="logits")},
            "--strategy logits shares a single head",
        ),
    ],
)
def test_requests_for_many_tasks_that_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        request(tmp_path, tmp_path, ("ner",), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": ()}, "nothing to train on"),
        ({"training": TrainConfig(patience=1)}, "--patience needs a development set: give --dev FILE"),
        ({"memory_config": MemoryConfig("gated")}, "options of the memory, but no memory: give the general model"),
        ({"save_logits": True}, "--save-logits needs a test set: give --test FILE"),
        ({"seeds": (0, 2**32)}, "--seed is 4294967296, must be from 0 to 4294967295"),
    ],
)
def test_requests_for_one_task_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FinetuneRequest.of_one(**{"model": "m", "train": ("t",), **changes})
    FinetuneRequest.of_one("m", ("t",), seeds=(0, 2**32 - 1))


def test_a_model_that_had_a_memory(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model)
    (model / "memory.safetensors").write_bytes(b"")
    start, notes = StartingModel.of(str(model), None, MemoryConfig()), Notes()
    assert start.memory is None
    start.report(Encoder.of(Checkpoint(model), None), notes)
    (warning,) = notes.warnings
    assert warning.endswith("adapted was trained with a memory: give the general model with --memory")
    facts_file(model)
    start = StartingModel.of(str(model), "base", MemoryConfig())
    assert (start.model.name, start.model.source) == ("tiny-medicine", str(model))
    assert start.memory is not None


def test_data_that_cannot_be(tmp_path: Path, tiny_model: TinyModel) -> None:
    model = tiny_model()
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    for changes, message in (
        ({"train": (str(empty),)}, "task ner: "),
        ({"test": {"far": str(empty)}}, "task ner: test far has no examples"),
        ({"metric": "by_type.Nothing.f1"}, "task ner: tasks file: metric .* Nothing, which no training example has"),
    ):
        bad_request = request(tmp_path, model, tasks=(entry(tmp_path, "ner", **changes),))
        with pytest.raises(InputError, match=message):
            finetune(session(tmp_path), bad_request)


@pytest.mark.parametrize(
    ("losses", "epochs", "undertrained"),
    [
        ([0.10, 0.011], 32, [0]),
        ([0.002, 0.002, 0.02], 32, []),  # both know all
        ([0.10], 4, []),  # of many noisy examples there is more to know
        ([0.27], 1, [0]),
    ],
)
def test_a_seed_is_undertrained_if_its_loss_is_near_chance_or_far_from_other_seeds(
    losses: list[float], epochs: int, undertrained: list[int]
) -> None:
    seeds: list[Any] = [
        {"seed": seed, "epochs": epochs, "losses": {"ner": {"last": loss, "chance": 0.27}}}
        for seed, loss in enumerate(losses)
    ]
    assert [*find_undertrained(seeds)] == undertrained
    assert [*find_undertrained([{"seed": 0, "epochs": epochs}])] == []  # of an earlier version


def test_adapters_that_do_not_go_are_refused_before_anything_is_read(tmp_path: Path, tiny_model: TinyModel) -> None:
    (tmp_path / "broken.tsv").write_text("a word without a tag\n", "utf-8")
    broken = entry(tmp_path, "ner", test={"test": str(tmp_path / "broken.tsv")})
    bad_request = request(tmp_path, tiny_model(), tasks=(broken,), adapter=AdapterConfig(size=10, form="reference"))
    with pytest.raises(UsageError, match="--adapter-size is 10, not a multiple of the 6 heads"):
        finetune(session(tmp_path), bad_request)
