import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCardData

from greenadapt.config import TaskConfig, TrainConfig
from greenadapt.cost import estimate
from greenadapt.report.task_cards import TaskCard
from greenadapt.tasks.ner import NerTask

Json = dict[str, Any]
F1 = {"f1": 0.8331, "precision": 0.8, "recall": 0.87, "support": 960, "by_type": {}}
TEST = {**F1, "views": {"mean": F1, "base": {**F1, "f1": 0.8}, "expanded": {**F1, "f1": 0.79}}}
NER = NerTask(("O", "B-Disease", "I-Disease"))


def config(task: TaskConfig, train: TrainConfig, seeds: tuple[int, ...]) -> Json:
    """As a manifest has it."""
    return dict(json.loads(json.dumps({**asdict(task), **asdict(train), "seeds": seeds, "save_logits": False})))


TASK, TRAIN = TaskConfig(), TrainConfig()


def card(task: TaskConfig = TASK, train: TrainConfig = TRAIN, **changes: Any) -> TaskCard:
    seeds = changes.pop("seeds", (0, 1))
    scores = {"task": "ner", "main": "f1", "pool": "mean", "seeds": [{"seed": seed, "test": TEST} for seed in seeds]}
    entries: Json = {
        "model": "minilm-biomedical",
        "base": "org/minilm",
        "head": "TokenClassification",
        "task": changes.pop("task_settings", NER.settings()),
        "config": config(task, train, seeds),
        "sources": {
            "train 1": "/home/me/data/train.tsv",
            "train 2": "own/corpus:train",
            "test": "/home/me/data/test.tsv",
        },
        "scores": scores,
        "counts": {"train": 5432, "dev": 0, "test": 940},
        "commands": ["greenadapt finetune --model minilm-adapted --out FOLDER"],
    }
    return TaskCard(**(entries | changes))


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the cards are there."""
    monkeypatch.setattr(Path, "exists", lambda path: path.is_absolute())


def test_the_front_matter_is_yaml_that_the_hub_reads() -> None:
    front = yaml.safe_load(card().text().split("---\n")[1])
    assert front["base_model"] == "org/minilm"
    assert (front["library_name"], front["pipeline_tag"]) == ("transformers", "token-classification")
    assert "greenadapt" in front["tags"]


def test_the_front_matter_has_licence_data_scores_and_emissions() -> None:
    cost = estimate(seconds=100, cpu_seconds=200, peak_memory_bytes=1 << 30)
    licence = {"license": "other", "license_name": "own", "license_link": "LICENSE"}
    made = card(cost=cost.as_dict(), licence_of_base=licence)
    made.scores["seeds"][1]["test"] = {**TEST, "f1": 0.8431}
    loaded = ModelCardData(**(front := yaml.safe_load(made.text().split("---\n")[1])))  # the hub's own reader
    assert front.items() >= licence.items()
    assert loaded.datasets == ["own/corpus"]
    (score,) = loaded.eval_results or []
    assert (score.task_type, score.dataset_name) == ("token-classification", "test.tsv")
    assert (score.metric_type, score.metric_value) == ("f1", 0.8381)
    assert front["co2_eq_emissions"]["training_type"] == "fine-tuning"
    assert front["co2_eq_emissions"]["emissions"] == pytest.approx(1000 * cost.co2_kg, rel=0.01)


def test_a_score_that_a_seed_lacks_is_not_listed() -> None:
    made = card()
    made.scores["seeds"][1].pop("test")
    assert "model-index" not in yaml.safe_load(made.text().split("---\n")[1])


def test_data_labels_and_scores() -> None:
    text = card().text()
    assert "| train | train.tsv, own/corpus:train | 5,432 |" in text
    assert "| test | test.tsv | 940 |" in text
    assert "/home" not in text
    assert "```sh\ngreenadapt finetune --model minilm-adapted --out FOLDER\n```\n\ngreenadapt" in text
    assert "`O`, `B-Disease`, `I-Disease`" in text
    assert "| f1 | 83.31 | 0.00 | 83.31 | 83.31 |" in text
    assert "| the expanded tokenizer | 79.00 | 0.00 | 79.00 | 79.00 |" in text
    assert "AutoModelForTokenClassification.from_pretrained(FOLDER)" in text
    assert "greenadapt predict --model FOLDER" in text


def test_the_cost() -> None:
    cost = estimate(seconds=1234.5, cpu_seconds=2000, peak_memory_bytes=1 << 30)
    text = card(cost=cost.as_dict()).text()
    assert f"1,234 seconds, {1000 * cost.energy_kwh:.3g} Wh ({cost.energy_source})" in text
    assert " Wh" not in card().text()


def test_how_to_use_it() -> None:
    assert "averages both tokenizations. With" in card().text()
    assert "reads the expanded tokenization. With" in card(train=TrainConfig(pool="expanded")).text()
    assert "averages" not in card(train=TrainConfig(pool="base")).text().split("## Use")[1]
    pair = {"task": "classification", "text_fields": ["a", "b"], "labels": []}
    assert "--input pairs.jsonl" in card(task_settings=pair).text()
    assert "\n\n\n" not in card(task_settings=pair).text() + card().text() + card(is_expanded=False).text()


def test_a_model_without_added_words() -> None:
    text = card(is_expanded=False).text()
    assert "no added words" in text
    assert "base_tokenizer" not in text
    assert "AutoTokenizer.from_pretrained(FOLDER)" in text


def test_predictions_are_told_only_where_there_is_a_test_set() -> None:
    assert "its predictions on the test set." in card().text()
    text = card(sources={"train 1": "/home/me/data/train.tsv"}).text()
    assert "predictions on the test set" not in text
    assert "each seed's history." in text
