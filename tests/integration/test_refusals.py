"""Broken and incomplete folders are refused in one line that names the file, before any work begins."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.stages.finetune.compare import finetune
from greenadapt.store.arrays import ArrayFile
from tests.conftest import Run, last_line, tiny_model_in
from tests.support.small_tasks import TRAIN, VOCABULARY, adapted, facts_file, ner_request, session, set_config

WORDS = "words.safetensors"
EMBEDDING = "bert.embeddings.word_embeddings.weight"
ADAPT = ("--dim", 8, "--epochs", 1, "--min-count", 2, "--workers", 1)
NER = ("--task", "ner", "--max-length", 64)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``base``, ``adapted``, ``run`` (trained under two seeds on that), a corpus, files to predict and train on; and
    ``made``, adapted by the command."""
    folder = tmp_path_factory.mktemp("made")
    model = adapted(partial(tiny_model_in, folder), architecture="BertForMaskedLM")
    facts = {**facts_file(model), "rows": 4}
    (model / "greenadapt.json").write_text(json.dumps(facts))
    finetune(session(folder), ner_request(folder, model, seeds=(0, 1), training=replace(TRAIN, epochs=1)))
    words = np.random.default_rng(0).choice(VOCABULARY, (300, 8))
    (folder / "corpus.txt").write_text("\n".join(map(" ".join, words)))
    (folder / "in.txt").write_text("the virus with tachycardia\n")
    (folder / "full").mkdir()
    (folder / "full" / "note.txt").write_text("mine")
    files = ["--corpus", folder / "corpus.txt", "--model", folder / "base", "--workspace", folder / "other"]
    made = CliRunner().invoke(app, list(map(str, ["adapt", *files, *ADAPT, "-o", folder / "made"])))
    assert made.exit_code == 0, made.stderr
    return folder


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> Path:
    """A copy of ``made`` that a test may break, where ``run_alone`` runs."""
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    return tmp_path


def change(model: Path, name: str, position: tuple[int, ...], value: float, file: str = "model.safetensors") -> None:
    weights = load_file(model / file)
    weights[name][position] = value
    save_file(weights, model / file, {**ArrayFile(model / file).metadata, "format": "pt"})


PREDICT = ("predict", "-m", "run", "-i", "in.txt")
FINETUNE = ("finetune", "--model", "adapted", *NER, "--train", "train.tsv", "-o", "out")


def test_a_file_that_the_manifest_lists_is_missed(folder: Path, run_alone: Run) -> None:
    name = "base_tokenizer/tokenizer_config.json"
    (folder / "run" / name).unlink()
    line = last_line(run_alone(*PREDICT, code=1))
    assert f"run is not complete: it has no {name}, but manifest.json lists it: copy the whole folder" in line


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("finetune", "--model", "made", *NER, "--train", "train.tsv", "-o", "out"), WORDS),
        (("index", "--documents", "corpus.txt", "-m", "made", "-o", "out"), "tokenizer.json"),
        (("push", "made", "a/b"), "model.safetensors"),
        (PREDICT, "task.json"),
    ],
)
def test_a_part_of_another_model_is_refused(folder: Path, run_alone: Run, command: tuple[Any, ...], name: str) -> None:
    model = folder / ("run" if "run" in command else "made")
    content = (model / name).read_bytes()
    other = content + b" " if name.endswith(".json") else content[:-1] + bytes([content[-1] ^ 1])
    (model / name).write_bytes(other)
    assert f"{name} is not the file of this model: its SHA-256 is " in last_line(run_alone(*command, code=1))


def test_labels_that_are_not_those_of_the_head_are_refused(folder: Path, run_alone: Run) -> None:
    (folder / "run" / "manifest.json").unlink()
    file = folder / "run" / "task.json"
    task = json.loads(file.read_text())
    file.write_text(json.dumps({**task, "labels": task["labels"][:-1]}))
    line = last_line(run_alone(*PREDICT, code=1))
    assert "task.json has 4 labels (O, " in line
    assert "the head in config.json has 5 (O, B-Disease" in line


@pytest.mark.parametrize("name", ["config.json", "manifest.json"])
def test_broken_json_is_named(folder: Path, run_alone: Run, name: str) -> None:
    for broken in ("[]", "", '{"model'):
        (folder / "run" / name).write_text(broken)
        assert name in last_line(run_alone(*PREDICT, code=1))


@pytest.mark.parametrize(("model", "gone"), [("adapted", ()), ("run", ("manifest.json",))])
def test_added_words_are_missed(folder: Path, run_alone: Run, model: str, gone: tuple[str, ...]) -> None:
    """``greenadapt.json`` and ``task.json`` say that there are some, and so does a base tokenizer."""
    for name in (WORDS, *gone):
        (folder / model / name).unlink(missing_ok=True)
    if "manifest.json" in gone:
        shutil.rmtree(folder / model / "base_tokenizer")
    line = last_line(run_alone(*(PREDICT if model == "run" else FINETUNE), code=1))
    assert f"{model} is not complete: it has no {WORDS}, but" in line
    assert "4 words were added" in line or "it has base_tokenizer" in line
    assert not (folder / "out").exists()


def test_words_of_another_model_are_refused(folder: Path, run_alone: Run) -> None:
    """Without a manifest, whose checksums name them, their number tells."""
    shutil.copyfile(folder / "base" / "model.safetensors", folder / "adapted" / "model.safetensors")
    shutil.copyfile(folder / "base" / "config.json", folder / "adapted" / "config.json")
    line = last_line(run_alone("pretrain", "--model", "adapted", "--text", "corpus.txt", "-o", "out", code=1))
    assert "words.safetensors has words for 167 rows of the embedding, which has 163" in line


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("adapt", "--model", "cut"), "model.safetensors is truncated"),
        (("adapt", "--model", "wide"), r"config.json: hidden_size is 48, but .* has 32"),
        (("adapt", "--model", "nan"), f"1 of the 5,216 numbers of {EMBEDDING} are NaN or infinity"),
        (("adapt", "--model", "base", "-o", "full"), "full exists and holds no result"),
        (("adapt", "--model", "base", "--restrict-to", "none.txt"), "no file none.txt"),
    ],
)
def test_nothing_is_made_before_a_refusal(folder: Path, run_alone: Run, command: tuple[str, ...], message: str) -> None:
    for name in ("cut", "wide", "nan"):
        shutil.copytree(folder / "base", folder / name)
    (folder / "cut" / "model.safetensors").write_bytes((folder / "base" / "model.safetensors").read_bytes()[:9000])
    set_config(folder / "wide", hidden_size=48)
    change(folder / "nan", EMBEDDING, (7, 3), np.nan)
    line = run_alone(command[0], "--corpus", "corpus.txt", *command[1:], *ADAPT, code=1)
    assert re.search(message, last_line(line))
    assert [*(folder / "ws").rglob("manifest.json")] == []


NORM = "bert.encoder.layer.1.output.LayerNorm.bias"


@pytest.mark.parametrize(
    ("command", "file", "name"),
    [
        (PREDICT, "model.safetensors", EMBEDDING),
        ((*PREDICT, "--seed", 1), "seeds/1/model.safetensors", NORM),
    ],
)
def test_a_weight_that_is_no_number_is_refused_at_opening(
    folder: Path, run_alone: Run, command: tuple[Any, ...], file: str, name: str
) -> None:
    (folder / "run" / "manifest.json").unlink()  # without the checksums of the files
    rank = load_file(folder / "run" / file)[name].ndim
    change(folder / "run", name, (0,) * rank, -np.inf if file.startswith("seeds") else np.nan, file)
    result = run_alone(*command, code=1)
    assert re.search(rf"1 of the [\d,]+ numbers of {re.escape(name)} are NaN or infinity", result.stderr)
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_weights_whose_sums_overflow_are_named(folder: Path, run_alone: Run) -> None:
    (folder / "run" / "manifest.json").unlink()
    change(folder / "run", "classifier.weight", (), 3e38)
    assert "the model computes NaN or infinity" in last_line(run_alone(*PREDICT, code=1))
