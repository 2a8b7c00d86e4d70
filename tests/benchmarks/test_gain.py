"""The laboratory of ``benchmarks/gain``: its table from an empty folder, what a run sees, and its statistics."""

import json
import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from seqeval.metrics import f1_score

from greenadapt.checkpoints.layout import PREDICTIONS, SEEDS
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import ExpandConfig, TrainConfig
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.metrics import paired_bootstrap
from greenadapt.tasks.ner import NerTask
from tests.conftest import Notes, benchmark_module
from tests.support.small_tasks import lines, ner_file, qa_file, read_json, texts_file
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
    models = [Checkpoint(folder) for folder in folders]
    words = {(folder / "words.safetensors").read_bytes() for folder in folders}
    assert (len(models), len(words)) == (3, 1)
    base = Checkpoint(tmp_path / "base")
    rows = [model.embedding()[base.n_rows :] for model in models]
    for model in models:
        np.testing.assert_array_equal(model.embedding()[: base.n_rows], base.embedding())
    [chance] = [row for folder, row in zip(folders, rows, strict=True) if folder.name.endswith("-random")]
    special = [*range(5)]
    norm = np.linalg.norm(np.delete(base.embedding(), special, axis=0), axis=1).mean()
    np.testing.assert_allclose(np.linalg.norm(chance, axis=1), norm, rtol=1e-4)
    assert not any(np.array_equal(*pair) for pair in combinations(rows, 2))


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


def test_the_difference_on_a_set_is_that_of_the_library(differences: ModuleType) -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 4, size=(1, 30, 1))
    ours, theirs = (np.concatenate([random.integers(0, gold + 1, (3, 30, 1)), gold + np.zeros((3, 1, 2), int)], 2)
                    for _ in range(2))  # fmt: skip
    score = NerTask().main_score
    interval, expected = differences.compare(ours, theirs, score).as_dict(), paired_bootstrap(ours, theirs, score)
    assert {name: interval[name] for name in interval} == pytest.approx(
        {name: getattr(expected, name) for name in interval}
    )


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
