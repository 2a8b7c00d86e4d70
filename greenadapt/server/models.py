"""The models that the server opens."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from greenadapt.checkpoints.layout import is_multitask, task_names
from greenadapt.checkpoints.source import find_model
from greenadapt.config import Pool, QaConfig, ReadingOptions
from greenadapt.errors import InputError, UsageError
from greenadapt.inference.models import OpenedModel
from greenadapt.inference.predictor import strip_result
from greenadapt.models.task_folder import TaskFolder
from greenadapt.store.files import Json, expand_home, hash_file, hash_json
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import AnswerCandidates, merge_candidates, rank

VIEWS: tuple[Pool, ...] = ("mean", "base", "expanded")


@dataclass(frozen=True)
class ModelSource:
    """The folder of a model with a task, and its name in requests."""

    name: str
    folder: TaskFolder
    sha256: str
    """The hash of its files when the server started."""


def _hash_files(folder: TaskFolder) -> str:
    """The hash of all files that decide what a model predicts: all but its card."""
    folders = {folder.folder, folder.weights, folder.part or folder.weights}
    files = sorted(file for path in folders for file in path.iterdir() if file.is_file() and file.suffix != ".md")
    return hash_json([hash_file(file) for file in files])


def find_models(models: Sequence[str], reading: ReadingOptions, task: str | None) -> tuple[ModelSource, ...]:
    """The models in folders or hub repositories.

    A model is called by the last part of its path, or by the whole path if another one ends alike. A multitask model
    gives one entry per task, called ``model:task``; ``task`` keeps only the task of that name. Raises ``UsageError`` if
    a model is given twice, or if there is a ``task`` and no multitask model, and ``MissingError`` or ``InputError`` for
    a folder that has no task.
    """
    folders = [find_model(model).folder for model in models]
    for folder, n in Counter(folder.resolve() for folder in folders).items():
        if n > 1:
            raise UsageError(f"{folder} is given {n} times", "give each --model once")
    if task is not None and not any(map(is_multitask, folders)):
        raise UsageError(f"--task {task}, but no --model has several tasks", "leave out --task")
    file_names = [expand_home(model).resolve().name for model in models]
    sources = []
    for model, folder, file_name in zip(models, folders, file_names, strict=True):
        name = file_name if file_names.count(file_name) == 1 else model
        names: dict[str, str | None] = {name: None}
        if is_multitask(folder):
            names = {f"{name}:{each}": each for each in (task_names(folder) if task is None else (task,))}
        for full_name, task_name in names.items():
            task_folder = TaskFolder.open(str(folder), reading.seed, task_name)
            sources.append(ModelSource(full_name, task_folder, _hash_files(task_folder)))
    return tuple(sources)


@dataclass(frozen=True, eq=False)
class ServedModel:
    """An opened model and its name in requests."""

    name: str
    opened: OpenedModel

    @classmethod
    def open(cls, source: ModelSource, reading: ReadingOptions) -> "ServedModel":
        """Read the weights; raises ``InputError`` if they are others than when the server started."""
        opened = OpenedModel.open_to_predict(source.folder, reading)
        if _hash_files(source.folder) != source.sha256:
            raise InputError(f"{source.folder.folder} has changed since the server started", "start the server again")
        return cls(source.name, opened)

    @property
    def kind(self) -> str:
        """``ner``, ``classification`` or ``qa``."""
        return self.opened.task.name

    @property
    def view(self) -> Pool:
        """The view of predictions by default."""
        return self.opened.settings.pool

    def describe(self) -> Json:
        """The model's description for clients."""
        views = list(VIEWS) if self.opened.encoder.has_words else []
        return {"name": self.name, "kind": self.kind, "view": self.view, "views": views}

    def predict(self, examples: Sequence[Any], view: Pool) -> Iterator[Any]:
        """For each example a prediction as JSON, or the candidate answers of a question."""
        task, opened = self.opened.task, replace(self.opened, settings=replace(self.opened.settings, pool=view))
        for example, logits in opened.logits(opened.inputs(examples)):
            if isinstance(example, Question):
                yield task.find_candidates(example, logits, QaConfig.n_best)  # type: ignore[attr-defined]
            else:
                yield strip_result(task.decode(example, logits), example)

    def rank(self, results: Sequence[AnswerCandidates], top: int) -> list[Json]:
        """The ``top`` best answers among the candidates of all texts, with the number of the text as ``document``.

        Raw logits are compared, as for the windows of one document; see ``merge_candidates``.
        """
        numbered = [
            AnswerCandidates(tuple(replace(item, document=str(number)) for item in result.candidates), result.null)
            for number, result in enumerate(results)
        ]
        threshold = self.opened.task.null_threshold  # type: ignore[attr-defined]
        return [
            candidate.as_dict(score) | {"document": int(candidate.document) if candidate.document else None}
            for candidate, score in rank(merge_candidates(numbered, QaConfig.n_best), threshold)[:top]
        ]


def predict(items: Sequence[tuple[ServedModel, Any, Pool]]) -> list[Any]:
    """The results for examples of any models and views, in order; those of a model and view are computed together."""
    groups: dict[tuple[ServedModel, Pool], list[int]] = {}
    for i, (model, _, view) in enumerate(items):
        groups.setdefault((model, view), []).append(i)
    results: dict[int, Any] = {}
    for (model, view), numbers in groups.items():
        results |= zip(numbers, model.predict([items[i][1] for i in numbers], view), strict=True)
    return [results[i] for i in range(len(items))]
