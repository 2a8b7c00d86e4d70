"""Training whose steps a test can read."""

from collections.abc import Iterator
from typing import Any

from greenadapt.training.loop import Step, Training


def watched() -> tuple[type[Training], list[tuple[Any, list[Step]]]]:
    """A replacement for ``Training``, and the list of (model, steps) of the trainings that it makes."""
    trained: list[tuple[Any, list[Step]]] = []

    class Watched(Training):
        def train_steps(self) -> Iterator[Step]:
            steps: list[Step] = []
            trained.append((self.model, steps))
            for step in super().train_steps():
                steps.append(step)
                yield step

    return Watched, trained
