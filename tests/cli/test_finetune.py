"""``greenadapt finetune`` as people and launchers start it: output, exit codes, interrupts, and several processes."""

import json
import math
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.config import CHOSEN_FOR_ENTITIES, TaskConfig, TrainConfig
from greenadapt.errors import UsageError
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.store.files import to_plain
from tests.conftest import Run, last_line
from tests.support.processes import MODULE, launched
from tests.support.small_tasks import TinyModel, adapted, lines, ner_file, qa_file, read_json, sentences

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = ("--max-length", 64, "--batch-size", 8, "--lr", 7e-3, "--epochs", 2)


@pytest.fixture
def files(tmp_path: Path) -> tuple[object, ...]:
    """The options of NER."""
    for seed, name in enumerate(("train", "test")):
        ner_file(tmp_path / f"{name}.tsv", 24, seed)
    return ("--task", "ner", "--train", "train.tsv", "--test", "test.tsv")


@pytest.mark.slow
def test_a_run_and_what_it_prints(
    run_alone: Run, files: tuple[object, ...], tiny_model: TinyModel, tmp_path: Path
) -> None:
    model = adapted(tiny_model)
    command = ("finetune", "-m", model, *files, *QUICK, "-o", tmp_path / "run")
    report = json.loads(run_alone(*command, "--json").stdout)
    assert (report["stage"], report["status"], report["folder"]) == ("finetune", "done", str(tmp_path / "run"))
    assert report["scores"] == read_json(tmp_path / "run" / "scores.json")
    [row] = report["comparison"]
    evaluated = json.loads(run_alone("evaluate", "-m", tmp_path / "run", "--test", "test.tsv", "--json").stdout)
    assert (row["interval"], row["resampled"]) == (evaluated["intervals"]["mean"], "examples")
    assert (report["counts"]["train"], report["counts"]["test"]) == (24, 24)
    assert (report["config"]["learning_rate"], report["config"]["seeds"]) == (7e-3, [0])
    printed = run_alone(*command).stdout
    assert "finetune: up to date; train 24" in printed
    assert f"f1 {100 * row['score']:.2f}, 95 % interval {100 * row['interval'][0]:.2f} to " in printed
    (seed,) = report["scores"]["seeds"]
    assert re.search(rf"f1 .*{100 * seed['test']['f1']:.2f}", printed)
    refused = last_line(run_alone(*command, "--mix", "sample", code=1))
    assert "holds another result (mix: both → sample)" in refused


@pytest.mark.slow
def test_an_undertrained_model_is_named(
    run_alone: Run, files: tuple[object, ...], tiny_model: TinyModel, tmp_path: Path
) -> None:
    """What is to know of the labels is their entropy; the training has an end, a rate or a seed that is wrong."""
    command = ("finetune", "-m", tiny_model(), *files, "--batch-size", 8, "--max-length", 64)
    short = run_alone(*command, "--max-steps", 2, "--seeds", 2, "-o", "short")
    [warning] = [line for line in short.stderr.splitlines() if "learnt too little" in line]
    assert all(word in warning for word in ("seeds 0, 1", "2 steps", "--seed ", "--learning-rate", "--max-steps"))
    assert "seed 1 (undertrained)" in short.stdout
    scores = read_json(tmp_path / "short" / "scores.json")
    tags = [line.split("\t")[1] for line in (tmp_path / "train.tsv").read_text().splitlines() if line]
    shares = [tags.count(tag) / len(tags) for tag in set(tags)]
    assert scores["undertrained"] == [0, 1]
    for seed in scores["seeds"]:
        assert seed["losses"]["ner"]["chance"] == pytest.approx(-sum(share * math.log(share) for share in shares))
    trained = run_alone(*command, "--epochs", 20, "--learning-rate", 7e-3, "-o", "trained", "--json")
    assert "learnt too little" not in trained.stderr
    assert json.loads(trained.stdout)["scores"]["undertrained"] == []


MEMORY = (
    *("--memory", "bertmodel", "--memory-layers", "1,2", "--memory-source", "0-1,2", "--memory-attention", "gate"),
    *("--gate-init", "normal", "--memory-project", "--unfreeze-memory"),
)


@pytest.mark.slow
def test_the_cards_command_gives_the_same(
    run_alone: Run, files: tuple[object, ...], tiny_model: TinyModel, tmp_path: Path
) -> None:
    options = (*QUICK, "--seed", 3, "--seeds", 2, "--chunk", 4, "--weight-decay", 0.1)
    options += ("--dev", "test.tsv", "--max-steps", 3)
    run_alone("finetune", "-m", tiny_model(), *files, *options, *MEMORY, "--keep", "best", "-o", "run")
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    (command,) = re.findall(r"^greenadapt (finetune .*)$", card, re.MULTILINE)
    words = shlex.split(command)
    words[words.index("--model") + 1] = str(tmp_path / "bertmodel")
    assert "finetune: up to date" in run_alone(*words, "-o", "run").stdout


@pytest.mark.slow
def test_by_the_corpus_it_was_adapted_to(
    run_alone: Run, files: tuple[object, ...], tiny_model: TinyModel, tmp_path: Path
) -> None:
    model = tiny_model()
    (tmp_path / "text.txt").write_text("".join(" ".join(words) + "\n" for words in sentences(200, 9)))
    run_alone("adapt", "-c", "text.txt", "-m", model, "--workers", 1, "--epochs", 1, "--min-count", 1)
    result = json.loads(
        run_alone("finetune", "-c", "text.txt", "-m", model, *files, *QUICK, "--compare", model, "--json").stdout
    )
    folder = Path(result["folder"])
    assert folder.parent == tmp_path / "runs"
    data = tmp_path.name  # the folder of train.tsv
    assert re.fullmatch(rf"ner-bertmodel-\w{{8}}-text-\w{{8}}-{data}-\w{{8}}", folder.name)
    adapted_row, plain_row = result["comparison"]
    assert adapted_row["folder"] == str(folder)
    assert re.fullmatch(rf"ner-{folder.name[4:22]}-{data}-\w{{8}}", Path(plain_row["folder"]).name)


@pytest.mark.slow
def test_a_comparison(run_alone: Run, files: tuple[object, ...], tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    base = model.parent / "base"
    compared = ("--max-steps", 3, "--seeds", 2, "--compare", base, "--reference", base)
    command = ("finetune", "-m", model, *files, *QUICK, *compared, "-o", "run")
    report = json.loads(run_alone(*command, "--json").stdout)
    ours, row, reference = report["comparison"]
    assert ours["gap_covered"] is None  # the reference is the base model, so there is no gap
    for name in ("score", "difference", "low", "high"):
        assert row[name] == reference[name]
    assert ours["score"] - row["score"] == pytest.approx(row["difference"])
    printed = run_alone(*command).stdout
    assert printed.count("up to date") == 3
    assert "Comparison on the test set" in printed
    assert "there is no gap to close" in printed


def as_options(settings: dict[str, Any]) -> list[object]:
    """An option for each setting: a flag for true, several options for a list."""
    options: list[object] = []
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        options += [option] if value is True else [part for item in np.atleast_1d(value) for part in (option, item)]
    return options


Requested = Callable[..., FinetuneRequest]


@pytest.fixture
def requested(run_alone: Run, monkeypatch: pytest.MonkeyPatch) -> Requested:
    """The request that the command makes of options; nothing is trained."""
    requests: list[FinetuneRequest] = []

    def stop(session: object, request: FinetuneRequest, compared_models: list[str]) -> None:
        requests.append(request)
        raise UsageError("stop")

    monkeypatch.setattr("greenadapt.stages.finetune.compare.compare", stop)

    def run(*options: object) -> FinetuneRequest:
        run_alone("finetune", "-m", "any", *options, code=2)
        return requests[-1]

    return run


def test_every_setting_of_training(requested: Requested, files: tuple[object, ...]) -> None:
    settings: dict[str, Any] = {
        "mix": "both", "pool": "base", "epochs": 2, "learning_rate": 7e-3, "max_steps": 3,
        "warmup": 0.2, "batch_size": 12, "weight_decay": 0.1, "keep": "best", "patience": 2,
        "precision": "bfloat16", "word_vectors": True,
    }  # fmt: skip
    assert [name for name, default in asdict(TrainConfig()).items() if settings[name] == default] == []
    options = as_options({**settings, "save_logits": True, "seed": 3, "seeds": 2})
    request = requested(*files, "--dev", "test.tsv", *options)
    assert request.training == TrainConfig(**settings)
    assert (request.save_logits, request.seeds) == (True, (3, 4))
    recorded = {**settings, "save_logits": True, "seeds": [3, 4]}
    assert request.config() == {**TaskConfig(**CHOSEN_FOR_ENTITIES).settings(), **recorded}


@pytest.mark.parametrize("mix", ["base", "expanded", "sample"])
def test_a_model_of_one_tokenization_predicts_by_it(requested: Requested, files: tuple[object, ...], mix: str) -> None:
    pool = "mean" if mix == "sample" else mix
    assert requested(*files, "--mix", mix).training.pool == pool
    assert requested(*files, "--mix", mix, "--preset", "paper").training.pool == pool
    assert requested(*files, "--mix", mix, "--pool", "mean").training.pool == "mean"


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        (
            {"chunk": 7, "gold_chunks": True, "x_class": True, "decoding": "viterbi", "max_length": 64},
            TaskConfig(chunk=7, gold_chunks=True, x_class=True, decoding="viterbi", max_length=64),
        ),
        (
            {"text_field": ["one", "two"], "label_field": "gold", "labels": "numbers", "head_layers": 2}
            | {"head_dropout": 0.5},
            TaskConfig("classification", ("one", "two"), "gold", "numbers", head_layers=2, head_dropout=0.5),
        ),
        (
            {"negatives": 5, "stride": 9, "max_question": 7, "max_answer_pieces": 3},
            TaskConfig("qa", negatives=5, stride=9, max_question=7, max_answer_pieces=3),
        ),
    ],
)
def test_every_setting_of_a_task(requested: Requested, settings: dict[str, Any], config: TaskConfig) -> None:
    request = requested("--task", config.task, "--train", "train", *as_options(settings))
    assert request.tasks[0].config == config
    names = {"text_field": "text_fields", "labels": "label_kind"}
    recorded = {names.get(name, name): value for name, value in settings.items()}
    unset = TaskConfig(config.task).settings() | asdict(TrainConfig())
    assert to_plain(request.config()) == to_plain({**unset, **recorded, "save_logits": False, "seeds": [0]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seeds", 0), "--seeds is 0, must be greater than or equal to 1"),
        (("--reference", "x"), "--reference needs --compare"),
        (("--memory", "bertmodel", "--strategy", "logits", "--memory-layers", "2"), "has no effect with --strategy"),
        (("--tasks", "tasks.toml"), "is for one task, but the file of --tasks describes each task: leave it out"),
        (("--adapter", "lhuc"), "--adapter is for tasks that share an encoder: use it with --tasks, or leave it out"),
    ],
)
def test_wrong_usage(
    run_alone: Run, files: tuple[object, ...], tiny_model: TinyModel, tmp_path: Path, options: Any, message: str
) -> None:
    result = run_alone("finetune", "-m", tiny_model(), *files, *options, "-o", "run", code=2)
    assert message in last_line(result)
    assert not (tmp_path / "run").exists()


def test_a_head_that_transformers_does_not_have(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    model, questions = tiny_model("NomicBertModel"), qa_file(tmp_path / "qa.json")
    result = run_alone("finetune", "-m", model, "--task", "qa", "--train", questions, "--test", questions, code=2)
    assert "no model for QuestionAnswering of type nomic_bert" in last_line(result)


def test_no_model(run_alone: Run, files: tuple[object, ...]) -> None:
    assert "give a folder with --model" in last_line(run_alone("finetune", *files, code=2))
    assert "no model folder" in last_line(run_alone("finetune", *files, "-m", "ws/none/here", code=1))


@pytest.mark.slow
def test_what_fails_says_so_in_a_line(
    run_alone: Run, files: tuple[object, ...], tiny_model: TinyModel, tmp_path: Path
) -> None:
    model = tiny_model()
    start = ("finetune", "-m", model, *QUICK, "-o", "run")
    diverged = last_line(run_alone(*start, *files, "--lr", 1e30, code=1))
    assert re.search(r"training diverged in step \d+ \(epoch 1\): loss .* use a lower --learning-rate", diverged)
    assert f"--train {os.devnull} has no examples" in last_line(
        run_alone(*start, "--task", "ner", "--train", os.devnull, code=1)
    )
    assert not (tmp_path / "run").exists()
    report = json.loads(run_alone(*start, *files, "--json").stdout)
    assert report["cost"]["attempts"] == 1  # the state of other settings is not gone on from


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_of_a_launcher(
    run_alone: Run, files: tuple[object, ...], tiny_model: TinyModel, tmp_path: Path
) -> None:
    model = adapted(tiny_model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    command = ("finetune", "-m", model, *files, *QUICK, "--epochs", 5, "--dev", "test.tsv", "--keep", "best", "--json")
    process = launched([*MODULE, *command, "-o", "run"])
    result = json.loads(process.stdout)  # printed once
    assert result["status"] == "done"
    assert "Traceback" not in process.stderr
    alone = json.loads(run_alone(*command, "-o", "alone").stdout)
    ours, theirs = (report["scores"]["seeds"][0] for report in (result, alone))
    assert ours["test"]["f1"] > 0
    for name in ("precision", "recall", "f1"):
        assert ours["test"][name] == pytest.approx(theirs["test"][name], abs=1e-3)
    histories = [lines(tmp_path / name / "seeds/0/history.jsonl") for name in ("run", "alone")]
    assert [row["loss"] for row in histories[0]] == pytest.approx([row["loss"] for row in histories[1]], abs=1e-4)
    assert [path.name for path in tmp_path.glob(".run*")] == []
