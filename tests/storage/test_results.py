"""Another path is another input; other content behind the same path is an update, of finished models only by force."""

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from greenadapt.corpus.opening import source_input
from greenadapt.errors import ConflictError, InputError, MissingError, UsageError
from greenadapt.progress import Silent
from greenadapt.storage.files import hash_json
from greenadapt.storage.jobs import Job, Outcome, Place, check_place, plan_job, run_job
from greenadapt.storage.results import Result, open_result, read_manifest, result_behind, verified
from tests.conftest import Notes


class Counter:
    """A builder that writes one file and counts its runs."""

    def __init__(self, text: str = "hello") -> None:
        self.runs = 0
        self.text = text

    def __call__(self, work: Path) -> Outcome:
        self.runs += 1
        (work / "sub").mkdir(exist_ok=True)
        (work / "sub" / "file.txt").write_text(self.text)
        return Outcome({"words": 3})


def run(place: Place, build: Counter, *, config: dict = {"dim": 8}, source: str = "a", force: bool = False) -> Result:  # noqa: B006
    job = Job("w2v", config, {"corpus": {"sha256": hash_json(source), "path": "x"}}, build)
    return run_job(place, job, force=force, progress=Silent())


@pytest.fixture(params=["linked", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path / "ws" / "w2v", linked=request.param == "linked")


def test_a_result_says_what_it_is(place: Place) -> None:
    result = run(place, Counter())
    assert result.fresh
    assert (place.path / "sub" / "file.txt").read_text() == "hello"
    assert place.path.is_symlink() == place.linked
    manifest = verified(open_result(place.path, "w2v")).manifest
    assert manifest == result.manifest
    assert manifest.counts == {"words": 3}
    assert manifest.files["sub/file.txt"]["bytes"] == 5
    assert manifest.cost["seconds"] >= 0
    assert not run(place, Counter("not built")).fresh
    assert (place.path / "sub" / "file.txt").read_text() == "hello"


def test_changed_input_is_made_again_and_old_versions_go_once_nobody_reads_them(place: Place) -> None:
    build = Counter("first")
    reading = run(place, build).folder
    for source, text in (("b", "second"), ("c", "third")):
        build.text = text
        assert run(place, build, source=source).fresh
        assert (place.path / "sub" / "file.txt").read_text() == text
        if place.linked and text == "second":  # a reader that began before the swap goes on
            assert (reading / "sub" / "file.txt").read_text() == "first"
    texts = sorted(path.read_text() for path in place.path.parent.rglob("file.txt") if not path.is_symlink())
    assert [text for text in texts if text == "first"] == []


def test_links_give_a_reader_all_files_of_one_version(place: Place) -> None:
    def make(text: str) -> Path:
        def build(work: Path) -> Outcome:
            for name in ("words", "embedding"):
                (work / name).write_text(text)
            return Outcome({})

        return run_job(place, Job("w2v", {}, {}, build), force=True, progress=Silent()).folder

    reading = make("old")
    read = [(reading / "words").read_text()]
    make("new")
    read.append((reading / "embedding").read_text())
    # What the links of a workspace save: a folder that is swapped as a whole is a mixture to this reader.
    assert read == ["old", "old" if place.linked else "new"]


@pytest.mark.slow
@pytest.mark.long
def test_killed_attempts_are_part_of_the_cost(place: Place) -> None:
    def build(work: Path) -> Outcome:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        if not (place.work.with_name(place.work.name + ".seen")).exists():
            place.work.with_name(place.work.name + ".seen").touch()
            time.sleep(2.5)  # the cost is kept every other second
            raise KeyboardInterrupt
        return Outcome({})

    job = Job("w2v", {}, {}, build, checkpoints=("*",))
    with pytest.raises(KeyboardInterrupt):
        run_job(place, job, force=False, progress=Silent())
    cost = run_job(place, job, force=False, progress=Silent()).manifest.cost
    assert cost["attempts"] == 2
    assert cost["cpu_seconds"] >= 0.5  # the system counts in hundredths
    assert cost["seconds"] >= 2.3


def test_another_configuration_is_refused_with_the_difference(place: Place) -> None:
    run(place, Counter())
    with pytest.raises(ConflictError, match=r"dim: 8 → 9.*--force"):
        run(place, Counter(), config={"dim": 9})
    assert (place.path / "sub" / "file.txt").read_text() == "hello"
    assert run(place, Counter("new"), config={"dim": 9}, force=True).fresh
    assert (place.path / "sub" / "file.txt").read_text() == "new"


def test_a_failed_run_leaves_the_old_result_and_no_rubbish(place: Place) -> None:
    def fail(work: Path) -> Outcome:
        (work / "half").write_text("half")
        raise OSError(28, "No space left on device")

    run(place, Counter())
    with pytest.raises(OSError, match="No space left"):
        run_job(place, Job("w2v", {"dim": 9}, {}, fail), force=True, progress=Silent())
    assert open_result(place.path, "w2v").manifest.config == {"dim": 8}
    assert list(place.path.parent.rglob("half")) == []


def test_what_a_killed_run_left_is_kept_for_the_same_job_only(place: Place) -> None:
    seen: list[list[str]] = []
    notes = Notes()

    def build(work: Path) -> Outcome:
        seen.append(sorted(path.name for path in work.iterdir() if path.name != ".greenadapt"))
        (work / "checkpoint").write_text("1")
        if len(seen) in (1, 2):
            raise KeyboardInterrupt
        return Outcome({})

    for dim in (1, 1, 2, 2):
        job = Job("w2v", {"dim": dim}, {}, build, checkpoints=("checkpoint",))
        with suppress(KeyboardInterrupt):
            run_job(place, job, force=True, progress=notes)
    assert seen == [[], ["checkpoint"], [], []]
    assert [str(place.work) in note for note in notes.notes if "removes the unfinished work" in note] == [True]


def test_only_a_run_with_a_checkpoint_is_resumed(place: Place) -> None:
    planned: list[bool] = []

    def build(work: Path) -> Outcome:
        (work / ("text" if not planned else "checkpoint")).write_text("1")
        raise KeyboardInterrupt

    job = Job("w2v", {}, {}, build, checkpoints=("check*",))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_job(place, job, force=False, progress=Silent())
        planned.append(plan_job(place, job, force=False).resumes)
    assert planned == [False, True]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_complete_result_that_was_not_published_is_not_built_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, is_damaged: bool
) -> None:
    """A kill after the checkpoints are gone, and before the publication."""
    counter = Counter()

    def build(work: Path) -> Outcome:
        (work / "training").mkdir()
        (work / "training" / "epoch-1").write_text("1")
        return counter(work)

    job = Job("w2v", {"dim": 8}, {}, build, checkpoints=("training/epoch-*",), scratch=("training",))
    publish = "publish_version" if place.linked else "publish_folder"
    with monkeypatch.context() as patch:
        patch.setattr(f"greenadapt.storage.jobs.{publish}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_job(place, job, force=False, progress=Silent())
    assert plan_job(place, job, force=False).resumes
    if is_damaged:
        (place.work / "sub" / "file.txt").write_text("x")
    result = run_job(place, job, force=False, progress=Silent())
    assert result.fresh
    assert counter.runs == 1 + is_damaged
    assert (place.path / "sub" / "file.txt").read_text() == "hello"
    assert sorted(path.name for path in place.path.iterdir()) == ["manifest.json", "sub"]
    assert not run_job(place, job, force=False, progress=Silent()).fresh


def interrupt(*_: object) -> Path:
    raise KeyboardInterrupt


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damage_is_found_and_named(place: Place, damage: str) -> None:
    run(place, Counter())
    file = place.path / "sub" / "file.txt"
    {"flip": lambda: file.write_text("hellx"), "cut": lambda: file.write_text("h"), "gone": file.unlink}[damage]()
    with pytest.raises(InputError, match=r"file\.txt"):
        verified(open_result(place.path, "w2v"))


def test_other_stages_and_formats_are_refused_by_name(place: Place) -> None:
    run(place, Counter())
    with pytest.raises(InputError, match=r"w2v.*align"):
        open_result(place.path, "align")
    manifest = json.loads((place.path / "manifest.json").read_text())
    (place.path / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(InputError, match=r"version 99.*1"):
        read_manifest(place.path)
    for content, message in (
        ({}, "has no stage: run the stage again"),
        ({**manifest, "color": 1}, "has the unknown keys color"),
        ({**manifest, "config": []}, r"config is \[\], must be an object"),
    ):
        (place.path / "manifest.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=rf"manifest\.json:? {message}"):
            read_manifest(place.path)
    (place.path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json"):
        read_manifest(place.path)
    with pytest.raises(MissingError):
        read_manifest(place.path / "nowhere")


def test_a_mount_point_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, build = Place(tmp_path / "out", linked=False), Counter()
    run(place, build)
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == place.path)
    assert not run(place, build).fresh
    with pytest.raises(ConflictError, match=f"{place.path} is a mount point"):
        run(place, build, force=True)
    shutil.rmtree(place.path)
    place.path.mkdir()
    with pytest.raises(ConflictError, match="is a mount point"):
        run(place, build)
    with pytest.raises(ConflictError, match="is a mount point"):
        check_place(place, "w2v", {}, force=False)
    assert build.runs == 1


def test_a_workspace_may_be_copied_with_its_links_followed(tmp_path: Path) -> None:
    place = Place(tmp_path / "ws" / "w2v", linked=True)
    first = run(place, Counter("first"))
    place.path.unlink()
    shutil.copytree(first.folder, place.path)
    assert not run(place, Counter("first")).fresh
    assert run(place, Counter("second"), source="b").fresh
    assert place.path.is_symlink()
    assert (place.path / "sub" / "file.txt").read_text() == "second"
    assert run(place, Counter("third"), source="c").fresh
    place.path.unlink()
    place.path.mkdir()
    (place.path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConflictError, match="no greenadapt result"):
        run(place, Counter(), force=True)


def test_force_mends_a_broken_manifest(place: Place) -> None:
    run(place, Counter())
    (place.path / "manifest.json").write_text("{")
    assert place.current() is None
    if place.linked:
        assert run(place, Counter(), force=True).fresh
        assert open_result(place.path, "w2v").manifest.counts == {"words": 3}
    else:  # nothing says that the folder is ours
        with pytest.raises(ConflictError, match="no greenadapt result"):
            run(place, Counter(), force=True)


def test_publishing_one_stage_leaves_the_readers_of_another(tmp_path: Path) -> None:
    w2v, variant = Place(tmp_path / "w2v"), Place(tmp_path / "w2v@other")
    reading = run(w2v, Counter("first")).folder
    run(w2v, Counter("second"), source="b")
    run(variant, Counter("third"))
    assert (reading / "sub" / "file.txt").read_text() == "first"
    run(w2v, Counter("fourth"), source="c")
    assert not reading.exists()


def test_a_signal_while_a_finished_result_is_written_loses_nothing(place: Place) -> None:
    build = Counter()

    def card(work: Path, outcome: Outcome, cost: dict) -> str:
        signal.raise_signal(signal.SIGINT)
        return "card"

    job = Job("w2v", {}, {"corpus": {"sha256": "1", "path": "x"}}, build, checkpoints=("*",), card=card)
    with pytest.raises(KeyboardInterrupt):
        run_job(place, job, force=False, progress=Silent())
    assert not run_job(place, job, force=False, progress=Silent()).fresh
    assert build.runs == 1


@pytest.mark.parametrize(
    "broken",
    [
        *(
            {"files": {name: {"sha256": "0" * 64, "bytes": 6}}}
            for name in ("../../secret", "/etc/hostname", "a/../../b", "", "a\ud800", "a\0")  # not in the folder
        ),
        {"files": {"a": 5}},
        {"files": {"a": {"sha256": "0"}}},
        {"files": {"a": {"sha256": "0", "bytes": "5"}}},
        {"inputs": {"a": []}},
        {"inputs": {"a": {}}},
        {"inputs": {"a": {"sha256": "0", "relative": {}}}},
        {"cost": {"seconds": [1]}},
        {"inputs": {"a": {"sha256": "0", "sources": [1]}}},
        {"cost": {"seconds": 10**400}},
        {"cost": {"seconds": float("nan")}},
    ],
)
def test_entries_of_a_manifest_have_their_types(tmp_path: Path, broken: dict) -> None:
    place = Place(tmp_path / "w2v")
    run(place, Counter())
    manifest = json.loads((place.path / "manifest.json").read_text())
    (place.path / "manifest.json").write_text(json.dumps({**manifest, **broken}))
    with pytest.raises(InputError, match=r"manifest\.json.*run the stage again"):
        read_manifest(place.path)
    assert place.current() is None


def test_a_file_of_a_named_folder_that_was_changed_since_is_replaced_by_force_only(place: Place) -> None:
    run(place, Counter())
    (place.path / "sub" / "file.txt").write_text("trained on")
    if place.linked:
        assert run(place, Counter()).fresh  # a workspace mends itself
        return
    with pytest.raises(ConflictError, match=r"sub/file.txt was changed since .*--force"):
        run(place, Counter())
    assert (place.path / "sub" / "file.txt").read_text() == "trained on"
    assert run(place, Counter(), force=True).fresh
    (place.path / "sub" / "file.txt").unlink()
    assert run(place, Counter()).fresh


def job(**sources: Path | str) -> Job:
    def build(work: Path) -> Outcome:
        (work / "model").write_text("trained")
        return Outcome({})

    return Job("finetune", {"epochs": 1}, {name: source_input(str(path)) for name, path in sources.items()}, build)


def run_with_inputs(place: Place, job: Job, *, force: bool = False) -> Result:
    return run_job(place, job, force=force, progress=Notes())


@pytest.fixture
def run_place(tmp_path: Path) -> Place:
    for name in "ab":
        (tmp_path / f"{name}.tsv").write_text(name)
    return Place(tmp_path / "run", linked=False)


def test_another_path_is_another_input(run_place: Place, tmp_path: Path) -> None:
    a, b = tmp_path / "a.tsv", tmp_path / "b.tsv"
    manifest = run_with_inputs(run_place, job(train=a)).manifest
    with pytest.raises(ConflictError, match=rf"train: {a} → {b}.*--out"):
        run_with_inputs(run_place, job(train=b))
    with pytest.raises(ConflictError, match=rf"test: none → {b}"):
        run_with_inputs(run_place, job(train=a, test=b))
    with pytest.raises(ConflictError, match=rf"train: {a} → none, dev: none → {b}"):
        run_with_inputs(run_place, job(dev=b))
    with pytest.raises(ConflictError, match=rf"epochs: 1 → 2, train: {a} → {b}"):
        run_with_inputs(run_place, replace(job(train=b), config={"epochs": 2}))
    assert run_with_inputs(run_place, job(train=a)).manifest == manifest
    assert run_with_inputs(run_place, job(train=b), force=True).fresh


def test_every_source_of_a_corpus_is_protected(tmp_path: Path) -> None:
    sources = {str(tmp_path / name / "text.txt"): "1" for name in "ab"}
    inputs = {"text": {"sha256": "1", "sources": sources}}
    for name in "ab":
        place = Place(tmp_path / name, linked=False)
        with pytest.raises(UsageError, match=f"{name} holds .*{name}/text.txt, which is an input"):
            run_with_inputs(place, replace(job(), inputs=inputs))


def test_the_same_content_elsewhere_is_up_to_date(run_place: Place, tmp_path: Path) -> None:
    run_with_inputs(run_place, job(train=tmp_path / "a.tsv"))
    (tmp_path / "a.tsv").rename(tmp_path / "moved.tsv")
    assert not run_with_inputs(run_place, job(train=tmp_path / "moved.tsv")).fresh


def test_other_spellings_are_the_same_path(run_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "link.tsv").symlink_to("a.tsv")
    run_with_inputs(run_place, job(train=tmp_path / "a.tsv"))
    for number, spelling in enumerate(["a.tsv", "~/a.tsv", "here/a.tsv", "link.tsv", "./a.tsv"]):
        (tmp_path / "a.tsv").write_text(f"content {number}")
        assert run_with_inputs(run_place, job(train=spelling)).fresh
        assert not run_with_inputs(run_place, job(train=spelling)).fresh


@pytest.mark.parametrize("by_earlier_version", [False, True])
def test_a_checkout_that_was_moved(tmp_path: Path, by_earlier_version: bool) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "a.tsv").write_text("a")
    place = Place(old / "runs" / "a", linked=False)
    place.path.parent.mkdir()
    run_with_inputs(place, job(train=old / "a.tsv"))
    if by_earlier_version:
        manifest = json.loads((place.path / "manifest.json").read_text())
        del manifest["inputs"]["train"]["relative"]
        (place.path / "manifest.json").write_text(json.dumps(manifest))
    old.rename(new)
    place = Place(new / "runs" / "a", linked=False)
    assert not run_with_inputs(place, job(train=new / "a.tsv")).fresh
    (new / "a.tsv").write_text("changed")
    if by_earlier_version:  # which did not say where the file lay beside the result
        with pytest.raises(ConflictError, match=r"old/a.tsv → .*new/a.tsv"):
            run_with_inputs(place, job(train=new / "a.tsv"))
    else:
        assert run_with_inputs(place, job(train=new / "a.tsv")).fresh


def test_inputs_in_a_workspace_that_was_moved(tmp_path: Path) -> None:
    """Its results lie behind links, which lead elsewhere than their names say."""
    text = tmp_path / "a.tsv"
    text.write_text("a")
    folder = tmp_path / "ws" / "corpus"
    w2v = run_with_inputs(Place(folder / "w2v", linked=True), job(text=text))
    entry = {"sha256": w2v.manifest.digest, "path": str(folder / "w2v")}
    place = Place(folder / "align", linked=True)
    run_with_inputs(place, replace(job(text=text), stage="align", inputs={"vectors": entry}))
    (tmp_path / "ws").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / "corpus"
    stored = read_manifest(moved / "align").inputs["vectors"]
    assert result_behind(stored, moved / "align") == moved / "w2v"


def test_a_finished_model_is_only_trained_again_by_force(run_place: Place, tmp_path: Path) -> None:
    def finished() -> Job:
        return replace(job(train=tmp_path / "a.tsv", test=tmp_path / "b.tsv"), replaced_only_by_force=True)

    first = run_with_inputs(run_place, finished())
    (tmp_path / "b.tsv").write_text("corrected")
    with pytest.raises(ConflictError, match=r"test .*--force"):
        run_with_inputs(run_place, finished())
    with pytest.raises(ConflictError, match=r"test .*greenadapt evaluate"):
        run_with_inputs(run_place, replace(finished(), advice={"test": "greenadapt evaluate"}))
    assert json.loads((run_place.path / "manifest.json").read_text())["cost"] == first.manifest.cost
    assert run_with_inputs(run_place, finished(), force=True).fresh
    (run_place.path / "model").write_text("damaged")
    with pytest.raises(InputError, match=r"run/model .*--force"):
        run_with_inputs(run_place, finished())
    assert run_with_inputs(run_place, finished(), force=True).fresh


def test_results_that_a_workspace_finds_by_name_are_no_other_inputs(tmp_path: Path) -> None:
    inputs = []
    for name in ("w2v", "w2v@wide"):
        (tmp_path / name).mkdir()
        inputs.append({"vectors": {"sha256": name, "path": str(tmp_path / name)}})
    place = Place(tmp_path / "align@wide")
    first, second = (replace(job(), inputs=entries) for entries in inputs)
    run_with_inputs(place, first)
    assert run_with_inputs(place, second).fresh
    elsewhere = replace(job(), inputs={"vectors": {"sha256": "x", "path": os.devnull}})
    with pytest.raises(ConflictError, match=r"vectors: .*w2v@wide → /dev/null.*--variant"):
        run_with_inputs(place, elsewhere)
