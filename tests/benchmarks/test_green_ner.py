"""The pure parts of ``benchmarks/green_ner.py``: which runs, what is kept of them, and what the table says."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from seqeval.metrics import f1_score

from greenadapt.corpus.text import Decoder
from greenadapt.progress import Silent
from greenadapt.storage.arrays import Array, write_arrays
from greenadapt.tasks.conll import Sentence, read_conll
from greenadapt.tasks.metrics import paired
from greenadapt.tasks.ner import NerTask
from tests.conftest import benchmark_module

LABELS = ("O", "B-X", "I-X")
TASK = NerTask(LABELS)


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return benchmark_module("green_ner")


@pytest.fixture
def test_set() -> list[Sentence]:
    random = np.random.default_rng(0)
    tags = [["O", "B-X", *random.choice(["O", "B-X"], size=n).tolist()] for n in random.integers(1, 6, size=30)]
    return [Sentence(tuple(f"w{i}" for i in range(len(sentence_tags))), tuple(sentence_tags)) for sentence_tags in tags]


def logits_of(test: list[Sentence], seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=(len(sentence.words), len(LABELS))).astype(np.float32) for sentence in test]


def write_record(folder: Path, test: list[Sentence], logits: list[Array]) -> dict[str, Any]:
    """What a finished run leaves in its result's folder, and what it was asked for."""
    seed_folder = folder / "seeds" / "7"
    seed_folder.mkdir(parents=True)
    predictions = [TASK.decode(sentence, item) for sentence, item in zip(test, logits, strict=True)]
    (seed_folder / "predictions.jsonl").write_text("".join(json.dumps(item) + "\n" for item in predictions))
    offsets = np.cumsum([0, *(len(item) for item in logits)]).astype(np.int64)
    write_arrays(seed_folder / "logits.safetensors", {"base": np.concatenate(logits), "offsets": offsets})
    (folder / "task.json").write_text(json.dumps(TASK.settings()))
    views = {"base": TASK.score(test, predictions)}
    scores = {"seeds": [{"seed": 7, "test": {**views["base"], "views": views}}]}
    (folder / "scores.json").write_text(json.dumps(scores))
    return {"anything": 1}


@pytest.fixture
def records(bench: ModuleType, test_set: list[Sentence], tmp_path: Path) -> dict[int, Any]:
    result = {}
    for seed in range(3):
        settings = write_record(tmp_path / f"result{seed}", test_set, logits_of(test_set, seed))
        bench.keep(tmp_path / f"result{seed}", 7, tmp_path / f"record{seed}", settings)
        result[seed] = bench.Record(tmp_path / f"record{seed}")
    return result


def f1_of(test: list[Sentence], logits: list[Array]) -> float:
    predicted = [TASK.decode(sentence, values)["tags"] for sentence, values in zip(test, logits, strict=True)]
    return float(f1_score([list(sentence.tags or ()) for sentence in test], predicted))


def test_the_first_sentences(bench: ModuleType, tmp_path: Path) -> None:
    text = "\nA\tO\nb\tB-X\n\n\nC\tO\n \nD\tO\n"
    for n, expected in ((0, []), (1, [("A", "b")]), (2, [("A", "b"), ("C",)]), (9, [("A", "b"), ("C",), ("D",)])):
        (tmp_path / "x.tsv").write_text(bench.first_sentences(text, n))
        assert [sentence.words for sentence in read_conll(str(tmp_path / "x.tsv"), Decoder(), Silent())] == expected


def test_the_base_model_is_always_trained(bench: ModuleType) -> None:
    assert bench.trained_arms(["control", "norm", "base", "map"]) == ["base", "norm", "map"]


def test_a_record_is_finished_once_all_of_it_is_there(
    bench: ModuleType, test_set: list[Sentence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = write_record(tmp_path / "result", test_set, logits_of(test_set, 0))
    record = bench.Record(tmp_path / "record")
    assert not record.is_finished
    with monkeypatch.context() as patch:
        patch.setattr(bench, "write_json", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            bench.keep(tmp_path / "result", 7, record.folder, settings)
    assert not record.is_finished
    bench.keep(tmp_path / "result", 7, record.folder, settings)
    assert record.is_finished


def test_the_control_is_the_mean_of_two_seeds(
    bench: ModuleType, records: dict[int, Any], test_set: list[Sentence]
) -> None:
    control = bench.control_runs(records, test_set)
    logits = [logits_of(test_set, seed) for seed in range(3)]
    for position, (a, b) in enumerate([(0, 1), (1, 2), (2, 0)]):
        mean = [(first + second) / 2 for first, second in zip(logits[a], logits[b], strict=True)]
        assert control.f1["mean"][position] == pytest.approx(f1_of(test_set, mean))
        assert TASK.main_score(control.statistics[position].sum(0)) == pytest.approx(f1_of(test_set, mean))


def test_the_rows_of_a_set(bench: ModuleType, records: dict[int, Any], test_set: list[Sentence]) -> None:
    base = bench.arm_runs(records, test_set)
    fewer = bench.arm_runs({seed: records[(seed + 1) % 3] for seed in (0, 2)}, test_set)
    f1 = [f1_of(test_set, logits_of(test_set, seed)) for seed in range(3)]
    rows = bench.set_rows({"base": base, "control": bench.control_runs(records, test_set), "map": fewer})
    assert [row["arm"] for row in rows] == ["base", "control", "map"]
    assert rows[0]["mean"] == pytest.approx(np.mean(f1))
    assert rows[0]["std"] == pytest.approx(np.std(f1, ddof=1))
    assert "to_base" not in rows[0]
    assert "to_control" not in rows[1]
    interval = paired(fewer.statistics, base.statistics[[0, 2]], TASK.main_score)
    assert rows[2]["to_base"]["difference"] == pytest.approx(np.mean([f1[1], f1[0]]) - np.mean([f1[0], f1[2]]))
    assert rows[2]["to_base"]["low"] == interval.low


def test_the_mean_over_sets_and_the_table(bench: ModuleType) -> None:
    def row(arm: str, mean: float, **fields: Any) -> dict[str, Any]:
        return {"arm": arm, "seeds": 2, "mean": mean, "base": 0.5, "expanded": 0.25, "std": 0.01, **fields}

    change = {"difference": 0.1, "low": -0.025, "high": 0.2}
    by_set = {
        "one": [row("base", 0.5), row("map", 0.6, to_base=change), row("norm", 0.9)],
        "two": [row("base", 0.7), row("map", 0.9, to_base={**change, "difference": 0.2})],
    }
    mean = bench.mean_rows(by_set)
    assert [(entry["arm"], entry["mean"]) for entry in mean] == [
        ("base", pytest.approx(0.6)),
        ("map", pytest.approx(0.75)),
    ]
    assert mean[1]["to_base"] == {"difference": pytest.approx(0.15)}
    assert "| map | 2 | 60.00 ± 1.00 | 50.00 | 25.00 | +10.00 (-2.50 to +20.00) |  |" in bench.table(
        "one", by_set["one"]
    )
    assert "| base | 2 | 60.00 |  |  |  |  |" in bench.table("mean", mean)
