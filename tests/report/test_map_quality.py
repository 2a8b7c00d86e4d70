"""What is said of the choice of words."""

from typing import Any

import pytest

from greenadapt.report.map_quality import new_words


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
    said = new_words(assessed(ours, [0.5, 0.5, 0.5, 0.5]))
    assert "7.2%" in said[0]
    assert "70% of the 100" in said[0]
    assert len(said) == 1 + (least is not None)
    assert least is None or least in said[1]


def test_without_torch_or_counts() -> None:
    found = assessed([0.3] * 4, [0.5] * 4)
    assert len(new_words({**found, "substitution": None})) == 1
    assert new_words({**found, "added": None}) == []
