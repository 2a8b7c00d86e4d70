"""Predictions one by one, and their comparison."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from greenadapt.inference.predictor import EntryPrediction, PredictionRequest, Predictor
from greenadapt.progress import Progress
from tests.support.small_inputs import ROUNDING


def predict(request: PredictionRequest, progress: Progress) -> Iterator[EntryPrediction]:
    return chain.from_iterable(Predictor(request).predict(progress))


def assert_alike(actual: Any, expected: Any, **tolerance: float) -> None:
    """The same, but for rounding: other inputs in a batch change a logit's last digits."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        assert_alike([*actual.values()], [*(expected[name] for name in actual)], **tolerance)
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            assert_alike(a, b, **tolerance)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, **(tolerance or {"abs": ROUNDING}))
    else:
        assert actual == expected
