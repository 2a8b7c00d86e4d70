"""``benchmarks/gmap.py`` on tiny models: which runs are made and kept, how it goes on, and what the tables say."""

import gc
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial, partialmethod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from greenadapt.errors import InputError
from greenadapt.inference.ensemble import combined
from tests.conftest import load_benchmark
from tests.support.small_tasks import TinyModel, expand, lines, texts_file

Json = dict[str, Any]
Start = Callable[..., str]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    load_benchmark("tables")
    return load_benchmark("gmap_tables")


@pytest.fixture(scope="module")
def bench(tables: ModuleType) -> ModuleType:
    load_benchmark("records")
    load_benchmark("ensembles")
    return load_benchmark("gmap")


@pytest.fixture
def start(
    bench: ModuleType,
    tiny_model: TinyModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Start]:
    """Runs the benchmark on two small data sets, one of which the paper has; returns what it prints."""
    for number, name in enumerate(("chemprot", "sci-cite")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for seed, part in enumerate(("train", "dev", "test")):
            texts_file(tmp_path / "data" / name / f"{part}.txt", 24 if seed == 0 else 12, 3 * number + seed)
    base = tiny_model("BertForMaskedLM", name="base", initializer_range=0.1)
    domain = expand(base, tmp_path / "domain")
    monkeypatch.setattr(bench, "_model_hash", bench._model_hash.__wrapped__)

    def run(*arguments: object, methods: tuple[str, ...], datasets: tuple[str, ...] = ("chemprot",)) -> str:
        given = ["--data", tmp_path / "data", "--general", base, "--domain", domain]
        given += ["--work", tmp_path / "work", "--datasets", *datasets, "--methods", *methods]
        given += ["--epochs", 1, "--max-length", 32, "--learning-rate", 3e-3, "--batch-size", 8, *arguments]
        monkeypatch.setattr(sys, "argv", ["gmap.py", *map(str, given)])
        bench.main()
        return capsys.readouterr().out

    gc.freeze()  # accelerate collects garbage before each run, among all that was ever imported
    yield run
    gc.unfreeze()


def records(tmp_path: Path) -> list[Json]:
    return lines(tmp_path / "work" / "records.jsonl")


def counted(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where models are trained from now on."""
    places: list[Path] = []
    real = bench.finetune

    def finetune(session: Any, request: Any) -> Any:
        places.append(session.out)
        return real(session, request)

    monkeypatch.setattr(bench, "finetune", finetune)
    return places


def test_all_methods_run(start: Start, bench: ModuleType, tmp_path: Path) -> None:
    out = start("--seeds", 1, "--tapt-epochs", 1, methods=tuple(bench.METHODS))
    rows = records(tmp_path)
    assert {row["method"] for row in rows} == bench.METHODS.keys()
    by_method = {row["method"]: row for row in rows}
    assert by_method["chunk"]["asked"]["memory_config"]["strategy"] == "chunk"
    assert by_method["unfrozen"]["asked"]["memory_config"]["frozen"] is False
    assert by_method["gate"]["asked"]["memory_config"]["attention"] == "gate"
    models = {method: row["asked"]["model"] for method, row in by_method.items() if "asked" in row}
    assert models["dapt"] == models["chunk"] == models["logits"]
    assert models["dapt+tapt"] == models["g-map*"]
    distinct = {models[method] for method in ("fine-tuning", "dapt", "tapt", "dapt+tapt", "interpolation")}
    assert len(distinct) == 5
    assert all(row["seconds"] > 0 for row in rows)
    assert all(row["asked"]["training"]["keep"] == "best" for row in rows if "asked" in row)
    titles = [line.split("|")[1].strip() for line in out.splitlines() if "chemprot" in line]
    assert titles == ["Table 1", "Table 2", "Table 4", "Table 5", "seconds a run"]
    assert list((tmp_path / "work" / "runs").glob("[!.]*")) == []
    assert list((tmp_path / "work" / "kept").rglob("*.safetensors")) != []
    assert list((tmp_path / "work" / "kept").rglob("model.safetensors")) == []


def test_finished_runs_are_not_made_again(
    start: Start, bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = ("ensemble", "interpolation")
    first = start("--seeds", 2, methods=methods)
    assert [(row["method"], row["seed"]) for row in records(tmp_path)] == [
        (method, seed) for seed in (0, 1) for method in ("fine-tuning", "dapt", "ensemble", "interpolation")
    ]
    places = counted(bench, monkeypatch)
    assert start("--seeds", 2, methods=methods) == first
    assert places == []
    file = tmp_path / "work" / "records.jsonl"
    kept = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(kept[:-1]) + kept[-1][:40], "utf-8")  # killed while it wrote the last record
    assert start("--seeds", 2, methods=methods).splitlines()[:8] == first.splitlines()[:8]
    assert [place.name.rsplit("-", 1)[0] for place in places] == ["chemprot-interpolation-1"]
    assert len(records(tmp_path)) == len(kept)
    start("--seeds", 2, "--batch-size", 6, methods=("dapt",))
    assert len(records(tmp_path)) == len(kept) + 2  # another setting is another run


def test_an_interrupted_run_goes_on(
    start: Start, bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from greenadapt.training.loop import Training

    real, numbers = Training.steps, []

    def steps(self: Any, last: int) -> Any:
        for step in real(self):
            numbers.append(step.number)
            yield step
            if step.number == last:
                raise KeyboardInterrupt

    command = partial(start, "--seeds", 1, "--epochs", 2, methods=("dapt",))
    monkeypatch.setattr(Training, "steps", partialmethod(steps, last=4))
    with pytest.raises(KeyboardInterrupt):
        command()
    assert not (tmp_path / "work" / "records.jsonl").exists()
    monkeypatch.setattr(Training, "steps", partialmethod(steps, last=-1))
    command()
    assert numbers == [1, 2, 3, 4, 4, 5, 6]  # from the end of the first epoch
    (went_on,) = records(tmp_path)
    (tmp_path / "work" / "records.jsonl").unlink()
    command()
    assert went_on["scores"] == records(tmp_path)[0]["scores"]
    assert numbers[7:] == [1, 2, 3, 4, 5, 6]


def test_the_ensemble_is_that_of_the_kept_probabilities(bench: ModuleType, start: Start, tmp_path: Path) -> None:
    start("--seeds", 1, methods=("ensemble",))
    kept = [bench.KeptRun.open(path) for path in sorted((tmp_path / "work" / "kept").iterdir())]
    pairs = zip(*(run.logits(0) for run in kept), strict=True)
    task = kept[0].model.task
    labels = [task.labels[combined(pair, "probabilities", task.head).argmax()] for pair in pairs]
    gold = [row["label"] for row in lines(tmp_path / "data" / "chemprot" / "test.txt")]
    (row,) = [row for row in records(tmp_path) if row["method"] == "ensemble"]
    assert row["scores"]["micro_f1"] == pytest.approx(f1_score(gold, labels, average="micro"))
    assert row["scores"]["macro_f1"] == pytest.approx(f1_score(gold, labels, average="macro"))
    assert row["seconds"] == sum(row["seconds"] for row in records(tmp_path) if row["method"] != "ensemble")


def test_seeds_of_each_data_set(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = start("--seeds", 2, 1, methods=("dapt",), datasets=("chemprot", "sci-cite"))
    assert [(row["dataset"], row["seed"]) for row in records(tmp_path)] == [
        ("chemprot", 0), ("chemprot", 1), ("sci-cite", 0)
    ]  # fmt: skip
    assert "(2)" in out
    assert "(1)" in out
    with pytest.raises(SystemExit):
        start("--seeds", 2, 1, methods=("dapt",))
    assert "--seeds has 2 numbers, give one, or one for each of 1" in capsys.readouterr().err


def record(method: str, score: float, **more: Any) -> Json:
    return {"method": method, "scores": {"micro_f1": score, "macro_f1": score / 2}, "seconds": 10, **more}


def test_the_tables(tables: ModuleType) -> None:
    done = {
        "chemprot": {"dapt": [record("dapt", 0.8), record("dapt", 0.9)], "interpolation": [record("i", 0.5)]},
        "sci-cite": {"dapt": [record("dapt", 0.6, seconds=30)]},
    }
    first, fourth, seconds, _ = tables.report(done).split("\n\n")
    deviation = 100 * np.std([0.8, 0.9], ddof=1)
    assert first.splitlines() == [
        "| Table 1       | chemprot, micro F1 | paper      | sci-cite, macro F1 |",
        "| ------------- | ------------------ | ---------- | ------------------ |",
        f"| DAPT          | 85.0 ± {deviation:.1f} (2)     | 84.2 ± 0.2 | 30.0 (1)           |",
        "| Interpolation | 50.0 (1)           |            |                    |",
    ]
    assert fourth.splitlines()[0].startswith("| Table 4 |")
    assert seconds.splitlines()[2] == "| DAPT          | 10.0     | 30.0     |"


def test_the_published_figures(tables: ModuleType) -> None:
    folders = {column: folder for folder, column in tables.FOLDERS.items()}
    for method, column, mean, deviation in (
        ("fine-tuning", "CP", 81.9, 0.1),
        ("fine-tuning", "IMDB", 95.0, 0.2),
        ("dapt", "CI", 75.4, 2.5),
        ("logits", "HP", 91.8, 2.5),
        ("ensemble", "SE", 82.6, 1.0),
        ("single", "CI", 78.6, 2.3),
        ("multiple", "CI", 74.9, 1.3),
        ("gated", "AM", 68.1, 0.5),
        ("chunk", "RCT", 87.9, 0.2),
        ("chunk", "CI", 79.4, 1.0),
        ("tapt", "HP", 90.4, 5.2),
        ("dapt+tapt", "CI", 75.6, 3.8),
        ("g-map*", "CP", 85.1, 0.3),
        ("unfrozen", "SE", 82.4, 1.1),
        ("cross", "CI", 73.5, 2.0),
        ("gate", "SE", 83.4, 0.7),
    ):
        assert tables.published(method, folders[column]) == (mean, deviation)
    assert tables.published("chunk", "sci-cite") is None
    assert tables.published("gate", "imdb") is None
    assert tables.published("interpolation", "chemprot") is None
    sizes = {method: len(figures.split()) for method, figures in tables.PUBLISHED.items()}
    assert set(sizes.values()) == {16, 8}
    assert {method for method, size in sizes.items() if size == 8} == {"unfrozen", "cross", "gate"}
    assert [tables.metric(folder) for folder in ("chemprot", "citation_intent", "sci-cite")] == [
        "micro_f1", "macro_f1", "macro_f1"
    ]  # fmt: skip


def test_a_broken_record_is_named(bench: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps({"key": "a"}) + "\n" + '{"key": "b", "sco\n')
    with pytest.raises(InputError, match=r"records\.jsonl"):
        bench.Records(file)
