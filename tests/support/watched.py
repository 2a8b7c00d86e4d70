"""Training that is watched."""

from collections.abc import Iterator
from typing import Any

from greenadapt.training.loop import Step, Training


def watched() -> tuple[type[Training], list[tuple[Any, list[Step]]]]:
    """What stands for ``Training``, and the model and the steps of each one that is made of it."""
    trained: list[tuple[Any, list[Step]]] = []

    class Watched(Training):
        def steps(self) -> Iterator[Step]:
            steps: list[Step] = []
            trained.append((self.model, steps))
            for step in super().steps():
                steps.append(step)
                yield step

    return Watched, trained
