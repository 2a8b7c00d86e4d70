"""What a task is, which class does which task, and what a model reads: pieces in both tokenizations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self, TypeVar, get_args

import numpy as np
from scipy.special import softmax

from greenadapt.architectures.base import Architecture
from greenadapt.checkpoints.layout import set_label
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig, TaskConfig, TaskName
from greenadapt.errors import InputError, UsageError
from greenadapt.fields import check_types
from greenadapt.progress import Progress
from greenadapt.storage.arrays import Array, BoolArray, Int64Array, IntArray
from greenadapt.storage.files import Json
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.files import SpecialIds

Example = TypeVar("Example")


@dataclass(frozen=True)
class Fold:
    """One of ``of`` parts of the examples, ``number`` from 0: it is left out, and the other parts are trained on."""

    number: int
    of: int
    seed: int = 0
    """Of the division."""

    def split(self, examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
        """The examples to train on, and those that are left out, both in their order.

        Examples on one ``context`` (questions) are in the same part. Raises ``UsageError`` if there are fewer examples,
        or contexts, than parts.
        """
        names = [getattr(example, "context", number) for number, example in enumerate(examples)]
        groups = {name: number for number, name in enumerate(dict.fromkeys(names))}
        if len(groups) < self.of:
            what = "contexts" if len(groups) < len(examples) else "examples"
            raise UsageError(
                f"--folds is {self.of}, but there are only {len(groups)} {what}", "use fewer, or label more"
            )
        part = np.random.default_rng(self.seed).permutation(len(groups)) % self.of
        is_out = [part[groups[name]] == self.number for name in names]
        trained = [example for example, out in zip(examples, is_out, strict=True) if not out]
        return trained, [example for example, out in zip(examples, is_out, strict=True) if out]


IGNORED = -100
"""The target of pieces that are not part of the loss, as torch has it."""


@dataclass(frozen=True, eq=False)
class Feature:
    """One sequence that goes through the model, in one tokenization.

    ``ids`` (n,) int32 with special tokens, rows of the model's whole embedding; ``types`` (n,) int32, the segment of
    each piece; ``units`` int32, which unit of the example (a word of a sentence, a word of a context, the text itself:
    0) each output of the model is for, -1 for none: (n,) for a head with one output per piece, (1,) for one with one
    output per text. ``target`` is what training wants: NER (n,) int64, ``IGNORED`` for pieces without a label;
    classification () int64 or float32; QA (2,) int64, first and last piece; ``None`` when predicting.
    """

    ids: IntArray
    types: IntArray
    units: IntArray
    target: Array | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Features:
    """b inputs end to end: ``ids`` and ``types`` (total,), the segment of each piece, and ``lengths`` (b,)."""

    ids: IntArray
    types: IntArray
    lengths: IntArray

    @classmethod
    def of(cls, features: Sequence[Feature]) -> "Features":
        """The inputs that ``features`` are, of which there may be none."""
        if not features:
            return cls(*(np.zeros(0, np.int32) for _ in range(3)))
        ids, types = (np.concatenate([getattr(one, name) for one in features]) for name in ("ids", "types"))
        return cls(ids, types, np.array([len(one) for one in features]))

    @cached_property
    def is_piece(self) -> BoolArray:
        """(b, longest): what is not padding in the inputs as a padded array."""
        is_piece: BoolArray = np.arange(self.lengths.max(initial=0)) < self.lengths[:, None]
        return is_piece

    @property
    def mask(self) -> Int64Array:
        """``is_piece`` as models want it: (b, longest) int64."""
        return self.is_piece.astype(np.int64)

    def padded(self, values: Array, fill: int) -> Int64Array:
        """``values`` (total,) below each other, (b, longest) int64, with ``fill`` behind the shorter ones."""
        array = np.full(self.is_piece.shape, fill, np.int64)
        array[self.is_piece] = values
        return array


@dataclass(frozen=True, eq=False)
class Input:
    """What a model reads of one example: in both tokenizations one feature or several (chunks, windows).

    ``expanded`` is the same object as ``base`` where the model has no added words.
    """

    base: list[Feature]
    expanded: list[Feature]
    n_units: int
    """How many units the example has; the two views speak for the same ones."""
    example: Any = None
    """Passed on with the model's outputs; ``None`` in training."""


def flattened(inputs: Sequence[Input]) -> tuple[list[Feature], IntArray, IntArray]:
    """The features of all inputs, those that both views share once, and by input and view (0: base, 1: expanded) which
    is the first and how many there are, (n, 2) int64 each.
    """
    features: list[Feature] = []
    firsts, counts = np.zeros((2, len(inputs), 2), np.int64)
    for i, one in enumerate(inputs):
        firsts[i], counts[i] = len(features), len(one.base)
        features += one.base
        if one.expanded is not one.base:
            firsts[i, 1], counts[i, 1] = len(features), len(one.expanded)
            features += one.expanded
    return features, firsts, counts


@dataclass(frozen=True)
class Encoder:
    """A model's tokenizer, and how its inputs are put together."""

    tokenizer: DualTokenizer
    architecture: Architecture
    max_length: int
    """Pieces that the model reads at once, special tokens included."""

    @classmethod
    def of(cls, checkpoint: Checkpoint, max_length: int | None = None) -> "Encoder":
        """That of a model's folder, expanded or not; raises ``UsageError`` if the model has fewer places."""
        tokenizer = DualTokenizer.of_model(checkpoint.folder, checkpoint.n_rows)
        kind, config = checkpoint.architecture, checkpoint.config
        places = int(config.get("max_position_embeddings", 512))
        if kind.counts_from_padding:
            pad = config.get("pad_token_id")
            places -= (tokenizer.special.pad if pad is None else int(pad)) + 1
        if max_length is not None and max_length > places:
            raise UsageError(f"--max-length is {max_length}, but {checkpoint.folder} reads at most {places} pieces")
        return cls(tokenizer, kind, max_length or places)

    @property
    def special(self) -> SpecialIds:
        """The special tokens' ids."""
        return self.tokenizer.special

    @property
    def has_words(self) -> bool:
        """Whether the model has added words, so that the two views can differ."""
        return len(self.tokenizer.added) > 0

    @property
    def n_special_pair(self) -> int:
        """Special tokens around a pair."""
        has_two = self.architecture.has_two_separators
        if has_two is None:
            has_two = self.tokenizer.base.id_to_token(self.special.sep) == "</s>"
        return 4 if has_two else 3

    def n_pieces(self, text: str) -> int:
        """The pieces of ``text`` in the view that has more."""
        pieces = self.tokenizer.encode(text)
        return max(len(pieces.base.ids), len(pieces.expanded.ids))

    def single(self, pieces: IntArray) -> tuple[IntArray, IntArray, int]:
        """``[CLS] pieces [SEP]``: ids (n + 2,), types (n + 2,), and where ``pieces`` begin.

        Raises ``InputError`` if that is longer than the model reads.
        """
        ids = _join([self.special.cls], pieces, [self.special.sep])
        self._check(ids)
        return ids, np.zeros(len(ids), np.int32), 1

    def pair(self, first: IntArray, second: IntArray) -> tuple[IntArray, IntArray, int]:
        """``[CLS] first [SEP] second [SEP]``, or with two ``[SEP]`` between: ids, types, and
        where ``second`` begins.

        Raises ``InputError`` if that is longer than the model reads.
        """
        special = self.special
        between = [special.sep] * (self.n_special_pair - 2)
        ids = _join([special.cls], first, between, second, [special.sep])
        self._check(ids)
        begin = 1 + len(first) + len(between)
        types = np.zeros(len(ids), np.int32)
        if self.architecture.has_segments:
            types[begin:] = 1
        return ids, types, begin

    def _check(self, ids: IntArray) -> None:
        if len(ids) > self.max_length:
            raise InputError(f"an input of {len(ids)} pieces, the model reads {self.max_length}")


def _join(*parts: Sequence[int] | IntArray) -> IntArray:
    joined: np.ndarray[Any, np.dtype[np.int32]] = np.concatenate([np.asarray(part, np.int32) for part in parts])
    return joined


class HeadShape(NamedTuple):
    """What a head is beside transformers' own."""

    layers: int = 1
    """2: another linear layer and tanh before the last."""
    dropout: float | None = None
    """``None``: that of the model's configuration."""


class Task(Protocol[Example]):
    """One kind of task. Its examples are of any type; everything that trains or predicts goes through this."""

    @property
    def name(self) -> str:
        """``ner``, ``classification`` or ``qa``."""

    @property
    def head(self) -> str:
        """The transformers head, such as ``TokenClassification``: the class is ``AutoModelFor`` and this."""

    @property
    def main(self) -> str:
        """Name of the score by which models are compared."""

    def read(self, source: str, progress: Progress) -> list[Example]:
        """The labelled examples of a file (or data set id); raises ``InputError`` with line and column."""

    def example(self, record: str | Json, where: str) -> Example:
        """One unlabelled example from a line of text or a JSON object; ``where`` is for the error message."""

    def fit(self, examples: Sequence[Example], progress: Progress) -> Self:
        """This task with the labels that training examples have; raises ``InputError`` if they are of one class."""

    def labels_in(self, examples: Sequence[Example]) -> set[str]:
        """The classes or types of entities that labelled examples have; none where labels are something else."""

    def settings(self) -> Json:
        """All that ``load_task`` needs to make this task again: ``task``, ``labels`` and options, as JSON values."""

    def head_config(self) -> Json:
        """Entries of the model's ``config.json``: ``id2label``, ``label2id``, ``problem_type``, where they apply."""

    def head_shape(self) -> HeadShape:
        """The layers and the dropout of the head."""

    def training(self, examples: Sequence[Example], encoder: Encoder, seed: int, progress: Progress) -> list[Input]:
        """What is trained on, one entry per example (NER: a chunk), every feature with its target."""

    def inference(
        self, examples: Iterable[Example], encoder: Encoder, counts: Counter[str] | None = None
    ) -> Iterator[Input]:
        """What is predicted on, one entry per example, in order, streamed; ``counts["cut"]`` grows by each example that
        is longer than the model reads and therefore cut.
        """

    def in_doubt(self, example: Example, logits: Array, margin: float) -> IntArray:
        """The units of one example to read again in the other tokenization, by one's logits (n_units, k): none where
        the most probable label or answer is ``margin`` or more above the next, in probability.
        """

    def decode(self, example: Example, logits: Array) -> Json:
        """The prediction for one example from its pooled logits (n_units, k), as it is written out."""

    def score(self, examples: Sequence[Example], predictions: Sequence[Json]) -> Json:
        """All scores of predictions on labelled examples; shares lie between 0 and 1."""

    def statistics(self, examples: Sequence[Example], predictions: Sequence[Json]) -> Array:
        """(n_examples, m) float64, additive: the main score of any set of examples is a function of its sum."""

    def main_score(self, sums: Array) -> Array:
        """(…, m) sums of ``statistics`` → (…) main score."""


# By name, so that nothing is imported here: each task imports this module.
_CLASSES = {"ner": "NerTask", "classification": "ClassificationTask", "qa": "QuestionTask"}


def make_task(config: TaskConfig) -> Task[Any]:
    """The task that ``config`` describes, without labels: ``fit`` gives it those of the training examples."""
    task: Task[Any] = _class(config.task).of(config)
    return task


def load_task(settings: Json) -> Task[Any]:
    """The task whose ``settings()`` are given; raises ``InputError`` if they name none, ``UsageError`` if a value is of
    another type.
    """
    name = str(settings.get("task"))
    if name not in _CLASSES:
        raise InputError(f"{name} is not a task", f"known are {', '.join(get_args(TaskName))}")
    task: Task[Any] = _class(name).of_settings(settings)
    check_types(task)
    return task


def _class(name: str) -> Any:
    return getattr(import_module(f"greenadapt.tasks.{name}"), _CLASSES[name])


@dataclass(frozen=True, eq=False)
class TaskData:
    """A task with its labelled examples."""

    name: str
    """Empty for a plain model's only task."""
    task: Task[Any]
    encoder: Encoder
    """How the model reads them."""
    train: Sequence[Any]
    dev: Mapping[str, Sequence[Any]]
    """Name of each development set → its examples."""
    test: Mapping[str, Sequence[Any]]
    adapter: AdapterConfig | None
    """What the task adds to a shared encoder; ``None`` for a plain model."""
    metric: str
    """Path of the score that counts, see ``metric_of``."""

    def label(self, kind: str, name: str) -> str:
        """How messages call one of its sets of ``kind`` ``dev`` or ``test``."""
        return ", ".join([*filter(None, [self.name]), set_label(kind, name)])


def margins(logits: Array) -> Array:
    """(n, k) → (n,) float64: by how much the most probable of k labels is more probable than the next; 1 if k is 1."""
    if logits.shape[1] < 2:
        return np.ones(len(logits))
    highest = np.partition(softmax(logits.astype(np.float64), axis=1), -2, axis=1)
    margin: Array = highest[:, -1] - highest[:, -2]
    return margin
