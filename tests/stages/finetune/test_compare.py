"""Models fine-tuned alike: the difference is that of their scores, and what is done is not done again."""

import json
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.checkpoints.layout import PREDICTIONS, SCORES, SEEDS, read_described
from greenadapt.checkpoints.provenance import model_input
from greenadapt.checkpoints.source import find_model
from greenadapt.config import AssessConfig, TaskConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.progress import Progress
from greenadapt.report.tables import assessment
from greenadapt.stages.finetune.compare import compare, finetune
from greenadapt.stages.finetune.cross_validation import cross_validate
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import run_together
from greenadapt.stages.session import EXPAND
from greenadapt.store.files import Json, write_json
from greenadapt.store.results import MANIFEST, Manifest
from greenadapt.tasks.base import Fold
from greenadapt.tasks.metrics import paired_bootstrap
from greenadapt.tasks.ner import NerTask
from tests.conftest import Notes, Run
from tests.support.small_tasks import (
    TRAIN,
    Signalling,
    TinyModel,
    adapted,
    facts_file,
    lines,
    ner_file,
    ner_request,
    session,
    tags_of,
    trained,
)

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = replace(TRAIN, epochs=2)


@pytest.mark.slow
def test_three_models(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    base, reference = str(ours.parent / "base"), str(tiny_model(name="reference", initializer_range=0.05))
    request = ner_request(tmp_path, ours, seeds=(0, 1))
    compared = compare(session(tmp_path), request, [base, reference])
    first, second, third = compared.rows
    assert [result.fresh for result in compared.results] == [True] * 3
    assert len({result.path for result in compared.results}) == 3
    scores = [read_described(result.folder / SCORES) for result in compared.results]
    for row, score, result in zip(compared.rows, scores, compared.results, strict=True):
        assert [row["score"], row["std"]] == pytest.approx([score["mean"]["f1"], score["std"]["f1"]])
        assert row["folder"] == str(result.path)
    assert len({row["score"] for row in compared.rows}) == 3
    for row, score in zip((second, third), scores[1:], strict=True):
        assert row["difference"] == pytest.approx(scores[0]["mean"]["f1"] - score["mean"]["f1"])
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["low"] < row["high"]
        assert 0 <= row["share_positive"] <= 1
    gap = third["score"] - second["score"]
    assert first["gap_covered"] == (pytest.approx((first["score"] - second["score"]) / gap) if gap > 0 else None)
    configs = [result.manifest.config for result in compared.results]
    assert configs[0] == configs[1] == configs[2]
    again = compare(session(tmp_path), request, [base, reference])
    assert [result.fresh for result in again.results] == [False] * 3
    assert again.rows == compared.rows


def test_what_is_refused_before_anything_is_trained(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model()
    with pytest.raises(UsageError, match="nothing to compare on"):
        compare(session(tmp_path), ner_request(tmp_path, model, test=None), [str(model)])
    with pytest.raises(MissingError, match="no model folder"):
        compare(session(tmp_path), ner_request(tmp_path, model), [str(model), str(tmp_path / "no model")])
    assert not (tmp_path / "run").exists()


@pytest.fixture
def ours(tiny_model: TinyModel) -> Path:
    """An adapted model that knows its base."""
    model = adapted(tiny_model)
    facts_file(model)
    return model


def _request(model: Path, train: Path, **changes: Any) -> FinetuneRequest:
    fields = {"model": str(model), "train": (str(train),), "task": TaskConfig(max_length=64), "training": QUICK}
    return FinetuneRequest.of_one(**{**fields, **changes})


def _validate(
    tmp_path: Path, request: FinetuneRequest, base: str | None = None, folds: int = 2, progress: Progress | None = None
) -> Json:
    """Cross-validate; the models are in ``ws/results``."""
    in_home = replace(session(tmp_path), out=None, progress=progress or Notes())
    return cross_validate(in_home, request, base, AssessConfig(folds=folds))


def _conll(path: Path, rows: list[list[str]]) -> Path:
    path.write_text(
        "\n".join("".join(f"{w}\t{t}\n" for w, t in zip(words, tags_of(words), strict=True)) for words in rows)
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("views", [("mean", "base", "expanded"), ("base",)])
def test_the_scores_are_those_of_models_trained_on_files_of_each_fold(
    ours: Path, tmp_path: Path, views: tuple[Any, ...]
) -> None:
    train, learning = ner_file(tmp_path / "train.tsv"), replace(TRAIN, batch_size=4)
    if views == ("base",):
        learning = replace(learning, mix="base", pool="base", word_vectors=True)
    request = _request(ours, train, seeds=(0,), training=learning)
    result = _validate(tmp_path, request)
    assert (result["examples"], result["folds"], result["seeds"], result["main"]) == (40, 2, 1, "f1")
    assert result["base"] == str(ours.parent / "base")
    statistics: dict[str, list[Any]] = {"base": [], "adapted": []}
    for number in range(2):
        parts = Fold(number, 2).split(NerTask().read(str(train), Notes()))
        inner, out = (
            _conll(tmp_path / f"{name}{number}.tsv", [list(sentence.words) for sentence in part])
            for name, part in zip("ab", parts, strict=True)
        )
        for model, folds in statistics.items():
            training = replace(learning, word_vectors=learning.word_vectors and model == "adapted")
            fold_request = _request(ours.parent / model, inner, test=str(out), seeds=(0,), training=training)
            tuned = finetune(session(tmp_path, f"{model}{number}"), fold_request)
            predictions = lines(tuned.folder / SEEDS / "0" / PREDICTIONS)
            folds.append(NerTask().statistics(NerTask().read(str(out), Notes()), predictions)[None])
    base, decisive = (np.concatenate(folds, axis=1) for folds in statistics.values())
    expected = paired_bootstrap(decisive, base, NerTask().main_score)
    rows = {row["read_by"]: row for row in result["rows"]}
    assert tuple(rows) == ("base model", *views)
    assert rows["base model"]["score"] == pytest.approx(expected.theirs)
    figures = [rows[views[0]][name] for name in ("score", "low", "high")]
    assert figures == pytest.approx([expected.ours, expected.low, expected.high])
    assert len({row["score"] for row in rows.values()}) > len(views) / 2
    begin = {"helps": "Adaptation helps", "unclear": "No clear difference", "hurts": "Adaptation hurts"}
    assert assessment(result)[0].startswith(begin[result["verdict"]])


@pytest.mark.parametrize(("most", "is_capped"), [(None, False), (19, True), (20, False)])
def test_fewer_steps_than_the_epochs_have_allow_no_verdict(tmp_path: Path, most: int | None, is_capped: bool) -> None:
    training = replace(TRAIN, mix="base", epochs=5, batch_size=10, max_steps=most)
    assert _request(tmp_path, tmp_path, training=training).is_capped(40) == is_capped


@pytest.mark.slow
def test_finished_folds_are_kept(ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = _request(ours, ner_file(tmp_path / "train.tsv"))
    trained: list[Any] = []

    def stop(session: Any, *rest: Any) -> Any:
        trained.append(session)
        progress = Signalling(signal.SIGINT, 3) if len(trained) == 3 else Notes()
        return run_together(replace(session, progress=progress), *rest)

    with monkeypatch.context() as patch:
        patch.setattr("greenadapt.stages.finetune.cross_validation.run_together", stop)
        with pytest.raises(KeyboardInterrupt):
            _validate(tmp_path, request)
    results = {file: file.stat().st_mtime_ns for file in (tmp_path / "ws" / "results").glob("*/manifest.json")}
    assert len(results) == 2
    resumed = Notes()
    _validate(tmp_path, request, progress=resumed)
    assert any("fold 2 of 2, base model: seed 0: resuming from step 3" in note for note in resumed.notes)
    assert {file: file.stat().st_mtime_ns for file in results} == results
    assert len([*(tmp_path / "ws" / "results").iterdir()]) == 4


def test_what_is_refused_before_any_training(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours, train = adapted(tiny_model), ner_file(tmp_path / "train.tsv", 4)
    with pytest.raises(UsageError, match="no added words"):
        _validate(tmp_path, _request(ours.parent / "base", train))
    with pytest.raises(UsageError, match="--base"):
        _validate(tmp_path, _request(ours, train))
    (ours / "task.json").write_text("{}")
    with pytest.raises(UsageError, match="adapted is fine-tuned already: give the adapted model that it was made from"):
        _validate(tmp_path, _request(ours, train))
    (ours / "task.json").unlink()
    facts_file(ours)
    with pytest.raises(UsageError, match="--folds is 5, but there are only 4 examples"):
        _validate(tmp_path, _request(ours, train), folds=5)
    base = ours.parent / "base"
    manifest = Manifest(EXPAND, "key", {}, {"model": model_input(find_model(str(base)))})
    write_json(ours / MANIFEST, asdict(manifest))
    trained(base)
    with pytest.raises(InputError, match=f"{base} changed .*--base"):
        _validate(tmp_path, _request(ours, train), folds=5)
    with pytest.raises(UsageError, match="only 4 examples"):
        _validate(tmp_path, _request(ours, train), str(base), folds=5)
    assert not (tmp_path / "ws" / "results").exists()


@pytest.mark.slow
def test_the_command(run_alone: Run, ours: Path, tmp_path: Path) -> None:
    train = ner_file(tmp_path / "train.tsv", 16)
    command = ("assess", "-m", ours, "--task", "ner", "--train", train, "--folds", 2, "--max-steps", 2, "--lr", 7e-3)
    result = json.loads(run_alone(*command, "--json").stdout)
    assert result["verdict"] is None
    assert "No verdict, since --max-steps ended the trainings early" in run_alone(*command).stdout
    assert "--train" in run_alone("assess", "-m", ours, "--epochs", 3, code=2).stderr
    assert "--words" in run_alone(*command, "--words", 3, code=2).stderr
    assert "--task" in run_alone("assess", "-m", ours, "--train", train, code=2).stderr
