"""A second tokenization of each text by MaxMatch-dropout (arXiv 2209.04126), instead of one with added words.

It tells what two tokenizations of each example are worth alone: no word is added, and nothing of the unlabelled text
is known. A training example is cut afresh in each epoch; what is measured on is cut once, by its text.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from greenadapt.config import TrainConfig
from greenadapt.tasks.base import Encoder, Input
from greenadapt.tasks.ner import NerTask
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Draw, Feed
from greenadapt.training.finetune import FinetuneRun, FinetuneSetup

DROPPED = 0.1
"""How often a match longer than a character is passed over."""
_INSIDE = "##"


def cut(word: str, ids: Mapping[str, int], chance: random.Random, dropped: float = DROPPED) -> list[int]:
    """The ids of a word's pieces: from the left the longest that fits and is not passed over; none if no piece fits."""
    pieces: list[int] = []
    begin = 0
    while begin < len(word):
        for end in range(len(word), begin, -1):
            piece = ids.get(word[begin:end] if begin == 0 else f"{_INSIDE}{word[begin:end]}")
            if piece is not None and (end - begin == 1 or chance.random() >= dropped):
                break
        else:
            return []
        pieces.append(piece)
        begin = end
    return pieces


@dataclass
class _Cuts:
    """Replaces ``DualTokenizer._merge``: the view beside the base view is drawn at random."""

    draw: tuple[int, ...] = ()
    """What the chance depends on, besides the text."""
    n_items: int = 0
    """How many inputs the training examples make."""
    train: TrainConfig = field(default_factory=TrainConfig)

    def merged(self, tokenizer: DualTokenizer, base: Any, batch: Any) -> Any:
        """The pieces of texts whose base pieces are ``base``."""
        pieces, ids = _pieces(tokenizer), base.ids.tolist()
        starts = np.flatnonzero(base.begins)
        ends = np.append(starts[1:], len(ids))
        chances = [random.Random(f"{self.draw} {text}") for text in batch.texts]
        words = []
        for start, end, line in zip(starts.tolist(), ends.tolist(), base.lines[starts].tolist(), strict=True):
            word_ids = ids[start:end]
            word = "".join(pieces.names[i].removeprefix(_INSIDE) for i in word_ids)
            words.append(
                word_ids if pieces.special.intersection(word_ids) else cut(word, pieces.ids, chances[line]) or word_ids
            )
        at = np.repeat(np.arange(len(starts)), [len(word) for word in words])
        begins = np.ones(len(at), bool)
        begins[1:] = at[1:] != at[:-1]
        # A piece has its whole word's span: what is not cut as the base tokenizer does has no other.
        spans = np.stack([base.spans[starts, 0], base.spans[ends - 1, 1]], axis=1)[at]
        flat = np.array([i for word in words for i in word], base.ids.dtype)
        return type(base)(flat, begins, spans, base.lines[starts][at], base.input_words[starts][at])


@dataclass(frozen=True)
class _Vocabulary:
    ids: Mapping[str, int]
    names: Mapping[int, str]
    special: frozenset[int]


@cache
def _pieces(tokenizer: DualTokenizer) -> _Vocabulary:
    ids = tokenizer.base.get_vocab()
    special = frozenset(tokenizer.base.get_added_tokens_decoder()) | {tokenizer.special.unk}
    names = {i: name for name, i in ids.items()}
    return _Vocabulary({name: i for name, i in ids.items() if i not in special}, names, special)


@dataclass(frozen=True, eq=False)
class _Redrawn(TaskDataset):
    """Several draws of the same inputs, concatenated: one for each epoch."""

    n_drawn: int = 0

    @property
    def n_items(self) -> int:
        """How many inputs a draw has."""
        return self.n_drawn


@contextmanager
def dropout() -> Iterator[None]:
    """Replace the expanded view by MaxMatch-dropout; for NER as the only task, and models with WordPiece."""
    cuts = _Cuts()
    begin_of, training_of, dataset_of, draw_of = FinetuneRun.__init__, NerTask.training, TaskDataset.of, Feed.draw

    def begin(run: FinetuneRun, setup: FinetuneSetup, *arguments: Any, **named: Any) -> None:
        cuts.train = setup.train
        begin_of(run, setup, *arguments, **named)

    def drawn(task: NerTask, epoch: int, examples: Any, encoder: Encoder, seed: int, progress: Any) -> list[Input]:
        cuts.draw = (seed, epoch)
        items = training_of(task, examples, encoder, seed, progress)
        cuts.draw = ()
        return items

    def training(task: NerTask, *arguments: Any) -> list[Input]:
        first, train = drawn(task, 0, *arguments), cuts.train
        cuts.n_items = len(first)
        an_epoch = -(-2 * len(first) // train.batch_size)
        epochs = min(train.epochs, -(-(train.max_steps or train.epochs * an_epoch) // an_epoch))
        draws = [first, *(drawn(task, epoch, *arguments) for epoch in range(1, epochs))]
        return [item for items in draws for item in (items if len(items) == len(first) else first)]

    def dataset(*arguments: Any) -> TaskDataset:
        plain = dataset_of(*arguments)
        return _Redrawn(**{entry.name: getattr(plain, entry.name) for entry in fields(plain)}, n_drawn=cuts.n_items)

    def draw(feed: Feed, step: int) -> Draw:
        plain = draw_of(feed, step)
        return replace(plain, items=plain.items + plain.n_passes * plain.dataset.n_items)

    with (
        patch.object(DualTokenizer, "_merge", lambda *arguments: cuts.merged(*arguments)),
        patch.object(Encoder, "has_words", property(lambda _: True)),
        patch.object(FinetuneRun, "__init__", begin),
        patch.object(NerTask, "training", training),
        patch.object(TaskDataset, "of", dataset),
        patch.object(Feed, "draw", draw),
    ):
        yield
