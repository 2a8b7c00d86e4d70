"""The control of equal cost: one model's logits averaged over two seeds.

Reading a text in two tokenizations and averaging takes two passes, and averaging helps by itself. What the second
tokenization is worth shows only beside a model that takes two passes without it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.arrays import Array, ArrayFile
from greenadapt.store import Json
from greenadapt.tasks import Task


def averaged_over_seeds(task: Task[Any], examples: Sequence[Any], logits: Sequence[Path]) -> list[list[Json]]:
    """Predictions of each seed's model averaged with the next one's, of the last with the first.

    ``logits`` has a file a seed, as fine-tuning keeps them, of which the base tokenization's are taken. There are as
    many averages as seeds, so that they can be paired with the seeds' own runs; they share models, and vary less than
    as many independent ones would. Two seeds have one average, which is given twice.
    """
    arrays = [ArrayFile(path) for path in logits]
    averages = []
    for first, second in zip(arrays, [*arrays[1:], arrays[0]], strict=True):
        mean: Array = (first["base"] + second["base"]) / 2
        each = np.split(mean, first["offsets"][1:-1])
        averages.append([task.decode(example, one) for example, one in zip(examples, each, strict=True)])
    return averages
