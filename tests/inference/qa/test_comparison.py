"""Scores of answers and the comparison of two models, against torchmetrics' squad, scipy and counting by hand."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from scipy import stats
from torchmetrics.functional.text import squad

from greenadapt.inference.qa.answering import MEASURES, compare_rows, score_rows
from greenadapt.storage.arrays import Array
from greenadapt.tasks.metrics import FEWEST
from greenadapt.tasks.spans import score_answer

Json = dict[str, Any]
NAMES = {"base_model": "bert", "mean": "green-bert"}
WORDS = ["virus", "isolated", "2012", "Jeddah", "the", "bats", "camels"]


def answer(text: str, gold: list[str] | None) -> Json:
    scores = {} if gold is None else asdict(score_answer(text, gold, is_second=True))
    return {"answer": text, "start": 0 if text else None, "score": 0.5, **scores}


def row(number: int, texts: dict[str, str], gold: list[str] | None) -> Json:
    told = {name: answer(text, gold) for name, text in texts.items()}
    ours = told.pop("mean")
    asked = {"id": f"q{number}", "question": f"What is {number}?"}
    return {**asked, **ours, **({} if gold is None else {"gold": gold}), **({"compared": told} if told else {})}


def some_text(random: np.random.Generator, n: int = 4) -> str:
    return " ".join(random.choice(WORDS, random.integers(1, n)).tolist())


@pytest.fixture
def rows() -> list[Json]:
    """120 questions, a tenth of them without answer, to which four models have answers."""
    random = np.random.default_rng(0)
    found = []
    for number in range(120):
        gold = [] if number % 10 == 0 else [some_text(random), some_text(random)]
        texts = {name: some_text(random) for name in ("base_model", "base", "expanded", "mean")}
        texts["mean"] = random.choice([texts["base_model"], texts["mean"], *gold, ""])
        found.append(row(number, texts, gold))
    return found


@pytest.fixture
def groups() -> list[str]:
    """Their contexts, of 1 to 9 questions."""
    return [f"context {i}" for i in np.random.default_rng(1).integers(30, size=120)]


def values(rows: list[Json], measure: str) -> Array:
    return np.array([row[measure] for row in rows])


def test_scores_are_those_of_the_published_scorer(rows: list[Json], groups: list[str]) -> None:
    answered = [row for row in rows if row["gold"]]
    predictions = [{"prediction_text": row["answer"], "id": row["id"]} for row in answered]
    targets = [{"answers": {"text": row["gold"], "answer_start": [0, 0]}, "id": row["id"]} for row in answered]
    expected = squad(predictions, targets)
    scores = score_rows(rows, groups)
    assert 100 * scores["has_answer"]["em"] == pytest.approx(expected["exact_match"].item())
    assert 100 * scores["has_answer"]["f1"] == pytest.approx(expected["f1"].item())
    assert scores["has_answer"]["questions"] == 108
    assert scores["no_answer"]["questions"] == 12
    assert scores["no_answer"]["em"] == np.mean([row["answer"] == "" for row in rows if not row["gold"]])
    assert (scores["questions"], scores["unlabelled"]) == (120, 0)
    for measure in MEASURES:
        assert scores[measure] == pytest.approx(values(rows, measure).mean())


def test_the_parts_are_there_only_where_questions_have_no_answer(rows: list[Json], groups: list[str]) -> None:
    pairs = [(row, group) for row, group in zip(rows, groups, strict=True) if row["gold"]]
    scores = score_rows(*zip(*pairs, strict=True))
    assert not {"has_answer", "no_answer"} & set(scores)
    assert scores["contexts"] == len({group for _, group in pairs})


def test_whole_contexts_are_resampled(rows: list[Json], groups: list[str]) -> None:
    scores = score_rows(rows, groups)
    assert (scores["resampled"], scores["contexts"]) == ("contexts", len(set(groups)))
    by_context = [np.array([row["f1"] for row, one in zip(rows, groups, strict=True) if one == g]) for g in set(groups)]
    sums, counts = (np.array([function(each) for each in by_context]) for function in (np.sum, len))
    expected = stats.bootstrap(
        (sums, counts),
        lambda total, n, axis: total.sum(axis) / n.sum(axis),
        method="percentile",
        paired=True,
        n_resamples=20_000,
        rng=np.random.default_rng(0),
    ).confidence_interval
    width = expected.high - expected.low
    assert scores["intervals"]["f1"] == pytest.approx([expected.low, expected.high], abs=0.08 * width)


def test_questions_on_one_context_that_are_alike_make_the_interval_wider() -> None:
    right, wrong = row(0, {"mean": "virus"}, ["virus"]), row(1, {"mean": "bats"}, ["virus"])
    rows = [*[right] * 50, *[wrong] * 50]
    by_context = score_rows(rows, [str(i // 5) for i in range(100)])["intervals"]["em"]
    by_question = score_rows(rows, [str(i) for i in range(100)])["intervals"]["em"]
    # The standard error of a mean of 20 contexts is √5 times that of one of 100 questions.
    assert np.ptp(by_context) / np.ptp(by_question) == pytest.approx(5**0.5, rel=0.15)


def test_questions_are_resampled_where_contexts_are_few(rows: list[Json]) -> None:
    few = score_rows(rows, [str(i % (FEWEST - 1)) for i in range(120)])
    enough = score_rows(rows, [str(i % FEWEST) for i in range(120)])
    each = score_rows(rows, [str(i) for i in range(120)])
    assert (few["resampled"], few["contexts"]) == ("questions", FEWEST - 1)
    assert (enough["resampled"], enough["contexts"]) == ("contexts", FEWEST)
    assert few["intervals"] == each["intervals"]
    assert enough["intervals"] != each["intervals"]


def test_questions_without_gold_are_left_out_and_counted(rows: list[Json], groups: list[str]) -> None:
    unlabelled = [row(i, {"mean": "virus", "base_model": "bats"}, None) for i in range(7)]
    mixed, mixed_groups = [*unlabelled, *rows], ["far"] * 7 + groups
    assert score_rows(mixed, mixed_groups) == {**score_rows(rows, groups), "unlabelled": 7}
    assert score_rows(unlabelled, ["far"] * 7) == {"questions": 0, "contexts": 0, "unlabelled": 7}
    assert score_rows([], []) == {"questions": 0, "contexts": 0, "unlabelled": 0}


def test_one_question_has_a_score() -> None:
    scores = score_rows([row(0, {"mean": "virus"}, ["the virus"])], ["one"])
    assert (scores["em"], scores["intervals"]["em"], scores["resampled"]) == (1, [1, 1], "questions")


def test_every_model_is_compared_with_the_base_model(rows: list[Json], groups: list[str]) -> None:
    comparison = compare_rows(rows, groups, NAMES)
    models = comparison["models"]
    assert [model["name"] for model in models] == ["base_model", "base", "expanded", "mean"]
    assert [model["model"] for model in models] == ["bert", "green-bert", "green-bert", "green-bert"]
    assert "differences" not in models[0]
    assert {name: models[3][name] for name in (*MEASURES, "intervals")} == {
        name: score_rows(rows, groups)[name] for name in (*MEASURES, "intervals")
    }
    base = [row["compared"]["base_model"] for row in rows]
    answers = {name: [row["compared"][name] for row in rows] for name in ("base", "expanded")} | {"mean": rows}
    for model in models[1:]:
        for measure in MEASURES:
            expected = values(answers[model["name"]], measure).mean() - values(base, measure).mean()
            found = model["differences"][measure]
            assert found["difference"] == pytest.approx(expected)
            assert found["low"] < expected < found["high"]
    of_context = {g: [i for i, one in enumerate(groups) if one == g] for g in groups}
    gains = values(rows, "f1") - values(base, "f1")
    sums, counts = (np.array([f(gains[i]) for i in of_context.values()]) for f in (np.sum, len))
    drawn = np.random.default_rng(3).integers(len(sums), size=(20_000, len(sums)))
    low, high = np.percentile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [2.5, 97.5])
    found = models[3]["differences"]["f1"]
    assert [found["low"], found["high"]] == pytest.approx([low, high], abs=0.08 * (high - low))


def test_changed_answers_are_counted_and_the_largest_gains_listed(rows: list[Json], groups: list[str]) -> None:
    comparison = compare_rows(rows, groups, NAMES)
    changed = [row for row in rows if row["answer"] != row["compared"]["base_model"]["answer"]]
    gains = [row["f1"] - row["compared"]["base_model"]["f1"] for row in changed]
    assert comparison["changed"] == len(changed) < len(rows)
    assert comparison["better"] == sum(gain > 0 for gain in gains)
    assert comparison["worse"] == sum(gain < 0 for gain in gains)
    assert comparison["equal"] == sum(gain == 0 for gain in gains) > 0
    order = np.argsort(-np.array(gains), kind="stable")
    assert [one["id"] for one in comparison["best"]] == [changed[i]["id"] for i in order[:5]]
    backwards = np.argsort(np.array(gains), kind="stable")
    assert [one["id"] for one in comparison["worst"]] == [changed[i]["id"] for i in backwards[:5]]
    first = next(row for row in changed if row["id"] == comparison["best"][0]["id"])
    assert comparison["best"][0] == {
        "id": first["id"],
        "question": first["question"],
        "base_model": first["compared"]["base_model"]["answer"],
        "mean": first["answer"],
        "gold": first["gold"],
        "gain": max(gains),
    }


def test_only_gains_are_best_and_only_losses_worst() -> None:
    texts = [("virus", "bats"), ("bats", "virus"), ("bats", "camels"), ("virus", "virus")]
    rows = [row(i, {"base_model": base, "mean": ours}, ["virus"]) for i, (base, ours) in enumerate(texts)]
    comparison = compare_rows(rows, ["one"] * 4, NAMES)
    assert [one["id"] for one in comparison["best"]] == ["q1"]
    assert [one["id"] for one in comparison["worst"]] == ["q0"]
    assert [comparison[name] for name in ("changed", "better", "worse", "equal")] == [3, 1, 1, 1]
    assert [model["name"] for model in comparison["models"]] == ["base_model", "mean"]


def test_without_gold_answers_what_changed_is_told() -> None:
    rows = [row(i, {"base_model": "virus", "mean": "virus" if i % 2 else "bats"}, None) for i in range(20)]
    comparison = compare_rows(rows, ["one"] * 20, NAMES)
    assert comparison == {
        "questions": 0,
        "contexts": 0,
        "unlabelled": 20,
        "models": [{"name": "base_model", "model": "bert"}, {"name": "mean", "model": "green-bert"}],
        "changed": 10,
        "first": [
            {"id": f"q{i}", "question": f"What is {i}?", "base_model": "virus", "mean": "bats"} for i in range(0, 10, 2)
        ],
    }


def test_a_changed_answer_without_gold_is_neither_better_nor_worse(rows: list[Json], groups: list[str]) -> None:
    more = [row(900, {"base_model": "virus", "base": "a", "expanded": "b", "mean": "bats"}, None)]
    whole, part = compare_rows([*rows, *more], [*groups, "far"], NAMES), compare_rows(rows, groups, NAMES)
    assert whole == {**part, "unlabelled": 1, "changed": part["changed"] + 1}
