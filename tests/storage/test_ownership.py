"""What greenadapt did not make stays, whatever it is called."""

import json
import re
import shutil
from pathlib import Path

import pytest

from greenadapt.errors import ConflictError
from greenadapt.progress import Silent
from greenadapt.storage.jobs import Job, Outcome, Place, run_job
from greenadapt.storage.locks import lock
from greenadapt.storage.outputs import Shards
from greenadapt.storage.ownership import added_files, is_own, new_folder, remove_folder
from tests.conftest import Run, contents, last_line


def fill(folder: Path, name: str = "thesis.txt", content: str = "mine") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)
    return folder


def build(work: Path) -> Outcome:
    (work / "file.txt").write_text("made")
    return Outcome({})


def run(place: Place, *, force: bool = False, config: int = 1) -> Path:
    job = Job("w2v", {"dim": config}, {}, build, checkpoints=("*",))
    return run_job(place, job, force=force, progress=Silent()).path


LOOKALIKES = [
    ("index.json", '{"my": "site"}'),
    ("index.json", '{"documents": {}, "config": {}, "version": 1}'),
    ("manifest.json", '{"greenadapt": 1, "stage": "w2v"}'),
    ("manifest.json", '{"name": "my extension", "manifest_version": 3}'),
    ("greenadapt.json", '{"name": "mine"}'),
    (".greenadapt", "no JSON"),
    (".greenadapt", '{"mine": true}'),
    ("manifest.json", "[" * 100_000),
]


@pytest.mark.parametrize(("name", "content"), LOOKALIKES)
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_with_a_file_of_the_right_name_stays(
    run_alone: Run, tmp_path: Path, name: str, content: str, force: bool
) -> None:
    fill(tmp_path / "docs", "a.txt", "Some words.")
    site = fill(fill(tmp_path / "site"), name, content)
    before = contents(site)
    line = last_line(run_alone("index", "--documents", "docs", "--out", "site", *["--force"] * force, code=1))
    assert "site" in line
    assert "--force" not in line
    with pytest.raises(ConflictError, match="holds no greenadapt result") as caught:
        run(Place(site, linked=False), force=force)
    assert "--force" not in str(caught.value)
    assert contents(site) == before
    (tmp_path / "empty").mkdir()
    run(Place(tmp_path / "empty", linked=False), force=force)


@pytest.mark.parametrize("name", ["notes.txt", "words/notes.txt", "vectors/notes.txt", "sub/notes.txt", ".notes.part"])
def test_an_index_with_files_of_others_is_not_replaced(run_alone: Run, tmp_path: Path, name: str) -> None:
    fill(tmp_path / "docs", "a.txt", "Some words.")
    index = ("index", "--documents", "docs", "--out", "px")
    run_alone(*index)
    fill((tmp_path / "px" / name).parent, Path(name).name)
    before = contents(tmp_path / "px")
    assert name in last_line(run_alone(*index, "--force", code=1))
    assert contents(tmp_path / "px") == before
    (tmp_path / "px" / name).unlink()
    run_alone(*index, "--force")
    assert not (tmp_path / ".px.new").exists()
    (tmp_path / "px" / "index.json").write_text('{"documents')
    assert "--force" in last_line(run_alone(*index, code=1))  # it is greenadapt's own, though damaged
    run_alone(*index, "--force")


@pytest.mark.parametrize("neighbour", [".px.new", ".px.old"])
def test_what_is_where_an_index_is_built_stays(run_alone: Run, tmp_path: Path, neighbour: str) -> None:
    fill(tmp_path / "docs", "a.txt", "Some words.")
    theirs = fill(tmp_path / neighbour)
    line = last_line(run_alone("index", "--documents", "docs", "--out", "px", code=1))
    assert neighbour in line
    assert "move it away" in line
    assert contents(theirs) == {"thesis.txt": b"mine"}
    assert not (tmp_path / "px").exists()


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_where_a_stage_works_stays(tmp_path: Path, linked: bool, kind: str) -> None:
    place = Place(tmp_path / "a" / "run", linked=linked)
    names = [".work/run", ".run.previous", ".run.new"] if linked else [".run.work", ".run.old"]
    thesis = fill(tmp_path / "elsewhere") / "thesis.txt"
    for name in names:
        theirs = place.path.parent / name
        theirs.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            fill(theirs)
        elif kind == "file":
            theirs.write_text("mine")
        else:
            theirs.symlink_to(thesis.parent)
        for force in (False, True):
            with pytest.raises(ConflictError, match=f"{theirs} is in the way"):
                run(place, force=force)
        assert (theirs.read_text() if kind == "file" else (theirs / "thesis.txt").read_text()) == "mine"
        assert not place.path.exists()
        shutil.rmtree(theirs) if kind == "folder" else theirs.unlink()
    run(place)
    assert thesis.read_text() == "mine"


def test_versions_of_others_and_with_files_of_others_stay(tmp_path: Path) -> None:
    place = Place(tmp_path / "run")
    theirs = fill(tmp_path / ".versions" / "v1")
    first = run(place).resolve()
    fill(first, "notes.txt")
    second = run(place, force=True).resolve()
    run(place, force=True)
    run(place, force=True)
    assert contents(theirs) == {"thesis.txt": b"mine"}
    assert (first / "notes.txt").read_text() == "mine"
    assert not second.exists()


@pytest.mark.parametrize("name", ["notes.txt", ".gitattributes"])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_files_of_others_in_a_result_stay(tmp_path: Path, name: str, is_damaged: bool) -> None:
    place = Place(tmp_path / "run", linked=False)
    run(place)
    if is_damaged:
        manifest = json.loads((place.path / "manifest.json").read_text())
        (place.path / "manifest.json").write_text(json.dumps({**manifest, "format": 99, "new": 1}))
    fill(place.path, name)
    if not is_damaged:
        run(place)  # up to date
    for force in {not is_damaged, True}:
        with pytest.raises(ConflictError, match=rf"1 file that greenadapt did not write, such as {re.escape(name)}"):
            run(place, force=force)
    assert (place.path / name).read_text() == "mine"
    (place.path / name).unlink()
    (place.path / ".file.txt.part").touch()  # as a killed process leaves it
    (place.path / ".DS_Store").touch()
    run(place, force=True)


@pytest.mark.parametrize("content", ["my notes", "process of elimination"])
def test_a_lock_is_no_file_of_others(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".run.lock"
    path.write_text(content)
    with pytest.raises(ConflictError, match=r"\.run\.lock is in the way"), lock(path):
        pass
    assert path.read_text() == content
    path.unlink()
    thesis = fill(tmp_path / "elsewhere") / "thesis.txt"
    path.symlink_to(thesis)
    with pytest.raises(ConflictError), lock(path):
        pass
    assert thesis.read_text() == "mine"
    path.unlink()
    path.write_text("process 1 on elsewhere (greenadapt w2v)")  # of a process that was killed
    with lock(path):
        pass
    assert not path.exists()


def test_shards_are_no_files_of_others(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    for name, content in ((".out.jsonl.shards", "mine"), (".out.jsonl.shards.json", '{"n": 1}')):
        (tmp_path / name).write_text(content)
        with pytest.raises(ConflictError, match="is in the way"):
            Shards(out, "key")
        assert contents(tmp_path) == {name: content.encode()}
        (tmp_path / name).unlink()
    shards = Shards(out, "key")
    with pytest.raises(KeyboardInterrupt):
        shards.add(part if part else stop() for part in ("a\n", ""))
    Shards(out, "another").add(["b\n"])  # replaces those of another input
    shards = Shards(out, "another")
    assert shards.n == 1
    shards.publish()
    assert contents(tmp_path) == {"out.jsonl": b"b\n"}


def stop(*_: object) -> str:
    raise KeyboardInterrupt


def test_a_removal_that_is_killed_leaves_a_folder_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rmtree = tmp_path / "run", shutil.rmtree
    for make in (new_folder, lambda folder: run(Place(folder, False))):
        make(folder)
        for name in "abc":
            (folder / name).mkdir()
        calls = iter([rmtree, stop])
        with monkeypatch.context() as patch:
            patch.setattr("shutil.rmtree", lambda path, calls=calls: next(calls)(path))
            with pytest.raises(KeyboardInterrupt):
                remove_folder(folder)
        assert is_own(folder)
        remove_folder(folder)
        assert not folder.exists()


def test_links_in_a_result_are_files_of_others(tmp_path: Path) -> None:
    folder = run(Place(tmp_path / "run", linked=False))
    (folder / "a").symlink_to("nowhere")
    (folder / "b").symlink_to(tmp_path)
    assert added_files(folder) == ["a", "b"]
