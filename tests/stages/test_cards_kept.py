"""A card is meant to be edited: that neither makes a stage run again, nor does a stage that runs again overwrite it."""

from pathlib import Path

import pytest

from greenadapt.storage.jobs import Job, Outcome, Place, run_job
from greenadapt.storage.results import Result, open_result, verified
from tests.conftest import Notes


def build(work: Path) -> Outcome:
    (work / "model").write_text("trained")
    return Outcome({})


def run(place: Place, text: str, *, force: bool = False) -> tuple[Result, list[str]]:
    notes = Notes()
    job = Job("expand", {}, {}, build, card=lambda work, outcome, cost: text)
    return run_job(place, job, force=force, progress=notes), notes.lines


@pytest.fixture(params=["linked", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path / "expand", linked=request.param == "linked")


def test_an_edited_card_is_up_to_date(place: Place) -> None:
    digest = run(place, "generated")[0].manifest.digest
    card = place.path / "README.md"
    card.write_text("mine")
    again, notes = run(place, "generated")
    assert (again.fresh, notes, card.read_text()) == (False, [], "mine")
    assert verified(open_result(place.path, "expand")).manifest.digest == digest
    card.unlink()
    assert not run(place, "generated")[0].fresh


def test_an_edited_card_stays_when_the_stage_runs_again(place: Place) -> None:
    first = run(place, "generated")[0]
    card, new = place.path / "README.md", place.path / "README.new.md"
    card.write_text("mine")
    for text in ("second", "third"):
        second, notes = run(place, text, force=True)
        assert second.fresh
        assert notes == [f"{card} was edited and is kept; the new card is README.new.md beside it"]
        assert (card.read_text(), new.read_text()) == ("mine", text)
        assert second.manifest.digest == first.manifest.digest
        assert not run(place, text)[0].fresh
    new.replace(card)  # taken over: it is greenadapt's again
    assert run(place, "fourth", force=True)[1] == []
    assert card.read_text() == "fourth"
    assert not new.exists()


def test_a_card_that_nobody_edited_is_replaced(place: Place) -> None:
    run(place, "generated")
    assert run(place, "second", force=True)[1] == []
    assert [path.read_text() for path in place.path.glob("README*")] == ["second"]


def test_a_card_that_the_stage_does_not_write_stays(place: Place) -> None:
    job = Job("w2v", {}, {}, build)
    run_job(place, job, force=False, progress=Notes())
    (place.path / "README.md").write_text("mine")
    for _ in range(2):
        run_job(place, job, force=True, progress=Notes())
        assert [path.read_text() for path in place.path.glob("README*")] == ["mine"]
