"""The protocol of tasks, and the inputs of models: pieces in both tokenizations."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar, get_args

import numpy as np

from greenadapt.architectures.base import Architecture
from greenadapt.checkpoints.layout import set_name
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig, TaskConfig, TaskName
from greenadapt.errors import InputError, UsageError
from greenadapt.progress import Progress
from greenadapt.store.arrays import Array, BoolArray, Int64Array, IntArray
from greenadapt.store.files import Json, parse_own
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.files import SpecialIds

Example = TypeVar("Example")


_RUN, _FEWEST_RUNS = 10, 4
"""Most neighbouring sentences that stay together, and the fewest runs of them in each part."""


@dataclass(frozen=True)
class Fold:
    """Part ``number`` (from 0) of ``of`` parts of the examples: it is held out, and the model trains on the others."""

    number: int
    of: int
    seed: int = 0
    """Seed of the split into parts."""

    def split(self, examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
        """The training examples and the held-out ones, in their order.

        Examples of one ``group`` are in the same part: questions on the same context, sentences of one document.
        Sentences without a document are in the same part as their neighbours, up to ten, since those are often of one
        document. Raises ``UsageError`` if there are fewer groups than parts.
        """
        run = max(1, min(_RUN, len(examples) // (_FEWEST_RUNS * self.of)))
        of_examples = [getattr(example, "group", None) for example in examples]
        names = [
            number if group is None else group or ("run", number // run) for number, group in enumerate(of_examples)
        ]
        groups = {name: number for number, name in enumerate(dict.fromkeys(names))}
        if len(groups) < self.of:
            unit = "contexts or documents" if len(groups) < len(examples) else "examples"
            raise UsageError(f"--folds is {self.of}, but there are only {len(groups)} {unit}", "use fewer")
        part = np.random.default_rng(self.seed).permutation(len(groups)) % self.of
        is_held_out = [part[groups[name]] == self.number for name in names]
        pairs = [*zip(examples, is_held_out, strict=True)]
        return [example for example, is_out in pairs if not is_out], [example for example, is_out in pairs if is_out]


IGNORED = -100
"""The target of pieces that the loss ignores, as in torch."""


@dataclass(frozen=True, eq=False)
class Feature:
    """A sequence of n pieces that the model reads, in one tokenization."""

    ids: IntArray
    """(n,) int32: the rows of the embedding, special tokens included."""
    types: IntArray
    """(n,) int32: the segment of each piece."""
    units: IntArray
    """The unit that each output of the model belongs to, int32; -1: to none. Units are the words of a sentence or a
    context, or the whole text (0). A head has an output per piece, (n,), or one per text, (1,).
    """
    target: Array | None = None
    """The label. NER: (n,) int64, ``IGNORED`` for pieces without a label. Classification: () int64 or float32. QA: (2,)
    int64, the first and the last piece of the answer. ``None`` in prediction.
    """

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Features:
    """b inputs, concatenated: ``ids`` and ``types`` (total,), the segment of each piece, and ``lengths`` (b,)."""

    ids: IntArray
    types: IntArray
    lengths: IntArray

    @classmethod
    def of(cls, features: Sequence[Feature]) -> "Features":
        """Concatenate ``features``, which may be empty."""
        if not features:
            return cls(*(np.zeros(0, np.int32) for _ in range(3)))
        ids, types = (np.concatenate([getattr(feature, name) for feature in features]) for name in ("ids", "types"))
        return cls(ids, types, np.array([len(feature) for feature in features]))

    @cached_property
    def is_piece(self) -> BoolArray:
        """(b, longest): whether an element of the padded inputs is a piece."""
        return np.arange(self.lengths.max(initial=0)) < self.lengths[:, None]

    @property
    def mask(self) -> Int64Array:
        """The attention mask of models: ``is_piece`` as (b, longest) int64."""
        return self.is_piece.astype(np.int64)

    def pad(self, values: Array, fill: int) -> Int64Array:
        """Pad ``values`` (total,) to (b, longest) int64 with ``fill``."""
        array = np.full(self.is_piece.shape, fill, np.int64)
        array[self.is_piece] = values
        return array


@dataclass(frozen=True, eq=False)
class Item:
    """The features of an example in both tokenizations: one each, or several (chunks, windows).

    ``expanded`` is the same object as ``base`` if the model has no added words.
    """

    base: list[Feature]
    expanded: list[Feature]
    n_units: int
    """The number of units of the example, the same in both views."""
    example: Any = None
    """The example, for the consumer of the model's outputs; ``None`` in training."""


@dataclass(frozen=True)
class Encoder:
    """A model's tokenizer and the format of its inputs."""

    tokenizer: DualTokenizer
    architecture: Architecture
    max_length: int
    """Maximum length of an input in pieces, special tokens included."""

    @classmethod
    def of(cls, checkpoint: Checkpoint, max_length: int | None = None) -> "Encoder":
        """The encoder of a checkpoint, expanded or not.

        Raises ``UsageError`` if the model has fewer than ``max_length`` positions.
        """
        tokenizer = DualTokenizer.of_model(checkpoint.folder, checkpoint.n_rows)
        kind, config = checkpoint.architecture, checkpoint.config
        positions = int(config.get("max_position_embeddings", 512))
        if kind.counts_from_padding:
            pad = config.get("pad_token_id")
            positions -= (tokenizer.special.pad if pad is None else int(pad)) + 1
        if max_length is not None and max_length > positions:
            raise UsageError(f"--max-length is {max_length}, but {checkpoint.folder} reads at most {positions} pieces")
        return cls(tokenizer, kind, max_length or positions)

    @property
    def special(self) -> SpecialIds:
        """The special tokens' ids."""
        return self.tokenizer.special

    @property
    def has_words(self) -> bool:
        """Whether the model has added words, so that its views can differ."""
        return len(self.tokenizer.added) > 0

    @property
    def n_special_pair(self) -> int:
        """The number of special tokens of a pair."""
        has_two = self.architecture.has_two_separators
        if has_two is None:
            has_two = self.tokenizer.base.id_to_token(self.special.sep) == "</s>"
        return 4 if has_two else 3

    def n_pieces(self, text: str) -> int:
        """The number of pieces of ``text`` in the longer view."""
        pieces = self.tokenizer.encode(text)
        return max(len(pieces.base.ids), len(pieces.expanded.ids))

    def single(self, pieces: IntArray) -> tuple[IntArray, IntArray, int]:
        """``[CLS] pieces [SEP]``: ids (n + 2,), types (n + 2,), and the index of the first of ``pieces``.

        Raises ``InputError`` if the input is longer than ``max_length``.
        """
        ids = self._concatenate([self.special.cls], pieces, [self.special.sep])
        return ids, np.zeros(len(ids), np.int32), 1

    def pair(self, first: IntArray, second: IntArray) -> tuple[IntArray, IntArray, int]:
        """``[CLS] first [SEP] second [SEP]``, or with two ``[SEP]`` between: ids, types, and the index of the first
        piece of ``second``.

        Raises ``InputError`` if the input is longer than ``max_length``.
        """
        special = self.special
        between = [special.sep] * (self.n_special_pair - 2)
        ids = self._concatenate([special.cls], first, between, second, [special.sep])
        begin = 1 + len(first) + len(between)
        types = np.zeros(len(ids), np.int32)
        if self.architecture.has_segments:
            types[begin:] = 1
        return ids, types, begin

    def _concatenate(self, *parts: Sequence[int] | IntArray) -> IntArray:
        ids: IntArray = np.concatenate([np.asarray(part, np.int32) for part in parts])
        if len(ids) > self.max_length:
            raise InputError(f"an input of {len(ids)} pieces, the model reads {self.max_length}")
        return ids


class HeadShape(NamedTuple):
    """How a head differs from transformers' own."""

    layers: int = 1
    """2: a linear layer and tanh before the last layer."""
    dropout: float | None = None
    """``None``: the dropout of the model's configuration."""


class Task(Protocol[Example]):
    """A kind of task, the interface for training and prediction; its examples may have any type."""

    @property
    def name(self) -> str:
        """``ner``, ``classification`` or ``qa``."""

    @property
    def head(self) -> str:
        """The head of transformers, such as ``TokenClassification``, a suffix of ``AutoModelFor``."""

    @property
    def main(self) -> str:
        """The name of the score that compares models."""

    def read(self, source: str, progress: Progress) -> list[Example]:
        """The labelled examples of a file (or data set id); raises ``InputError`` with line and column."""

    def example(self, record: str | Json, where: str) -> Example:
        """An unlabelled example from a line of text or a JSON object; ``where`` is its location in error messages."""

    def fit(self, examples: Sequence[Example], progress: Progress) -> Self:
        """This task with the labels of the training examples; raises ``InputError`` if there are too few to learn
        from.
        """

    def settings(self) -> Json:
        """The arguments of ``load_task`` that restore this task: ``task``, ``labels`` and options, as JSON values."""

    def head_config(self) -> Json:
        """Entries of the model's ``config.json``, such as ``id2label``, ``label2id`` and ``problem_type``."""

    @property
    def head_shape(self) -> HeadShape:
        """The layers and the dropout of the head."""

    def training(self, examples: Sequence[Example], encoder: Encoder, seed: int, progress: Progress) -> list[Item]:
        """The training inputs, one per example (NER: per chunk), with a target in every feature."""

    def inference(
        self, examples: Iterable[Example], encoder: Encoder, counts: Counter[str] | None = None
    ) -> Iterator[Item]:
        """The inputs for prediction, one per example, in order, streamed; ``counts["cut"]`` counts the examples that
        are truncated to the model's maximum length.
        """

    def uncertain_units(self, example: Example, logits: Array, margin: float) -> IntArray:
        """The units of an example to read again in the other tokenization, given the logits (n_units, k) in one: those
        whose most probable label or answer is less than ``margin`` more probable than the next.
        """

    def decode(self, example: Example, logits: Array) -> Json:
        """The prediction for an example from its pooled logits (n_units, k), as in output files."""

    def score(self, examples: Sequence[Example], predictions: Sequence[Json]) -> Json:
        """All scores of predictions on labelled examples; shares are from 0 to 1."""

    def statistics(self, examples: Sequence[Example], predictions: Sequence[Json]) -> Array:
        """(n_examples, m) float64, additive: the main score of a set of examples is a function of its sums."""

    def main_score(self, sums: Array) -> Array:
        """(…, m) sums of ``statistics`` → (…) main score."""


# Names instead of classes, since each task imports this module.
_CLASSES = {"ner": "NerTask", "classification": "ClassificationTask", "qa": "QuestionTask"}


def make_task(config: TaskConfig) -> Task[Any]:
    """The task that ``config``, whose fields have the same names, describes, without labels, which ``fit`` adds."""
    kind = _class(config.task)
    values = {field.name: getattr(config, field.name) for field in fields(kind) if hasattr(config, field.name)}
    if config.label_range is not None:
        values["label_kind"] = "numbers"
    return kind(**values)


def n_outputs(task: Task[Any]) -> int:
    """The number of logits of each piece or text."""
    config = task.head_config()
    return int(config.get("num_labels") or len(config["id2label"]))


def load_task(settings: Json, file: Path | str = "task.json") -> Task[Any]:
    """The task with these ``settings()``, other entries ignored; those of earlier versions may lack later options.

    Raises ``InputError`` naming ``file`` for an unknown task and a value of the wrong type.
    """
    name = str(settings.get("task"))
    if name not in _CLASSES:
        raise InputError(f"{file}: {name} is not a task", f"known are {', '.join(get_args(TaskName))}")
    kind, hint = _class(name), "train the model again"
    task: Task[Any] = parse_own(json.dumps(settings), kind, file, hint)
    return task


def _class(name: str) -> Any:
    return getattr(import_module(f"greenadapt.tasks.{name}"), _CLASSES[name])


@dataclass(frozen=True, eq=False)
class TaskData:
    """A task with its labelled examples."""

    name: str
    """Empty for the only task of a plain model."""
    task: Task[Any]
    encoder: Encoder
    """Encodes the examples for the model."""
    train: Sequence[Any]
    dev: Mapping[str, Sequence[Any]]
    """Name of each development set → its examples."""
    test: Mapping[str, Sequence[Any]]
    adapter: AdapterConfig | None
    """The adapter that the task adds to a shared encoder; ``None`` for a plain model."""
    metric: str
    """Path of the score that compares models, see ``metric_of``."""

    def label(self, kind: str, name: str) -> str:
        """The name in messages of a set of ``kind`` ``dev`` or ``test``."""
        return ", ".join([*filter(None, [self.name]), set_name(kind, kind, name)])


def require_numbers(logits: Array) -> None:
    """Raise ``InputError`` if a model's ``logits`` have NaN or infinity; -inf stands for a unit without pieces."""
    if np.isnan(logits).any() or np.isposinf(logits).any():
        raise InputError("the model computes NaN or infinity: its weights are damaged", "download or train it again")


def margins(logits: Array) -> Array:
    """(n, k) logits → (n,) float64: the difference between the two highest probabilities; 1 if k is 1."""
    from scipy.special import softmax  # here, since its import takes a tenth of a second

    if logits.shape[1] < 2:
        return np.ones(len(logits))
    highest = np.partition(softmax(logits.astype(np.float64), axis=1), -2, axis=1)
    return highest[:, -1] - highest[:, -2]
