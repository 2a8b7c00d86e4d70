"""Parts of labelled examples for cross-validation."""

import pytest

from greenadapt.errors import UsageError
from greenadapt.tasks.base import Fold
from greenadapt.tasks.questions import Question


def test_each_example_is_left_out_once_and_the_order_stays() -> None:
    parts = [Fold(number, 3, 5).split(range(10)) for number in range(3)]
    assert sorted(one for _, out in parts for one in out) == list(range(10))
    assert sorted(len(out) for _, out in parts) == [3, 3, 4]
    for trained, out in parts:
        assert trained == [one for one in range(10) if one not in out]
        assert out == sorted(out)
    assert Fold(0, 3, 5).split(range(10)) == parts[0]
    assert Fold(0, 3, 6).split(range(10)) != parts[0]


def test_questions_on_one_context_stay_together() -> None:
    questions = [Question(str(i), "what", f"context {i % 4}") for i in range(20)]
    for number in range(2):
        trained, out = Fold(number, 2).split(questions)
        assert len(out) == 10
        assert not {one.context for one in trained} & {one.context for one in out}


def test_too_few() -> None:
    with pytest.raises(UsageError, match="--folds is 3, but there are only 2 examples"):
        Fold(0, 3).split(range(2))
    with pytest.raises(UsageError, match="2 contexts"):
        Fold(0, 3).split([Question(str(i), "what", f"context {i % 2}") for i in range(20)])
