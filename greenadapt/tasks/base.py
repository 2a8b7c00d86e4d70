"""What a task is, and which class does which task."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self, TypeVar, get_args

from greenadapt.checkpoints.layout import set_label
from greenadapt.config import AdapterConfig, TaskConfig, TaskName
from greenadapt.errors import InputError
from greenadapt.fields import check_types
from greenadapt.progress import Progress
from greenadapt.storage.arrays import Array, IntArray
from greenadapt.storage.files import Json
from greenadapt.tasks.features import Encoder, Input

Example = TypeVar("Example")


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
    return getattr(import_module(f"greenadapt.tasks.{name}.task"), _CLASSES[name])


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
