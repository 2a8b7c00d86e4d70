"""``benchmarks/engines.py`` and what it is made of: what runs when, and what the figures are."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.progress import Silent
from greenadapt.vectors.cbow import train
from tests.benchmarks.conftest import Benchmarks
from tests.conftest import benchmark_module

# -- runs and table ---------------------------------------------------------------------------------------------------


def asked_by(benchmarks: Benchmarks, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> list[Any]:
    monkeypatch.setattr(sys, "argv", ["engines.py", *map(str, arguments)])
    return benchmarks["engines"]._requests(benchmarks["engines"]._options())


def test_engines_take_turns(benchmarks: Benchmarks, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = ("fast", "gensim", "gensim-lists")
    settings = asked_by(benchmarks, monkeypatch, "--planted", "--repeats", 4, "--seeds", 1, "--engines", *engines)
    sides = [run["side"] for run in settings]
    assert sides == ["fast", "gensim", "gensim-lists", "gensim", "gensim-lists", "fast", "gensim-lists", "fast",
                     "gensim", "fast", "gensim", "gensim-lists"]  # fmt: skip
    assert [run["seed"] for run in settings[::3]] == [run["text"]["planted"] for run in settings[::3]] == [1, 2, 3, 4]
    assert [run["measures"] for run in settings[::3]] == [["quality"], [], [], []]


@pytest.mark.parametrize("arguments", [["--planted", "--engines", "word2vec-c"], ["--zipf", 9, "--references"], []])
def test_options_that_need_others(
    benchmarks: Benchmarks, monkeypatch: pytest.MonkeyPatch, arguments: list[object]
) -> None:
    with pytest.raises(SystemExit) as stop:
        asked_by(benchmarks, monkeypatch, *arguments)
    assert stop.value.code == 2


def test_runs_are_kept_and_references_are_made_once(
    benchmarks: Benchmarks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words\n")
    settings = asked_by(benchmarks, monkeypatch, "--corpus", text, "--references", "--repeats", 2, "--dims", 8)
    module, started = benchmarks["engine_runs"], []

    def start(runs: Any, run: Any) -> Any:
        started.append((run["side"], run["epochs"], run["seed"], run["measures"]))
        return {"words": 1, "memory": 2, "quality": {}, "notes": []}

    monkeypatch.setattr(module.Runs, "_start", start)
    for run in settings:
        module.Runs(tmp_path, None).result(run)
    measures = ["quality", "neighbours"]
    assert started == [
        ("fast", 15, 99, ["reference"]), ("gensim", 15, 99, ["reference"]), ("fast", 5, 1, measures),
        ("gensim", 5, 1, measures), ("gensim", 5, 2, measures), ("fast", 5, 2, measures),
    ]  # fmt: skip
    again = module.Runs(tmp_path, None)
    assert [again.result(run)["words"] for run in settings] == [1] * 4
    assert len(started) == 6
    monkeypatch.setattr(module, "version", lambda package: "another")
    again.result(settings[0])
    assert len(started) == 9  # and both references
    monkeypatch.setattr(module, "hash_file", lambda file: "another")
    again.result({**settings[0], "measures": []})
    assert len(started) == 10
    monkeypatch.undo()
    monkeypatch.setattr(module.Runs, "_start", start)
    again.result({**settings[0], "measures": []})
    assert len(started) == 11
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 11


def test_a_run_measures_what_it_is_asked(benchmarks: Benchmarks, corpus: PreparedCorpus) -> None:
    module = benchmarks["engine_runs"]
    common = {"text": {"zipf": 50}, "dim": 8, "min_count": 1}
    references = [module.whole(module._reference_run(common, side)) for side in ("fast", "gensim")]
    for settings in references:
        result = module.run({**settings, "workers": 1}, corpus.folder, None)
        assert json.loads(json.dumps(result)) == {**result, "quality": {}, "notes": []}
    assert not list(corpus.folder.glob("tmp*"))


def test_neighbours_are_those_shared_with_the_references(
    benchmarks: Benchmarks, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = benchmarks["engine_runs"]
    # With one thread it is made again.
    reference = {"epochs": 2, "alpha": 0.1, "seed": 9, "workers": 1, "measures": ["reference"]}
    monkeypatch.setattr(module, "_REFERENCE", reference)
    settings = {
        "text": {"zipf": 50},
        "dim": 8,
        "min_count": 1,
        "side": "gensim",
        **reference,
        "measures": ["neighbours"],
    }
    for side in ("fast", "gensim"):
        module.run(module.whole(module._reference_run(settings, side)), corpus.folder, None)
    files = [np.load(file) for file in corpus.folder.glob("neighbours-*.npy")]
    assert [rows.shape for rows in files] == [(50, 10)] * 2
    quality = module.run(module.whole(settings), corpus.folder, None)["quality"]
    shared = np.mean([len({*first} & {*second}) / 10 for first, second in zip(*files, strict=True)])
    assert quality == {"neighbours of gensim": 1, "neighbours of fast": pytest.approx(shared)}


def test_quality_of_a_planted_run_is_that_of_its_vectors(benchmarks: Benchmarks, tmp_path: Path) -> None:
    text = {"planted": 1, "tokens": 20_000}
    folder = benchmarks["engine_texts"].made(text, tmp_path, is_written=False)
    options = {"dim": 8, "workers": 1, "epochs": 1, "alpha": 0.1, "seed": 1, "min_count": 1}
    settings = {**options, "side": "fast", "measures": ["quality"], "text": text}
    result = benchmarks["engine_runs"].run(settings, folder, None)
    config = W2VConfig(engine="fast", **options)
    vectors = train(PreparedCorpus.open(folder), config, tmp_path / "train", progress=Silent(), max_memory=1 << 40)
    assert result["quality"] == benchmarks["planted"].scores(vectors)
    assert list(result["quality"]) == ["own group, frequent", "own group, rare"]


def test_table(benchmarks: Benchmarks) -> None:
    results = []
    runs = [("fast", 1, 300, 0.5), ("gensim", 1, 100, 0.25), ("gensim", 2, 200, None), ("fast", 2, 500, 0.75)]
    for side, seed, words, figure in runs:
        settings = {"side": side, "seed": seed, "dim": 8, "workers": 2, "epochs": 5, "alpha": 0.1}
        quality = {} if figure is None else {"P@1": figure}
        results.append((settings, {"words": words, "memory": 10 * seed, "quality": quality, "notes": ["few pairs"]}))
    text = benchmarks["engine_tables"].table(results)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == ["dim", "workers", "epochs", "alpha", "engine", "words/s", "to gensim (each pair)", "MB", "P@1"]
    assert rows[2:] == [
        ["8", "2", "5", "0.1", "fast", "400", "2.67 (3.00, 2.50)", "20", "0.6250 ± 0.1768"],
        ["8", "2", "5", "0.1", "gensim", "150", "1.00 (1.00, 1.00)", "20", "0.2500"],
    ]
    assert text.count("few pairs") == 1


# -- limits -----------------------------------------------------------------------------------------------------------


def test_limits_count_by_hand(benchmarks: Benchmarks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # the script sets it
    limits = benchmark_module("limits")
    for name, value in (("CHUNK", 64), ("GROUP", 8), ("NEGATIVES", 4)):
        monkeypatch.setattr(limits, name, value)
    assert limits.input_rows(5) == 74 / 64
    # Of the rows around 74 / 64 · (1 + 2 + 1); of the own word 3 + 2 + 3; of negatives 4 · 6; of a window.s ends 4.
    assert limits.operations(8, 5) == 8 * (296 / 64 + 8 + 24 + 4)
    assert limits.rows(5) == 2 * (74 / 64 + 1 + 1 / 2)
    # sample · 100 words = 10: of 90 (√9 + 1) / 9 are kept, of 10 all.
    corpus = SimpleNamespace(counts=np.array([90, 10]))
    assert limits.kept_share(corpus, W2VConfig(sample=0.1)) == pytest.approx(0.9 * 4 / 9 + 0.1)
