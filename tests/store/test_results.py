"""The rules of results: written once, resumed by their key, never replaced; see ``greenadapt/store/results.py``."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from greenadapt.corpus.opening import source_input
from greenadapt.errors import ConflictError, InputError, MissingError
from greenadapt.progress import Silent
from greenadapt.store import results
from greenadapt.store.results import (
    Build,
    Job,
    Outcome,
    Place,
    Result,
    check_out,
    find_input,
    open_result,
    read_manifest,
    run,
    verify_result,
)
from tests.conftest import Notes, contents


class Builder:
    """Writes one file, and counts its runs."""

    def __init__(self, text: str = "hello") -> None:
        self.runs, self.text = 0, text

    def __call__(self, work: Path) -> Outcome:
        self.runs += 1
        (work / "sub").mkdir(exist_ok=True)
        (work / "sub" / "file.txt").write_text(self.text)
        return Outcome({"words": 3})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "results" / "w2v", tmp_path / "names" / "c" / "m" / "w2v")


def job(**settings: Any) -> Job:
    """A job with one setting and no input, unless ``settings`` are other fields."""
    return replace(Job("w2v", {"dim": 8}, {}), **settings)


def make(place: Place, of: Job, build: Build | None = None) -> Result:
    return run(place, of, build or Builder(), Silent())


def left(place: Place) -> list[str]:
    """What lies beside the result."""
    return sorted(path.name for path in place.folder.parent.iterdir())


def test_a_result_has_files_checksums_and_a_name(place: Place) -> None:
    result = make(place, job(card=lambda work, outcome, cost: f"# {outcome.counts} {cost['attempts']}"))
    assert result.fresh
    assert left(place) == ["w2v"]
    assert sorted(contents(place.folder)) == ["README.md", "manifest.json", "sub/file.txt"]
    manifest = verify_result(open_result(place.folder, "w2v")).manifest
    assert manifest == result.manifest
    assert (manifest.counts, [*manifest.files]) == ({"words": 3}, ["sub/file.txt"])
    assert place.link is not None
    assert place.link.readlink() == Path("../../../results/w2v")
    assert (place.link / "sub" / "file.txt").read_text() == "hello"
    assert (place.folder / "README.md").read_text() == "# {'words': 3} 1"


def test_a_second_run_finds_the_result_and_moves_its_name_back(place: Place, tmp_path: Path) -> None:
    build = Builder()
    first = make(place, job(), build)
    make(Place(tmp_path / "results" / "other", place.link), job(config={"dim": 9}), build)
    again = make(place, job(), build)
    assert build.runs == 2
    assert (again.fresh, again.manifest) == (False, first.manifest)
    assert place.link is not None
    assert place.link.resolve() == place.folder


@pytest.mark.parametrize(
    "change",
    [{"stage": "align"}, {"config": {"dim": 9}}, {"named": {"corpus": "b"}}, {"inputs": {"text": {"sha256": "1"}}}],
    ids=["stage", "setting", "name", "input"],
)
def test_what_is_in_the_key(change: dict[str, Any]) -> None:
    assert job().key != job(**change).key


def test_what_is_not_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = job(inputs={"text": {"sha256": "1", "path": "/a"}}).key
    assert job(inputs={"text": {"sha256": "1", "path": "/b"}}, command="x", checkpoints=("a",)).key == key
    # A new option leaves old keys alone while it has its default.
    assert job(defaults={"dim": 8}).key == job(config={"dim": 8, "new": 1}, defaults={"dim": 8, "new": 1}).key
    before = job().key
    monkeypatch.setattr(results, "VERSIONS", {"w2v": 2})
    assert job().key != before


def test_anything_else_in_the_place_is_refused_with_the_difference(place: Place, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("a")
    of_text = job(inputs={"text": source_input(str(text))})
    make(place, of_text)
    before = contents(place.folder)
    for other, difference in (
        (replace(of_text, config={"dim": 9}), "dim: 8 → 9"),
        (replace(of_text, stage="align"), "of w2v, not of align"),
        (replace(of_text, inputs={}), "text: .*a.txt → none"),
        (replace(of_text, inputs={"text": {"sha256": "1", "path": str(text)}}), "text changed"),
    ):
        with pytest.raises(ConflictError, match=rf"holds another result \({difference}\)"):
            make(place, other)
    assert contents(place.folder) == before
    assert left(place) == ["w2v"]


@pytest.mark.parametrize("kind", ["folder", "dead-link"])
def test_what_others_made_is_refused_and_stays(place: Place, tmp_path: Path, kind: str) -> None:
    place.folder.parent.mkdir()
    if kind == "folder":
        place.folder.mkdir()
        (place.folder / "mine.txt").write_text("mine")
    else:
        place.folder.symlink_to(tmp_path / "nothing")
    before = contents(tmp_path)
    build = Builder()
    for refused in (lambda: check_out(place.folder), lambda: make(place, job(), build)):
        with pytest.raises(ConflictError, match="exists and"):
            refused()
    assert (build.runs, contents(tmp_path)) == (0, before)


def test_an_empty_folder_is_used_and_a_mount_point_refused(place: Place) -> None:
    place.folder.mkdir(parents=True)
    assert make(place, job()).fresh
    with pytest.raises(ConflictError, match="is a mount point"):
        check_out(Path("/"))


def test_a_run_that_fails_leaves_nothing(place: Place) -> None:
    def fail(work: Path) -> Outcome:
        (work / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(place, job(), fail)
    assert left(place) == []


def test_a_run_resumes_from_its_checkpoints_and_from_no_other_ones(place: Place) -> None:
    seen: list[list[str]] = []

    def build(work: Path) -> Outcome:
        seen.append(sorted(path.name for path in work.iterdir() if path.name[0] != "."))
        (work / "checkpoint").write_text("1")
        (work / "scratch").mkdir(exist_ok=True)
        if len(seen) in (1, 2):
            raise KeyboardInterrupt
        return Outcome({})

    jobs = [job(config={"dim": dim}, checkpoints=("checkpoint",), scratch=("scratch",)) for dim in (1, 2)]
    other = Place(place.folder.with_name("other"))
    for at, of in ((place, jobs[0]), (other, jobs[1])):
        with pytest.raises(KeyboardInterrupt):
            make(at, of, build)
    assert make(place, jobs[0], build).manifest.cost["attempts"] == 2
    assert make(other, jobs[1], build).manifest.cost["attempts"] == 2
    assert seen == [[], [], *[["checkpoint", "scratch"]] * 2]
    assert left(place) == ["other", "w2v"]
    assert sorted(contents(place.folder)) == ["checkpoint", "manifest.json"]


def test_stopped_attempts_are_part_of_the_cost(place: Place, tmp_path: Path) -> None:
    def build(work: Path) -> Outcome:
        end = time.process_time() + 0.15
        while time.process_time() < end:
            pass
        (work / "checkpoint").touch()
        if not (tmp_path / "seen").exists():
            (tmp_path / "seen").touch()
            raise KeyboardInterrupt
        return Outcome({})

    of = job(checkpoints=("checkpoint",))
    with pytest.raises(KeyboardInterrupt):
        make(place, of, build)
    cost = make(place, of, build).manifest.cost
    assert cost["attempts"] == 2
    assert cost["cpu_seconds"] >= 0.27  # the system counts in hundredths


_KILLED = """
import itertools, os, signal, sys
from pathlib import Path
from tests.store.test_results import make, job
from greenadapt.store.results import Place

def kill_at(number, root):
    written = 0
    def audit(event, arguments):
        nonlocal written
        writes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink")
        writes |= event == "open" and isinstance(arguments[1], str) and arguments[1][0] in "wxa"
        if writes and str(root) in str(arguments[0]):
            written += 1
            if written == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    make(Place(root / "results" / "w2v", root / "names" / "c" / "m" / "w2v"), job(card=lambda *_: "card"))

for number in itertools.count(1):
    child = os.fork()
    if not child:
        kill_at(number, Path(sys.argv[1], str(number)))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        break
    assert status == -signal.SIGKILL
"""


@pytest.mark.slow
def test_killed_at_every_write(tmp_path: Path) -> None:
    """At any moment there is no result, or a whole one; the same command again makes it."""
    subprocess.run([sys.executable, "-c", _KILLED, tmp_path], check=True)
    roots = [*tmp_path.iterdir()]
    for root in roots:
        place = Place(root / "results" / "w2v", root / "names" / "c" / "m" / "w2v")
        if place.folder.exists():
            verify_result(open_result(place.folder, "w2v"))
        make(place, job(card=lambda *_: "card"))
        assert {name for name in contents(place.folder) if name != ".lock"} == {
            *("README.md", "manifest.json", "sub/file.txt")
        }
        assert left(place) == ["w2v"]
        assert place.link is not None
        assert place.link.resolve() == place.folder
    assert len(roots) > 8


_SLOW = """
import sys, time
from pathlib import Path
from greenadapt.store.results import Outcome, Place
from tests.store.test_results import job, make

def build(work):
    (work / "file").write_text(sys.argv[3])
    time.sleep(float(sys.argv[2]))
    return Outcome({})

print(make(Place(Path(sys.argv[1])), job(command=f"greenadapt {sys.argv[3]}"), build).fresh)
"""


def test_of_two_writers_one_waits_says_for_whom_and_finds_the_result(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _SLOW, tmp_path / "w2v"]
    with subprocess.Popen([*arguments, "2", "first"], stdout=subprocess.PIPE, text=True) as first:
        work = Place(tmp_path / "w2v").work(job().key)
        while not (work / "file").exists():
            time.sleep(0.01)
        notes, build = Notes(), Builder()
        assert make(Place(tmp_path / "other"), job(config={"dim": 9}), build).fresh  # another key does not wait
        assert first.poll() is None
        result = run(Place(tmp_path / "w2v"), job(), build, notes)
        assert first.communicate()[0] == "True\n"
    [note] = notes.notes
    assert f"process {first.pid} on" in note
    assert "(greenadapt first) is writing" in note
    assert (result.fresh, build.runs) == (False, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "w2v"]


def test_an_input_that_grows_meanwhile_leaves_no_result(place: Place, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("one\n")

    def build(work: Path) -> Outcome:
        (work / "checkpoint").touch()
        with open(text, "a") as file:
            file.write("two\n")
        return Outcome({})

    of = job(inputs={"text": source_input(str(text))}, checkpoints=("checkpoint",))
    with pytest.raises(InputError, match=r"a\.txt changed while w2v read it: run the command again"):
        make(place, of, build)
    assert left(place) == []


def test_damage_is_found_by_size_or_checksum_and_named(place: Place) -> None:
    make(place, job())
    file = place.folder / "sub" / "file.txt"
    file.write_text("jello")
    with pytest.raises(InputError, match=r"file\.txt is damaged: its checksum differs"):
        verify_result(open_result(place.folder, "w2v"))
    file.write_text("hell")
    for refused in (lambda: make(place, job()), lambda: open_result(place.folder, "w2v")):
        with pytest.raises(InputError, match=r"file\.txt is damaged: it has 4 bytes instead of 5: remove this folder"):
            refused()
    file.unlink()
    with pytest.raises(InputError, match=r"lacks the file sub/file\.txt"):
        make(place, job())


def test_the_card_may_be_edited_or_removed(place: Place) -> None:
    make(place, job(card=lambda *_: "card"))
    (place.folder / "README.md").write_text("mine")
    assert not make(place, job(card=lambda *_: "card")).fresh
    (place.folder / "README.md").unlink()
    verify_result(open_result(place.folder, "w2v"))


def test_another_stage_or_version_is_not_opened(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    make(place, job())
    with pytest.raises(InputError, match="is a result of w2v, expected align"):
        open_result(place.folder, "align")
    monkeypatch.setattr(results, "VERSIONS", {"w2v": 2})
    with pytest.raises(InputError, match="is of version 1 of w2v, this greenadapt reads 2"):
        open_result(place.folder, "w2v")


def test_a_manifest_that_no_stage_wrote_is_refused(place: Place) -> None:
    make(place, job())
    file = place.folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 1}))
    with pytest.raises(InputError, match="format version 1"):
        read_manifest(place.folder)
    file.unlink()
    with pytest.raises(MissingError, match="holds no greenadapt result"):
        read_manifest(place.folder)


def test_a_moved_home_is_the_same(tmp_path: Path) -> None:
    """Inputs are found by their path relative to the result, and the name by its relative link."""
    home = tmp_path / "home"
    first = make(Place(home / "results" / "w2v", home / "names" / "w2v"), job())
    inputs = {"vectors": first.as_input()}
    make(Place(home / "results" / "align", home / "names" / "align"), job(stage="align", inputs=inputs))
    moved = Path(shutil.move(home, tmp_path / "moved"))
    aligned = open_result(moved / "names" / "align", "align")
    source = find_input(aligned.manifest.inputs["vectors"], aligned.folder)
    assert source == moved / "results" / "w2v"
    assert open_result(source, "w2v").manifest.digest == aligned.manifest.inputs["vectors"]["sha256"]
    build = Builder()
    assert not make(Place(moved / "results" / "w2v", moved / "names" / "w2v"), job(), build).fresh


def test_in_a_copy_of_home_the_inputs_are_those_of_the_copy(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = make(Place(home / "results" / "w2v"), job())
    make(Place(home / "results" / "align"), job(stage="align", inputs={"vectors": first.as_input()}))
    copy = Path(shutil.copytree(home, tmp_path / "copy"))
    aligned = open_result(copy / "results" / "align", "align")
    assert find_input(aligned.manifest.inputs["vectors"], aligned.folder) == copy / "results" / "w2v"


def test_what_others_put_in_place_of_a_name_stays(place: Place) -> None:
    assert place.link is not None
    place.link.parent.mkdir(parents=True)
    place.link.write_text("mine")
    before, notes = contents(place.link.parent), Notes()
    assert run(place, job(), Builder(), notes).path == place.folder
    assert "is no symlink" in notes.warnings[0]
    assert contents(place.link.parent) == before
    assert len([*place.link.parent.iterdir()]) == 1
