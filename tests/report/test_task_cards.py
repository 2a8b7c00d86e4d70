"""The READMEs of folders with many tasks, and of a task that was added to one."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCardData

from greenadapt.checkpoints.layout import set_name
from greenadapt.config import AdapterConfig, MemoryConfig, SamplingConfig, TaskConfig, TrainConfig
from greenadapt.cost import estimate
from greenadapt.report.cards import MultitaskCard, TaskCard
from greenadapt.report.tables import score_tables, tasks_table
from greenadapt.tasks.base import make_task
from greenadapt.tasks.ner import NerTask
from greenadapt.tasks.tasks_file import TaskEntry

SCORES: dict[str, Any] = {
    "pool": "mean",
    "metrics": {"mnli": "accuracy", "cola": "mcc"},
    "average": {"test": {"mean": 0.6, "std": 0.01}, "dev": {"mean": 0.5, "std": None}},
    "tasks": {
        "mnli": {"test": {"m": {"mean": 0.84, "std": 0.02}, "mm": {"mean": 0.83, "std": 0.0}}},
        "cola": {"dev": {"dev": {"mean": None, "std": None}}, "test": {"test": {"mean": 0.512, "std": 0.1}}},
    },
    "seeds": [{"seed": 0, "tasks": {"cola": {"test": {"test": {"views": {"base": {}}}}}}}, {"seed": 1, "tasks": {}}],
}
GENERAL = {"name": "tiny", "sha256": "ab" * 32, "source": "org/tiny"}
PAIR = replace(make_task(TaskConfig(task="classification", text_fields=("one", "two"))), labels=("no", "yes"))
CARD = MultitaskCard(
    model="tiny-medicine",
    base="tiny",
    tasks={"mnli": {**PAIR.settings(), "metric": "accuracy"}, "cola": {**PAIR.settings(), "metric": "mcc"}},
    weights={"mnli": 1819836, "cola": 1536},
    config={
        **asdict(AdapterConfig(size=34, freeze_encoder=True)),
        **asdict(SamplingConfig("square-root", 99)),
        **asdict(TrainConfig(epochs=2)),
        "seeds": [3, 4],
        "memory": asdict(MemoryConfig(strategy="single")),
    },
    entries=[
        TaskEntry("mnli", TaskConfig(), ("a.tsv", "b.tsv"), {}, {"m": "m.tsv"}, None),
        TaskEntry("cola", TaskConfig(), ("c.tsv",), {"dev": "dev.tsv"}, {}, None),
    ],
    scores=SCORES,
    examples={
        "mnli": {"train": 4000, "dev": {}, "test": {"m": 7}},
        "cola": {"train": 1, "dev": {"dev": 5}, "test": {}},
    },
    is_expanded=True,
)


def test_the_card_of_many_tasks() -> None:
    text = CARD.text()
    for part in (
        "base_model: tiny\n",
        "# tiny-medicine, fine-tuned for 2 tasks",
        "for each task\nprojected attention layers whose projections its layers share and a head,\nas in",
        "drawn in proportion to the square root of its number of examples",
        "Nothing else was trained",
        "| mnli | classification | accuracy | no, yes | 1,819,836 |",
        "| mnli | train | a.tsv, b.tsv | 4,000 |",
        "| mnli m | test | m.tsv | 7 |",
        "| cola | train | c.tsv | 1 |\n| cola | dev | dev.tsv | 5 |",
        "| mnli mm, accuracy | 83.00 | 0.00 |",
        "| average | 60.00 | 1.00 |",
        "predict --model FOLDER --task mnli --input pairs.jsonl",
        "greenadapt tasks FOLDER",
    ):
        assert part in text, part
    text = replace(CARD, memory={**asdict(MemoryConfig(strategy="single")), "general": GENERAL}).text()
    assert "It sees the states of the general model tiny (SHA-256 abababababab…) as memory" in text


@pytest.mark.parametrize("adapter", ["none", "lhuc", "bert-layer"])
def test_the_card_tells_the_adapter(adapter: str) -> None:
    config = {**CARD.config, **asdict(AdapterConfig(adapter=adapter, freeze_encoder=True))}  # type: ignore[arg-type]
    assert ("nothing beside the head," in replace(CARD, config=config).text()) == (adapter == "none")
    on_top = replace(CARD, config=config | {"adapter": "top-ffn-2", "top_layers": 3, "own_pooler": True})
    assert "hidden layers on top (3 layers), a pooler and a head," in on_top.text()


def test_score_tables() -> None:
    test, dev = score_tables(SCORES)
    assert test.title == "2 tasks, test sets, in percent"
    assert test.columns == ["set, score", "mean", "std"]
    assert test.rows[-1] == ["average", "60.00", "1.00"]
    assert dev.rows == [["cola, mcc", "", ""]]
    assert score_tables({**SCORES, "average": {}}) == []
    single = {**SCORES, "seeds": [{"seed": 5, "tasks": {"cola": {"test": {"test": {"views": {"base": 1, "b": 2}}}}}}]}
    table = score_tables(single)[0]
    assert table.columns == ["set, score", "seed 5"]
    assert table.title.endswith("by the logits of both tokenizers, averaged")
    assert (set_name("a", "dev", "dev"), set_name("a", "dev", "m")) == ("a", "a m")


def test_the_table_of_a_folders_tasks() -> None:
    listed = {"name": "a", "kind": "qa", "adapter": "pals", "weights": 9216, "metric": "f1"}
    scores = {"dev": {"dev": {"mean": 0.25}}, "test": {"m": {"mean": 0.5}, "mm": {"mean": None}}}
    table = tasks_table([{**listed, "scores": scores}, {**listed, "scores": {}}])
    assert table.title == "2 tasks on one encoder"
    assert table.rows[0] == ["a", "qa", "pals", "9,216", "f1", "m 50.00, mm "]
    assert table.rows[1][-1] == ""
    assert tasks_table([{**listed, "scores": {}}]).title == "1 task on one encoder"


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


def test_the_front_matter_has_licence_data_and_emissions() -> None:
    cost = estimate(seconds=100, cpu_seconds=200, peak_memory_bytes=1 << 30)
    licence = {"license": "other", "license_name": "own", "license_link": "LICENSE"}
    model_card = card(cost=asdict(cost), licence_of_base=licence)
    loaded = ModelCardData(**(front := yaml.safe_load(model_card.text().split("---\n")[1])))  # the hub's own reader
    assert front.items() >= licence.items()
    assert loaded.datasets == ["own/corpus"]
    assert front["co2_eq_emissions"]["training_type"] == "fine-tuning"
    assert front["co2_eq_emissions"]["emissions"] == pytest.approx(1000 * cost.co2_kg, rel=0.01)


COST = estimate(seconds=1234.5, cpu_seconds=2000, peak_memory_bytes=1 << 30)
MEMORY = {**asdict(MemoryConfig(strategy="logits")), "general": GENERAL}
CLASSES = {"task": "classification", "labels": []}


@pytest.mark.parametrize(
    ("changes", "parts", "missing"),
    [
        (
            {},
            [
                "| train | train.tsv, own/corpus:train | 5,432 |",
                "| test | test.tsv | 940 |",
                "```sh\ngreenadapt finetune --model minilm-adapted --out FOLDER\n```\n\ngreenadapt",
                "`O`, `B-Disease`, `I-Disease`",
                "| f1 | 83.31 | 0.00 | 83.31 | 83.31 |",
                "| the expanded tokenizer | 79.00 | 0.00 | 79.00 | 79.00 |",
                "AutoModelForTokenClassification.from_pretrained(FOLDER)",
                "greenadapt predict --model FOLDER",
                "averages both tokenizations. With",
                "its predictions on the test set.",
            ],
            ["/home", " Wh", 'FOLDER}/base_tokenizer"'],
        ),
        ({"cost": asdict(COST)}, [f"1,234 seconds, {1000 * COST.energy_kwh:.3g} Wh ({COST.energy_source})"], []),
        (
            {"train": TrainConfig(mix="base")},
            ["trained on the base tokenization alone, and", 'from_pretrained(f"{FOLDER}/base_tokenizer")'],
            [],
        ),
        (
            {"task_settings": {**NER.settings(), "memory": MEMORY}},
            ["are added to its own", "stayed as it was and is needed"],
            [],
        ),
        ({"is_expanded": False}, ["no added words", "AutoTokenizer.from_pretrained(FOLDER)"], ["base_tokenizer"]),
        (
            {"sources": {"train 1": "/home/me/data/train.tsv"}},
            ["each seed's history."],
            ["predictions on the test set"],
        ),
    ],
)
def test_what_the_card_of_a_task_says(changes: Json, parts: list[str], missing: list[str]) -> None:
    text = card(**changes).text()
    assert [part for part in parts if part not in text] == []
    assert [part for part in (*missing, "\n\n\n") if part in text] == []
