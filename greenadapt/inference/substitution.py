"""The substitution test: how much a model's states change if a known word gets another row, or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from greenadapt.progress import Bar
from greenadapt.store.arrays import Array, FloatArray, IntArray
from greenadapt.vectors.quality import SPLIT

_BATCH_PIECES = 1 << 12  # that go through the model at a time, padding included


@dataclass(frozen=True, eq=False)
class Occurrence:
    """A word in a text: ``ids`` (n,) with special tokens, of which the one at ``position`` is the word's row."""

    ids: IntArray
    position: int
    word: int
    """Index of the word's row in the tables of substitutes."""
    split: IntArray
    """The text with the word cut into pieces throughout, (m,)."""
    split_position: int
    """The first of the word's pieces in ``split``."""


def state_cosines(
    model: Any, occurrences: Sequence[Occurrence], rows: Mapping[str, FloatArray], pad_id: int, bar: Bar
) -> dict[str, Array]:
    """For each recipe of ``rows``, (n_words, dim), the cosine of the last layer's states at each occurrence with the
    word's own row and with the recipe's, which replaces it throughout the text: float32 (n_occurrences,).

    Under ``SPLIT`` it is the cosine of the former and of the state at the first piece of the word in pieces. ``model``
    is an encoder in evaluation mode with all rows that occur.
    """
    cosines = {name: np.empty(len(occurrences), np.float32) for name in (*rows, SPLIT)}
    tables = {name: torch.from_numpy(table) for name, table in rows.items()}
    for batch in _batches(occurrences):
        group = [occurrences[i] for i in batch]
        whole = _Texts.of(model, [item.ids for item in group], [item.position for item in group], pad_id)
        split = _Texts.of(model, [item.split for item in group], [item.split_position for item in group], pad_id)
        is_word = (whole.ids == whole.ids[whole.positions][:, None])[:, :, None]
        with torch.inference_mode():
            embedded = whole.embedded()
            original = whole.states(embedded)
            for name, table in tables.items():
                substitutes = table[[item.word for item in group]][:, None]
                changed = whole.states(torch.where(is_word, substitutes, embedded))
                cosines[name][batch] = torch.cosine_similarity(original, changed).numpy()
            in_pieces = split.states(split.embedded())
            cosines[SPLIT][batch] = torch.cosine_similarity(original, in_pieces).numpy()
        bar.advance(len(group))
    return cosines


@dataclass(frozen=True, eq=False)
class _Texts:
    """Padded texts, and the position of a piece in each."""

    model: Any
    ids: torch.Tensor
    mask: torch.Tensor
    positions: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def of(cls, model: Any, texts: Sequence[IntArray], positions: Sequence[int], pad_id: int) -> "_Texts":
        ids = pad_sequence([torch.from_numpy(text) for text in texts], batch_first=True, padding_value=pad_id)
        mask = pad_sequence([torch.ones(len(text), dtype=torch.long) for text in texts], batch_first=True)
        return cls(model, ids, mask, (torch.arange(len(texts)), torch.tensor(positions)))

    def embedded(self) -> torch.Tensor:
        return self.model.get_input_embeddings()(self.ids.to(self.model.device)).cpu()

    def states(self, inputs: torch.Tensor) -> torch.Tensor:
        """The last layer's states at the positions."""
        device = self.model.device
        output = self.model(inputs_embeds=inputs.to(device), attention_mask=self.mask.to(device))
        return output.last_hidden_state.cpu()[self.positions]


def _batches(occurrences: Sequence[Occurrence]) -> list[list[int]]:
    """Indices of occurrences of about the same length, together at most ``_BATCH_PIECES``, or one."""
    batches: list[list[int]] = []
    for i in sorted(range(len(occurrences)), key=lambda i: len(occurrences[i].ids)):
        if not batches or (len(batches[-1]) + 1) * len(occurrences[i].ids) > _BATCH_PIECES:
            batches.append([])
        batches[-1].append(i)
    return batches
