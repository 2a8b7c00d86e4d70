"""``--pool best``: each seed predicts with what was best on the development set, wherever it is used."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from greenadapt.config import TrainConfig
from greenadapt.errors import UsageError
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.train import read_scores
from tests.support.small_multitask import entry, task_file
from tests.support.small_multitask import request as request_of_many
from tests.support.small_tasks import Json, TinyModel, adapted, lines, ner_request, read_json, session

pytestmark = pytest.mark.usefixtures("one_thread")
BEST = TrainConfig(pool="best", epochs=4, learning_rate=1e-2, batch_size=8)
COST = ("base", "expanded", "mean")


def labels(prediction: Json) -> list[tuple[int, int, str]]:
    return [(entity["first"], entity["last"], entity["type"]) for entity in prediction["entities"]]


@pytest.mark.slow
def test_every_seed_is_used_with_the_best_pool_on_dev(
    tiny_model: TinyModel, tmp_path: Path, run_alone: Callable[..., Result]
) -> None:
    seeds = (0, 1)
    dev, test = tmp_path / "dev.tsv", tmp_path / "test.tsv"
    request = ner_request(tmp_path, adapted(tiny_model), dev=str(dev), training=BEST, seeds=seeds, save_logits=True)
    folder = finetune(session(tmp_path), request).path
    scores, settings = read_json(folder / "scores.json"), read_json(folder / "task.json")

    evaluated = json.loads(run_alone("evaluate", "-m", folder, "--test", dev, "--pool", "mean", "--json").stdout)
    pools = {}
    for seed_scores, trained in zip(evaluated["seeds"], scores["seeds"], strict=True):
        views = seed_scores["test"]["views"]
        pools[seed_scores["seed"]] = max(COST, key=lambda pool: views[pool]["f1"])
        assert trained["dev"] == {**views[pools[seed_scores["seed"]]], "pool": pools[seed_scores["seed"]]}
    assert len(set(pools.values())) > 1  # the seeds differ, else this says little
    assert settings["pools"] == {str(seed): pool for seed, pool in pools.items()}
    assert settings["pool"] == pools[0]

    for seed_scores in scores["seeds"]:
        seed, scored = seed_scores["seed"], seed_scores["test"]
        pool = pools[seed]
        assert scored == {**scored["views"][pool], "views": scored["views"], "pool": pool}
        command = ["predict", "-m", folder, "-i", test, "--format", "conll", "--seed", seed]
        predicted = run_alone(*command).stdout
        assert predicted == run_alone(*command, "--pool", pool).stdout
        rows = lines(folder / "seeds" / str(seed) / "predictions.jsonl")
        assert [labels(json.loads(line)) for line in predicted.splitlines()] == [labels(row) for row in rows]

    table = run_alone("evaluate", "-m", folder, "--test", test)
    assert all(text in table.stdout for text in ("best on the dev set", "logits of", "95 % interval"))
    (again,) = [json.loads(run_alone("evaluate", "-m", folder, "--test", test, "--json").stdout)]
    assert [seed_scores["test"] for seed_scores in again["seeds"]] == [
        seed_scores["test"] for seed_scores in scores["seeds"]
    ]
    low, high = again["intervals"]["best"]
    assert low < again["mean"]["f1"] == scores["mean"]["f1"] < high
    card = (folder / "README.md").read_text("utf-8")
    assert "best on the dev set" in card
    assert card.count(f"| logits of |  |  | {pools[0]} | {pools[1]} |") == 2  # on the test and the development set


@pytest.mark.slow
def test_the_best_epoch_is_that_of_the_best_pool(tiny_model: TinyModel, tmp_path: Path) -> None:
    training = replace(BEST, keep="best")
    dev = str(tmp_path / "dev.tsv")
    result = finetune(session(tmp_path), ner_request(tmp_path, adapted(tiny_model), dev=dev, training=training))
    [seed] = read_scores(result.folder)["seeds"]
    history = lines(result.folder / "seeds" / "0" / "history.jsonl")
    best = max(history, key=lambda row: row["dev"]["f1"])
    assert (seed["epoch"], seed["dev"]) == (best["epoch"], best["dev"])
    assert read_json(result.folder / "task.json")["pool"] == seed["test"]["pool"] == best["dev"]["pool"]


@pytest.mark.slow
def test_a_model_of_one_view_has_nothing_to_choose(tiny_model: TinyModel, tmp_path: Path) -> None:
    training = replace(BEST, epochs=1)
    request = ner_request(tmp_path, tiny_model(), dev=str(tmp_path / "dev.tsv"), training=training)
    assert read_json(finetune(session(tmp_path), request).folder / "task.json")["pool"] == "base"


def test_it_needs_a_development_set_and_one_task(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model()
    with pytest.raises(UsageError, match="--pool best needs a development set"):
        ner_request(tmp_path, model, training=BEST)
    tasks = [entry(tmp_path, name, dev={"dev": str(task_file(tmp_path, name, "dev"))}) for name in ("ner", "qa")]
    with pytest.raises(UsageError, match="--pool best chooses for one task alone"):
        request_of_many(tmp_path, model, tasks=tuple(tasks), training=BEST)
