"""The READMEs of folders with many tasks, and of a task that was added to one."""

from dataclasses import asdict, fields, replace
from typing import Any

import pytest
import yaml

from greenadapt.config import AdapterConfig, MemoryConfig, SamplingConfig, TaskConfig, TrainConfig
from greenadapt.report.tables import listed_table, score_tables, set_name
from greenadapt.report.task_cards import AddedTaskCard, MultitaskCard
from greenadapt.tasks.base import make_task
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
PAIR = replace(make_task(TaskConfig(task="classification", text_fields=("one", "two"))), labels=("no", "yes"))
CARD = MultitaskCard(
    model="tiny-medicine",
    base="tiny",
    tasks={"mnli": {**PAIR.settings(), "metric": "accuracy"}, "cola": {**PAIR.settings(), "metric": "mcc"}},
    weights={"mnli": 1819836, "cola": 1536},
    config={
        **asdict(AdapterConfig(size=8, heads=2, freeze_encoder=True)),
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
        "finetune --tasks tasks.toml --add-to FOLDER",
        "tasks FOLDER --remove mnli",
        'from_pretrained(f"{FOLDER}/base_tokenizer")',
    ):
        assert part in text, part
    general = {"name": "tiny", "sha256": "ab" * 32, "source": "org/tiny"}
    text = replace(CARD, memory={**asdict(MemoryConfig(strategy="single")), "general": general}).text()
    assert "It sees the states of the general model tiny (SHA-256 abababababab…) as memory" in text


def test_the_score_of_each_test_set_is_in_the_front_matter() -> None:
    (model,) = yaml.safe_load(CARD.text().split("---\n")[1])["model-index"]
    found = {
        (one["dataset"]["name"], one["metrics"][0]["type"]): one["metrics"][0]["value"] for one in model["results"]
    }
    assert found == {("m.tsv", "accuracy"): 0.84}  # of the others the files are not known


@pytest.mark.parametrize("adapter", ["none", "lhuc", "bert-layer"])
def test_the_card_of_an_added_task(adapter: str) -> None:
    config = {**CARD.config, **asdict(AdapterConfig(adapter=adapter, freeze_encoder=True))}  # type: ignore[arg-type]
    config |= asdict(SamplingConfig(steps_per_epoch=99))
    told: dict[str, Any] = {field.name: getattr(CARD, field.name) for field in fields(CARD)}
    own = {"tasks": {"cola": CARD.tasks["cola"]}, "entries": CARD.entries[1:], "config": config}
    text = AddedTaskCard(**{**told, **own}).text()
    assert text.startswith("# cola, a task added to tiny-medicine\n")
    assert ("nothing beside the head," in text) == (adapter == "none")
    on_top = {**own, "config": config | {"adapter": "top-ffn-2", "top_layers": 3, "own_pooler": True}}
    assert "hidden layers on top (3 layers), a pooler and a head," in AddedTaskCard(**{**told, **on_top}).text()


def test_score_tables() -> None:
    test, dev = score_tables(SCORES)
    assert test.title == "2 tasks, test sets, in percent"
    assert test.columns == ["set, score", "mean", "std"]
    assert test.rows[-1] == ["average", "60.00", "1.00"]
    assert dev.rows == [["cola, mcc", "", ""]]
    assert score_tables({**SCORES, "average": {}}) == []
    one = {**SCORES, "seeds": [{"seed": 5, "tasks": {"cola": {"test": {"test": {"views": {"base": 1, "b": 2}}}}}}]}
    table = score_tables(one)[0]
    assert table.columns == ["set, score", "seed 5"]
    assert table.title.endswith("by the logits of both tokenizers, averaged")
    assert (set_name("a", "dev", "dev"), set_name("a", "dev", "m")) == ("a", "a m")


def test_the_table_of_a_folders_tasks() -> None:
    listed = {"name": "a", "kind": "qa", "adapter": "pals", "is_added": True, "weights": 9216, "metric": "f1"}
    scores = {"dev": {"dev": {"mean": 0.25}}, "test": {"m": {"mean": 0.5}, "mm": {"mean": None}}}
    table = listed_table([{**listed, "scores": scores}, {**listed, "is_added": False, "scores": {}}])
    assert table.title == "2 tasks on one encoder"
    assert table.rows[0] == ["a", "qa, added", "pals", "9,216", "f1", "m 50.00, mm "]
    assert table.rows[1][-1] == ""
    assert listed_table([{**listed, "scores": {}}]).title == "1 task on one encoder"
