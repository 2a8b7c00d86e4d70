"""What is learnt about a memory: written, read again, and what a later training of the model begins with."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from greenadapt.config import MemoryConfig, PretrainConfig, TrainConfig
from greenadapt.errors import InputError, MissingError
from greenadapt.models.memory.fusion import attach_memory
from greenadapt.models.weights import begin_memory, read_memory, trained_weights, write_memory
from greenadapt.stages.finetune.train import finetune
from greenadapt.stages.pretrain import PretrainRequest, pretrain
from tests.support.small_encoders import encoder
from tests.support.small_tasks import TinyModel, adapted, ner_request, session
from tests.support.small_texts import text_file

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
    with pytest.raises(MissingError, match=r"has no memory.safetensors"):
        read_memory(model, tmp_path)
    assert not begin_memory(model, tmp_path)
    other: dict[str, torch.Tensor]
    for other in ({}, {"gates.0.weight": torch.ones(1, 16)}, {**gates(model), "gates.0.bias": torch.ones(2)}):
        save_file(other, tmp_path / "memory.safetensors")
        with pytest.raises(InputError, match=r"memory.safetensors holds .*, need \{.*'gates.0.weight': \(1, 16\)"):
            read_memory(model, tmp_path)
        assert not begin_memory(model, tmp_path)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_nothing_learnt_is_no_beginning(tmp_path: Path) -> None:
    model = with_memory(MemoryConfig("single"))
    write_memory(model, tmp_path)
    read_memory(model, tmp_path)
    assert not begin_memory(model, tmp_path)


def test_a_frozen_general_model_is_not_among_what_is_trained() -> None:
    for frozen in (True, False):
        model = with_memory(replace(NORMAL, frozen=frozen))
        names = set(trained_weights(model))
        assert {"memory.gates.0.weight", "embeddings.word_embeddings.weight"} < names
        assert any(name.startswith("memory.general.") for name in names) != frozen


@pytest.mark.slow
def test_fine_tuning_and_pretraining_begin_with_what_pretraining_learnt(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    given: dict[str, Any] = {"memory": str(model.parent / "base"), "memory_config": NORMAL}
    config, train = PretrainConfig(max_length=32, head_steps=0), TrainConfig(epochs=1, learning_rate=1e-2)
    request = PretrainRequest(str(model), (str(text_file(tmp_path / "text.txt")),), config=config, training=train)
    first = pretrain(session(tmp_path, "first"), replace(request, **given)).folder
    learnt = load_file(first / "memory.safetensors")
    told = f"its memory begins with what {first} has learnt"

    def begun(stage: Any, request: Any, **changes: Any) -> tuple[dict[str, Any], int]:
        """The memory of a run that changes no weight, and how often it told where that is from."""
        own = session(tmp_path, "next", force=True)
        folder = stage(own, replace(request, training=NOTHING, **{**given, **changes})).folder
        return load_file(folder / "memory.safetensors"), own.progress.notes.count(told)  # type: ignore[attr-defined]

    tune = ner_request(tmp_path, first, seeds=(0, 1))
    for stage, asked in ((pretrain, replace(request, model=str(first))), (finetune, tune)):
        weights, n_told = begun(stage, asked)
        assert n_told == 1
        assert weights.keys() == learnt.keys()
        for name, weight in weights.items():
            np.testing.assert_allclose(weight, learnt[name], rtol=0, atol=1e-20)
    anew, _ = begun(finetune, ner_request(tmp_path, model))
    assert not np.allclose(anew["gates.0.weight"], learnt["gates.0.weight"])
    other, n_told = begun(finetune, tune, memory_config=MemoryConfig("chunk"))
    assert n_told == 0
    assert other.keys() != learnt.keys()
    assert all(weight.abs().max() < 1e-20 for weight in other.values())
