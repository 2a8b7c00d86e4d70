"""The laboratory of ``benchmarks/gain``: its table from an empty folder, what a run sees, and its statistics."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from seqeval.metrics import f1_score

from greenadapt.checkpoints.layout import LOGITS, PREDICTIONS, SEEDS, TASK_FILE
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import CHOSEN_FOR_ENTITIES, ExpandConfig, TaskConfig, TrainConfig
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.store.arrays import ArrayFile
from greenadapt.tasks.base import load_task
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.metrics import Difference, paired
from greenadapt.tasks.ner import NerTask
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from tests.conftest import WORDS, Notes, benchmark_module
from tests.support.small_tasks import NEW, TinyModel, adapted, lines, ner_file, qa_file, read_json, session, texts_file
from tests.support.small_texts import text_file

Json = dict[str, Any]
TRAINING = TrainConfig(max_steps=2, learning_rate=7e-3)


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
def laboratory(
    tmp_path: Path, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[Json]]:
    """Run the command on tiny sets; returns the finished runs."""
    arms = benchmark_module("gain.arms")  # the text has too few words for rows from form
    monkeypatch.setitem(arms.ARMS, "both", arms.Arm({"rows": "norm"}, training={"mix": "both"}))
    model = tiny_model(name="base", initializer_range=0.1)
    write_sets(tmp_path / "data")
    corpus = text_file(tmp_path / "corpus.txt", 300)
    main = benchmark_module("gain.__main__").main

    def run(*arguments: object) -> list[Json]:
        places = ["--data", tmp_path / "data", "--corpus", corpus, "--work", tmp_path / "work", "--model", model]
        main([*map(str, [*arguments, *places, "--results", tmp_path / "results"])])
        return [record for file in sorted((tmp_path / "results").glob("gain-*.jsonl")) for record in lines(file)]

    return run


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_one_command_makes_the_table_and_a_second_one_nothing(
    laboratory: Callable[..., list[Json]], tmp_path: Path
) -> None:
    options = ("--sets", "words", "--budgets", 50, "--seeds", 2, "--arms", "base", "control", "both",
             "--learning-rate", 7e-3, "--steps", 8, "--batch-size", 8, "--test-sentences", 40)  # fmt: skip
    runs = laboratory(*options)
    order = [(record["seed"], record["arm"]) for record in runs]
    assert order == [(seed, arm) for seed in (0, 1) for arm in ("base", "control", "both")]
    # What arms are trained on, and for how long, is the same; another seed has other sentences, measured on the same.
    for seed in (0, 1):
        assert len({record["settings"]["train"] for record in runs if record["seed"] == seed}) == 1
    assert len({record["settings"]["train"] for record in runs}) == 2
    assert len({str(record["settings"]["measured"]) for record in runs}) == 1
    assert {record["steps"] for record in runs} == {8}

    (table,) = read_json(tmp_path / "work" / "table.json")
    assert (table["budget"], table["of"]) == (50, "words, 8 steps at 0.007")
    for row in table["arms"]:
        of_arm = [record for record in runs if record["arm"] == row["arm"]]
        assert row["mean"] == pytest.approx(np.mean([record["scores"]["mean"] for record in of_arm]))
    base, _, tuned = table["arms"]
    assert tuned["compared"]["pooled to base"]["difference"] == pytest.approx(tuned["mean"] - base["mean"])
    assert "| both | 1 | 2 |" in (tmp_path / "work" / "table.md").read_text()

    [file] = (tmp_path / "results").iterdir()
    assert file.stat().st_size < 6 * 5000
    before = file.read_bytes()
    assert laboratory(*options) == runs
    assert file.read_bytes() == before
    # A machine that has the records only, and no model, makes no run again, and the same table.
    written = (tmp_path / "work" / "table.json").read_text()
    (tmp_path / "work").rename(tmp_path / "elsewhere")
    assert laboratory(*options) == runs
    assert (tmp_path / "work" / "table.json").read_text() == written
    assert not (tmp_path / "work" / "models").exists()
    # Runs that are lost are made again as they were; the base model's that is averaged is no longer there.
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-2]))
    again = laboratory(*options)
    assert [record["scores"] for record in again[-2:]] == [record["scores"] for record in runs[-2:]]
    assert len(again) == len(runs)
    written = (tmp_path / "work" / "table.json").read_text()

    # The report has the runs of the settings that are asked for.
    laboratory(*options, "--first-seed", 1, "--seeds", 1, "--steps", 5)
    laboratory("report", *options, "--steps", 5)
    (table,) = read_json(tmp_path / "work" / "table.json")
    assert (table["of"], [row["seeds"] for row in table["arms"]]) == ("words, 5 steps at 0.007", [1, 1, 1])
    laboratory("report", *options)
    assert (tmp_path / "work" / "table.json").read_text() == written


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_recipe_is_chosen_on_development_sets(
    laboratory: Callable[..., list[Json]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--sets", "words", "--budgets", 50, "--recipe-budget", 50, "--seeds", 1, "--batch-size", 8)
    laboratory("recipe", *options, "--rates", 1e-5, 7e-3, "--step-counts", 24)
    [file] = (tmp_path / "results").glob("recipe-*.jsonl")
    runs = lines(file)
    assert [(record["learning_rate"], record["arm"]) for record in runs] == [
        (rate, arm) for rate in (1e-5, 7e-3) for arm in ("base", "both")
    ]
    dev = (tmp_path / "data" / "ner" / "words" / "devel.tsv").read_bytes() + b"\n"
    assert [record["settings"]["measured"] for record in runs] == [{"dev": hashlib.sha256(dev).hexdigest()}] * 4
    assert "Choice: 24 steps, base at 0.007, both at 0.007" in capsys.readouterr().out
    for record in laboratory(*options, "--arms", "both"):
        assert (record["steps"], record["settings"]["training"]["learning_rate"]) == (24, 7e-3)
    words = (*options, "--chunk", 30, "--decoding", "argmax")  # read otherwise: without a grid of its own, then with it
    for rate in (7e-3, 1e-5):
        record = laboratory(*words, "--arms", "both")[-1]
        assert record["settings"]["task"] == {"task": "ner"}
        assert record["settings"]["training"]["learning_rate"] == rate
        laboratory("recipe", *words, "--rates", 1e-5, "--step-counts", 24)


def test_a_point_without_entities_is_not_chosen() -> None:
    recipe = benchmark_module("gain.recipe")

    def record(arm: str, steps: int, rate: float, score: float, entities: int = 9, **fields: object) -> Json:
        named = {"arm": arm, "steps": steps, "learning_rate": rate, "dev": {"mean": score}, "entities": entities}
        return {**named, "batch_size": 16, "seed": 0, "set": "a", "cost": {"seconds": 1.0}, **fields}

    records = [
        *(record("base", 300, 1e-4, 0.5), record("both", 300, 1e-4, 0.5)),
        *(record("base", 300, 2e-4, 0.4), record("both", 300, 2e-4, 0.7)),
        # On average better, but one set is not learnt at all; and one that is not complete.
        *(record("base", 600, 1e-4, 0.9), record("both", 600, 1e-4, 0.9)),
        *(record("base", 600, 1e-4, 0.0, 0, set="b"), record("both", 600, 1e-4, 0.9, set="b")),
        *(record("base", 900, 1e-4, 0.9), record("both", 900, 1e-4, 0.9)),
        *(record(arm, 300, rate, 0.1, set="b") for rate in (1e-4, 2e-4) for arm in ("base", "both")),
    ]
    tried = recipe.Tried.of(records, 16)
    assert tried.choice == recipe.Recipe(300, {"base": 1e-4, "both": 2e-4})
    assert "| 600 | 0.0001 | base | 90.00 | 0.00 | 45.00 | 2 | 1 |" in tried.table()
    assert "900" not in tried.table()
    assert recipe.Tried.of(records, 32).choice is None
    # All arms make the same steps; base models have their rate, all others the other one.
    trained = {arm: tried.choice.training(arm, TRAINING) for arm in ("base", "control", "pieces-both")}
    assert {arm: config.learning_rate for arm, config in trained.items()} == {
        "base": 1e-4, "control": 1e-4, "pieces-both": 2e-4,
    }  # fmt: skip
    assert {config.max_steps for config in trained.values()} == {300}


def test_committed_records_are_found_under_other_defaults() -> None:
    arms = benchmark_module("gain.arms")
    records = lines(Path(arms.__file__).parents[1] / "results" / "gain-minilm-300.jsonl")
    adapted_records = [record for record in records if record["settings"]["adapted"]]
    assert {"both", "pieces-both"} <= {record["arm"] for record in adapted_records}
    for record in adapted_records:
        rows = ExpandConfig(**arms.ARMS[record["arm"]].rows)
        assert arms.changed_settings(rows) == record["settings"]["adapted"]["rows"]
    assert arms.changed_settings(ExpandConfig(rows="map")) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_controls_have_the_words_of_both_or_none(
    laboratory: Callable[..., list[Json]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = SimpleNamespace(copyfile=shutil.copyfile, rmtree=lambda _: None)  # the predictions
    monkeypatch.setattr(benchmark_module("gain.runs"), "shutil", copying)
    arms = ("base", "both", "pieces-both", "random-both")
    runs = laboratory("--sets", "words", "--budgets", 20, "--seeds", 1, "--arms", *arms, "--learning-rate", 7e-3,
                      "--steps", 30, "--batch-size", 8, "--test-sentences", 50)  # fmt: skip
    assert {record["arm"]: record["steps"] for record in runs} == dict.fromkeys(arms, 30)
    files = [tmp_path / "work" / "sets" / "words" / f"{name}.tsv" for name in ("dev-500-0", "test-50-0")]
    gold = [sentence.tags for file in files for sentence in NerTask().read(str(file), Notes())]
    for record in runs:
        folder = tmp_path / "work" / "running" / record["key"] / SEEDS / "0"
        tags = [row["tags"] for row in lines(folder / PREDICTIONS)]
        for part, scores in ((slice(60), record["dev"]), (slice(60, None), record["scores"])):
            assert scores["mean"] == pytest.approx(f1_score([*map(list, gold[part])], tags[part]))
            assert scores["mean"] > 0
    assert len({record["key"] for record in runs}) == len(arms)
    for record in runs:
        assert [*record["scores"]] == (["mean"] if record["arm"] == "base" else ["mean", "base", "expanded"])
    # The adapted models have the same words and differ in their new rows alone.
    assert [record["arm"] for record in runs if record["corpus"]] == ["both", "pieces-both", "random-both"]
    folders = [*(tmp_path / "work" / "models").glob("*/*/expand-*")]
    models = [Checkpoint.open(folder) for folder in folders]
    words = {(folder / "words.safetensors").read_bytes() for folder in folders}
    assert (len(models), len(words)) == (3, 1)
    base = Checkpoint.open(tmp_path / "base")
    rows = [model.embedding()[base.n_rows :] for model in models]
    for model in models:
        np.testing.assert_array_equal(model.embedding()[: base.n_rows], base.embedding())
    [chance] = [row for folder, row in zip(folders, rows, strict=True) if folder.name.endswith("-random")]
    special = [*range(5)]
    norm = np.linalg.norm(np.delete(base.embedding(), special, axis=0), axis=1).mean()
    np.testing.assert_allclose(np.linalg.norm(chance, axis=1), norm, rtol=1e-4)
    assert not any(np.array_equal(*pair) for pair in combinations(rows, 2))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_each_trial_trains_another_model(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = ner_file(tmp_path / "train.tsv", 10)
    training = TrainConfig(mix="both", max_steps=2, epochs=2, batch_size=8, learning_rate=7e-3)
    request = FinetuneRequest.of_one(
        str(adapted(tiny_model)), (str(train),), dev=str(train), test=str(train), training=training, save_logits=True
    )

    def trained(name: str) -> list[float]:
        folder = finetune(session(tmp_path, name), request).folder
        return list(ArrayFile(folder / SEEDS / "0" / LOGITS)["expanded"].ravel())

    vectors = benchmark_module("gain.vectors")
    matrix = np.random.default_rng(0).standard_normal((len(WORDS) + 1, 8)).astype(np.float32)
    matrix[0] = 0
    monkeypatch.setattr(vectors, "read_vectors", lambda _, source: ([*WORDS], matrix * len(source)))
    models = {"plain": trained("plain")}
    for name in ("late", "mid1", "input"):
        with vectors.stacked(name):
            models[name] = trained(name)
    assert not any(first == second for first, second in combinations(models.values(), 2))
    # Outside of a trial the program is what it was.
    assert trained("again") == models["plain"]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("arm", "views"), [("control", ("base",)), ("default-pair", ("base", "expanded"))])
def test_two_models_of_the_same_sentences_are_averaged(
    arm: str,
    views: tuple[str, ...],
    laboratory: Callable[..., list[Json]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arms = benchmark_module("gain.arms").ARMS
    averaged = arms[arm].averaged_with
    for name in ("default", "default-pair"):  # the text has too few words for rows from form
        monkeypatch.setitem(arms, name, replace(arms[name], rows={"rows": "norm"}))
    runs = laboratory("--sets", "words", "--budgets", 30, "--seeds", 1, "--arms", averaged, arm,
                      "--learning-rate", 7e-3, "--steps", 2, "--batch-size", 32)  # fmt: skip
    first, pair = runs[-2:]
    sets = tmp_path / "work" / "sets" / "words"
    [model] = [tmp_path / "base"] if arm == "control" else (tmp_path / "work" / "models").glob("*/*/expand-*")
    seeds = (0, 1000)
    request = FinetuneRequest.of_one(
        str(model), (str(sets / "train-30-0.tsv"),), test=str(sets / "test-1000-0.tsv"), seeds=seeds,
        training=replace(TRAINING, **arms[arm].training), task=TaskConfig(**CHOSEN_FOR_ENTITIES), save_logits=True,
    )  # fmt: skip
    result = finetune(session(tmp_path), request)
    files = [ArrayFile(result.folder / SEEDS / str(seed) / LOGITS) for seed in seeds]
    task = load_task(read_json(result.folder / TASK_FILE))
    examples = NerTask().read(str(sets / "test-1000-0.tsv"), session(tmp_path).progress)
    for record, averaged_files in ((first, files[:1]), (pair, files)):
        assert record["scores"]
        for view in record["scores"]:
            of_view = [file[name] for file in averaged_files for name in (views if view == "mean" else (view,))]
            units = np.split(sum(of_view) / len(of_view), files[0]["offsets"][1:-1])
            predictions = [task.decode(*pair) for pair in zip(examples, units, strict=True)]
            assert record["scores"][view] == pytest.approx(task.score(examples, predictions)["f1"])
    assert pair["cost"]["seconds"] > first["cost"]["seconds"]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_every_task_and_view_is_measured(laboratory: Callable[..., list[Json]], tmp_path: Path) -> None:
    statistics = benchmark_module("gain.runs").statistics
    file = tmp_path / "data" / "classification" / "texts" / "train.txt"
    file.write_text(file.read_text() + '{"text": "odd", "label": "a class that draws lack"}\n')
    sets = ("words", "texts", "papers:3")
    options = ("--sets", *sets, "--budgets", "all", 20, "--seeds", 1, "--arms", "norm")
    runs = laboratory(*options, "--learning-rate", 7e-3, "--steps", 4, "--max-length", 40)
    assert {(record["set"], record["budget"], record["arm"]) for record in runs} == {
        (name, budget, arm) for name in sets for budget in (None, 20) for arm in ("base", "norm")
    }
    for record in runs:
        assert [*record["scores"]] == (["mean"] if record["arm"] == "base" else ["mean", "base", "expanded"])
        assert record["unseen"].keys() == (record["scores"].keys() if record["set"] == "words" else set())
        assert len(statistics(record)["mean"]) == (60 if record["set"] != "papers:3" else 4)
        assert record["dev"].keys() == record["scores"].keys() if record["set"] != "papers:3" else record["dev"] is None
    means = [record for record in read_json(tmp_path / "work" / "table.json") if record["of"].startswith("Mean")]
    assert [(record["budget"], [row["sets"] for row in record["arms"]]) for record in means] == [
        (None, [3, 3]),
        (20, [3, 3]),
    ]


def test_the_table_has_a_column_for_each_domain(differences: ModuleType, tmp_path: Path) -> None:
    write_report = benchmark_module("gain.report").write_report
    scores = {"NCBI-disease": (6, 8), "BC2GM": (5, 5), "AnnoCTR": (2, 7)}  # right ones of 10, base and both

    def record(name: str, arm: str, right: int) -> Json:
        statistics = {"mean": differences.packed(np.tile([right, 10, 10], (20, 1)))}
        training = {
            "settings": {"training": {"learning_rate": 1e-4}},
            "steps": 300,
            "cost": {"seconds": 1, "energy_kwh": 0},
        }
        where = {"model": "minilm", "budget": 300, "set": name, "arm": arm, "seed": 0, "kind": "ner"}
        return {**where, **training, "scores": {"mean": right / 10}, "unseen": {}, "statistics": statistics}

    records = [record(name, arm, right) for name, scores_of_arm in scores.items()
               for arm, right in zip(("base", "both"), scores_of_arm, strict=True)]  # fmt: skip
    text = write_report(records, tmp_path / "table.md")
    table = text.split("### ")[1].splitlines()
    assert table[2] == "| arm | biomedicine (2) | cyber security (1) | mean of 3 sets |"
    assert table[4] == "| base | 55.00 | 20.00 | 43.33 |"
    # Without variation within sets, an interval is that of the sets that are drawn.
    assert table[5].startswith("| both | +10.00 (+0.00 to +20.00) | +50.00 (+50.00 to +50.00) | +23.33 (")


def test_rows_of_others_replace_only_the_new_rows(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = benchmark_module("gain.peers")
    expanded = adapted(tiny_model)
    before, base = Checkpoint.open(expanded), Checkpoint.open(expanded.parent / "base")
    rows = np.arange((before.n_rows - base.n_rows) * base.dim, dtype=np.float32).reshape(-1, base.dim)
    monkeypatch.setitem(peers.PEERS, "omp", ("numpy", lambda model: rows))
    missing = expanded.parent / "not-needed"
    model = peers.Adapted(str(base.folder), missing, missing, missing, ExpandConfig(), expanded)
    folder = peers.with_rows_of("omp", model)
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
    known_words = frozenset({"heart", "failure", "virus"})
    assert differences.unseen_counts([true, true], [predicted, {"tags": ["O"] * 6}], known_words).tolist() == [
        [1, 2, 1],
        [0, 0, 1],
    ]


@pytest.mark.parametrize("highest", [3, 300, 0.5])
def test_statistics_are_kept_as_they_are_in_little_text(differences: ModuleType, highest: float) -> None:
    random = np.random.default_rng(0)
    statistics = highest * random.binomial(1, 0.3, (1000, 3))
    packed = json.loads(json.dumps(differences.packed(statistics)))
    np.testing.assert_array_equal(differences.unpacked(packed), statistics)
    assert len(json.dumps(packed)) < 2000


def test_the_difference_on_a_set_is_that_of_the_library(differences: ModuleType) -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 4, size=(1, 30, 1))
    ours, theirs = (np.concatenate([random.integers(0, gold + 1, (3, 30, 1)), gold + np.zeros((3, 1, 2), int)], 2)
                    for _ in range(2))  # fmt: skip
    score = NerTask().main_score
    interval, expected = differences.compare(ours, theirs, score).as_dict(), paired(ours, theirs, score)
    assert {name: interval[name] for name in interval} == pytest.approx(
        {name: getattr(expected, name) for name in interval}
    )


def test_points_are_rounded_half_up(differences: ModuleType) -> None:
    report = benchmark_module("gain.report")
    difference = differences.Compared(0.3065, 0.3, np.full(2000, 0.00125))
    row = {"arm": "both", "sets": 1, "seeds": 1, **dict.fromkeys((*report.VIEWS, "unseen"), 0.30625), "seconds": 1}
    table = report._table("words", {"both": {**row, "compared": {next(iter(report.COMPARISONS)): difference}}})
    assert "| 30.63 |" in table
    assert "(+0.13 to +0.13)" in table
    interval = Difference(0.3065, 0.3, 0.0065, 0.0025, 0.0125, 1.0)
    assert benchmark_module("tables").with_interval(interval) == "+0.7 (+0.3 to +1.3)"


def test_the_mean_over_sets_draws_the_sets(differences: ModuleType) -> None:
    # Without any variation within sets, a mean of two is that of one set, of both, or of the other: 1/4, 1/2, 1/4.
    sets = [differences.Compared(0.5 + value, 0.5, np.full(2000, value)) for value in (0.1, 0.3)]
    mean = differences.over_sets(sets)
    assert mean.as_dict() == pytest.approx({"ours": 0.7, "theirs": 0.5, "difference": 0.2, "low": 0.1, "high": 0.3})
    values, counts = np.unique(mean.samples.round(6), return_counts=True)
    assert values.tolist() == [0.1, 0.2, 0.3]
    np.testing.assert_allclose(counts / 2000, [0.25, 0.5, 0.25], atol=0.05)
    # With one set, the interval is that within the set.
    spread = np.linspace(-1, 1, 2000)
    alone = differences.over_sets([differences.Compared(0.0, 0.0, spread)]).as_dict()
    assert (alone["low"], alone["high"]) == pytest.approx((-0.95, 0.95), abs=0.05)


def paper(number: int, n_questions: int) -> Json:
    """A paper as the Covid-QA file has it: integer ids, and an offset that is wrong."""
    answer = {"text": f"virus {number}", "answer_start": 7}
    qas = [{"id": 1000 * number + i, "question": f"which virus, {i}?", "answers": [answer]} for i in range(n_questions)]
    return {"context": f"paper of virus {number} in bats", "qas": qas}


def test_no_paper_is_in_two_folds_and_every_question_in_one(tmp_path: Path) -> None:
    sizes = np.random.default_rng(0).integers(1, 30, size=40).tolist()
    papers = [{"paragraphs": [paper(number, size)]} for number, size in enumerate(sizes)]
    (tmp_path / "papers.json").write_text(json.dumps({"data": papers}))
    find_set, folds = benchmark_module("gain.sets").find_set, []
    for fold in range(5):
        questions = find_set(tmp_path, f"papers:{fold}")
        train, test = (questions.read(questions.drawn(part, None, tmp_path / "drawn")) for part in ("train", "test"))
        assert not {question.context for question in train} & {question.context for question in test}
        assert len(train) + len(test) == sum(sizes)
        folds.append({question.id for question in test})
    assert len(set.union(*folds)) == sum(map(len, folds)) == sum(sizes)
    assert max(map(len, folds)) - min(map(len, folds)) <= 1


def test_fewer_questions_are_a_part_of_more() -> None:
    drawn, chosen = benchmark_module("gain.sets").drawn, [paper(i, size) for i, size in enumerate([9, 1, 20, 4])]
    small, large = (drawn(chosen, n, 0) for n in (6, 15))
    ids = [{question["id"] for part in papers for question in part["qas"]} for papers in (small, large)]
    assert [*map(len, ids)] == [6, 15]
    assert ids[0] < ids[1]
    assert drawn(chosen, 34, 0) == drawn(chosen, None, 0) == chosen
