"""Which general model is a memory, and that a trained model finds it again or says what is missing."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.checkpoints.source import find_model
from greenadapt.config import MemoryConfig, TaskConfig
from greenadapt.errors import UsageError
from greenadapt.models.memory.choice import MemoryChoice, MemoryPlan, check_memories
from greenadapt.models.task_folder import TaskFolder
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.request import FinetuneRequest
from tests.conftest import Notes, Run, json_lines, last_line
from tests.support.small_tasks import (
    TRAIN,
    TinyModel,
    adapted,
    facts_file,
    lines,
    qa_file,
    question_lines,
    read_json,
    session,
    texts_file,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def _train(
    tmp_path: Path, folder: Path, task: Any, general: str | None = "base", out: str = "run", **memory: Any
) -> tuple[Path, list[str]]:
    """The folder of a model that was trained with the memory ``general``, and the warnings meanwhile."""
    make, suffix = (qa_file, "json") if task == "qa" else (texts_file, "jsonl")
    train, test = (make(tmp_path / f"{name}.{suffix}", 24, seed) for seed, name in enumerate(("train", "test")))
    request = FinetuneRequest.of_one(
        str(folder),
        (str(train),),
        test=str(test),
        task=TaskConfig(task=task, max_length=64),
        training=replace(TRAIN, epochs=2),
        memory=general and str(tmp_path / general),
        memory_config=MemoryConfig(**memory),
    )
    run = session(tmp_path, out)
    assert isinstance(run.progress, Notes)
    return finetune(run, request).folder, run.progress.warnings


def _predict(run_alone: Run, run: Path, records: Path, *options: object) -> list[Any]:
    return json_lines(run_alone("predict", "-m", run, "-i", records, *options))


def test_base_is_what_the_model_was_adapted_from(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    with pytest.raises(UsageError, match=r"--memory base, but .*adapted is not an adapted model"):
        MemoryChoice.find("base", find_model(str(folder)), MemoryConfig())
    base = str(folder.parent / "base")
    facts_file(folder)
    chosen = MemoryChoice.find("base", find_model(str(folder)), MemoryConfig("single", layers=(2,)))
    assert str(chosen.model.folder) == base
    settings = json.loads(json.dumps(chosen.as_settings()))
    assert (settings["strategy"], settings["layers"]) == ("single", [2])
    assert settings["general"] == {"name": chosen.model.name, "source": base, "sha256": chosen.sha256}
    assert chosen.sha256 == MemoryChoice.find(base, find_model(str(folder)), MemoryConfig()).sha256


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [True, False])
def test_predict_gives_what_the_test_set_got(
    frozen: bool, tiny_model: TinyModel, tmp_path: Path, run_alone: Run
) -> None:
    """By the general model where it was, and where it went; or by the one that was trained too, which comes along."""
    run, _ = _train(tmp_path, adapted(tiny_model), "classification", frozen=frozen)
    expected = [row["probabilities"] for row in lines(run / "seeds" / "0" / "predictions.jsonl")]
    assert len(expected) == 24
    assert len({json.dumps(row) for row in expected}) > 1
    records = tmp_path / "test.jsonl"

    def predicted(*options: object) -> list[Any]:
        return [pytest.approx(row["probabilities"], abs=1e-5) for row in _predict(run_alone, run, records, *options)]

    if frozen:
        assert expected == predicted()
    shutil.move(tmp_path / "base", "moved")
    assert expected == predicted(*(("--memory", "moved") if frozen else ()))
    if not frozen:
        error = last_line(run_alone("predict", "-m", run, "-i", records, "--memory", run / "memory", code=2))
        assert "no model here needs a general model beside it: leave it out" in error


@pytest.mark.slow
def test_without_its_general_model_it_says_what_is_missing(
    tiny_model: TinyModel, tmp_path: Path, run_alone: Run
) -> None:
    folder = adapted(tiny_model)
    run, _ = _train(tmp_path, folder, "qa", strategy="single")
    general = read_json(run / "task.json")["memory"]["general"]
    shutil.move(tmp_path / "base", tmp_path / "moved")
    start = ("qa", "--model", run, "--data", tmp_path / "test.json")
    error = last_line(run_alone(*start, code=1))
    assert f"{run} needs the general model {general['name']} as its memory" in error
    assert "name the folder where that is with --memory" in error
    answered = run_alone(*start, "--memory", tmp_path / "moved").stdout
    assert len(answered.splitlines()) == 25
    error = last_line(run_alone(*start, "--memory", folder, code=1))
    assert f"is not the general model that {run} was trained with: its SHA-256 is" in error
    (run / "memory.safetensors").unlink()
    (run / "manifest.json").unlink()
    error = last_line(run_alone(*start, "--memory", tmp_path / "moved", code=1))
    assert f"{run} has no memory.safetensors: copy the whole folder, or train it again" in error


def test_a_model_without_memory_needs_none(tiny_model: TinyModel) -> None:
    folder = tiny_model("BertForQuestionAnswering")
    opened = TaskFolder.open(str(folder))
    assert MemoryChoice.of_settings(opened.settings, opened.folder, opened.weights, "there") is None
    check_memories([opened], None)
    with pytest.raises(UsageError, match="--memory there, but no model here needs a general model beside it"):
        check_memories([opened], "there")


@pytest.mark.slow
def test_only_some_of_several_models_need_it(tiny_model: TinyModel, tmp_path: Path, run_alone: Run) -> None:
    """In an ensemble, and beside a model that was trained from one with a memory, but without."""
    run, _ = _train(tmp_path, adapted(tiny_model), "qa", strategy="single")
    plain, warnings = _train(tmp_path, run, "qa", general=None, out="plain")
    assert warnings == [f"{run} was trained with a memory: give the general model with --memory"]
    moved = tmp_path / "moved"
    shutil.move(tmp_path / "base", moved)
    assert len(_predict(run_alone, run, question_lines(tmp_path / "test.json"), "-m", plain, "--memory", moved)) == 24


EVERY = tuple(range(1, 13))
DEPTHS = st.integers(2, 48)


def plan(n_domain: int = 12, n_general: int = 12, **config: Any) -> MemoryPlan:
    return MemoryPlan.of(MemoryConfig(**config), n_domain, n_general)


@pytest.mark.parametrize(
    ("strategy", "targets", "sources"),
    [
        ("single", (9,), ((12,),)),
        ("multiple", EVERY, tuple((i,) for i in EVERY)),
        ("gated", (9,), (EVERY,)),
        ("chunk", (6, 12), (EVERY[:6], EVERY[6:])),
    ],
)
def test_twelve_layers_as_in_the_paper_and_as_in_its_code(
    strategy: Any, targets: tuple[int, ...], sources: tuple[tuple[int, ...], ...]
) -> None:
    gated = strategy in ("gated", "chunk")
    assert plan(strategy=strategy) == MemoryPlan(targets, sources, gated)
    lower = tuple(tuple(state - 1 for state in states) for states in sources)
    assert plan(strategy=strategy, source="reference") == MemoryPlan(targets, lower, gated)


@given(DEPTHS, DEPTHS)
def test_any_depth(n_domain: int, n_general: int) -> None:
    target = ceil(Fraction(3, 4) * n_domain)
    every = tuple(range(1, n_general + 1))
    assert plan(n_domain, n_general, strategy="single") == MemoryPlan((target,), ((n_general,),), False)
    assert plan(n_domain, n_general, strategy="gated") == MemoryPlan((target,), (every,), True)
    half = n_general // 2
    expected = MemoryPlan((ceil(Fraction(n_domain, 2)), n_domain), (every[:half], every[half:]), True)
    assert plan(n_domain, n_general) == plan(n_domain, n_general, strategy="chunk") == expected
    multiple = plan(n_domain, n_general, strategy="multiple")
    assert multiple.targets == tuple(range(1, n_domain + 1))
    assert multiple.sources == tuple((ceil(Fraction(i * n_general, n_domain)),) for i in multiple.targets)


@given(DEPTHS, st.data())
def test_chunks_for_other_layers_are_as_even_as_can_be(n_general: int, data: st.DataObject) -> None:
    layers = data.draw(st.sets(st.integers(1, 48), min_size=1, max_size=n_general))
    chosen = plan(48, n_general, layers=tuple(sorted(layers)))
    assert chosen.targets == tuple(sorted(layers))
    assert [state for states in chosen.sources for state in states] == list(range(1, n_general + 1))
    lengths = {len(states) for states in chosen.sources}
    assert max(lengths) - min(lengths) <= 1


def test_other_layers_and_states() -> None:
    assert plan(strategy="single", layers=(3,), source="0") == MemoryPlan((3,), ((0,),), False)
    assert plan(strategy="multiple", layers=(2, 5), n_general=6).sources == ((1,), (3,))
    assert plan(strategy="multiple", layers=(2, 5), source="4, 4-4").sources == ((4,), (4,))
    assert plan(strategy="gated", layers=(12,), source="10-12").sources == ((10, 11, 12),)
    assert plan(1, 2, layers=(1,)) == MemoryPlan((1,), ((1, 2),), True)
    assert plan(2, 1, source="0-1,1") == MemoryPlan((1, 2), ((0, 1), (1,)), True)


def test_added_logits_need_the_last_state_alone() -> None:
    chosen = plan(4, 7, strategy="logits")
    assert chosen == MemoryPlan((), ((7,),), False)
    assert chosen.states == (7,)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"n_domain": 1}, ["chunk feeds two layers, the domain model has 1"]),
        ({"n_general": 1}, ["feeds 2 layers", "the general model, which has 1 layer"]),
        ({"layers": (6, 13)}, ["layer 13", "has 12"]),
        ({"source": "1-6,7-13"}, ["state 13", "has 12 layers"]),
        ({"strategy": "single", "source": "1-6"}, ["1-6", "takes one state"]),
    ],
)
def test_what_cannot_be_says_both_numbers(config: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**config)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.hint
