"""``benchmarks/pals.py`` and ``benchmarks/pals_speed.py`` on tiny models: what is compared, and what the tables say."""

import gc
import itertools
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from greenadapt.training import loop
from greenadapt.training.loop import Training
from tests.conftest import benchmark_module
from tests.support.small_tasks import TinyModel, lines, ner_file, texts_file
from tests.support.watched import watched

Start = Callable[..., str]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return benchmark_module("pals")


@pytest.fixture(scope="module")
def speed() -> ModuleType:
    return benchmark_module("pals_speed")


@pytest.fixture(autouse=True)
def less_garbage() -> Iterator[None]:
    gc.freeze()  # accelerate collects garbage before each run, among all that was ever imported
    yield
    gc.unfreeze()


@pytest.fixture
def start(
    bench: ModuleType,
    tiny_model: TinyModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Start:
    """Runs the benchmark on small files where the real ones would be; returns what it prints."""
    for number, data in enumerate(bench.TASKS.values()):
        folder = tmp_path / "data" / data.folder
        folder.mkdir(parents=True)
        for seed, file in enumerate(data.files):
            make = ner_file if data.folder.startswith("ner") else texts_file
            make(folder / file, 24 if seed == 0 else 10, 3 * number + seed)
    model = tiny_model(name="base", initializer_range=0.1)
    monkeypatch.setattr(bench, "_model_hash", bench._model_hash.__wrapped__)

    def run(*arguments: object, methods: tuple[str, ...], tasks: tuple[str, ...] = ("chemprot", "ncbi-disease")) -> str:
        options = ["--data", tmp_path / "data", "--work", tmp_path / "work", "--model", model, "--tasks", *tasks]
        options += ["--methods", *methods, "--epochs", 1, "--max-length", 64, "--batch-size", 8, *arguments]
        monkeypatch.setattr(sys, "argv", ["pals.py", *map(str, options)])
        bench.main()
        return capsys.readouterr().out

    return run


def records(tmp_path: Path) -> list[dict[str, Any]]:
    return lines(tmp_path / "work" / "records.jsonl")


def test_methods_are_those_of_their_names(start: Start, bench: ModuleType, tmp_path: Path) -> None:
    methods = ("separate", "shared", "pals", "top-attention", "pals-round-robin")
    out = start("--seeds", 1, methods=methods)
    runs = records(tmp_path)
    by_method = {row["method"]: row for row in runs}
    assert tuple(by_method) == methods
    configs = {method: row["asked"]["config"] for method, row in by_method.items()}
    for method, adapter, sampling in (
        ("separate", "none", "anneal"),
        ("shared", "none", "anneal"),
        ("pals", "pals", "anneal"),
        ("top-attention", "top-attention", "anneal"),
        ("pals-round-robin", "pals", "round-robin"),
    ):
        assert (configs[method]["adapter"], configs[method]["sampling"]) == (adapter, sampling)
        assert configs[method]["freeze_encoder"] is False
        assert configs[method]["keep"] == "best"
    for sampling in ("proportional", "square-root"):
        assert bench.METHODS[f"pals-{sampling}"] == bench.Method("pals", sampling)
    assert bench.METHODS["low-rank"] == bench.Method("low-rank", "anneal")
    assert [list(row["scores"]) for row in runs if row["method"] == "separate"] == [["chemprot"], ["ncbi-disease"]]
    assert list(by_method["pals"]["scores"]) == ["chemprot", "ncbi-disease"]
    assert not list((tmp_path / "work" / "runs").glob("[!.]*"))

    (_, *rows) = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in out.splitlines() if line]
    table = {row[0]: row for row in rows}
    shared, pals, separate = (int(table[name][1].replace(",", "")) for name in ("shared", "pals", "separate"))
    alone = [row["parameters"] for row in runs if row["method"] == "separate"]
    assert separate == sum(alone)
    assert shared < pals < separate < 2 * shared
    assert table["separate"][5] == table["shared"][5] == "6"  # steps: of 24 examples three a task
    assert table["pals"][2] == f"{100 * by_method['pals']['scores']['chemprot']:.1f} (1)"


def test_a_finished_run_is_not_made_again_and_a_killed_one_goes_on(
    start: Start, bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []
    real = bench.finetune

    def counted(session: Any, request: Any) -> Any:
        trained.append(session.out.name.rsplit("-", 1)[0])
        return real(session, request)

    monkeypatch.setattr(bench, "finetune", counted)
    steps = Training.train_steps

    def killed(self: Any) -> Any:
        yield from itertools.islice(steps(self), 8)
        raise KeyboardInterrupt

    command = ("--seeds", 1, "--epochs", 2)
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_EPOCHS_SAVED", -1)
    monkeypatch.setattr(Training, "train_steps", killed)
    with pytest.raises(KeyboardInterrupt):
        start(*command, methods=("shared",))
    numbers: list[int] = []

    def watched(self: Any) -> Any:
        for step in steps(self):
            numbers.append(step.number)
            yield step

    monkeypatch.setattr(Training, "train_steps", watched)
    first = start(*command, methods=("shared",))
    assert numbers[0] > 1
    assert numbers[-1] == 12
    (went_on,) = records(tmp_path)
    assert start(*command, methods=("shared",)) == first
    assert trained == ["shared-0", "shared-0"]
    shutil.rmtree(tmp_path / "work")
    start(*command, methods=("shared",))
    assert records(tmp_path)[0]["scores"] == went_on["scores"]
    start("--seeds", 2, methods=("shared",))
    assert trained[3:] == ["shared-0", "shared-1"]  # other settings are another run


def test_limits_and_steps(start: Start, tmp_path: Path) -> None:
    """The first examples are read, and separate models share the steps by how many they have."""
    limits = ("--train-limit", 16, "--test-limit", 4, "--seeds", 1, "--steps-per-epoch", 5)
    train = tmp_path / "data/classification/chemprot/train.txt"
    start(*limits, methods=("separate", "shared"))
    assert [row["steps"] for row in records(tmp_path)] == [3, 3, 5]
    cut = {path.name: path.read_text("utf-8") for path in (tmp_path / "work" / "data").iterdir()}
    assert len(cut) == 6
    assert cut["chemprot-train-16.txt"].splitlines() == train.read_text("utf-8").splitlines()[:16]
    sentences = (tmp_path / "data/ner/NCBI-disease/test.tsv").read_text("utf-8").split("\n\n")
    assert cut["NCBI-disease-test-4.tsv"].rstrip("\n").split("\n\n") == sentences[:4]
    start(*limits[:-2], methods=("shared",))
    assert records(tmp_path)[-1]["steps"] == 4


def test_the_table_has_mean_and_deviation(bench: ModuleType) -> None:
    seeds = [
        {"scores": {"chemprot": first, "acl-arc": two}, "parameters": 1000, "steps": 7, "seconds": 2.0}
        for first, two in ((0.8, 0.6), (0.9, None))
    ]
    head, _, row = bench.table({"pals": seeds, "shared": []}).splitlines()
    assert "chemprot, micro_f1 | acl-arc, macro_f1" in head
    deviation = np.std([70, 45], ddof=1)
    expected = ["pals", "1,000", "85.0 ± 7.1 (2)", "30.0 ± 42.4 (2)", f"57.5 ± {deviation:.1f} (2)", "7", "2.0"]
    assert [cell.strip() for cell in row.strip("| ").split("|")] == expected


@pytest.fixture
def timed(
    speed: ModuleType,
    tiny_model: TinyModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Start:
    texts_file(tmp_path / "train.txt", 24)
    model = tiny_model(name="base", initializer_range=0.1)

    def run(*arguments: object) -> str:
        options = ["--data", tmp_path, "--model", model, "--batch-size", 4, "--max-length", 32, *arguments]
        monkeypatch.setattr(sys, "argv", ["pals_speed.py", *map(str, options)])
        speed.main()
        return capsys.readouterr().out

    return run


def test_all_sides_learn_from_the_same_batches(
    timed: Start, speed: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, trained = watched()
    monkeypatch.setattr(speed, "Training", training)
    out = timed("--steps", 3, "--texts", 1, 5).splitlines()
    (plain, by_plain), *other_sides = trained
    assert type(plain).__name__ == "BertForSequenceClassification"
    assert [step.number for step in by_plain] == list(range(1, 4 + speed.WARM_UP))
    for model, steps in other_sides:
        assert model.tasks == speed.TASKS
        assert [(item.pieces, item.learning_rate) for item in steps] == [
            (item.pieces, item.learning_rate) for item in by_plain
        ]
        assert [item.task for item in steps[:4]] == ["first", "second", "third", "first"]
    adapters = [model.part("first").spec.adapter for model, _ in other_sides]
    assert [(item.adapter, item.size) for item in adapters] == [
        ("none", None), ("pals", 8), ("low-rank", None), ("top-attention", None)
    ]  # fmt: skip
    assert [line.split("  ")[0] for line in out[3:]] == [
        "training", *speed.TRAINING, "reading 1", *speed.READING, "reading 5", *speed.READING
    ]  # fmt: skip
    limits = {line.split("  ")[0]: line.split()[-1] for line in out[4:9]}
    assert limits["pals"] == "1.25"
    assert [line.split()[-1] for line in out if line.startswith("pals, top")] == ["0.80", "0.80"]


def test_ratios_are_of_medians_and_of_the_same_steps(speed: ModuleType) -> None:
    seconds = {"plain": [1.0, 2.0, 4.0, 0.5, 3.0], "pals": [1.5, 2.0, 8.0, 1.0, 6.0]}
    head, plain, pals = speed.table("training", seconds, {"plain": None, "pals": 1.25})
    assert head.split() == ["training", "ms", "ratio", "of", "each", "step", "at", "most"]
    assert plain.split() == ["plain", "2000.0", "1.000", "1.000", "(1.000–1.000)"]
    assert pals.split() == ["pals", "2000.0", "1.000", "2.000", "(1.500–2.000)", "1.25"]


def test_a_record_is_told_apart_by_its_data(start: Start, tmp_path: Path) -> None:
    start("--seeds", 1, methods=("shared",), tasks=("chemprot",))
    file = tmp_path / "data/classification/chemprot/test.txt"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:8]), "utf-8")
    start("--seeds", 1, methods=("shared",), tasks=("chemprot",))
    assert len({row["key"] for row in records(tmp_path)}) == 2
