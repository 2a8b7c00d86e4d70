"""HOME: names of corpora and models, and what ``clean`` may remove."""

from pathlib import Path

import pytest

from greenadapt.errors import ConflictError, MissingError, UsageError
from greenadapt.progress import Silent
from greenadapt.store.results import Job, Outcome, Result, run
from greenadapt.store.workspace import UnneededFile, Workspace, find_unfinished, find_unneeded, remove


def make(
    workspace: Workspace, corpus: str, model: str, stage: str, source: Result | None = None, dim: int = 1
) -> Result:
    def build(work: Path) -> Outcome:
        (work / "file").write_text(str(dim))
        return Outcome({})

    job = Job(stage, {"dim": dim}, {"source": source.as_input()} if source else {}, named={"corpus": corpus})
    return run(workspace.place(job, corpus, model), job, build, Silent())


def test_where_the_workspace_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENADAPT_HOME", str(tmp_path / "home"))
    assert Workspace.find().root == tmp_path / "home"
    assert Workspace.find(tmp_path / "given").root == tmp_path / "given"
    (tmp_path / "file").touch()
    for below in ("file", "file/ws"):
        with pytest.raises(
            ConflictError, match=rf"workspace {tmp_path / below} is not a folder: give one with --workspa"
        ):
            Workspace.find(tmp_path / below)
    monkeypatch.delenv("GREENADAPT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert Workspace.find().root.name == "greenadapt"


def test_one_model_is_found_and_several_are_listed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with pytest.raises(MissingError, match="pydocs"):
        workspace.find_only_model("pydocs")
    with pytest.raises(MissingError, match="run greenadapt w2v first"):
        workspace.find_result("pydocs", "minilm", "w2v")
    first = make(workspace, "pydocs", "minilm", "w2v")
    assert workspace.find_only_model("pydocs") == "minilm"
    assert workspace.find_result("pydocs", "minilm", "w2v").manifest == first.manifest
    with pytest.raises(MissingError, match=r"pydocs\?"):
        workspace.find_only_model("pydoc")
    make(workspace, "pydocs", "org--name", "w2v")
    with pytest.raises(UsageError, match=r"2 models .*minilm, org--name"):
        workspace.find_only_model("pydocs")
    make(workspace, "text", "minilm", "align")
    with pytest.raises(UsageError, match=r"2 corpora \(pydocs, text\)"):
        workspace.find_only_corpus()
    assert workspace.find_only_corpus(stage="align") == "text"


def test_clean_keeps_named_results_and_all_that_they_were_made_from(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    first = make(workspace, "c", "m", "w2v", dim=1)
    aligned = make(workspace, "c", "m", "align", first)
    second = make(workspace, "c", "m", "w2v", dim=2)
    third = make(workspace, "c", "m", "w2v", dim=3)
    others = [tmp_path / "results" / "mine", tmp_path / "results" / "w2v-short", tmp_path / "notes.txt"]
    for path in others:
        path.write_text("not a result")
    assert [item.path for item in find_unneeded(workspace)] == [second.folder]
    assert [remove(item) for item in find_unneeded(workspace)] == [""]
    kept = {first.folder, aligned.folder, third.folder, *others[:2]}
    assert {*(tmp_path / "results").iterdir()} == kept
    newest = make(workspace, "c", "m", "align", third, dim=2)
    assert {item.path for item in find_unneeded(workspace)} == {first.folder, aligned.folder}
    (newest.folder / "manifest.json").write_text("broken")  # its name keeps it
    assert newest.folder not in {item.path for item in find_unneeded(workspace)}


def test_clean_keeps_what_greenadapt_did_not_make(tmp_path: Path) -> None:
    """As in a workspace that is the user's own folder (``--workspace .``)."""
    (tmp_path / "inputs").mkdir()
    (tmp_path / "results" / "run-0123456789ab").mkdir(parents=True)
    for name in ("inputs/train.tsv", "inputs/stdin-notes", "results/run-0123456789ab/notes.txt"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "inputs" / "records-01234567.jsonl").write_text("{}")
    assert [item.path.name for item in find_unneeded(Workspace(tmp_path))] == ["records-01234567.jsonl"]


def test_clean_beside_a_running_build_leaves_it_alone(tmp_path: Path) -> None:
    workspace, seen = Workspace(tmp_path), []

    def build(work: Path) -> Outcome:
        (work / "checkpoint").touch()
        seen.append([(item.path, item.writer is not None) for item in find_unfinished(work.parent)])
        seen.append([*find_unneeded(workspace)])
        if len(seen) == 2:
            raise KeyboardInterrupt
        return Outcome({})

    job = Job("w2v", {}, {}, checkpoints=("checkpoint",))
    place = workspace.place(job, "c", "m")
    with pytest.raises(KeyboardInterrupt):
        run(place, job, build, Silent())
    work = place.work(job.key)
    assert seen == [[(work, True)], []]
    [item] = find_unneeded(workspace)
    assert (item.kind, item.path) == ("unfinished", work)
    assert remove(item) == ""
    assert [*find_unneeded(workspace)] == []
    assert remove(UnneededFile("result", tmp_path / "gone", 0)).startswith("No such file")
