"""The base model at equal cost: averages over pairs of seeds, against the same averages by hand."""

from pathlib import Path

import numpy as np
import pytest

from greenadapt.inference.models import averaged_over_seeds
from greenadapt.storage.arrays import write_arrays
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.ner import NerTask

TASK = NerTask(("O", "B-X", "I-X"))
SENTENCES = [Sentence(("a", "b")), Sentence(("c",)), Sentence(("d", "e", "f"))]


@pytest.mark.parametrize("n_seeds", [1, 2, 3])
def test_each_seed_is_averaged_with_the_next_one(tmp_path: Path, n_seeds: int) -> None:
    logits = np.random.default_rng(1).normal(size=(n_seeds, 6, 3)).astype(np.float32)
    files = [tmp_path / f"{seed}.safetensors" for seed in range(n_seeds)]
    for file, prediction in zip(files, logits, strict=True):
        # The expanded tokenization's are there too where a model has one, and are no part of it.
        write_arrays(file, {"base": prediction, "expanded": prediction + 9, "offsets": np.array([0, 2, 3, 6])})
    averages = averaged_over_seeds(TASK, SENTENCES, files)
    assert len(averages) == n_seeds
    for seed, average in enumerate(averages):
        mean = (logits[seed].astype(float) + logits[(seed + 1) % n_seeds]) / 2
        labels = [TASK.labels[i] for i in mean.argmax(axis=1)]
        assert [len(prediction["tags"]) for prediction in average] == [2, 1, 3]
        tags = [tag for prediction in average for tag in prediction["tags"]]
        assert [tag[-1] for tag in tags] == [label[-1] for label in labels]  # IOB2 turns some I into B
