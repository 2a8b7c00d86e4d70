"""What is scored of a model's outputs: each view alone and the mean, with the chosen one's predictions kept."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import Pool
from greenadapt.models.streaming import ViewOutputs
from greenadapt.progress import Silent
from greenadapt.tasks.base import Encoder, Input
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.ner import NerTask
from greenadapt.training.evaluation import Evaluation
from tests.support.small_tasks import TinyModel, adapted

TASK = NerTask(("O", "B-X", "I-X"))
GOLD = [("B-X", "I-X", "O"), ("O",), ("B-X", "O")]
SENTENCES = [Sentence(("virus", "heart", "of")[: len(tags)], tags) for tags in GOLD]


# Rows of one-hot logits; the base view misses the last entity, the expanded one finds one that is none.
BASE = [[1, 2, 0], [0], [0, 0]]
EXPANDED = [[1, 2, 0], [1], [1, 0]]


def logits(labels: list[int], weight: float) -> np.ndarray:
    return (weight * np.eye(3)[labels]).astype(np.float32)


def run(views: Iterator[Input]) -> Iterator[ViewOutputs]:
    for view, base, expanded in zip(views, BASE, EXPANDED, strict=True):
        assert view.n_units == len(base)
        # Where they differ, the expanded view is the surer one.
        yield ViewOutputs(logits(base, 1), logits(expanded, 3), view.example)


def evaluated(folder: Path, pool: Pool = "mean", **options: Any) -> Evaluation:
    encoder = Encoder.of(Checkpoint.open(folder), 64)
    outputs, chosen = run(TASK.inference(SENTENCES, encoder)), pool if encoder.has_words else None
    with Silent().bar("test", None, "examples") as bar:
        return Evaluation.of(TASK, SENTENCES, outputs, chosen, bar, **options)


@pytest.mark.parametrize("pool", ["mean", "base", "expanded"])
def test_each_view_and_the_chosen_one(tiny_model: TinyModel, pool: Pool) -> None:
    from seqeval.metrics import f1_score

    evaluation = evaluated(adapted(tiny_model), pool)
    tags = {name: [[TASK.labels[i] for i in row] for row in rows] for name, rows in (("b", BASE), ("e", EXPANDED))}
    gold = [list(row) for row in GOLD]
    f1 = {"base": f1_score(gold, tags["b"]), "expanded": f1_score(gold, tags["e"])}
    f1["mean"] = f1["expanded"]
    assert {name: scores["f1"] for name, scores in evaluation.views.items()} == pytest.approx(f1)
    assert f1["base"] != f1["expanded"]
    assert [row["tags"] for row in evaluation.predictions] == tags["b" if pool == "base" else "e"]
    assert evaluation.scores == evaluation.views[pool]
    assert evaluation.as_dict() == {**evaluation.views[pool], "views": evaluation.views}
    assert evaluation.logits == {}
