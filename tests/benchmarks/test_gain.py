"""The laboratory of ``benchmarks/gain``: its table from an empty folder, what a run sees, and its statistics."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from greenadapt.checkpoints.layout import LOGITS, SEEDS, TASK_FILE
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import ExpandConfig, TrainConfig
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import finetune
from greenadapt.storage.arrays import ArrayFile
from greenadapt.tasks.base import load_task
from greenadapt.tasks.bootstrap import paired
from greenadapt.tasks.ner.sentences import Sentence
from greenadapt.tasks.ner.task import NerTask
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from tests.conftest import Notes, benchmark_module
from tests.support.small_tasks import NEW, TinyModel, adapted, lines, ner_file, qa_file, read_json, session, texts_file
from tests.support.small_texts import text_file

Json = dict[str, Any]
TRAINING = TrainConfig(epochs=2, learning_rate=7e-3)


@pytest.fixture(scope="module")
def differences() -> ModuleType:
    return benchmark_module("gain.differences")


def write_sets(data: Path) -> None:
    for folder in (data / "ner" / "words", data / "classification" / "texts"):
        folder.mkdir(parents=True)
    for seed, (tsv, txt) in enumerate((("train", "train"), ("devel", "dev"), ("test", "test"))):
        ner_file(data / "ner" / "words" / f"{tsv}.tsv", 60, seed)
        texts_file(data / "classification" / "texts" / f"{txt}.txt", 60, seed)
    (data / "qa").mkdir()
    qa_file(data / "qa" / "papers.json", 20)


@pytest.fixture
def laboratory(tmp_path: Path, tiny_model: Callable[..., Path]) -> Callable[..., list[Json]]:
    """Run the command on tiny sets; returns the finished runs."""
    model = tiny_model(name="base", initializer_range=0.1)
    write_sets(tmp_path / "data")
    corpus = text_file(tmp_path / "corpus.txt", 300)
    main = benchmark_module("gain.__main__").main

    def run(*arguments: object) -> list[Json]:
        places = ["--data", tmp_path / "data", "--corpus", corpus, "--work", tmp_path / "work", "--model", model]
        main([*map(str, [*arguments, *places, "--workers", 1])])
        return lines(tmp_path / "work" / "runs.jsonl")

    return run


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_one_command_makes_the_table_and_a_second_one_nothing(
    laboratory: Callable[..., list[Json]], tmp_path: Path
) -> None:
    asked = ("--sets", "words", "--budgets", 50, "--seeds", 2, "--arms", "base", "control", "norm",
             "--rates", 7e-3, 1e-5, "--epoch-counts", 4, "--batch-size", 8, "--test-sentences", 40)  # fmt: skip
    runs = laboratory(*asked)
    order = [(one["seed"], one["arm"]) for one in runs]
    assert order == [(seed, arm) for seed in (0, 1) for arm in ("base", "control", "norm")]
    # What arms are trained on, and how, is the same; another seed has other sentences, and is measured on the same.
    for seed in (0, 1):
        assert len({one["settings"]["train"] for one in runs if one["seed"] == seed}) == 1
    assert len({one["settings"]["train"] for one in runs}) == 2
    assert len({one["settings"]["measured"] for one in runs}) == 1
    plan = {row["learning_rate"]: row["dev"] for row in lines(tmp_path / "work" / "plan.jsonl")}
    assert plan[7e-3] > plan[1e-5]
    assert {one["settings"]["training"]["learning_rate"] for one in runs} == {7e-3}

    (table,) = read_json(tmp_path / "work" / "table.json")
    assert (table["budget"], table["of"]) == (50, "words, 4 epochs at 0.007")
    for row in table["arms"]:
        own = [one for one in runs if one["arm"] == row["arm"]]
        assert row["mean"] == pytest.approx(np.mean([one["scores"]["mean"] for one in own]))
    base, _, norm = table["arms"]
    assert norm["compared"]["pooled to base"]["difference"] == pytest.approx(norm["mean"] - base["mean"])
    assert "| norm | 1 | 2 |" in (tmp_path / "work" / "table.md").read_text()

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    assert laboratory(*asked) == runs
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")} == before
    # A run that is lost is made again as it was.
    file = tmp_path / "work" / "runs.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    again = laboratory(*asked)
    assert again[-1]["scores"] == runs[-1]["scores"]
    assert len(again) == len(runs)

    # Of runs under other conditions, the report has those of the base model's last run, or those that are asked for.
    made = (tmp_path / "work" / "table.json").read_text()
    laboratory(*asked, "--first-seed", 1, "--seeds", 1, "--epochs", 1, "--learning-rate", 1e-3)
    laboratory("report", *asked)
    (table,) = read_json(tmp_path / "work" / "table.json")
    assert (table["of"], [row["seeds"] for row in table["arms"]]) == ("words, 1 epochs at 0.001", [1, 1, 1])
    laboratory("report", *asked, "--epochs", 4)
    assert (tmp_path / "work" / "table.json").read_text() == made


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_control_averages_two_base_models_of_the_same_sentences(
    laboratory: Callable[..., list[Json]], tmp_path: Path
) -> None:
    base, control = laboratory("--sets", "words", "--budgets", 30, "--seeds", 1, "--arms", "control",
                               "--learning-rate", 7e-3, "--epochs", 2)  # fmt: skip
    sets = tmp_path / "work" / "sets" / "words"
    seeds = (0, 1000)
    request = FinetuneRequest.of_one(
        str(tmp_path / "base"), (str(sets / "train-30-0.tsv"),), test=str(sets / "test-all.tsv"), training=TRAINING,
        seeds=seeds, save_logits=True,
    )  # fmt: skip
    result = finetune(session(tmp_path), request)
    each = [ArrayFile(result.folder / SEEDS / str(seed) / LOGITS) for seed in seeds]
    task = load_task(read_json(result.folder / TASK_FILE))
    examples = NerTask().read(str(sets / "test-all.tsv"), session(tmp_path).progress)
    for record, logits in ((base, each[0]["base"]), (control, (each[0]["base"] + each[1]["base"]) / 2)):
        units = np.split(logits, each[0]["offsets"][1:-1])
        predictions = [task.decode(*pair) for pair in zip(examples, units, strict=True)]
        assert record["scores"] == {"mean": pytest.approx(task.score(examples, predictions)["f1"])}
    assert control["cost"]["seconds"] > base["cost"]["seconds"]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_every_task_and_view_is_measured(laboratory: Callable[..., list[Json]], tmp_path: Path) -> None:
    file = tmp_path / "data" / "classification" / "texts" / "train.txt"
    file.write_text(file.read_text() + '{"text": "odd", "label": "a class that draws lack"}\n')
    sets = ("words", "texts", "papers:3")
    asked = ("--sets", *sets, "--budgets", "all", 20, "--seeds", 1, "--arms", "norm")
    runs = laboratory(*asked, "--learning-rate", 7e-3, "--epochs", 1, "--max-length", 40)
    assert {(one["set"], one["budget"], one["arm"]) for one in runs} == {
        (name, budget, arm) for name in sets for budget in (None, 20) for arm in ("base", "norm")
    }
    for one in runs:
        assert [*one["scores"]] == (["mean"] if one["arm"] == "base" else ["mean", "base", "expanded"])
        assert one["unseen"].keys() == (one["scores"].keys() if one["set"] == "words" else set())
        with np.load(tmp_path / "work" / "statistics" / f"{one['key']}.npz") as statistics:
            assert len(statistics["mean"]) == (60 if one["set"] != "papers:3" else 4)
    means = [one for one in read_json(tmp_path / "work" / "table.json") if one["of"].startswith("Mean")]
    assert [(one["budget"], [row["sets"] for row in one["arms"]]) for one in means] == [(None, [3, 3]), (20, [3, 3])]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_pretrained_model_instead_of_an_adapted_one(
    laboratory: Callable[..., list[Json]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = benchmark_module("gain.arms")
    options = {"words": 200, "epochs": 1, "learning_rate": 7e-3, "heldout": 0.0, "head_steps": 2, "max_length": 32}
    monkeypatch.setitem(arms.ARMS, "pretrain", arms.Arm(pretraining=options))
    asked = ("--sets", "words", "--budgets", 20, "--seeds", 1, "--arms", "pretrain", "--learning-rate", 7e-3)
    base, pretrained = laboratory(*asked, "--epochs", 1)
    assert (base["arm"], pretrained["arm"]) == ("base", "pretrain")
    assert (base["corpus"], pretrained["corpus"]) == (None, "corpus.txt")
    assert base["settings"]["train"] == pretrained["settings"]["train"]
    [made] = (tmp_path / "work" / "models").glob("*/*/pretrain-*")
    assert pretrained["settings"]["model"] == arms.identity(str(made)) != base["settings"]["model"]
    [drawn] = made.parent.glob("words-200.txt")
    lines_of_corpus = (tmp_path / "corpus.txt").read_text().splitlines()
    assert set(drawn.read_text().splitlines()) < set(lines_of_corpus)
    assert 200 <= len(drawn.read_text().split()) < 200 + max(len(line.split()) for line in lines_of_corpus)


def test_an_arm_without_its_package_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = benchmark_module("gain.peers")
    monkeypatch.setitem(peers.PEERS, "omp", ("no_such_package", peers.omp))
    progress = Notes()
    assert benchmark_module("gain.arms").runnable(["base", "omp", "norm"], progress) == ["base", "norm"]
    assert "no_such_package" in " ".join(progress.lines)


def test_rows_of_others_replace_only_the_new_rows(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = benchmark_module("gain.peers")
    expanded = adapted(tiny_model)
    before, base = Checkpoint.open(expanded), Checkpoint.open(expanded.parent / "base")
    rows = np.arange((before.n_rows - base.n_rows) * base.dim, dtype=np.float32).reshape(-1, base.dim)
    monkeypatch.setitem(peers.PEERS, "omp", ("numpy", lambda made: rows))
    none = expanded.parent / "not-needed"
    made = peers.Adapted(str(base.folder), none, none, none, ExpandConfig(), expanded)
    folder = peers.with_rows_of("omp", made)
    after = Checkpoint.open(folder)
    np.testing.assert_array_equal(after.embedding()[-len(rows) :], rows)
    np.testing.assert_array_equal(after.embedding()[: base.n_rows], base.embedding())
    for name in set(before.names) - {before.embedding_name}:
        np.testing.assert_array_equal(after[name], before[name])
    assert DualTokenizer.load(folder).encode(NEW[0]).expanded.ids.tolist() == [base.n_rows]


def test_fewer_examples_are_a_part_of_more() -> None:
    draw = benchmark_module("gain.sets").draw
    examples = [str(i) for i in range(50)]
    ten, twenty = draw(examples, 10, 3), draw(examples, 20, 3)
    assert len(set(ten)) == 10
    assert set(ten) < set(twenty)
    assert twenty == sorted(twenty, key=int)
    assert draw(examples, 10, 4) != ten
    assert draw(examples, None, 3) == draw(examples, 99, 3) == examples


def test_entities_with_unseen_words(differences: ModuleType) -> None:
    words = ("Heart", "failure", "and", "new", "virus", "virus")
    true = Sentence(words, ("B-X", "I-X", "O", "B-X", "I-X", "B-X"))
    # Entities with "new" or "and": one is true, two are predicted, of which one is right.
    predicted = {"tags": ["B-X", "I-X", "B-Y", "B-X", "I-X", "O"]}
    known = frozenset({"heart", "failure", "virus"})
    assert differences.unseen_counts([true, true], [predicted, {"tags": ["O"] * 6}], known).tolist() == [
        [1, 2, 1],
        [0, 0, 1],
    ]


def test_the_difference_on_a_set_is_that_of_the_library(differences: ModuleType) -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 4, size=(1, 30, 1))
    ours, theirs = (np.concatenate([random.integers(0, gold + 1, (3, 30, 1)), gold + np.zeros((3, 1, 2), int)], 2)
                    for _ in range(2))  # fmt: skip
    score = NerTask().main_score
    found, expected = differences.compare(ours, theirs, score).as_dict(), paired(ours, theirs, score)
    assert {name: found[name] for name in found} == pytest.approx({name: getattr(expected, name) for name in found})


def test_the_mean_over_sets_draws_the_sets(differences: ModuleType) -> None:
    # Without any variation within sets, a mean of two is that of one set, of both, or of the other: 1/4, 1/2, 1/4.
    each = [differences.Compared(0.5 + value, 0.5, np.full(2000, value)) for value in (0.1, 0.3)]
    mean = differences.over_sets(each)
    assert mean.as_dict() == pytest.approx({"ours": 0.7, "theirs": 0.5, "difference": 0.2, "low": 0.1, "high": 0.3})
    values, counts = np.unique(mean.samples.round(6), return_counts=True)
    assert values.tolist() == [0.1, 0.2, 0.3]
    np.testing.assert_allclose(counts / 2000, [0.25, 0.5, 0.25], atol=0.05)
    # With one set, the interval is that within the set.
    spread = np.linspace(-1, 1, 2000)
    alone = differences.over_sets([differences.Compared(0.0, 0.0, spread)]).as_dict()
    assert (alone["low"], alone["high"]) == pytest.approx((-0.95, 0.95), abs=0.05)
