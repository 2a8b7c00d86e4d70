import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from greenadapt.corpus.pydocs import Package, find_packages
from greenadapt.errors import MissingError
from greenadapt.progress import Silent
from greenadapt.stages import demo as module
from greenadapt.stages.demo import MODELS, N_WORDS, TaskPlan, demo
from greenadapt.stages.session import Session
from greenadapt.storage.workspace import Workspace
from greenadapt.tasks.ner import NerTask
from tests.support.json_schema import check_json


@pytest.fixture(scope="module", autouse=True)
def installed_once() -> Iterator[None]:
    """What is installed is looked up once, not by every stage."""

    @cache
    def remembered(names: tuple[str, ...]) -> list[Package]:
        return find_packages(names)

    def found(names: Sequence[str] = ()) -> list[Package]:
        return remembered(tuple(names))

    with pytest.MonkeyPatch.context() as patch:
        for user in ("greenadapt.corpus.pydocs", "greenadapt.stages.demo"):
            patch.setattr(f"{user}.find_packages", found)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace and a recipe; what one test has made is up to date for the next."""
    path = tmp_path_factory.mktemp("demo")
    recipe = 'title = "two"\nlicence = "theirs"\nformat = "pydocs"\npackages = ["smart-open", "gensim"]\n'
    (path / "small.toml").write_text(recipe)
    return path


@pytest.mark.slow
def test_the_demo_on_two_packages(folder: Path) -> None:
    plan = TaskPlan(train=8, test=12, epochs=1, seeds=(0, 1))
    shown = demo(Session(Workspace(folder / "ws"), Silent()), str(folder / "small.toml"), plan)
    check_json(["demo", "--json"], json.dumps(shown.as_dict()))
    facts = json.loads(json.dumps(shown.as_dict()))
    assert facts["counts"]["words"] > 100
    assert 1 < facts["fertility"]["after"] < facts["fertility"]["before"] < 2
    assert len({row["word"] for row in facts["neighbours"]}) == N_WORDS
    stages = {"corpus", "w2v", "align", "expand"}
    assert set(facts["cost"]) == stages | {"identifiers", "finetune", "finetune-minilm"}
    assert 0 < facts["alignment"]["cosine"] < 1
    assert Path(facts["folder"], "model.safetensors").is_file()

    assert shown.task is not None
    sentences, ours, base = shown.task.stages
    examples = NerTask().read(str(sentences.folder / "test.tsv"), Silent())
    assert 0 < len(examples) == facts["task"]["sentences"]["test"]
    rows = facts["task"]["rows"]
    assert tuple(row["model"] for row in rows) == MODELS
    for row, result in zip(rows, (ours, base), strict=False):
        assert row["score"] == json.loads((result.folder / "scores.json").read_text())["mean"]["f1"]
    for row in rows[1:]:
        assert row["difference"] == pytest.approx(rows[0]["score"] - row["score"])
        assert row["low"] <= row["difference"] <= row["high"]


@pytest.mark.slow
def test_without_torch_the_demo_says_so_and_shows_the_rest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(Silent):
        def warn(self, message: str) -> None:
            warnings.append(message)

    def missing(what: str) -> None:
        raise MissingError(f"{what} needs torch, not installed", "install it")

    warnings: list[str] = []
    monkeypatch.setattr(module, "require_torch", missing)
    shown = demo(Session(Workspace(folder / "ws"), Told()), str(folder / "small.toml"))
    assert shown.task is None
    assert shown.as_dict()["task"] is None
    check_json(["demo", "--json"], json.dumps(shown.as_dict()))
    assert any("torch" in warning for warning in warnings)
    assert shown.neighbours
