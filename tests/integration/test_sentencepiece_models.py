"""XLM-RoBERTa, DeBERTa and ALBERT with SentencePiece tokenizers, from real text to answers."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import WordSplitter, load_tokenizer
from tests.conftest import Run, json_lines
from tests.support.references import states
from tests.support.sentencepiece_models import LAYOUTS, known_words, real_lines, sentencepiece_model

FAST = ("--epochs", 2, "--max-steps", 3, "--batch-size", 4, "--max-length", 128)


def sentences(path: Path, lines: list[str]) -> Path:
    """Sentences whose words in quotes are code."""
    rows = ("".join(f"{word}\tB-Code\n" if "`" in word else f"{word}\tO\n" for word in line.split()) for line in lines)
    path.write_text("\n".join(rows), "utf-8")
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("family", LAYOUTS)
def test_from_text_to_answers(run_alone: Run, tmp_path: Path, family: str) -> None:
    base, text = sentencepiece_model(tmp_path / "base", family), tmp_path / "text.txt"
    text.write_text("\n".join(real_lines()), "utf-8")
    vectors = ("--min-count", 3, "--epochs", 1, "--workers", 1)
    run_alone("adapt", "-c", text, "-m", base, "-o", "adapted", *vectors)
    before, after = Checkpoint(base), Checkpoint(tmp_path / "adapted")
    assert after.dim == before.dim == (16 if family == "Albert" else 32)
    np.testing.assert_array_equal(after.embedding()[: before.n_rows], before.embedding())
    dual = DualTokenizer.load(tmp_path / "adapted")
    assert after.n_rows == before.n_rows + len(dual.added)
    assert len(dual.added) > 50
    tokenizer = load_tokenizer(base)
    counts = Counter(word for line in real_lines() for word in WordSplitter(tokenizer).split(line))
    hidden = [word for word in dual.added.all_surfaces() if tokenizer.token_to_id(word) is not None]
    facts = json.loads((tmp_path / "adapted" / "greenadapt.json").read_text())
    assert facts["hidden_words"] == len(hidden)
    assert facts["hidden_occurrences"] == sum(counts[word] for word in hidden)

    first, second = known_words(tokenizer)
    old, new = f"{first} {second}, ({first})", f"{first} {dual.added.all_surfaces()[-1]}, ({second})"
    assert (dual.encode(old).expanded.ids < before.n_rows).all()
    torch.testing.assert_close(states(tmp_path / "adapted", old), states(base, old), rtol=0, atol=0)
    assert states(tmp_path / "adapted", new).shape != states(base, new).shape

    train, test = (sentences(tmp_path / f"{name}.tsv", lines) for name, lines in parts().items())
    run_alone("finetune", "--task", "ner", "-m", "adapted", "--train", train, "--test", test, "-o", "ner", *FAST)
    scores = json.loads((tmp_path / "ner" / "scores.json").read_text())
    assert set(scores["seeds"][0]["test"]["views"]) >= {"base", "expanded"}
    text.write_text("\n".join(real_lines()[:10]), "utf-8")
    for line, row in zip(real_lines(), json_lines(run_alone("predict", "-m", "ner", "-i", text)), strict=False):
        assert all(line[entity["start"] : entity["end"]] == entity["text"] for entity in row["entities"])


def parts() -> dict[str, list[str]]:
    with_code = [line for line in real_lines() if any("`" in word for word in line.split())]
    return {"train": with_code[:12], "test": with_code[12:18]}
