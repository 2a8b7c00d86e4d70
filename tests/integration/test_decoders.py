"""Generative language models get rows for words, and are refused by what does more."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from greenadapt.vectors.alignment import overlap
from greenadapt.vectors.word_vectors import WordVectors
from tests.conftest import Run, last_line
from tests.support.decoders import DECODERS, generative_model
from tests.support.sentencepiece_models import real_lines

ODD = ["  two  spaces, and x_{i} = 日本 naïve 😀", "(tachycardia) re-enters\ttabs", "é e\u0301 <0x41>", ""]
LONG = ("Gemma", "Qwen3", "GPT2")


def adapt(run_alone: Run, base: Path, *options: object) -> None:
    Path("text.txt").write_text("\n".join(real_lines()), "utf-8")
    vectors = ("--min-count", 3, "--epochs", 1, "--workers", 1, "--engine", "gensim")
    run_alone("w2v", "-c", "text.txt", "-m", base, *vectors)
    run_alone("align", "-c", "text.txt", "-m", base)
    run_alone("expand", "-c", "text.txt", "-m", base, "-o", "adapted", *options)


def logits(folder: Path, ids: list[int]) -> torch.Tensor:
    config = transformers.AutoConfig.from_pretrained(folder)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model = auto.from_pretrained(folder).eval()
    reads = {"labels": torch.tensor([ids])} if config.is_encoder_decoder else {}
    with torch.no_grad():
        values: torch.Tensor = model(torch.tensor([ids]), **reads).logits
    return values


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("family", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in DECODERS])
def test_rows_for_words(run_alone: Run, tmp_path: Path, family: str) -> None:
    base = generative_model(tmp_path / "base", family)
    adapt(run_alone, base, "--rows", "map")
    folder = tmp_path / "adapted"
    before, after = (Checkpoint.open(path, generative=True) for path in (base, folder))
    dual, tokenizer = DualTokenizer.load(folder), load_tokenizer(base)
    assert after.n_rows == before.n_rows + len(dual.added)
    assert len(dual.added) > 50

    plain, plain_base = (transformers.AutoTokenizer.from_pretrained(path) for path in (folder, base))
    assert plain.eos_token == "</s>"
    new_rows = range(before.n_rows, after.n_rows)
    hidden = {row for row in new_rows if plain.convert_ids_to_tokens(row).startswith("unused row")}
    assert len(hidden) < len(new_rows) / 20  # words that the plain tokenizer never finds
    n_found = 0
    for line in [*real_lines(), *ODD]:
        encoding, ids = dual.encode(line), plain(line, add_special_tokens=False)["input_ids"]
        assert encoding.base.ids.tolist() == tokenizer.encode(line, add_special_tokens=False).ids
        if hidden & {*encoding.expanded.ids.tolist()}:
            continue
        assert encoding.expanded.ids.tolist() == ids or (family == "T5" and line in ODD)
        if family != "T5":  # whose plain tokenizer leaves out spaces before added words
            assert plain.decode(ids) == plain_base.decode(encoding.base.ids)
        n_found += sum(i >= before.n_rows for i in ids)
    assert n_found > 200

    ids = next(dual.encode(line).base.ids.tolist() for line in real_lines() if len(dual.encode(line).base.ids) > 20)
    torch.testing.assert_close(logits(folder, ids)[..., : before.n_rows], logits(base, ids))

    vectors = WordVectors.load(next((tmp_path / "ws").glob("*/*/w2v")))
    _, rows, base_ids = overlap(vectors, BaseVocabulary(tokenizer))
    assert (before.untied_output() is None) == (family in ("Gemma", "GPT2", "T5"))
    for name in (before.embedding_name, *([before.decoder_name] if before.untied_output() is not None else [])):
        overlap_vectors, numbers = (
            vectors.matrix[rows].astype(float),
            [vectors.index[word] for word in dual.added.all_surfaces()],
        )
        solution = np.linalg.lstsq(overlap_vectors, before[name][base_ids].astype(float), rcond=None)[0]
        np.testing.assert_array_equal(after[name][: before.n_rows], before[name])
        np.testing.assert_allclose(after[name][before.n_rows :], vectors.matrix[numbers] @ solution, atol=1e-4)

    run_alone("expand", "-c", "text.txt", "-m", base, "--rows", "form", "-o", "formed")
    lengths = np.linalg.norm(Checkpoint.open(tmp_path / "formed", generative=True).embedding()[before.n_rows :], axis=1)
    assert np.ptp(lengths) > 1e-3  # not rescaled


def test_everything_else_refuses_them_by_name(run_alone: Run, tmp_path: Path) -> None:
    base = generative_model(tmp_path / "base", "Llama")
    Path("a.txt").write_text("the heart\n")
    Path("a.tsv").write_text("the\tO\nheart\tB-X\n\n")
    ner = ("--task", "ner", "--train", "a.tsv", "--test", "a.tsv", "-o", "made")
    for command in (
        ("finetune", "-m", base, *ner),
        ("finetune", "-m", "minilm", "--memory", base, *ner),
        ("pretrain", "-m", base, "--text", "a.txt", "-o", "made"),
        ("predict", "-m", base, "-i", "a.txt"),
        ("evaluate", "-m", base, "--test", "a.tsv"),
        ("qa", "-m", base, "--data", "a.txt"),
        ("compile", "-m", base, "-o", "made"),
        ("serve", "-m", base),
        ("index", "--documents", "a.txt", "-m", base, "-o", "made"),
    ):
        line = last_line(run_alone(*command, code=1))
        assert "generative language model (llama)" in line, command
    assert not Path("made").exists()


def test_wrong_sizes_are_refused(run_alone: Run, tmp_path: Path) -> None:
    base = generative_model(tmp_path / "base", "Llama")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    (tmp_path / "text.txt").write_text("the heart\n")
    assert "num_hidden_layers is 3" in last_line(run_alone("w2v", "-c", "text.txt", "-m", base, code=1))
