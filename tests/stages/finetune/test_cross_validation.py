"""Whether adaptation helps, by cross-validation: the same as fine-tuning by hand on the files of each fold."""

import json
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.checkpoints.layout import PREDICTIONS, SEEDS
from greenadapt.checkpoints.provenance import model_input
from greenadapt.checkpoints.source import find_model
from greenadapt.config import AssessConfig, RunConfig, TaskConfig
from greenadapt.errors import ConflictError, InputError, UsageError
from greenadapt.stages.finetune.compare import cross_validate
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import finetune
from greenadapt.stages.session import EXPAND, Session
from greenadapt.storage.files import write_json
from greenadapt.storage.results import MANIFEST, Manifest
from greenadapt.tasks.base import Fold
from greenadapt.tasks.metrics import paired
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
    qa_file,
    sentences,
    session,
    tags_of,
    texts_file,
    trained,
)

QUICK = replace(TRAIN, epochs=2)
TWO = AssessConfig(folds=2)
pytestmark = pytest.mark.usefixtures("one_thread")


def _request(model: Path, train: Path, **changes: Any) -> FinetuneRequest:
    made = {"model": str(model), "train": (str(train),), "task": TaskConfig(max_length=64), "training": QUICK}
    return FinetuneRequest.of_one(**{**made, **changes})


def _conll(path: Path, rows: list[list[str]]) -> Path:
    path.write_text(
        "\n".join("".join(f"{w}\t{t}\n" for w, t in zip(words, tags_of(words), strict=True)) for words in rows)
    )
    return path


@pytest.mark.slow
def test_the_scores_are_those_of_models_trained_on_files_of_each_fold(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    facts_file(ours)
    train, learning = ner_file(tmp_path / "train.tsv"), replace(TRAIN, epochs=5, batch_size=4)
    request = _request(ours, train, seeds=(0,), training=learning)
    found = cross_validate(session(tmp_path, "work"), request, None, TWO)
    assert (found["examples"], found["folds"], found["seeds"], found["main"]) == (40, 2, 1, "f1")
    assert found["base"] == str(ours.parent / "base")
    statistics: dict[str, list[Any]] = {"base": [], "adapted": []}
    for number in range(2):
        parts = Fold(number, 2).split(sentences(40, 0))
        kept, out = (_conll(tmp_path / f"{name}{number}.tsv", part) for name, part in zip("ab", parts, strict=True))
        for model, each in statistics.items():
            own = _request(ours.parent / model, kept, test=str(out), seeds=(0,), training=learning)
            result = finetune(session(tmp_path, f"{model}{number}"), own)
            task = NerTask()
            predictions = [lines(result.folder / SEEDS / str(seed) / PREDICTIONS) for seed in (0,)]
            each.append(np.stack([task.statistics(task.read(str(out), Notes()), one) for one in predictions]))
    base, mean = (np.concatenate(each, axis=1) for each in statistics.values())
    expected = paired(mean, base, NerTask().main_score)
    rows = {row["read_by"]: row for row in found["rows"]}
    assert list(rows) == ["base model", "mean", "base", "expanded"]
    assert rows["base model"]["score"] == pytest.approx(expected.theirs)
    assert rows["mean"]["score"] == pytest.approx(expected.ours)
    assert rows["mean"]["low"] == pytest.approx(expected.low)
    assert rows["mean"]["high"] == pytest.approx(expected.high)
    assert len({row["score"] for row in rows.values()}) > 2
    assert all(row["training"] > 0 and row["predicting"] > 0 for row in rows.values())


@pytest.mark.slow
def test_finished_folds_are_kept(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = adapted(tiny_model)
    facts_file(ours)
    request = _request(ours, ner_file(tmp_path / "train.tsv"), run=RunConfig(checkpoint_steps=1))
    trained: list[Any] = []

    def stop(given: Session, request: FinetuneRequest) -> Any:
        trained.append(request)
        progress = Signalling(signal.SIGINT, 3) if len(trained) == 3 else Notes()
        return finetune(replace(given, progress=progress), request)

    with monkeypatch.context() as patch:
        patch.setattr("greenadapt.stages.finetune.compare.finetune", stop)
        with pytest.raises(KeyboardInterrupt):
            cross_validate(session(tmp_path, "work"), request, None, TWO)
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "work").glob("*.safetensors")}
    assert len(kept) == 2
    resumed = session(tmp_path, "work")
    found = cross_validate(resumed, request, None, TWO)
    assert isinstance(resumed.progress, Notes)
    assert any("fold 2 of 2, base model: seed 0: going on from step 3" in note for note in resumed.progress.notes)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    assert cross_validate(session(tmp_path, "work"), request, None, TWO) == found  # seconds included
    assert len([*(tmp_path / "work").glob("*.safetensors")]) == 4
    assert not [*(tmp_path / "work" / "running").iterdir()]
    other = replace(request, training=replace(QUICK, learning_rate=1e-4))
    assert cross_validate(session(tmp_path, "work"), other, None, TWO)["rows"] != found["rows"]


@pytest.mark.slow
def test_a_fold_that_cannot_be_read_is_computed_again(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    facts_file(ours)
    request, out = _request(ours, ner_file(tmp_path / "train.tsv", 8)), tmp_path / "work"
    found = cross_validate(session(tmp_path, "work"), request, None, TWO)
    first, second, third, _ = kept = sorted(out.glob("*.safetensors"))
    content = {file: file.read_bytes() for file in kept}
    first.write_bytes(content[first][:-8])
    second.write_bytes(content[second].replace(b"seconds", b"moments"))
    left = out / "running" / third.stem  # as if killed after the fold was written
    left.mkdir()
    again = session(tmp_path, "work")
    rows = cross_validate(again, request, None, TWO)["rows"]
    assert isinstance(again.progress, Notes)
    assert [any(str(file) in line for line in again.progress.warnings) for file in kept] == [True, True, False, False]
    assert [row["score"] for row in rows] == [row["score"] for row in found["rows"]]
    assert not left.exists()
    assert cross_validate(session(tmp_path, "work"), request, None, TWO)["rows"] == rows


@pytest.mark.slow
def test_a_fold_that_another_process_computes(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    facts_file(ours)
    request = _request(ours, ner_file(tmp_path / "train.tsv", 8))
    cross_validate(session(tmp_path, "work"), request, None, TWO)
    file, *_ = (tmp_path / "work").glob("*.safetensors")
    code = f"""
from pathlib import Path
from greenadapt.storage.locks import lock
from greenadapt.storage.publish import beside
with lock(beside(Path({str(file)!r}), "lock")):
    print("held", flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConflictError, match=file.name):
            cross_validate(session(tmp_path, "work"), request, None, TWO)
        other.communicate("\n")


@pytest.mark.slow
@pytest.mark.long
def test_seconds_of_training_do_not_include_imports(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    facts_file(ours)
    train = ner_file(tmp_path / "train.tsv", 8)
    code = f"""
import sys
from pathlib import Path
from greenadapt.config import AssessConfig, TaskConfig
from greenadapt.progress import Silent
from greenadapt.stages.finetune import cross_validation
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.session import Session
from greenadapt.storage.workspace import Workspace

def finetune(*_):
    slow = {{"torch", "transformers.modeling_utils", "greenadapt.training.finetune.run"}}
    sys.exit(", ".join(slow - set(sys.modules)) or 0)

cross_validation.finetune = finetune
request = FinetuneRequest.of_one({str(ours)!r}, ({str(train)!r},), task=TaskConfig())
cross_validation.cross_validate(Session(Workspace(Path("ws")), Silent()), request, None, AssessConfig(folds=2))
sys.exit("nothing was trained")
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_a_model_with_itself_is_unclear(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    request = _request(ours, texts_file(tmp_path / "train.jsonl"), task=TaskConfig("classification", max_length=64))
    found = cross_validate(session(tmp_path, "work"), request, str(ours), TWO)
    assert [found["rows"][1][name] for name in ("difference", "low", "high")] == [0, 0, 0]
    assert found["verdict"] == "unclear"
    assert found["resampled"] == "examples"


@pytest.mark.slow
def test_questions_are_resampled_by_context(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    request = _request(ours, qa_file(tmp_path / "qa.json", 24), task=TaskConfig("qa", max_length=64))
    found = cross_validate(session(tmp_path, "work"), request, str(ours.parent / "base"), TWO)
    assert found["resampled"] == "contexts"
    assert found["examples"] == 24


def test_what_is_refused_before_any_training(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours, train = adapted(tiny_model), ner_file(tmp_path / "train.tsv", 4)
    here = session(tmp_path, "work")
    with pytest.raises(UsageError, match="no added words"):
        cross_validate(here, _request(ours.parent / "base", train), None, TWO)
    with pytest.raises(UsageError, match="--base"):
        cross_validate(here, _request(ours, train), None, TWO)
    facts_file(ours)
    with pytest.raises(UsageError, match="--folds is 5, but there are only 4 examples"):
        cross_validate(here, _request(ours, train), None, AssessConfig(folds=5))
    (tmp_path / "bad.tsv").write_text("one\n")
    with pytest.raises(InputError, match=r"bad\.tsv"):
        cross_validate(here, _request(ours, tmp_path / "bad.tsv"), None, TWO)
    assert not (tmp_path / "work").exists()


def test_a_base_model_that_changed(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    facts_file(ours)
    base = ours.parent / "base"
    made = Manifest(EXPAND, {}, {"model": model_input(find_model(str(base)))})
    write_json(ours / MANIFEST, asdict(made))
    here, request = session(tmp_path, "work"), _request(ours, ner_file(tmp_path / "train.tsv", 4))
    passed = pytest.raises(UsageError, match="only 4 examples")  # what is refused next
    with passed:
        cross_validate(here, request, None, AssessConfig(folds=5))
    trained(base)
    with pytest.raises(InputError, match=f"{base} changed .*--base"):
        cross_validate(here, request, None, AssessConfig(folds=5))
    with passed:
        cross_validate(here, request, str(base), AssessConfig(folds=5))


@pytest.mark.parametrize("name", [MANIFEST, "model.safetensors", "notes.txt"])
def test_a_folder_with_other_files_is_refused(tiny_model: TinyModel, tmp_path: Path, name: str) -> None:
    ours = adapted(tiny_model)
    facts_file(ours)
    request, out = _request(ours, ner_file(tmp_path / "train.tsv", 4)), tmp_path / "work"
    out.mkdir()
    (out / name).write_text("{}")
    with pytest.raises(ConflictError, match=f"{out} .*{name}"):
        cross_validate(session(tmp_path, "work"), request, None, TWO)
    with pytest.raises(ConflictError, match=f"{out / name} "):
        cross_validate(session(out, name), request, None, TWO)
    assert [path.name for path in out.iterdir()] == [name]


@pytest.mark.slow
def test_the_command(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    facts_file(ours)
    train = ner_file(tmp_path / "train.tsv", 16)
    command = ("assess", "-m", ours, "--task", "ner", "--train", train, "--folds", 2, "--max-steps", 2, "--lr", 7e-3)
    found = json.loads(run_alone(*command, "--json").stdout)
    shown = run_alone(*command).stdout
    [row] = [line for line in shown.splitlines() if "both tokenizers" in line]
    assert f"{100 * found['rows'][1]['score']:.2f}" in row
    assert {"helps": "helps", "unclear": "No clear", "hurts": "hurts"}[found["verdict"]] in shown
    assert "--train" in run_alone("assess", "-m", ours, "--epochs", 3, code=2).stderr
    assert "--words" in run_alone(*command, "--words", 3, code=2).stderr
    assert "--task" in run_alone("assess", "-m", ours, "--train", train, code=2).stderr
