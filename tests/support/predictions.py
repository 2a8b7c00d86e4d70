"""Predictions one by one, instead of by block."""

from collections.abc import Iterator
from itertools import chain

from greenadapt.inference.predictor import EntryPrediction, PredictionRequest, Predictor
from greenadapt.progress import Progress


def predict(request: PredictionRequest, progress: Progress) -> Iterator[EntryPrediction]:
    return chain.from_iterable(Predictor(request).predict(progress))
