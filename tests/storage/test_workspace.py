from pathlib import Path

import pytest

from greenadapt.errors import ConflictError, MissingError, UsageError
from greenadapt.progress import Silent
from greenadapt.storage.jobs import Job, Outcome, run_job
from greenadapt.storage.workspace import Workspace


def make(workspace: Workspace, corpus: str, model: str, stage: str, variant: str | None = None) -> None:
    place = workspace.place(corpus, model, stage, variant)
    run_job(place, Job(stage, {}, {}, lambda work: Outcome({})), force=False, progress=Silent())


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
        workspace.only_model("pydocs")
    make(workspace, "pydocs", "minilm", "w2v")
    assert workspace.only_model("pydocs") == "minilm"
    with pytest.raises(MissingError, match=r"pydocs\?"):
        workspace.only_model("pydoc")
    make(workspace, "pydocs", "org--name", "w2v")
    with pytest.raises(UsageError, match=r"2 models .*minilm, org--name"):
        workspace.only_model("pydocs")


def test_a_variant_is_kept_beside_and_falls_back_to_the_plain_one(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with pytest.raises(MissingError, match="greenadapt w2v"):
        workspace.find_place("c", "m", "w2v", "big")
    make(workspace, "c", "m", "w2v")
    assert workspace.find_place("c", "m", "w2v", "big").path.name == "w2v"
    make(workspace, "c", "m", "w2v", "big")
    assert workspace.find_place("c", "m", "w2v", "big").path.name == "w2v@big"
    assert workspace.stages("c", "m") == ["w2v", "w2v@big"]
    with pytest.raises(UsageError):
        workspace.place("c", "m", "w2v", "../up")
