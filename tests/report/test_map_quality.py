"""What is said of the choice of words."""

import re
from typing import Any

from greenadapt.report.tables import new_words_sentence, rows_warning


def test_how_many_new_words_are_rare() -> None:
    by_count = [{"min_count": least, "n_words": n} for least, n in ((1, 70), (20, 20), (100, 8), (500, 2))]
    text = new_words_sentence({"added": {"share": 0.0717, "by_count": by_count}})
    assert "7.2%" in text
    assert "70% of the 100" in text
    assert "less than 20 times" in text
    assert new_words_sentence({"added": None}) == ""  # without counts


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
