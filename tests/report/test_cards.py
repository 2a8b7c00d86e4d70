"""Cards of all kinds, of models, texts and labels whose names would mean something in YAML, Markdown or HTML."""

import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from greenadapt.config import AlignConfig, ExpandConfig, MemoryConfig
from greenadapt.report.cards import AdaptedCard, InterpolationCard
from greenadapt.tasks.ner import NerTask
from tests.report import test_multitask_card, test_pretrain_card, test_task_card

EVIL = "m: x\nlicense: evil\n```\n# <img src=x onerror=alert(1)> [a](javascript:b) `<i>` **c** | d\n---"
COMMANDS = [shlex.join(["greenadapt", "x", "--option", EVIL])]
MEMORY = {**asdict(MemoryConfig()), "general": {"name": EVIL, "sha256": "ab" * 32, "source": EVIL}}


def expanded(**changes: Any) -> str:
    made: dict[str, Any] = {
        "model": EVIL,
        "base": None,
        "corpus": EVIL,
        "licence": EVIL,
        "commands": COMMANDS,
        "align": asdict(AlignConfig()),
        "expand": asdict(ExpandConfig()),
        "counts": {"rows": 2, "words": 2, "overlap": 3, "hidden_words": 1, "changed_entries": 0},
        "rows": {"recipe": "map", "heldout": {}},
    }
    return AdaptedCard(**{**made, **changes}).text()


def fine_tuned() -> str:
    settings = {**NerTask(("O", f"B-{EVIL}")).settings(), "memory": MEMORY}
    config = {**test_task_card.card().config, "memory": asdict(MemoryConfig())}
    sources = {"train 1": EVIL, "test": EVIL}
    made = test_task_card.card(task_settings=settings, config=config, sources=sources)
    made.scores["seeds"][0]["test"]["by_type"] = {EVIL: test_task_card.F1}
    return replace(made, model=EVIL, commands=COMMANDS).text()


def multitask() -> str:
    card = test_multitask_card.CARD
    tasks = {name: {**task, "labels": [EVIL]} for name, task in card.tasks.items()}
    entries = [replace(entry, train=(EVIL,), test={"test": EVIL}) for entry in card.entries]
    examples = {name: {"train": 1, "dev": {"dev": 1}, "test": {"test": 1}} for name in tasks}
    told = {"tasks": tasks, "entries": entries, "examples": examples, "memory": MEMORY}
    return replace(card, model=EVIL, commands=COMMANDS, **told).text()


def pretrained() -> str:
    config = {**test_pretrain_card.card().config, "memory": asdict(MemoryConfig())}
    memory = MEMORY["general"]
    return test_pretrain_card.card(model=EVIL, commands=COMMANDS, texts=(EVIL,), memory=memory, config=config).text()


def interpolated() -> str:
    return InterpolationCard(model=EVIL, general=EVIL, weight=0.3, commands=COMMANDS).text()


CARDS: list[Callable[[], str]] = [expanded, fine_tuned, multitask, pretrained, interpolated]


def parts(markdown: str) -> list[Token]:
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [part for token in tokens for part in (token, *(token.children or ()))]


@pytest.mark.parametrize("card", CARDS)
def test_names_mean_nothing(card: Callable[[], str]) -> None:
    _, front, text = card().split("---\n", 2)
    keys = {"base_model", "library_name", "pipeline_tag", "tags", "model-index", "co2_eq_emissions"}
    assert set(yaml.safe_load(front)) <= keys  # no licence
    found = parts(text)
    assert not [part.type for part in found if "html" in part.type or part.type in ("link_open", "image", "hr")]
    assert not [part for part in found if part.type == "strong_open"]
    headings = [one.content for one, before in zip(found[1:], found, strict=False) if before.type == "heading_open"]
    assert headings[-1] == "Made by"
    (command,) = [part.content for part in found if part.type == "fence" and "greenadapt" in part.content][-1:]
    assert EVIL in shlex.split(command)
    assert "alert(1)" in text


def test_what_sentence_transformers_reads_is_said_of_sentence_models_alone() -> None:
    said = "reads this folder by the expanded tokenizer alone"
    told = test_pretrain_card.card(reads_sentences=True).text()
    mixed = InterpolationCard(model="a", base="org/a", general="b", weight=0.3, reads_sentences=True).text()
    for text in (expanded(reads_sentences=True), told, mixed):
        assert said in text
        assert "\n\n\n" not in text
    for text in (expanded(), test_pretrain_card.card().text(), interpolated()):
        assert said not in text
        assert "\n\n\n" not in text


def test_the_hub_hears_nothing_of_sentence_similarity_where_the_card_advises_against_it() -> None:
    mixed = InterpolationCard(model="a", base="org/a", general="b", weight=0.3, reads_sentences=True).text()
    for text, pipeline, library in (
        (expanded(reads_sentences=True), "feature-extraction", "sentence-transformers"),
        (mixed, "feature-extraction", "sentence-transformers"),
        (expanded(), None, "transformers"),
    ):
        front = yaml.safe_load(text.split("---\n")[1])
        assert (front.get("pipeline_tag"), front["library_name"]) == (pipeline, library)


def test_paths_are_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    told = test_task_card.card(
        sources={"train 1": str(tmp_path / "data/train.tsv"), "test": "/home/me/test.tsv"}
    ).text()
    assert "| train | data/train.tsv |" in told
    assert "| test | test.tsv |" in told
    assert "/home" not in told
    assert str(tmp_path) not in told


def test_made_without_a_command_line() -> None:
    """By Python: the card has no command, and the rest as ever."""
    text = expanded(commands=())
    assert "## Made by\n\ngreenadapt 0." in text
    assert "greenadapt x" not in text
