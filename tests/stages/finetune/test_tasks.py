"""The tasks of a folder: listed, and taken away without a trace of the others."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from greenadapt.errors import ConflictError, MissingError, UsageError
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.tasks import add_tasks, list_tasks, remove_task
from greenadapt.stages.finetune.train import read_scores
from greenadapt.storage.results import verified
from tests.conftest import Notes
from tests.support.small_multitask import files_of, request, said
from tests.support.small_tasks import TinyModel, adapted, read_json, session


@pytest.mark.slow
def test_a_task_is_removed_and_the_others_stay(tiny_model: TinyModel, tmp_path: Path) -> None:
    trained_together = request(tmp_path, adapted(tiny_model), seeds=(0, 1))
    in_folder = session(tmp_path, "many")
    folder = finetune(in_folder, trained_together).folder
    add_tasks(in_folder, folder, request(tmp_path, folder, ("number",)))
    before = files_of(folder)
    answers = {(name, seed): said(folder, name, seed) for name, seed in (("ill.1", 0), ("ill.1", 1), ("number", 0))}
    remove_task(folder, "ner")
    after = files_of(folder)
    assert {name for name in before if name not in after} == {name for name in before if "tasks/ner/" in name}
    assert [name for name in after if after[name] != before.get(name)] == ["manifest.json"]
    assert {(name, seed): said(folder, name, seed) for name, seed in answers} == answers
    with pytest.raises(MissingError, match=r"has no task 'ner': it has ill\.1, number"):
        remove_task(folder, "ner")
    again = finetune(in_folder, trained_together)
    assert not verified(again).fresh
    notes = in_folder.progress
    assert isinstance(notes, Notes)
    assert notes.warnings[-1].endswith("many had ner, too, until removed: train it again with --force")
    assert files_of(folder) == after
    scores = read_scores(again.folder)
    assert [*scores["tasks"]] == ["ill.1"]
    assert scores["average"]["test"] == scores["tasks"]["ill.1"]["test"]["test"]
    assert [seed["average"]["test"] for seed in scores["seeds"]] == [
        seed["tasks"]["ill.1"]["test"]["test"][scores["metrics"]["ill.1"]] for seed in scores["seeds"]
    ]
    remove_task(folder, "number")
    assert {name: digest for name, digest in after.items() if "number" not in name} == files_of(folder)
    add_tasks(in_folder, folder, request(tmp_path, folder, ("ner",)))
    assert [(task["name"], task["is_added"]) for task in list_tasks(folder)] == [("ner", True), ("ill.1", False)]
    remove_task(folder, "ner")
    assert finetune(replace(in_folder, force=True), trained_together).fresh
    assert len(list_tasks(folder)) == 2


def test_the_last_task_stays(two_tasks: Path) -> None:
    remove_task(two_tasks, "ner")
    before = files_of(two_tasks)
    with pytest.raises(ConflictError, match=r"ill\.1 is the only task of .*many: delete the folder"):
        remove_task(two_tasks, "ill.1")
    assert files_of(two_tasks) == before


def test_a_killed_removal_is_ended_by_the_next(two_tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    before = said(two_tasks, "ill.1")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_task(two_tasks, "ner")
    assert [task["name"] for task in list_tasks(two_tasks)] == ["ill.1"]
    assert said(two_tasks, "ill.1") == before
    assert list(two_tasks.rglob(".*"))
    trained_together = request(two_tasks.parent, two_tasks.parent / "adapted")
    assert not finetune(session(two_tasks.parent, "many"), trained_together).fresh
    assert not list(two_tasks.rglob(".*"))
    assert said(two_tasks, "ill.1") == before


def test_what_is_listed(two_tasks: Path, tiny_model: TinyModel) -> None:
    ner, ill = list_tasks(two_tasks)
    assert {**ner, "name": "ner", "kind": "ner", "adapter": "pals", "metric": "f1"} == ner
    assert not ner["is_added"]
    assert [ill["name"], ill["kind"]] == ["ill.1", "classification"]
    for task in (ner, ill):
        file = two_tasks / "tasks" / task["name"] / "weights.safetensors"
        assert task["bytes"] == file.stat().st_size
        assert task["weights"] == sum(array.size for array in load_file(file).values())
        assert task["scores"] == read_json(two_tasks / "scores.json")["tasks"][task["name"]]
    plain = tiny_model()
    for use in (lambda: list_tasks(plain), lambda: remove_task(plain, "ner")):
        with pytest.raises(UsageError, match="has no tasks that share an encoder: give the folder that finetune --tas"):
            use()


def test_a_file_that_somebody_put_into_a_task_stays(two_tasks: Path) -> None:
    (two_tasks / "tasks" / "ner" / "notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match=r"tasks/ner/notes.txt is a file that greenadapt did not write"):
        remove_task(two_tasks, "ner")
    assert (two_tasks / "tasks" / "ner" / "notes.txt").read_text() == "mine"
    assert sorted(task["name"] for task in list_tasks(two_tasks)) == ["ill.1", "ner"]


def test_a_folder_of_somebody_else_that_looks_removed_stays(two_tasks: Path) -> None:
    foreign = [two_tasks / "tasks" / name / "thesis.txt" for name in (".mine.removed", ".ner-1.removed")]
    for file in foreign:
        file.parent.mkdir()
        file.write_text("mine")
    remove_task(two_tasks, "ner")
    assert [task["name"] for task in list_tasks(two_tasks)] == ["ill.1"]
    assert [file.read_text() for file in foreign] == ["mine", "mine"]
