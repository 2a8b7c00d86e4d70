"""Losses of causal language models with added words, in bits per byte."""

import json
import math
from pathlib import Path

import pytest
import torch
import transformers

from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from tests.conftest import benchmark_module
from tests.support.sentencepiece_models import real_lines


@pytest.mark.long
@pytest.mark.usefixtures("one_thread", "run_alone")
def test_losses_are_those_of_the_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, work = tmp_path / "text.txt", tmp_path / "work"
    text.write_text("\n".join(real_lines() * 2), "utf-8")
    benchmark = benchmark_module("decoders")
    small = ["--size", "900", "--width", "32", "--layers", "1", "--minutes", "0.02", "--measured-lines", "5"]
    benchmark.main([str(text), str(text), "--work", str(work), "--tune-lines", "40", "--untied", *small])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    arms = {row["arm"]: row["before"] for row in records if "arm" in row}
    assert arms.keys() >= {"base", "map", "norm", "form", "pieces", "random"}

    lines = [line for line in (real_lines() * 2)[::50] if 20 < len(line) < 3 * benchmark.CONTEXT][:5]
    for name in ("base", "map"):
        model = transformers.AutoModelForCausalLM.from_pretrained(work / name).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(work / name)
        bits = 0.0
        for line in lines:
            ids = tokenizer(line, return_tensors="pt").input_ids
            with torch.no_grad():
                bits += model(ids, labels=ids).loss.item() * (ids.shape[1] - 1) / math.log(2)
        assert arms[name]["all"] == pytest.approx(bits / sum(len(line.encode()) for line in lines), rel=1e-4)
    assert len(DualTokenizer.load(work / "map").added) > 20
