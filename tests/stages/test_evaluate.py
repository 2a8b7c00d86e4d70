"""Scoring models that are there: the figures of fine-tuning on its test set, and those of other scorers on others."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.config import TaskConfig
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.store.results import Result
from tests.conftest import Run, json_lines
from tests.support.small_multitask import files_of
from tests.support.small_tasks import (
    TRAIN,
    TinyModel,
    adapted,
    ner_file,
    qa_file,
    read_json,
    session,
    tags_of,
    texts_file,
)

SHORT = TaskConfig(max_length=64)
KINDS: dict[str, Any] = {
    "ner": ("ner", "tsv", ner_file, {}),
    "classes": ("classification", "jsonl", texts_file, {}),
    "qa": ("qa", "json", qa_file, {"impossible": True}),
}


def labelled(folder: Path, kind: str, n: int = 15, seed: int = 1) -> Path:
    _, suffix, write, options = KINDS[kind]
    return write(folder / f"{kind}-{seed}.{suffix}", n, seed, **options)


def tuned(kind: str, tiny_model: TinyModel, tmp_path: Path, **changes: Any) -> Result:
    task = replace(SHORT, task=KINDS[kind][0])
    train, test = (str(labelled(tmp_path, kind, n, seed)) for n, seed in ((30, 0), (15, 1)))
    training = replace(TRAIN, epochs=2, word_vectors=kind == "ner")
    request = FinetuneRequest.of_one(str(adapted(tiny_model)), (train,), None, test, task, training, save_logits=True)
    return finetune(session(tmp_path), replace(request, **changes))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "memory"), [("ner", None), ("classes", "base"), ("qa", None)])
def test_the_test_set_of_fine_tuning_has_the_same_scores(
    kind: str, memory: str | None, tiny_model: TinyModel, tmp_path: Path, run_alone: Run
) -> None:
    seeds = (4, 5) if kind == "ner" else (0,)
    result = tuned(kind, tiny_model, tmp_path, seeds=seeds, memory=memory and str(tmp_path / memory))
    folder, test = result.path, labelled(tmp_path, kind)
    scores, before = read_json(folder / "scores.json"), files_of(folder)
    (evaluated,) = json_lines(run_alone("evaluate", "-m", folder, "--test", test, "--json"))
    assert [seed_scores["seed"] for seed_scores in evaluated["seeds"]] == list(seeds)
    assert [seed_scores["test"] for seed_scores in evaluated["seeds"]] == [
        seed_scores["test"] for seed_scores in scores["seeds"]
    ]
    assert {name: evaluated[name] for name in ("task", "main", "pool", "mean", "std")} == {
        name: scores[name] for name in ("task", "main", "pool", "mean", "std")
    }
    assert (evaluated["file"], evaluated["examples"]) == (str(test), 15)
    assert evaluated["resampled"] == ("contexts" if kind == "qa" else "examples")
    assert set(evaluated["intervals"]) == {"mean", "base", "expanded"}
    for view, (low, high) in evaluated["intervals"].items():
        mean = np.mean([seed_scores["test"]["views"][view][evaluated["main"]] for seed_scores in evaluated["seeds"]])
        assert low <= mean <= high
        assert low < high or mean in (0, 1)
    assert files_of(folder) == before


@pytest.mark.slow
def test_entities_of_other_files_are_scored_as_by_seqeval(
    tiny_model: TinyModel, tmp_path: Path, run_alone: Run
) -> None:
    from seqeval.metrics import f1_score

    folder = tuned("ner", tiny_model, tmp_path, seeds=(0, 1)).path
    files = [labelled(tmp_path, "ner", 20, seed) for seed in (7, 8)]
    command = ["evaluate", "-m", folder, *(word for file in files for word in ("--test", file))]
    evaluated = json_lines(run_alone(*command, "--json"))
    assert [of_file["file"] for of_file in evaluated] == [str(file) for file in files]
    for file, of_file in zip(files, evaluated, strict=True):
        parts = file.read_text().rstrip("\n").split("\n\n")
        gold = [tags_of([line.split("\t")[0] for line in part.split("\n")]) for part in parts]
        for scored, pool in product(of_file["seeds"], ("mean", "base", "expanded")):
            options = ("--format", "conll", "--seed", scored["seed"], "--pool", pool, "--bio")
            rows = run_alone("predict", "-m", folder, "-i", file, *options).stdout.rstrip("\n").split("\n\n")
            guesses = [[line.split("\t")[1] for line in row.split("\n")] for row in rows]
            assert scored["test"]["views"][pool]["f1"] == pytest.approx(f1_score(gold, guesses))
    assert evaluated[0]["seeds"] != evaluated[1]["seeds"]
    views = evaluated[1]["seeds"][1]["test"]["views"]
    (base,) = json_lines(
        run_alone("evaluate", "-m", folder, "--test", files[1], "--seed", 1, "--pool", "base", "--json")
    )
    assert [of_file["seed"] for of_file in base["seeds"]] == [1]
    assert base["seeds"][0]["test"] == {**views["base"], "views": views}


def test_one_of_several_tasks(two_tasks: Path, run_alone: Run) -> None:
    scores = read_json(two_tasks / "scores.json")
    for name, file in (("ner", "ner-test.tsv"), ("ill.1", "ill.1-test.jsonl")):
        command = ["evaluate", "-m", two_tasks, "--task", name, "--test", two_tasks.parent / file]
        (evaluated,) = json_lines(run_alone(*command, "--json"))
        assert [seed_scores["test"] for seed_scores in evaluated["seeds"]] == [
            seed_scores["tasks"][name]["test"]["test"] for seed_scores in scores["seeds"]
        ]
    error = run_alone("evaluate", "-m", two_tasks, "--test", two_tasks.parent / file, code=2).stderr
    assert "name one with --task" in error


@pytest.mark.slow
def test_a_model_from_elsewhere_that_answers_questions(tiny_model: TinyModel, tmp_path: Path, run_alone: Run) -> None:
    from torchmetrics.functional.text import squad

    model, test = tiny_model("BertForQuestionAnswering", initializer_range=0.5), qa_file(tmp_path / "q.json", 12, 3)
    (evaluated,) = json_lines(run_alone("evaluate", "-m", model, "--test", test, "--json"))
    *rows, last = json_lines(run_alone("qa", "--model", model, "--data", test, "--json"))
    (scored,) = evaluated["seeds"]
    assert (scored["seed"], set(scored["test"]["views"])) == (None, {"base"})
    assert {name: scored["test"][name] for name in ("em", "f1", "substr")} == pytest.approx(
        {name: last["scores"][name] for name in ("em", "f1", "substr")}
    )
    assert evaluated["intervals"]["base"] == pytest.approx(last["scores"]["intervals"]["f1"])
    answers = [{"prediction_text": row["answer"], "id": row["id"]} for row in rows]
    golds = [{"answers": {"text": ["tachycardia"], "answer_start": [0]}, "id": str(i)} for i in range(12)]
    assert 100 * scored["test"]["f1"] == pytest.approx(squad(answers, golds)["f1"].item(), abs=1e-4)
    assert "95 % interval" in run_alone("evaluate", "-m", model, "--test", test).stdout


@pytest.mark.slow
def test_what_is_refused(tiny_model: TinyModel, tmp_path: Path, run_alone: Run) -> None:
    folder, test = tuned("ner", tiny_model, tmp_path, seeds=(0, 1)).path, labelled(tmp_path, "ner")
    (tmp_path / "empty.tsv").write_text("")
    again: list[Any] = ["evaluate", "-m", folder, "--test", test]
    for options, code, message in (
        (["--test", test], 2, "is given twice: give each file once"),
        (["--test", tmp_path / "empty.tsv"], 1, "empty.tsv has no examples"),
        (["--seed", 7], 1, "has no seed 7: it has 0, 1"),
        (["--task", "x"], 2, "has one task"),
    ):
        assert message in run_alone(*again, *options, code=code).stderr, options
