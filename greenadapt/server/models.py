"""The models that the server opens, and the neighbours of their words."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from greenadapt.checkpoints.layout import TASK_FILE, is_multitask, task_names
from greenadapt.checkpoints.source import find_model
from greenadapt.config import Pool, QaConfig, ReadingOptions
from greenadapt.errors import InputError, UsageError
from greenadapt.inference.models import OpenedModel, with_margin
from greenadapt.inference.search.words import Words, words_of
from greenadapt.models.streaming import ViewOutputs, pooled_output
from greenadapt.models.task_folder import TaskFolder, answers_from_elsewhere
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json, expanded
from greenadapt.tasks.base import Input
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import AnswerCandidates, merge_candidates, ranked
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.vectors.neighbours import ModelRows, near_names

WORDS = "words"
"""The kind of a model that has added words and no task."""
_LETTERS = 5


@dataclass(frozen=True)
class ModelSource:
    """The folder of a model with a task, with added words, or with both."""

    name: str
    """Its name in requests."""
    folder: Path
    task: TaskFolder | None

    @property
    def kind(self) -> str:
        """``ner``, ``classification``, ``qa`` or ``words``."""
        return WORDS if self.task is None else self.task.task.name

    @property
    def has_words(self) -> bool:
        """Whether it has neighbours of words, and two tokenizations."""
        return (self.folder / WORDS_FILE).is_file()

    @cached_property
    def example_word(self) -> str | None:
        """The most frequent added word of five letters or more, if there is one."""
        if not self.has_words:
            return None
        words = AddedWords.open(self.folder / WORDS_FILE).all_surfaces()
        return next((word for word in words if len(word) >= _LETTERS and word.isalpha()), None)


def find_models(models: Sequence[str], reading: ReadingOptions, task: str | None) -> tuple[ModelSource, ...]:
    """The models in folders or hub repositories; of several tasks on one encoder each task, or only ``task``.

    The name is the last part of the path, or the whole path if several would have the same name; a task of several is
    ``model:task``. Raises ``UsageError`` if a model is given twice, or a ``task`` and no model of several,
    ``MissingError`` or ``InputError`` for a folder that is no model, or has neither task nor words.
    """
    folders = [find_model(model).folder for model in models]
    for folder, n in Counter(folder.resolve() for folder in folders).items():
        if n > 1:
            raise UsageError(f"{folder} is given {n} times", "give each --model once")
    if task is not None and not any(map(is_multitask, folders)):
        raise UsageError(f"--task {task}, but no --model has several tasks", "leave out --task")
    file_names = [expanded(model).resolve().name for model in models]
    sources = []
    for model, folder, name in zip(models, folders, file_names, strict=True):
        name = name if file_names.count(name) == 1 else model
        if is_multitask(folder):
            for task_name in task_names(folder) if task is None else (task,):
                task_folder = TaskFolder.find(str(folder), reading.seed, task_name)
                sources.append(ModelSource(f"{name}:{task_name}", folder, task_folder))
        elif (folder / TASK_FILE).is_file() or answers_from_elsewhere(folder):
            sources.append(ModelSource(name, folder, TaskFolder.find(str(folder), reading.seed)))
        elif (folder / WORDS_FILE).is_file():
            sources.append(ModelSource(name, folder, None))
        else:
            raise InputError(f"{folder} has neither a task nor added words", "give what finetune or adapt wrote")
    return tuple(sources)


VIEWS: tuple[Pool, ...] = ("mean", "base", "expanded")
Example = Any
ByView = dict[Pool, Any]
"""View → a prediction as JSON, or the candidate answers of a text."""
_OMITTED = ("id", "tags")


@dataclass(frozen=True)
class PredictionItem:
    """An example for a model, and the views to predict it with."""

    model: "ServedModel"
    example: Example
    views: tuple[Pool, ...]
    size: int
    """About the number of its characters."""


class ServedModel:
    """An opened model; ``opened`` is ``None`` if it has no task."""

    def __init__(self, source: ModelSource, opened: OpenedModel | None) -> None:
        self.source = source
        self.opened = opened

    @classmethod
    def open(cls, source: ModelSource, reading: ReadingOptions) -> "ServedModel":
        """Read the weights; raises what ``OpenedModel.open`` raises."""
        return cls(source, None if source.task is None else OpenedModel.open_to_predict(source.task, reading))

    def near(self, word: str, top: int) -> Json:
        """The ``top`` added words and the ``top`` wordpieces whose rows are nearest to the row of ``word``, by cosine.

        Raises ``HTTPException``: 400 for anything but one word, 404 for a word without a row.
        """
        parts = self._rows.splitter.split(word)
        if len(parts) != 1:
            raise HTTPException(400, f"{word!r} is {len(parts)} words as the model splits it: give one word at a time")
        [word] = parts
        if word not in self._rows.words:
            names = near_names(word, self._rows.words)
            hint = f"near: {', '.join(names)}" if names else "give one of the corpus, or of the base model"
            raise HTTPException(404, f"no row for {word!r}: {hint}")
        added, pieces = (
            [{"word": label, "cosine": cosine} for label, cosine in nearest_rows]
            for nearest_rows in (self._rows.near_added(word, top), self._rows.near_pieces(word, top))
        )
        return {"word": word, "is_added": self._rows.words[word] >= self._rows.n_base, "added": added, "pieces": pieces}

    @cached_property
    def _rows(self) -> ModelRows:
        """Read on first use."""
        return ModelRows.open(self.source.folder)

    @cached_property
    def words(self) -> Words:
        """Splits text into the words that a search compares."""
        return words_of(self.source.folder)

    @property
    def _task(self) -> Any:
        assert self.source.task is not None
        return self.source.task.task

    @property
    def view(self) -> Pool | None:
        """The view of predictions by default."""
        return None if self.opened is None else self.opened.settings.pool

    def described(self) -> Json:
        """The model's description for clients."""
        has_views = self.opened is not None and self.opened.encoder.has_words
        return {
            "name": self.source.name,
            "kind": self.source.kind,
            "view": self.view,
            "views": list(VIEWS) if has_views else [],
            "neighbours": self.source.has_words,
            "example_word": self.source.example_word,
        }

    def check_question(self, question: str) -> None:
        """Raise ``HTTPException`` (413) for a question of more than half of the pieces that the model reads at once.

        The rest is for a window of the context. The longer the question, the narrower and the more numerous are the
        windows: at worst, one for every piece.
        """
        assert self.opened is not None
        encoder = self.opened.encoder
        n, limit = encoder.n_pieces(question), encoder.max_length // 2
        if n > limit:
            problem = f"question has {n:,} pieces for {self.source.name}, the most is {limit:,}: shorten it"
            raise HTTPException(413, problem)

    def example(self, record: str | Json, where: str) -> Example:
        """The example of the model's task in ``record``; raises ``InputError`` for anything else."""
        return self._task.example(record, where)

    def predict(self, examples: Iterable[Example], views: tuple[Pool, ...]) -> Iterator[ByView]:
        """A result by view for each of ``examples``."""
        assert self.opened is not None
        # The views of single tokenizations need every text read by both; the mean has its margin afterwards.
        while_reading, afterwards = self.opened.margin, None
        if views != ("mean",):
            while_reading, afterwards = None, self.opened.margin
        settings = replace(self.opened.settings, pool=views[0] if len(views) == 1 else "mean")
        opened = replace(self.opened, settings=settings, margin=while_reading)
        inputs = list(opened.inputs(examples))
        for item, output in zip(inputs, opened.outputs(inputs), strict=True):
            logits = {view: self._logits(item, output, view, afterwards) for view in views}
            yield {view: self._result(output.example, array) for view, array in logits.items()}

    def _logits(self, item: Input, output: ViewOutputs, view: Pool, margin: float | None) -> Array:
        """The logits of a view; of the mean with a ``margin`` if it was not read with it."""
        if view == "mean" and margin is not None:
            output = with_margin(self._task, item, output, margin)
        return pooled_output(output, view)

    def _result(self, example: Example, logits: Any) -> Any:
        if isinstance(example, Question):
            return self._task.find_candidates(example, logits, QaConfig.n_best)
        return {name: value for name, value in self._task.decode(example, logits).items() if name not in _OMITTED}

    def answers(self, results: Sequence[AnswerCandidates], starts: Sequence[tuple[int, int]], top: int) -> list[Json]:
        """The ``top`` best answers among the candidates of all texts, with the number of the ``document``.

        ``starts`` has the document of each text, and the character at which the text starts there. Raw logits are
        compared, as for the windows of one document; see ``merge_candidates``.
        """
        moved = [
            AnswerCandidates(tuple(item.moved(str(number), begin) for item in result.candidates), result.null)
            for (number, begin), result in zip(starts, results, strict=True)
        ]
        best = ranked(merge_candidates(moved, QaConfig.n_best), self._task.null_threshold)[:top]
        return [
            candidate.as_dict(score) | {"document": int(candidate.document) if candidate.document else None}
            for candidate, score in best
        ]


def predict(items: Sequence[PredictionItem]) -> list[ByView]:
    """The results of any models, in order; the items of a model with the same views go through it together."""
    groups: dict[tuple[ServedModel, tuple[Pool, ...]], list[int]] = {}
    for i, item in enumerate(items):
        groups.setdefault((item.model, item.views), []).append(i)
    results: dict[int, ByView] = {}
    for (model, views), numbers in groups.items():
        results |= zip(numbers, model.predict([items[i].example for i in numbers], views), strict=True)
    return [results[i] for i in range(len(items))]
