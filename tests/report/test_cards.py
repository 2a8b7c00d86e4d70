"""The READMEs of pre-trained models."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from greenadapt.config import GMAP_PRETRAINING, MemoryConfig, PretrainConfig, TrainConfig
from greenadapt.report.cards import PretrainCard
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
    assert '{FOLDER}/base_tokenizer"' in text
    assert "; 12 seconds, 1 Wh (estimate)" in text
    assert "head" not in text
    assert "memory" not in text
    assert "{" not in text.replace("{FOLDER}", "")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"scores": {"new_head_steps": 20, "losses": {}}},
            "its head was trained alone for 20 steps\nbefore the losses",
        ),
        ({"scores": {"new_head_steps": 0, "losses": {}}}, "its head was drawn."),
        ({"config": {**card().config, "whole_words": True}}, "15% of the pieces, whole words, all weights"),
        ({"config": {**card().config, "only_new_rows": True}}, "only the rows of added words"),
        ({"is_expanded": False}, "AutoTokenizer.from_pretrained(FOLDER)"),
    ],
)
def test_what_it_says_where_that_differs(changes: dict[str, Any], text: str) -> None:
    assert text in card(**changes).text()
    assert text not in card().text()


def test_a_memory_of_pretraining() -> None:
    config = {**card().config, "memory": asdict(MemoryConfig("gated", layers=(3,)))}
    memory = {"name": "tiny", "source": "org/tiny", "sha256": "0"}
    assert "states of the general model tiny as memory, strategy `gated`" in card(config=config, memory=memory).text()
