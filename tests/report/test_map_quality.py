"""What is said of the choice of words."""

import re
from typing import Any

import pytest

from greenadapt.report.tables import new_word_sentences, rows_warning


def assessed(ours: list[float | None], split: list[float | None]) -> dict[str, Any]:
    by_count = [{"min_count": least, "n_words": n} for least, n in ((1, 70), (20, 20), (100, 8), (500, 2))]
    return {
        "recipe": "norm",
        "added": {"share": 0.0717, "by_count": by_count},
        "substitution": {"words": 4, "texts": 12, "split": {"state_cosine": 0.5, "state_by_count": split}},
        "rows": {"norm": {"state_by_count": ours}},
    }


@pytest.mark.parametrize(
    ("ours", "least"),
    [
        ([0.3, 0.4, 0.6, 0.7], "--min-count 100 "),
        ([0.3, 0.6, 0.4, 0.7], "--min-count 20 "),  # from the rarest words on, without a gap
        ([0.6, 0.7, 0.8, 0.9], None),
        ([None, 0.7, 0.8, 0.9], None),  # nothing is known of the rarest
        ([0.3, 0.3, 0.3, 0.3], "At every count"),
    ],
)
def test_up_to_which_count_words_are_better_in_pieces(ours: list[float | None], least: str | None) -> None:
    figures = assessed(ours, [0.5, 0.5, 0.5, 0.5])
    text, *advice = new_word_sentences(figures)
    assert "7.2%" in text
    assert "70% of the 100" in text
    assert len(advice) == (least is not None)
    assert least is None or least in advice[0]
    assert new_word_sentences({**figures, "substitution": None}) == [text]  # without torch
    assert new_word_sentences({**figures, "added": None}) == []  # without counts


def figures(r2: float, ten: float, n_candidates: int = 1000) -> dict[str, Any]:
    scores = {"n_candidates": n_candidates, "precision_at_1": 0.0, "precision_at_10": ten}
    return {"n_heldout": 90, "r2": r2, "cosine": 0.1, "base_rows": {"cosine": scores}, "by_count": []}


def test_rows_of_other_lengths_are_judged_by_what_they_find() -> None:
    assert "under 0: the map explains nothing" in rows_warning(figures(-0.1, 0.2))
    assert rows_warning(figures(0.1, 0.0)) == rows_warning(None) == rows_warning(None, "form") == ""
    assert rows_warning(figures(-0.3, 0.2), "norm") == ""
    assert re.search(
        "90 rows by --rows form .* 1.0% .*no more than by chance", rows_warning(figures(0.1, 0.01), "form")
    )
    assert "6.3%" in rows_warning(figures(0.1, 0.0625, n_candidates=100), "form")
