import statistics
from typing import Any

import numpy as np
import pytest

from greenadapt.cli.output.printing import print_comparison
from greenadapt.report.tables import score_tables
from greenadapt.tasks.classification import number_scores
from greenadapt.tasks.conll import entity_scores

Json = dict[str, Any]
GOLD = [["B-Disease", "I-Disease", "O", "B-Gene"], ["O", "B-Gene"]]
GUESSES = [
    [["B-Disease", "I-Disease", "O", "O"], ["O", "B-Gene"]],
    [["B-Disease", "O", "O", "B-Gene"], ["B-Gene", "B-Gene"]],
]


def ner_scores(n_seeds: int = 2) -> Json:
    by_seed = [dict(entity_scores(GOLD, guess)) for guess in GUESSES[:n_seeds]]
    seeds = [
        {"seed": 3 + i, "test": {**scores, "views": {"mean": scores, "base": by_seed[0], "expanded": by_seed[-1]}}}
        for i, scores in enumerate(by_seed)
    ]
    return {"task": "ner", "main": "f1", "pool": "mean", "seeds": seeds}


def cells(row: list[str]) -> list[float]:
    return [float(cell) for cell in row[1:]]


def test_mean_and_deviation_over_the_seeds() -> None:
    table, views, parts = score_tables(ner_scores())
    assert table.columns == ["score", "mean", "std", "seed 3", "seed 4"]
    f1 = [100 * entity_scores(GOLD, guess)["f1"] for guess in GUESSES]  # type: ignore[operator]
    assert table.rows[0][0] == "f1"
    assert cells(table.rows[0]) == pytest.approx([statistics.fmean(f1), np.std(f1, ddof=1), *f1], abs=0.006)
    assert [row[0] for row in table.rows] == ["f1", "precision", "recall"]
    assert [row[0] for row in views.rows] == [
        "both tokenizers, averaged",
        "the base tokenizer",
        "the expanded tokenizer",
    ]
    assert cells(views.rows[1]) == pytest.approx([f1[0], 0, f1[0], f1[0]], abs=0.006)
    assert parts.columns == ["type", "precision", "recall", "f1", "support"]
    # Disease: right, then wrong; Gene: found 1 of 1 and 2 of 3 with 1 and 2 of 2 recalled.
    assert parts.rows[0] == ["Disease", "50.00", "50.00", "50.00", "1"]
    assert parts.rows[1][1:3] == [f"{100 * (1 + 2 / 3) / 2:.2f}", "75.00"]


def test_numbers_are_no_shares_and_may_be_undefined() -> None:
    by_seed = [number_scores([1, 2, 3], [1, 2, 4]), number_scores([1, 2, 3], [2, 2, 2])]
    seeds = [{"seed": i, "test": {**scores, "views": {"base": scores}}} for i, scores in enumerate(by_seed)]
    (table,) = score_tables({"task": "classification", "main": "pearson", "pool": "mean", "seeds": seeds})
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["pearson"] == ["", "", f"{100 * float(by_seed[0]['pearson']):.2f}", ""]
    assert rows["mse, no share"] == ["0.5", "0.2357", "0.3333", "0.6667"]


OURS = {"model": "ours", "score": 0.84, "std": 0.01}


def compared(difference: float, low: float, high: float) -> Json:
    return {"model": "base", "score": 0.83, "std": None, "difference": difference, "low": low, "high": high}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (compared(0.01, 0.002, 0.02), "ours is better than base by 1.00 points"),
        (compared(-0.01, -0.02, -0.002), "ours is worse than base by 1.00 points"),
        (compared(0.01, -0.002, 0.02), "ours minus base: +1.00 points, but the interval includes zero"),
    ],
)
def test_a_comparison_says_in_words_how_sure_it_is(row: Json, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison([OURS, row])
    out = capsys.readouterr().out
    assert words in out
    assert f"{100 * row['low']:+.2f} to {100 * row['high']:+.2f}" in out
