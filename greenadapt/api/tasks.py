"""Models of tasks: predictions, answers, scores."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from greenadapt.api.arguments import (
    Data,
    check_texts,
    make_session,
    plain_record,
    rows_of,
    shown_progress,
    single_labelled_source,
)
from greenadapt.api.models import ModelFolder
from greenadapt.config import Count, QaConfig, ReadingOptions, SessionOptions
from greenadapt.errors import UsageError, counted, rounded
from greenadapt.fields import checked_call
from greenadapt.progress import Progress
from greenadapt.store.files import Json, expanded

if TYPE_CHECKING:
    from greenadapt.inference.predictor import Predictor


class TaskModel(ModelFolder):
    """A model of a task, or of several on one encoder, as ``greenadapt.finetune`` makes it.

    ``greenadapt.load`` opens one. The weights are read when they are first used.

    Examples:
        >>> ner = greenadapt.load("runs/ner")
        >>> ner.predict("The patient had tachycardia.")["entities"]
        [{'first': 3, 'last': 3, 'type': 'Disease', 'score': 0.98, 'start': 16, 'end': 27, 'text': 'tachycardia'}]
    """

    @checked_call
    def __init__(
        self,
        folder: str | PathLike[str],
        task: str | None = None,
        reading: ReadingOptions = ReadingOptions(),
    ) -> None:
        self.folder = expanded(folder).absolute()
        self.task_name = task
        """Which of several tasks it is for; ``None`` for the only one, or for all."""
        self._reading = reading

    def __repr__(self) -> str:
        settings = {
            name: value for name, value in asdict(self._reading).items() if value != getattr(ReadingOptions, name)
        }
        chosen = ({} if self.task_name is None else {"task": self.task_name}) | settings
        named = "".join(f", {name}={value!r}" for name, value in chosen.items())
        kinds = ", ".join(f"{name}: {kind}" if name else kind for name, kind in self.tasks.items())
        lines = [f"{type(self).__name__}({str(self.folder)!r}{named})", f"  {kinds}"]
        scores = self.scores
        if "mean" in scores:  # else it has no test set, or several tasks
            main = scores["main"]
            mean, std = (scores[name].get(main) for name in ("mean", "std"))
            value = "undefined" if mean is None else rounded(mean, 4) + ("" if std is None else f" ± {rounded(std, 4)}")
            lines.append(f"  {counted(len(scores['seeds']), 'seed')}; test {main} {value}")
        return "\n".join(lines)

    @cached_property
    def tasks(self) -> dict[str, str]:
        """Name of each task → its kind, ``ner``, ``classification`` or ``qa``; the only one has the name ``""``."""
        return {name or "": self._folder(name).task.name for name in self._names}

    @property
    def labels(self) -> list[str]:
        """What the model tells apart: classes, or types of entities; none for numbers and answers."""
        [name] = self._only_task("labels")
        config = self._folder(name).task.head_config().get("id2label", {})
        return list(
            dict.fromkeys(
                label.split("-", 1)[-1] if self.tasks[name or ""] == "ner" else label
                for label in config.values()
                if label != "O"
            )
        )

    @property
    def scores(self) -> Json:
        """What ``scores.json`` holds: the scores on the test set, over all seeds and of each, of all tasks; empty for a
        model from elsewhere.

        Examples:
            >>> ner.scores["mean"]["f1"]
            0.87
        """
        from greenadapt.checkpoints.layout import SCORES
        from greenadapt.stages.finetune.train import read_scores

        return read_scores(self.folder) if (self.folder / SCORES).is_file() else {}

    @checked_call
    def predict(self, data: Data | Mapping[str, Any], *, tags: bool = False, progress: bool | Progress = False) -> Any:
        """Predict for texts or records.

        Args:
            data: A text, a record (a dictionary with ``text``, ``tokens``, or ``question`` and ``context``), any number
                of them, a ``datasets.Dataset`` or a data frame; or the path (``pathlib.Path``) of a file as
                ``greenadapt predict`` reads it.
            tags: NER: whether to have ``words`` and ``tags`` beside ``entities``.
            progress: Whether to show a bar, or where to.

        Returns:
            A dictionary for one text or record, else a list of them: NER has ``text`` and ``entities``,
            classification ``label``, ``score`` and ``probabilities`` or ``value``, question answering ``answer``,
            ``start``, ``end``, ``score``; of several tasks ``tasks`` has those of each by name.

        Raises:
            InputError: If a record lacks what the task reads.

        Examples:
            >>> ner.predict(["The patient had tachycardia.", "He was well."])
        """
        is_single = isinstance(data, str | Mapping)
        rows = list(self.predictions(data, tags=tags, progress=progress))
        return rows[0] if is_single else rows

    __call__ = predict

    @checked_call
    def predictions(self, data: Data, *, tags: bool = False, progress: bool | Progress = False) -> Iterator[Json]:
        """``predict`` for data of any size: one prediction after the other, in order.

        Examples:
            >>> for row in ner.predictions(Path("abstracts.txt.gz")):
            ...     print(row["entities"])
        """
        progress = shown_progress(progress)
        if isinstance(data, str | Mapping):
            data = [data]
        if isinstance(data, PathLike):
            from greenadapt.inference.predictor import Predictor

            blocks = Predictor(self._request(fspath(data))).predict(progress)
        else:
            rows = _cleaned(rows_of(data, "data", takes_texts=True), progress)
            blocks = self._predictor.predict_records(rows, progress)
        return (prediction.row(tags=tags) for block in blocks for prediction in block)

    @checked_call
    def answer(
        self,
        question: str | Iterable[str],
        context: str | Iterable[str],
        *,
        top: Count = 1,
    ) -> Any:
        """Answer questions about texts of any length.

        Args:
            question: The question, or several.
            context: The text that has the answer; one for all questions, or one for each.
            top: How many answers of different text to give, from 1 to 20.

        Returns:
            A dictionary with ``answer``, its characters ``start`` to before ``end`` in ``context`` (``None`` if there
            is no answer), ``score``, its probability among the 20 best, and ``logit``; for ``top`` above 1 a list of
            them, best first. Several questions have a list of these. The numbers are those of ``greenadapt qa``.

        Raises:
            UsageError: If the model is not for question answering, or questions and contexts do not match.

        Examples:
            >>> qa = greenadapt.load("squad-bert")
            >>> qa.answer("Which dose was given?", "Patients received 20 mg daily.")["answer"]
            '20 mg'
        """
        config = QaConfig(top=top)
        is_single = isinstance(question, str) and isinstance(context, str)
        records = enumerate(_questions(question, context))
        [name] = self._only_task("answer")
        if (kind := self.tasks[name or ""]) != "qa":
            raise UsageError(f"{self.folder} is for {kind}, not for question answering", "use predict")
        from greenadapt.inference.qa.inquiry import on_contexts
        from greenadapt.inference.qa.lookups import QaModel, answers

        [model] = self._predictor.members
        task: Any = model.task
        questions = [replace(task.example(record, f"item {number}"), id=str(number)) for number, record in records]
        inquiry = on_contexts(questions)
        rows: list[Any] = list(answers(QaModel(model, task, {"": model.settings.pool}), inquiry, config))
        if top == 1:
            rows = [best[0] for best in rows]
        return rows[0] if is_single else rows

    @checked_call
    def evaluate(
        self,
        data: Data,
        *,
        options: SessionOptions = SessionOptions(),
        progress: bool | Progress = True,
    ) -> Json:
        """Score the model on labelled data, under every seed unless it was loaded with one.

        Args:
            data: A path, the id of a data set on the hub, or records as for training.
            options: The workspace, where records are kept.
            progress: Whether to show a bar, or where to.

        Returns:
            What ``greenadapt evaluate --json`` prints: ``mean`` and ``std`` over the seeds, ``intervals``, ``seeds``.

        Examples:
            >>> ner.evaluate("test.tsv")["mean"]["f1"]
            0.87
        """
        from greenadapt.stages.evaluate import evaluate

        [name] = self._only_task("evaluate")
        session = make_session(options, progress)
        source = single_labelled_source(data, session.workspace.root, "data")
        sources = [source] if source else []
        [evaluated] = evaluate(str(self.folder), sources, name, self._reading, (), session.progress)
        return evaluated.scores

    @property
    def _names(self) -> tuple[str | None, ...]:
        from greenadapt.checkpoints.layout import is_multitask, task_names

        if self.task_name is not None or not is_multitask(self.folder):
            return (self.task_name,)
        return task_names(self.folder)

    def _only_task(self, method: str) -> tuple[str | None]:
        """The only task; raises ``UsageError`` if there are several."""
        names = self._names
        if len(names) != 1:
            named = ", ".join(map(str, names))
            raise UsageError(f"{method} is for one task, {self.folder} has {len(names)} ({named})", 'load(…, task="…")')
        return (names[0],)

    def _folder(self, name: str | None) -> Any:
        from greenadapt.models.task_folder import TaskFolder

        return TaskFolder.open(str(self.folder), self._reading.seed, name)

    def _request(self, source: str) -> Any:
        from greenadapt.inference.predictor import PredictionRequest

        names = tuple(name for name in self._names if name is not None)
        return PredictionRequest((str(self.folder),), source, reading=self._reading, tasks=names)

    @cached_property
    def _predictor(self) -> "Predictor":
        from greenadapt.inference.predictor import Predictor

        return Predictor(self._request("-"))


def _questions(question: str | Iterable[str], context: str | Iterable[str]) -> list[Json]:
    """Records of questions, each with its context."""
    questions, contexts = ([texts] if isinstance(texts, str) else list(texts) for texts in (question, context))
    n = max(len(questions), len(contexts))
    questions = questions * n if isinstance(question, str) else questions
    contexts = contexts * n if isinstance(context, str) else contexts
    if len(questions) != len(contexts):
        raise UsageError(
            f"{len(questions)} questions and {len(contexts)} contexts", "give one context, or one for each"
        )
    progress = shown_progress(False)
    pairs = zip(check_texts(questions, progress), check_texts(contexts, progress), strict=True)
    return [{"question": text, "context": around} for text, around in pairs]


def _cleaned(rows: Iterable[Any], progress: Progress) -> Iterator[Any]:
    """Records in JSON's types, and texts as a tokenizer takes them."""
    from greenadapt.corpus.text import Decoder

    decoder = Decoder()
    for row in rows:
        if isinstance(row, str):
            yield decoder.without_surrogates(row, "data")
        else:
            yield decoder.record_without_surrogates(plain_record(row), "data")
    decoder.warn_replaced("data", progress)
