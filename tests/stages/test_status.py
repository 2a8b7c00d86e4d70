"""``status`` and ``clean``: what is there, what is damaged, and what goes."""

from pathlib import Path
from typing import Any

import pytest

from greenadapt.progress import Silent
from greenadapt.store.results import Job, Outcome, Place, Result, run
from greenadapt.store.workspace import Workspace
from tests.conftest import Run, json_lines, last_line


class Stages:
    """Results in HOME as stages write them, without their work."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace(folder / "ws")

    def make(self, stage: str, source: Result | None = None, content: str = "a", out: Path | None = None) -> Result:
        def build(work: Path) -> Outcome:
            (work / "file.txt").write_text(content)
            return Outcome({"words": 1}, {"corpus": "text-1", "model": {"name": "minilm", "source": "no/model"}})

        inputs = {"corpus": source.as_input()} if source else {}
        job = Job(stage, {"content": content}, inputs, command="greenadapt adapt")
        return run(Place(out) if out else self.workspace.place(job, "text-1", "minilm"), job, build, Silent())


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(tmp_path)


def rows(run_alone: Run, *arguments: object) -> list[dict[str, Any]]:
    return json_lines(run_alone(*arguments, "--json"))


def test_status_lists_results_and_finds_damage(run_alone: Run, stages: Stages) -> None:
    assert rows(run_alone, "status") == []
    assert "nothing in it yet" in run_alone("status").stdout
    w2v = stages.make("w2v", stages.make("corpus"))
    [first, second] = rows(run_alone, "status", "--verify")
    assert (first["stage"], second["stage"], second["state"]) == ("corpus", "w2v", "whole")
    assert second["folder"] == str(w2v.path)
    assert (second["corpus"], second["model"], second["command"]) == ("text-1", "minilm", "greenadapt adapt")
    assert second["bytes"] == sum(path.stat().st_size for path in w2v.folder.iterdir())
    (w2v.folder / "file.txt").write_text("b")
    assert [row["state"] for row in rows(run_alone, "status")] == ["whole", "whole"]
    [row] = rows(run_alone, "status", w2v.path, "--verify")
    assert row["state"] == "damaged"
    assert "file.txt is damaged: its checksum differs" in row["why"]
    assert "its checksum differs" in run_alone("status", "--verify").stdout.replace("\n", " ")
    (w2v.folder / "manifest.json").write_text("{")
    assert [row["state"] for row in rows(run_alone, "status", "-c", "text-1")] == ["whole", "damaged"]


def test_status_says_that_a_folder_or_a_corpus_does_not_exist(run_alone: Run, stages: Stages, tmp_path: Path) -> None:
    stages.make("corpus")
    (tmp_path / "empty").mkdir()
    assert "empty holds no greenadapt result" in last_line(run_alone("status", "empty", code=1))
    for command in ("status", "cost", "report"):
        assert "nothere does not exist" in last_line(run_alone(command, "nothere", code=1))
    assert "no results for nothere" in last_line(run_alone("status", "--corpus", "nothere", code=1))
    assert "status --corpus text-1" in last_line(run_alone("status", "text-1", code=1))


def test_status_and_clean_of_unfinished_and_older_results(run_alone: Run, stages: Stages, tmp_path: Path) -> None:
    stages.make("corpus", content="a")
    stages.make("corpus", content="b")

    def build(work: Path) -> Outcome:
        (work / "checkpoint").write_text("half")
        raise KeyboardInterrupt

    job = Job("w2v", {}, {}, checkpoints=("checkpoint",))
    for place in (stages.workspace.place(job), Place(tmp_path / "runs" / "mine")):
        with pytest.raises(KeyboardInterrupt):
            run(place, job, build, Silent())
    [unfinished] = rows(run_alone, "status", "runs")
    assert (unfinished["kind"], unfinished["name"], unfinished["writer"]) == ("unfinished", "mine", None)
    kinds = [row["kind"] for row in rows(run_alone, "status")]
    assert kinds == ["result", "unfinished", "unfinished", "unneeded", "unneeded"]
    assert "the same command resumes it" in run_alone("status").stdout.replace("\n", " ")
    assert "add --yes" in last_line(run_alone("clean", code=2))
    removed = rows(run_alone, "clean", "--yes")
    assert [(row["what"], row["action"]) for row in removed] == [("result", "removed"), ("unfinished", "removed")]
    assert len([*(stages.workspace.root / "results").iterdir()]) == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [Path(unfinished["folder"]).name]
    assert "nothing to remove" in run_alone("clean", "--yes").stdout


def test_trained_models_are_listed_with_their_corpus(run_alone: Run, stages: Stages, tmp_path: Path) -> None:
    stages.make("finetune", stages.make("expand"), out=tmp_path / "runs" / "ner")
    stages.make("finetune", out=tmp_path / "runs" / "qa")
    assert [row["folder"] for row in rows(run_alone, "status")[1:3]] == ["runs/ner", "runs/qa"]
    assert [row["stage"] for row in rows(run_alone, "status", "-c", "text-1")] == ["expand", "finetune"]
    assert "finetune ner" in run_alone("status", "-c", "text-1").stdout


def test_names_control_no_terminal(run_alone: Run, stages: Stages, tmp_path: Path) -> None:
    stages.make("w2v", out=tmp_path / "a\x1b[31mred")
    assert "\x1b" not in run_alone("status", tmp_path).stdout
