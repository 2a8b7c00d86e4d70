"""The growth of predicted rows with the text: which runs there are, and what a figure is."""

import json
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.progress import Silent
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from greenadapt.vectors.alignment import overlap
from greenadapt.vectors.cbow import train
from tests.conftest import benchmark_module
from tests.support.small_tasks import TinyModel, known_text, worded_model


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_parts_of_a_text_are_compared_on_the_same_words(
    tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text, work = worded_model(tiny_model), tmp_path / "text.txt", tmp_path / "work"
    text.write_text(known_text())
    main = benchmark_module("growth").main
    options = ["--corpus", f"own={text}", "--work", work, "--results", work, "--model", model, "--words", 0.0006,
             "--rates", 0.05, "--epochs", 1, "--dim", 8, "--widths", 4]  # fmt: skip
    main([*map(str, options)])
    runs = [json.loads(line) for line in (work / "growth.jsonl").read_text().splitlines()]
    whole = W2VConfig(dim=8, alpha=0.05, engine="fast")
    printed = [(record["millions"], record["dim"], record["epochs"], record["alpha"]) for record in runs]
    of_sizes = [(size, 8, epochs, 0.05) for epochs in (5, 1) for size in (0.0006, None)]
    assert printed == [*of_sizes, (None, 4, 5, 0.025)]
    small, large = runs[:2]
    assert small["tokens"] < large["tokens"]
    for name in ("norm", "form"):
        assert small[name]["all"] == small[name]["same"]
        assert small[name]["all"]["n"] == large[name]["same"]["n"] < large[name]["all"]["n"]

    [part] = work.glob("own-inf-*")
    vectors = train(PreparedCorpus.open(part), whole, tmp_path / "training",
                    progress=Silent(), max_memory=1 << 30)  # fmt: skip
    vocabulary = BaseVocabulary(load_tokenizer(model))
    table = np.array(Checkpoint.open(model).embedding()[: vocabulary.size], np.float32)
    words, rows, ids = overlap(vectors, vocabulary)
    with_pieces = [i for i, own in enumerate(vocabulary.pieces_without_row(words)) if own]
    X, Y = vectors.matrix[rows[with_pieces]], table[ids[with_pieces]]
    fold, predicted = np.array([crc32(words[i].encode()) % 5 for i in with_pieces]), np.empty_like(Y)
    for held in (fold == number for number in range(5)):
        predicted[held] = X[held] @ np.linalg.lstsq(X[~held], Y[~held], rcond=None)[0]
    figures = large["norm"]["all"]
    assert figures["r2"] == pytest.approx(1 - np.square(predicted - Y).sum() / np.square(Y - Y.mean(0)).sum(), abs=1e-4)
    candidates = np.delete(table, sorted(vocabulary.special_ids), axis=0)
    unit = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
    own = (predicted * Y).sum(1) / np.linalg.norm(predicted, axis=1) / np.linalg.norm(Y, axis=1)
    cosines = unit @ (predicted / np.linalg.norm(predicted, axis=1, keepdims=True)).T
    assert figures["p10"] == pytest.approx(((cosines > own + 1e-6).sum(axis=0) < 10).mean())
    assert figures["cosine"] == pytest.approx(own.mean(), abs=1e-5)

    table_of_runs = capsys.readouterr().out
    assert f"{figures['p10']:.1%}" in table_of_runs
    main([*map(str, [*options, "--plots", tmp_path / "plots"])])
    assert "own row among the ten nearest" in (tmp_path / "plots" / "growth-words.svg").read_text()
    assert len((work / "growth.jsonl").read_text().splitlines()) == len(runs)
