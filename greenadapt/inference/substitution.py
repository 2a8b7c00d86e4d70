"""The substitution test: how much a model's states change if a known word gets another row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from greenadapt.progress import Bar
from greenadapt.storage.arrays import Array, FloatArray, IntArray

_BATCH_PIECES = 1 << 12  # that go through the model at a time, padding included


@dataclass(frozen=True, eq=False)
class Occurrence:
    """A word in a text: ``ids`` (n,) with special tokens, of which the one at ``position`` is the word's row."""

    ids: IntArray
    position: int
    word: int
    """Which of the words, by its number among the substituted rows."""


def state_cosines(
    model: Any, occurrences: Sequence[Occurrence], rows: Mapping[str, FloatArray], pad_id: int, bar: Bar
) -> dict[str, Array]:
    """For each recipe of ``rows``, (n_words, dim), the cosine of the last layer's states at each occurrence with the
    word's own row and with the recipe's, which replaces it throughout the text: float32 (n_occurrences,).

    ``model`` is an encoder in evaluation mode with all rows that occur.
    """
    cosines = {name: np.empty(len(occurrences), np.float32) for name in rows}
    tables = {name: torch.from_numpy(table) for name, table in rows.items()}
    for batch in _batches(occurrences):
        own = [occurrences[i] for i in batch]
        length = max(len(one.ids) for one in own)
        ids = torch.full((len(own), length), pad_id)
        for line, one in zip(ids, own, strict=True):
            line[: len(one.ids)] = torch.from_numpy(one.ids)
        mask = torch.arange(length) < torch.tensor([len(one.ids) for one in own])[:, None]
        places = torch.arange(len(own)), torch.tensor([one.position for one in own])
        is_word = (ids == ids[places][:, None])[:, :, None]
        device = next(model.parameters()).device
        with torch.inference_mode():
            embedded = model.get_input_embeddings()(ids.to(device)).cpu()

            def states(inputs: torch.Tensor) -> torch.Tensor:
                output = model(inputs_embeds=inputs.to(device), attention_mask=mask.long().to(device))  # noqa: B023
                found: torch.Tensor = output.last_hidden_state.cpu()[places]  # noqa: B023
                return found

            original = states(embedded)
            for name, table in tables.items():
                substitutes = table[[one.word for one in own]][:, None]
                changed = states(torch.where(is_word, substitutes, embedded))
                cosines[name][batch] = torch.cosine_similarity(original, changed).numpy()
        bar.advance(len(own))
    return cosines


def _batches(occurrences: Sequence[Occurrence]) -> list[list[int]]:
    """Numbers of occurrences of about the same length, together at most ``_BATCH_PIECES``, or one."""
    batches: list[list[int]] = []
    for i in sorted(range(len(occurrences)), key=lambda i: len(occurrences[i].ids)):
        if not batches or (len(batches[-1]) + 1) * len(occurrences[i].ids) > _BATCH_PIECES:
            batches.append([])
        batches[-1].append(i)
    return batches
