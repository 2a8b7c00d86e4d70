"""Tasks that are added to an encoder: it stays, and so do the others."""

from dataclasses import replace
from pathlib import Path

import pytest

from greenadapt.config import AdapterConfig, SamplingConfig, TrainConfig
from greenadapt.errors import ConflictError, UsageError
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.tasks import add_tasks
from greenadapt.storage.results import verified
from tests.support.small_multitask import entry, files_of, request, said, same, task_file
from tests.support.small_tasks import session


@pytest.mark.slow
def test_a_task_is_added_and_the_others_stay(two_tasks: Path, tmp_path: Path) -> None:
    in_folder, before = session(tmp_path, "many"), files_of(two_tasks)
    answers = {name: said(two_tasks, name) for name in ("ner", "ill.1")}
    adapter = AdapterConfig(adapter="low-rank", size=4)
    further = request(tmp_path, two_tasks, ("number", "qa"), adapter=adapter, seeds=(1, 2))
    results = add_tasks(in_folder, two_tasks, further)
    after = files_of(two_tasks)
    assert {name: after[name] for name in before} == before
    added = {name for name in after if name not in before}
    assert all(name.startswith(("tasks/number/", "tasks/qa/")) for name in added)
    assert not any(Path(name).name in ("config.json", "model.safetensors", "rows.safetensors") for name in added)
    assert {name: said(two_tasks, name) for name in answers} == answers
    assert said(two_tasks, "number", 1) == said(two_tasks, "number") != said(two_tasks, "number", 2)
    for name, result in zip(("number", "qa"), results, strict=True):
        assert verified(result).fresh
        for seed in (1, 2):
            written = two_tasks / "tasks" / name / "seeds" / str(seed) / "predictions-test.jsonl"
            assert same(two_tasks, name, seed, written)
    assert [result.fresh for result in add_tasks(in_folder, two_tasks, further)] == [False, False]
    assert files_of(two_tasks) == after
    again = finetune(in_folder, request(tmp_path, two_tasks.parent / "adapted"))
    assert (again.fresh, files_of(two_tasks)) == (False, after)


@pytest.mark.slow
def test_a_task_that_is_there_is_refused(two_tasks: Path, tmp_path: Path) -> None:
    in_folder = session(tmp_path, "many")
    add_tasks(in_folder, two_tasks, request(tmp_path, two_tasks, ("number",)))
    before = files_of(two_tasks)
    for name, called in (("ner", "ner"), ("number", "ner"), ("number", "NER"), ("number", "Number")):
        with pytest.raises(
            ConflictError, match=r"has a task \w+ already: give the new task another name, or first run"
        ):
            add_tasks(in_folder, two_tasks, request(tmp_path, two_tasks, tasks=(entry(tmp_path, name, called),)))
    further = request(tmp_path, two_tasks, ("number",), training=TrainConfig(epochs=1))
    with pytest.raises(ConflictError, match=r"has a task number already, added with other settings .*epochs: 2 → 1"):
        add_tasks(in_folder, two_tasks, further)
    changed = entry(tmp_path, "number", train=(str(task_file(tmp_path, "number", "dev")),))
    with pytest.raises(ConflictError, match=r"number already, added with other settings or files \(other files\)"):
        add_tasks(in_folder, two_tasks, request(tmp_path, two_tasks, tasks=(changed,)))
    assert files_of(two_tasks) == before
    (forced,) = add_tasks(replace(in_folder, force=True), two_tasks, further)
    assert forced.fresh
    assert forced.manifest.config["epochs"] == 1


def test_what_nothing_can_be_added_to(two_tasks: Path, tmp_path: Path) -> None:
    model = tmp_path / "adapted"
    with pytest.raises(UsageError, match="has no tasks that share an encoder"):
        add_tasks(session(tmp_path), model, request(tmp_path, model, ("number",)))
    with pytest.raises(UsageError, match="use the encoder's memory, if it has one: leave out --memory"):
        add_tasks(session(tmp_path), two_tasks, request(tmp_path, two_tasks, ("number",), memory="base"))


@pytest.mark.slow
def test_how_tasks_take_turns_says_nothing_of_one_alone(two_tasks: Path, tmp_path: Path) -> None:
    in_folder, further = session(tmp_path, "many"), request(tmp_path, two_tasks, ("number",))
    (first,) = add_tasks(in_folder, two_tasks, further)
    assert first.manifest.config["sampling"] == SamplingConfig.sampling
    changed = replace(further, model="anything", sampling=replace(further.sampling, sampling="proportional"))
    (again,) = add_tasks(in_folder, two_tasks, changed)
    assert not again.fresh
