"""READMEs: of pre-trained models, and with names that mean something in YAML, Markdown or HTML."""

import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from greenadapt.config import GMAP_PRETRAINING, AlignConfig, ExpandConfig, MemoryConfig, PretrainConfig, TrainConfig
from greenadapt.report.cards import AdaptedCard, PretrainCard
from greenadapt.tasks.ner import NerTask
from tests.report import test_task_cards
from tests.support.markdown import tokens_of
from tests.support.small_texts import MEASURED


def card(**changes: Any) -> PretrainCard:
    of_a_task = ("pool", "keep", "patience")
    training = {name: value for name, value in asdict(TrainConfig(**GMAP_PRETRAINING)).items() if name not in of_a_task}
    default = PretrainCard(
        model="tiny-medicine",
        base="tiny",
        texts=("papers.jsonl.gz", "pydocs"),
        memory=None,
        config={**asdict(PretrainConfig()), **training, "format": None, "fields": []},
        scores={"new_head_steps": None, "losses": {"heldout": MEASURED}},
        counts={"documents": 1234, "pieces": 56789},
        is_expanded=True,
        cost={
            "seconds": 12.5,
            "energy_kwh": 0.001,
            "energy_source": "estimate",
            "co2_kg": 0.0006837,
            "co2_source": "US average",
        },
    )
    return replace(default, **changes)


def test_what_it_says() -> None:
    text = card().text()
    assert text.startswith("---\nbase_model: tiny\n")
    assert "\n# tiny-medicine, pre-trained on *papers.jsonl.gz*, *pydocs*\n" in text
    assert "(15% of the pieces, all weights) on 1,234\ndocuments" in text
    assert "56,789 pieces." in text
    assert "| held-out text | the base tokenizer | 2,000 | 12,345 | 6.5000 | 2.2500 | -4.2500 |" in text
    assert "; 12 seconds, 1 Wh (estimate)" in text
    assert "head" not in text
    assert "memory" not in text
    assert "{" not in text


def test_what_it_says_of_a_new_head() -> None:
    text = "its head was trained alone for 20 steps\nbefore the losses"
    assert text in card(scores={"new_head_steps": 20, "losses": {}}).text()
    assert text not in card().text()


def test_a_memory_of_pretraining() -> None:
    config = {**card().config, "memory": asdict(MemoryConfig("gated", layers=(3,)))}
    memory = {"name": "tiny", "source": "org/tiny", "sha256": "0"}
    assert "states of the general model tiny as memory, strategy `gated`" in card(config=config, memory=memory).text()


EVIL = "m: x\nlicense: evil\n```\n# <img src=x onerror=alert(1)> [a](javascript:b) `<i>` **c** | d\n---"
COMMANDS = [shlex.join(["greenadapt", "x", "--option", EVIL])]
MEMORY = {**asdict(MemoryConfig()), "general": {"name": EVIL, "sha256": "ab" * 32, "source": EVIL}}


def expanded(**changes: Any) -> str:
    fields: dict[str, Any] = {
        "model": EVIL,
        "base": None,
        "corpus": EVIL,
        "licence": EVIL,
        "commands": COMMANDS,
        "align": asdict(AlignConfig()),
        "expand": asdict(ExpandConfig()),
        "counts": {"rows": 2, "words": 2, "overlap": 3, "hidden_words": 1},
        "rows": {"recipe": "map", "heldout": {}},
    }
    return AdaptedCard(**{**fields, **changes}).text()


def fine_tuned() -> str:
    settings = {**NerTask(("O", f"B-{EVIL}")).settings(), "memory": MEMORY}
    config = {**test_task_cards.card().config, "memory": asdict(MemoryConfig())}
    evil = test_task_cards.card(task_settings=settings, config=config, sources={"train 1": EVIL, "test": EVIL})
    evil.scores["seeds"][0]["test"] = {**test_task_cards.TEST, "by_type": {EVIL: test_task_cards.F1}}
    return replace(evil, model=EVIL, commands=COMMANDS).text()


def multitask() -> str:
    several = test_task_cards.CARD
    tasks = {name: {**task, "labels": [EVIL]} for name, task in several.tasks.items()}
    entries = [replace(entry, train=(EVIL,), test={"test": EVIL}) for entry in several.entries]
    examples = {name: {"train": 1, "dev": {"dev": 1}, "test": {"test": 1}} for name in tasks}
    changes: dict[str, Any] = {"tasks": tasks, "entries": entries, "examples": examples, "memory": MEMORY}
    return replace(several, model=EVIL, commands=COMMANDS, **changes).text()


def pretrained() -> str:
    config = {**card().config, "memory": asdict(MemoryConfig())}
    return card(model=EVIL, commands=COMMANDS, texts=(EVIL,), memory=MEMORY["general"], config=config).text()


@pytest.mark.parametrize("write", [expanded, fine_tuned, multitask, pretrained])
def test_names_mean_nothing(write: Callable[[], str]) -> None:
    _, front, text = write().split("---\n", 2)
    keys = {"base_model", "library_name", "pipeline_tag", "tags", "co2_eq_emissions"}
    assert set(yaml.safe_load(front)) <= keys  # no licence
    tokens = tokens_of(text)
    assert not [token.type for token in tokens if "html" in token.type or token.type in ("link_open", "image", "hr")]
    assert not [token for token in tokens if token.type == "strong_open"]
    pairs = zip(tokens[1:], tokens, strict=False)
    headings = [token.content for token, before in pairs if before.type == "heading_open"]
    assert headings[-1] == "Made by"
    *_, command = [token.content for token in tokens if token.type == "fence" and "greenadapt" in token.content]
    assert EVIL in shlex.split(command)
    assert "alert(1)" in text


def test_what_sentence_transformers_reads_is_said_of_sentence_models_alone() -> None:
    sentence = "reads this folder by the expanded tokenizer alone"
    for text in (expanded(reads_sentences=True), card(reads_sentences=True).text()):
        assert sentence in text
        assert "\n\n\n" not in text
    for text in (expanded(), card().text()):
        assert sentence not in text
        assert "\n\n\n" not in text


def test_paths_are_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    sources = {"train 1": str(tmp_path / "data/train.tsv"), "test": "/home/me/test.tsv"}
    text = test_task_cards.card(sources=sources).text()
    assert "| train | data/train.tsv |" in text
    assert "| test | test.tsv |" in text
    assert "/home" not in text
    assert str(tmp_path) not in text
