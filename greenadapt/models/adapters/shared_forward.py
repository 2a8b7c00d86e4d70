"""Outputs of several tasks on the same entries, with what they share computed once, streamed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from greenadapt.models.embedding_rows import RowMap
from greenadapt.models.example_blocks import ViewOutputs
from greenadapt.models.forward import Called, Inference, Output, streamed
from greenadapt.tasks.features import Views

if TYPE_CHECKING:
    from greenadapt.models.adapters.multitask import MultitaskModel


def shared_outputs(
    model: "MultitaskModel", row_map: RowMap, examples: Iterable[Mapping[str, Views]], run: Inference
) -> Iterator[dict[str, ViewOutputs]]:
    """Put examples, each in the views of every task by its name, through ``model`` and yield the outputs by task.

    An input that several tasks read, which is so where its pieces and segments are the same, goes once through the
    layers that no adapter of these tasks touches (arXiv 1902.02671, section 2.2: the parameters that tasks share), and
    from there through each task's own. See ``streamed`` for all else, and for what is raised.
    """

    def call(tasks: tuple[str, ...], arguments: Mapping[str, torch.Tensor]) -> Mapping[str, Output]:
        return model.each(tasks, **arguments)

    return streamed(Called(model, row_map, call), examples, run)
