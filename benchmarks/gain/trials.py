"""Changes of the program that arms try out; while one is in force, a model is trained and measured with it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.nn.utils.parametrize import register_parametrization, remove_parametrizations

from gain.dropout import dropout
from gain.vectors import VARIANTS, stacked
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.training.finetune import FinetuneRun, SingleTask

SPEED = 0.1
"""How fast the shared map moves, beside the rows themselves."""


@contextmanager
def slash() -> Iterator[None]:
    """Form and row in one pass, as in BERTRAM-slash (arXiv 1910.07181): the expanded view of an added word is its
    pieces, a slash and its row. The last two have the position of the first piece, so that other pieces keep theirs.

    For models of BERT's architecture with WordPiece.
    """
    merge, opened = DualTokenizer._merge, SingleTask._open

    def merged(self: DualTokenizer, base: Any, batch: Any) -> Any:
        short = merge(self, base, batch)
        starts, ids = np.flatnonzero(base.begins), short.ids[short.begins]
        is_new = ids >= self.added.first_id
        at = np.repeat(np.append(starts[1:], len(base.ids))[is_new], 2)
        pairs = np.stack([np.full(is_new.sum(), self.base.token_to_id("/")), ids[is_new]], axis=1).ravel()
        sources = np.repeat(starts[is_new], 2)
        columns = (base.spans, base.lines, base.input_words)
        return type(base)(
            np.insert(base.ids, at, pairs).astype(base.ids.dtype),
            np.insert(base.begins, at, False),
            *(np.insert(column, at, column[sources], axis=0) for column in columns),
        )

    def open_model(self: SingleTask, seed: int) -> Any:
        model, tokenizer = opened(self, seed), self._setup.first_encoder.tokenizer
        names = {i: tokenizer.base.id_to_token(i) or "" for i in self._rows.ids.tolist()}
        is_new = torch.from_numpy(self._rows.ids >= tokenizer.added.first_id)
        continues = torch.tensor([names[i].startswith("##") for i in self._rows.ids.tolist()])

        def shared_positions(_: Any, arguments: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            ids = named["input_ids"]
            new = is_new[ids]
            counted = ~(new | torch.nn.functional.pad(new[:, 1:], (0, 1)))
            places = counted.long().cumsum(1) - 1
            firsts = torch.where(counted & ~continues[ids], places, 0).cummax(1).values
            return arguments, {**named, "position_ids": torch.where(counted, places, firsts)}

        model.base_model.embeddings.register_forward_pre_hook(shared_positions, with_kwargs=True)
        return model

    with patch.object(DualTokenizer, "_merge", merged), patch.object(SingleTask, "_open", open_model):
        yield


class _Moving(torch.nn.Module):
    """δ + s (r − r̄)/‖r − r̄‖ V: rows of added words that also move with a map V of what they were at first, r."""

    def __init__(self, rows: torch.Tensor, first: int) -> None:
        super().__init__()
        new_rows = rows[first:].detach()
        new_rows = torch.nn.functional.normalize(new_rows - new_rows.mean(0), dim=1)
        self.register_buffer("features", SPEED * new_rows, persistent=False)
        self.map = torch.nn.Parameter(torch.zeros(rows.shape[1], rows.shape[1]))
        self.first = first

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([rows[: self.first], rows[self.first :] + self.features @ self.map])


@contextmanager
def moving() -> Iterator[None]:
    """Rows that move together: a new row is W φ + δ, with φ the row that it began with; W moves more slowly than δ."""
    opened, written = SingleTask._open, FinetuneRun._write

    def open_model(self: SingleTask, seed: int) -> Any:
        model = opened(self, seed)
        first = int(np.searchsorted(self._rows.ids, self._setup.first_encoder.tokenizer.added.first_id))
        embedding = model.get_input_embeddings()
        register_parametrization(embedding, "weight", _Moving(embedding.weight, first))
        return model

    def write(self: FinetuneRun, *arguments: Any, **named: Any) -> None:
        remove_parametrizations(self.model.get_input_embeddings(), "weight")
        written(self, *arguments, **named)

    with patch.object(SingleTask, "_open", open_model), patch.object(FinetuneRun, "_write", write):
        yield


TRIALS: dict[str, Callable[[], Any]] = {
    "": nullcontext, "slash": slash, "moving": moving, "dropout": dropout,
    **{name: partial(stacked, name) for name in VARIANTS},
}  # fmt: skip
"""Name → context manager."""
