"""``status`` and ``clean``: what a workspace holds, what is stale and why, and what goes."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from greenadapt.corpus.opening import path_sha256
from greenadapt.corpus.recipes import keep_records
from greenadapt.progress import Silent
from greenadapt.stages.session import Session
from greenadapt.storage.arrays import write_arrays
from greenadapt.storage.jobs import Job, Outcome, Place, run_job
from greenadapt.storage.locks import holder, lock
from greenadapt.storage.ownership import new_folder, note_files
from greenadapt.storage.results import Result
from greenadapt.storage.workspace import Workspace
from tests.conftest import Run, json_lines, last_line
from tests.support.processes import held

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``clean`` removes unzipped models from the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Stages:
    """Results in a workspace as stages write them, without their work."""

    def __init__(self, folder: Path) -> None:
        self.text = folder / "text.txt"
        self.workspace = Workspace(folder / "ws")

    def place(self, stage: str, variant: str | None = None) -> Place:
        return self.workspace.place("text-1", "minilm", stage, variant)

    def make(self, stage: str, source: Result | None = None, content: str = "a", *, fails: bool = False) -> Result:
        def build(work: Path) -> Outcome:
            (work / "file.txt").write_text(content)
            if fails:
                raise KeyboardInterrupt
            return Outcome({"words": 1}, {"corpus": "text-1", "model": {"name": "minilm", "source": "no/model"}})

        sources = {str(self.text): path_sha256(self.text)}
        entry = source.as_input() if source else {"sha256": sources[str(self.text)], "sources": sources}
        job = Job(stage, {}, {"corpus" if source else "text": entry}, build, checkpoints=("*",))
        return run_job(self.place(stage), job, force=False, progress=Silent())


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    (tmp_path / "text.txt").write_text("some text")
    return Stages(tmp_path)


def rows(run_alone: Run, *arguments: object) -> Rows:
    return json_lines(run_alone(*arguments, "--json"))


def states(run_alone: Run, *arguments: object) -> list[tuple[str, str, list[str]]]:
    """Stage, state and reasons of the results."""
    results = [row for row in rows(run_alone, "status", *arguments) if row["kind"] == "result"]
    return [(row["stage"], row["state"], row["why"]) for row in results]


def test_status_says_what_is_stale_and_why(run_alone: Run, stages: Stages) -> None:
    assert rows(run_alone, "status") == []
    assert "nothing" in run_alone("status").stdout
    corpus = stages.make("corpus")
    w2v = stages.make("w2v", corpus)
    missing = [(stage, "not made", ["no result yet"]) for stage in ("align", "expand")]
    assert states(run_alone) == [("corpus", "up to date", []), ("w2v", "up to date", []), *missing]
    stages.text.write_text("other text")
    first = ("corpus", "stale", [f"text changed: {stages.text}"])
    assert states(run_alone) == [first, ("w2v", "stale", ["made from corpus, which is stale"]), *missing]
    stages.make("corpus", content="b")
    second = ("w2v", "stale", [f"corpus was made again: {corpus.path}"])
    assert states(run_alone)[:2] == [("corpus", "up to date", []), second]
    assert states(run_alone, w2v.path) == [second]
    assert "made again" in run_alone("status", "-c", "text-1").stdout
    run_alone("status", "-c", "nothing", code=1)
    run_alone("status", stages.text.parent / "nothing", code=1)


def test_status_says_that_a_folder_or_a_corpus_does_not_exist(run_alone: Run, stages: Stages, tmp_path: Path) -> None:
    stages.make("corpus")
    (tmp_path / "empty").mkdir()
    assert "empty holds no greenadapt result" in last_line(run_alone("status", "empty", code=1))
    for command in ("status", "cost", "report"):
        assert "nothere does not exist" in last_line(run_alone(command, "nothere", code=1))
    assert "no corpus nothere" in last_line(run_alone("status", "--corpus", "nothere", code=1))
    for name in ("text-1", stages.text.name):  # a corpus, given as a folder
        assert f"status --corpus {name}" in last_line(run_alone("status", name, code=1))


class Elsewhere:
    """Results that ``--out`` writes, of a session that has the workspace ``ws``."""

    def __init__(self, stages: Stages) -> None:
        self.session = Session(stages.workspace, Silent())
        self.folder = stages.text.parent / "out"

    def make(self, stage: str, name: str, build: Callable[[Path], Outcome], corpus: str | None = None) -> Result:
        place = replace(self.session, out=self.folder / name).place("", "", "")
        self.folder.mkdir(exist_ok=True)
        facts = {"model": {"name": "minilm", "source": "no/model"}} | ({} if corpus is None else {"corpus": corpus})
        return self.session.run(
            place, Job(stage, {}, {}, lambda work: replace(build(work), facts=facts), checkpoints=("*",))
        )


def _stopped(work: Path) -> Outcome:
    (work / "half").write_text("")
    raise KeyboardInterrupt


def test_status_shows_what_was_written_elsewhere_as_long_as_it_is_there(run_alone: Run, stages: Stages) -> None:
    corpus = stages.make("corpus")
    stages.make("align", stages.make("w2v", corpus))
    assert states(run_alone)[-1][:2] == ("expand", "not made")
    elsewhere = Elsewhere(stages)
    for _ in range(2):
        adapted = elsewhere.make("expand", "adapted", lambda work: Outcome({}), "text-1")
    tuned = elsewhere.make("finetune", "tuned", lambda work: Outcome({}))
    with pytest.raises(KeyboardInterrupt):
        elsewhere.make("finetune", "half", _stopped)
    all_rows = rows(run_alone, "status")
    results = [row for row in all_rows if row["kind"] == "result"]
    assert [(row["stage"], row["state"]) for row in results[:3]] == [
        (s, "up to date") for s in ("corpus", "w2v", "align")
    ]
    assert [(row["folder"], row["corpus"]) for row in results[3:]] == [
        (str(adapted.path), "text-1"),
        (str(tuned.path), None),
    ]
    [unfinished] = [row["folder"] for row in all_rows if row["kind"] == "unfinished"]
    assert unfinished == str(elsewhere.folder / ".half.work")
    table = run_alone("status").stdout
    assert all(text in table for text in (str(adapted.path), str(tuned.path), unfinished))
    assert [row[0] for row in states(run_alone, "--corpus", "text-1")] == ["corpus", "w2v", "align", "expand"]
    adapted.path.rename(elsewhere.folder / "moved")
    assert [row[:2] for row in states(run_alone)[3:]] == [("expand", "not made"), ("finetune", "up to date")]
    for record in (stages.workspace.root / ".elsewhere").iterdir():  # of whatever content
        record.write_text('{"folder": 3}')
    assert [row[0] for row in states(run_alone)] == ["corpus", "w2v", "align", "expand"]


def test_a_workspace_that_cannot_be_written_is_no_error(run_alone: Run, stages: Stages) -> None:
    """Not even its folder can be made: something else has its name."""
    stages.workspace.root.mkdir()
    (stages.workspace.root / ".elsewhere").write_text("")
    elsewhere = Elsewhere(stages)
    result = elsewhere.make("finetune", "tuned", lambda work: Outcome({}))
    assert result.path.is_dir()
    assert rows(run_alone, "status") == []


def test_what_was_trained_from_a_stale_model_is_stale(run_alone: Run, stages: Stages, tmp_path: Path) -> None:
    adapted = stages.make("expand", stages.make("corpus"))
    entry = {"sha256": adapted.manifest.digest, "source": str(adapted.path)}
    job = Job("ner", {}, {"model": entry}, lambda work: Outcome({}))
    run_job(Place(tmp_path / "ner", linked=False), job, force=False, progress=Silent())
    model = "made from expand, which is stale"
    assert model not in states(run_alone, tmp_path / "ner")[0][2]
    stages.text.write_text("other text")
    assert model in states(run_alone, tmp_path / "ner")[0][2]


def test_a_large_input_that_was_touched_is_compared_when_asked(run_alone: Run, stages: Stages) -> None:
    os.truncate(stages.text, (64 << 20) + 1)
    corpus = stages.make("corpus")
    later = time.time() + 10
    os.utime(stages.text, (later, later))
    [(_, state, [why]), *_] = states(run_alone)
    assert (state, "--verify" in why) == ("unsure", True)
    assert states(run_alone, "--verify")[0] == ("corpus", "up to date", [])
    (corpus.folder / "file.txt").write_text("b")
    assert states(run_alone)[0][1] != "damaged"
    assert states(run_alone, "--verify")[0][1] == "damaged"
    (corpus.folder / "file.txt").unlink()
    assert states(run_alone)[0][1:] == ("damaged", ["file.txt is missing", *states(run_alone)[0][2][1:]])
    stages.text.unlink()
    assert f"text is gone: {stages.text}" in states(run_alone)[0][2]


def test_status_shows_unfinished_work_and_who_writes_without_a_lock(run_alone: Run, stages: Stages) -> None:
    corpus = stages.make("corpus")
    with pytest.raises(KeyboardInterrupt):
        stages.make("w2v", corpus, fails=True)
    folder = stages.place("w2v").path.parent
    with held(folder / ".lock", "greenadapt w2v"):
        by_kind = {row["kind"]: row for row in rows(run_alone, "status")}
        assert "greenadapt w2v" in by_kind["lock"]["writer"]
        assert (by_kind["unfinished"]["stage"], by_kind["unfinished"]["attempts"]) == ("w2v", 1)
        assert by_kind["unfinished"]["writer"] == by_kind["lock"]["writer"]
        entry = rows(run_alone, "clean", "--yes")
        assert [row["action"] for row in entry] == ["kept"]
        [written] = rows(run_alone, "clean", "--yes", "--only", "unfinished")
        assert (written["action"], "is writing" in written["why"]) == ("kept", True)
    kinds = {row["kind"]: row for row in rows(run_alone, "status")}
    assert "lock" not in kinds
    assert kinds["unfinished"]["writer"] is None
    assert "leftovers" not in kinds  # the same command resumes it
    [entry] = rows(run_alone, "clean", "--yes")
    assert (entry["action"], entry["what"]) == ("kept", "unfinished")
    with lock(folder / ".lock", command="mine"):  # asking releases no lock of this process
        assert "mine" in (holder(folder / ".lock") or "")
        assert holder(folder / ".lock") is not None
    assert holder(folder / ".lock") is None


def test_clean_removes_what_no_result_needs(run_alone: Run, stages: Stages, tmp_path: Path) -> None:
    old = stages.make("corpus")
    stages.text.write_text("other text")
    new = stages.make("corpus", content="b" * 2000)
    with pytest.raises(KeyboardInterrupt):
        stages.make("w2v", new, content="c" * 5000, fails=True)
    downloads = stages.workspace.downloads("text-1")
    downloads.mkdir()
    (downloads / "page.gz").write_text("kept")
    note_files(downloads, {"page.gz": 4})
    make_fold(stages.workspace.root / ".assess")
    outside = tmp_path / "outside"
    (outside / "minilm" / ".work" / "w2v").mkdir(parents=True)
    (stages.workspace.root / "linked").symlink_to(outside)
    run_alone("clean", code=2)  # there is no terminal to ask on
    listed = rows(run_alone, "clean", "--dry-run")
    actions = [(row["what"], row["action"]) for row in listed]
    assert sorted(actions) == [
        ("cache", "removable"),
        ("download", "kept"),
        ("unfinished", "kept"),
        ("version", "removable"),
    ]
    would = {row["what"] for row in rows(run_alone, "status") if row["kind"] == "leftovers"}
    assert would == {"cache", "version"}
    assert rows(run_alone, "clean", "--yes", "--older-than", "1h") == []
    work = stages.place("w2v").work
    for path in (work / "file.txt", work / ".greenadapt", work):
        os.utime(path, (1, 1))
    [old_work] = rows(run_alone, "clean", "--dry-run", "--older-than", "1h")
    assert (old_work["what"], old_work["action"]) == ("unfinished", "removable")
    [removed] = rows(run_alone, "clean", "--yes", "--only", "version")
    assert (removed["action"], removed["path"], removed["bytes"] > 100) == ("removed", str(old.folder), True)
    assert not old.folder.exists()
    table = run_alone("clean", "--yes").stdout
    assert "Removed: 1 file or folder" in table
    [removed] = rows(run_alone, "clean", "--yes", "--only", "unfinished")
    assert removed["action"] == "removed"
    assert {path.name for path in stages.workspace.root.iterdir()} == {"text-1", "linked"}
    assert (outside / "minilm" / ".work" / "w2v").is_dir()
    assert {path.name for path in new.path.parent.iterdir()} == {"corpus", ".versions"}
    assert states(run_alone)[0] == ("corpus", "up to date", [])
    run_alone("clean", "--only", "results", code=2)
    run_alone("clean", "--older-than", "soon", code=2)


def make_fold(folder: Path) -> Path:
    """The cache of a fold, by its header."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{'1' * 32}.safetensors"
    seconds = {"training": 1.0, "predicting": 1.0}
    write_arrays(path, {"counts": np.zeros(4, np.float32)}, {"seconds": json.dumps(seconds)})
    return path


def test_clean_keeps_what_greenadapt_did_not_make(run_alone: Run, stages: Stages, tmp_path: Path) -> None:
    first = stages.make("corpus").folder
    stages.text.write_text("other text")
    stages.make("corpus", content="b")
    (first / "notes.txt").write_text("mine")
    root, folder = stages.workspace.root, stages.place("corpus").path.parent
    names = [
        folder / ".versions" / "v1" / "thesis.txt",
        folder / ".work" / "task" / "thesis.txt",
        root / ".assess" / "mine.safetensors",
        root / ".assess" / "mine.part",
        root / ".assess" / "running" / "mine" / "thesis.txt",
        root / ".stdin-mine",
        root / ".records-mydir" / "thesis.txt",
        root / "text-1" / ".sources" / "thesis.txt",
        root / "text-1" / ".sources" / "thesis.part",
        root / "text-2" / ".sources" / "mine" / "thesis.txt",
        root / "stdin-12345678" / ".sources" / "stdin",
        tmp_path / "cache" / "greenadapt" / "models" / "mine" / "model.safetensors",
    ]
    for path in names:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        os.utime(path, (1, 1))
    write_arrays(root / ".assess" / "tensors.safetensors", {"counts": np.zeros(4, np.float32)}, {"seconds": "4"})
    fold = make_fold(root / ".assess")
    for options in ((), ("--only", "unfinished"), ("--older-than", "1s")):
        cleaned = rows(run_alone, "clean", "--yes", *options)
        assert {row["path"] for row in cleaned if row["action"] == "removed"} <= {str(fold)}
        assert all("delete it yourself" in row["why"] for row in cleaned if "mine" in Path(row["path"]).name)
    assert not fold.exists()
    assert [path.read_text() for path in names] == ["mine"] * len(names)
    assert (root / ".assess" / "tensors.safetensors").is_file()
    assert (first / "notes.txt").read_text() == "mine"
    [why] = [row["why"] for row in rows(run_alone, "clean", "--yes") if row["path"] == str(first)]
    assert "notes.txt" in why


def test_clean_removes_a_folder_of_downloads_unless_somebody_added_a_file(run_alone: Run, stages: Stages) -> None:
    downloads = stages.workspace.downloads("text-2")
    unfinished, finished, early = folders = [downloads / name for name in ("site.part", "site", "early")]
    options: tuple[tuple[str, ...], ...] = ((), ("--only", "unfinished"))
    for folder in folders:
        new_folder(folder)
        for name in (".a.gz.part.version", "a.gz.part", "b.gz"):
            (folder / name).write_text("text")
    for folder in (unfinished, finished):
        note_files(folder, {"a.gz": None, "b.gz": 4})
        (folder / "thesis.txt").write_text("mine")
    cleaned = [row for option in options for row in rows(run_alone, "clean", "--yes", *option)]
    assert {row["path"] for row in cleaned if row["action"] == "removed"} == {str(early)}  # its mark notes nothing
    kept = {row["path"] for row in cleaned if row["action"] == "kept" and "thesis.txt" in row["why"]}
    assert kept == {str(unfinished), str(finished)}
    assert [(folder / "thesis.txt").read_text() for folder in (unfinished, finished)] == ["mine", "mine"]
    for folder in (unfinished, finished):
        (folder / "thesis.txt").unlink()
    for option in options:
        run_alone("clean", "--yes", *option)
    assert not downloads.exists()


def test_an_old_version_that_a_result_was_made_from_stays(run_alone: Run, stages: Stages) -> None:
    old = stages.make("corpus")
    entry = {"sha256": old.manifest.digest, "path": str(old.folder)}
    job = Job("expand", {}, {"corpus": entry}, lambda work: Outcome({}))
    run_job(stages.place("expand"), job, force=False, progress=Silent())
    stages.text.write_text("other text")
    stages.make("corpus", content="b")
    [cleaned] = rows(run_alone, "clean", "--yes")
    assert (cleaned["action"], "expand" in cleaned["why"]) == ("kept", True)
    assert "leftovers" not in {row["kind"] for row in rows(run_alone, "status")}
    assert old.folder.is_dir()


def test_records_of_a_program_are_no_download_that_can_be_fetched_again(
    run_alone: Run, stages: Stages, tmp_path: Path
) -> None:
    root = stages.workspace.root
    name, path = keep_records([b'{"text": "some text"}\n'], root) or ("", Path())
    run_job(
        stages.workspace.place(name, "minilm", "corpus"),
        Job("corpus", {}, {"text": {"sha256": "1", "sources": {str(path): "1"}}}, lambda work: Outcome({})),
        force=False,
        progress=Silent(),
    )
    killed = root / f".records-{uuid4().hex}"
    killed.write_text("half")
    os.utime(killed, (1, 1))
    cleaned = {(row["what"], row["path"], row["action"]) for row in rows(run_alone, "clean", "--yes")}
    assert cleaned == {("input", str(path), "kept"), ("input", str(killed), "removed")}
    assert path.is_file()


def test_names_control_no_terminal(run_alone: Run, tmp_path: Path) -> None:
    stages = Stages(tmp_path / "a\x1b[2Jb")
    stages.text.parent.mkdir()
    stages.text.write_text("some text")
    stages.make("corpus")
    stages.text.write_text("other text")
    stages.make("corpus", content="b")
    stages.text.write_text("third text")
    for command in (["status"], ["clean", "--dry-run"]):
        output = run_alone(*command, "--workspace", stages.workspace.root).stdout
        assert "a\ufffd[2Jb" in output
        assert "\x1b" not in output


def test_a_result_is_not_its_own_source_from_within_its_folder(
    run_alone: Run, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = stages.make("corpus")
    monkeypatch.chdir(corpus.folder)
    assert states(run_alone, ".") == [("corpus", "up to date", [])]
    assert [row["stage"] for row in rows(run_alone, "cost", ".") if "folder" in row] == ["corpus"]
