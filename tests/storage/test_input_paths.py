"""Another path is another input; other content behind the same path is an update, of finished models only by force."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from greenadapt.corpus.opening import source_input
from greenadapt.errors import ConflictError, InputError
from greenadapt.stages.session import Session
from greenadapt.storage.jobs import Job, Outcome, Place, run_job
from greenadapt.storage.results import Result, read_manifest, result_behind
from greenadapt.storage.workspace import Workspace
from tests.conftest import Notes


def job(**sources: Path | str) -> Job:
    def build(work: Path) -> Outcome:
        (work / "model").write_text("trained")
        return Outcome({})

    return Job("finetune", {"epochs": 1}, {name: source_input(str(path)) for name, path in sources.items()}, build)


def run(place: Place, wanted: Job, *, force: bool = False) -> Result:
    return run_job(place, wanted, force=force, progress=Notes())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name in "ab":
        (tmp_path / f"{name}.tsv").write_text(name)
    return Place(tmp_path / "run", linked=False)


def test_another_path_is_another_input(place: Place, tmp_path: Path) -> None:
    a, b = tmp_path / "a.tsv", tmp_path / "b.tsv"
    made = run(place, job(train=a)).manifest
    with pytest.raises(ConflictError, match=rf"train: {a} → {b}.*--out"):
        run(place, job(train=b))
    with pytest.raises(ConflictError, match=rf"test: none → {b}"):
        run(place, job(train=a, test=b))
    with pytest.raises(ConflictError, match=rf"train: {a} → none, dev: none → {b}"):
        run(place, job(dev=b))
    with pytest.raises(ConflictError, match=rf"epochs: 1 → 2, train: {a} → {b}"):
        run(place, replace(job(train=b), config={"epochs": 2}))
    assert run(place, job(train=a)).manifest == made
    assert run(place, job(train=b), force=True).fresh


def test_the_same_content_elsewhere_is_up_to_date(place: Place, tmp_path: Path) -> None:
    run(place, job(train=tmp_path / "a.tsv"))
    (tmp_path / "a.tsv").rename(tmp_path / "moved.tsv")
    assert not run(place, job(train=tmp_path / "moved.tsv")).fresh


def test_other_spellings_are_the_same_path(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "link.tsv").symlink_to("a.tsv")
    run(place, job(train=tmp_path / "a.tsv"))
    for number, same in enumerate(["a.tsv", "~/a.tsv", "here/a.tsv", "link.tsv", "./a.tsv"]):
        (tmp_path / "a.tsv").write_text(f"content {number}")
        assert run(place, job(train=same)).fresh
        assert not run(place, job(train=same)).fresh


@pytest.mark.parametrize("by_earlier_version", [False, True])
def test_a_checkout_that_was_moved(tmp_path: Path, by_earlier_version: bool) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "a.tsv").write_text("a")
    place = Place(old / "runs" / "a", linked=False)
    place.path.parent.mkdir()
    run(place, job(train=old / "a.tsv"))
    if by_earlier_version:
        manifest = json.loads((place.path / "manifest.json").read_text())
        del manifest["inputs"]["train"]["relative"]
        (place.path / "manifest.json").write_text(json.dumps(manifest))
    old.rename(new)
    place = Place(new / "runs" / "a", linked=False)
    assert not run(place, job(train=new / "a.tsv")).fresh
    (new / "a.tsv").write_text("changed")
    if by_earlier_version:  # which did not say where the file lay beside the result
        with pytest.raises(ConflictError, match=r"old/a.tsv → .*new/a.tsv"):
            run(place, job(train=new / "a.tsv"))
    else:
        assert run(place, job(train=new / "a.tsv")).fresh


def test_inputs_in_a_workspace_that_was_moved(tmp_path: Path) -> None:
    """Its results lie behind links, which lead elsewhere than their names say."""
    text = tmp_path / "a.tsv"
    text.write_text("a")
    folder = tmp_path / "ws" / "corpus"
    made = run(Place(folder / "w2v", linked=True), job(text=text))
    entry = {"sha256": made.manifest.digest, "path": str(folder / "w2v")}
    place = Place(folder / "align", linked=True)
    run(place, replace(job(text=text), stage="align", inputs={"vectors": entry}))
    (tmp_path / "ws").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / "corpus"
    stored = read_manifest(moved / "align").inputs["vectors"]
    assert result_behind(stored, moved / "align") == moved / "w2v"


def test_a_finished_model_is_only_trained_again_by_force(place: Place, tmp_path: Path) -> None:
    wanted = job(train=tmp_path / "a.tsv", test=tmp_path / "b.tsv")
    first = run(place, replace(wanted, kept=True))
    (tmp_path / "b.tsv").write_text("corrected")
    changed = replace(job(train=tmp_path / "a.tsv", test=tmp_path / "b.tsv"), kept=True)
    with pytest.raises(ConflictError, match=r"test .*--force"):
        run(place, changed)
    with pytest.raises(ConflictError, match=r"test .*greenadapt evaluate"):
        run(place, replace(changed, advice={"test": "greenadapt evaluate"}))
    assert json.loads((place.path / "manifest.json").read_text())["cost"] == first.manifest.cost
    assert run(place, changed, force=True).fresh


def test_the_demo_brings_its_own_models_up_to_date(place: Place, tmp_path: Path) -> None:
    session = Session(Workspace(tmp_path), Notes(), out=place.path)
    session.run(place, replace(job(train=tmp_path / "a.tsv"), kept=True))
    (tmp_path / "a.tsv").write_text("changed")
    changed = replace(job(train=tmp_path / "a.tsv"), kept=True)
    with pytest.raises(ConflictError, match=r"train .*--force"):
        session.run(place, changed)
    assert replace(session, updates=True).run(place, changed).fresh


def test_damage_to_a_finished_model_is_named(place: Place, tmp_path: Path) -> None:
    wanted = replace(job(train=tmp_path / "a.tsv"), kept=True)
    run(place, wanted)
    (place.path / "model").write_text("damaged")
    with pytest.raises(InputError, match=r"run/model .*--force"):
        run(place, wanted)
    assert run(place, wanted, force=True).fresh


def test_results_that_a_workspace_finds_by_name_are_no_other_inputs(tmp_path: Path) -> None:
    inputs = []
    for name in ("w2v", "w2v@wide"):
        (tmp_path / name).mkdir()
        inputs.append({"vectors": {"sha256": name, "path": str(tmp_path / name)}})
    place = Place(tmp_path / "align@wide")
    first, second = (replace(job(), inputs=each) for each in inputs)
    run(place, first)
    assert run(place, second).fresh
    elsewhere = replace(job(), inputs={"vectors": {"sha256": "x", "path": os.devnull}})
    with pytest.raises(ConflictError, match=r"vectors: .*w2v@wide → /dev/null.*--variant"):
        run(place, elsewhere)
