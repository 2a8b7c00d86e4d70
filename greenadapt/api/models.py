"""Models in folders: encoders, adapted or not, and models of tasks, with predictions, answers and scores."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from greenadapt.api.arguments import (
    Data,
    OnlyWarnings,
    make_progress,
    make_session,
    plain_record,
    rows_of,
    single_labelled_source,
)
from greenadapt.config import Count, QaConfig, ReadingOptions, SessionOptions
from greenadapt.errors import InputError, MissingError, UsageError, as_decimal, pluralize
from greenadapt.fields import validate_arguments
from greenadapt.progress import Progress
from greenadapt.store.files import Json, expand_home

if TYPE_CHECKING:
    from greenadapt.inference.predictor import Predictor
    from greenadapt.tokenization.dual_tokenizer import DualTokenizer
    from greenadapt.vectors.neighbours import Neighbours


class ModelFolder:
    """A folder that holds a model, with methods of the names that models of transformers have."""

    folder: Path
    """The model's folder, which transformers loads too."""

    def __fspath__(self) -> str:
        return str(self.folder)

    @classmethod
    def from_pretrained(
        cls, model: str | PathLike[str], task: str | None = None, reading: ReadingOptions = ReadingOptions()
    ) -> Self:
        """Open a model as ``greenadapt.load`` does, with the same arguments.

        Raises:
            MissingError: If there is no such model.
            InputError: If it is another kind of model.

        Examples:
            >>> model = greenadapt.EncoderModel.from_pretrained("minilm")
        """
        opened = load(model, task, reading)
        if not isinstance(opened, cls):
            kind = type(opened).__name__
            raise InputError(f"{model} is no {cls.__name__}", f"open it with {kind}.from_pretrained")
        return opened

    @validate_arguments
    def save_pretrained(self, folder: str | PathLike[str]) -> Path:
        """Copy the model's files, all but hidden ones, to a new folder.

        Args:
            folder: A new or empty folder.

        Returns:
            The path of the copy.

        Raises:
            ConflictError: If the folder holds anything.

        Examples:
            >>> adapted.save_pretrained("models/medicine")
        """
        from greenadapt.checkpoints.source import find_model
        from greenadapt.corpus.opening import visible_files
        from greenadapt.store.outputs import copy_files

        source = find_model(str(self.folder)).folder
        return copy_files((path for path in visible_files(source) if not path.is_dir()), source, Path(folder))

    @validate_arguments
    def push_to_hub(self, repo: str, *, private: bool = False, progress: bool | Progress = True) -> str:
        """Upload the model to the Hugging Face hub, as ``greenadapt push`` does; this needs a token that may write.

        The manifest, predictions and logits of test sets, and hidden files stay here.

        Args:
            repo: The repository, as ``"OWNER/NAME"``; it is created if it is new.
            private: Whether to create a new repository as a private one.
            progress: Whether to show notes and bars on stderr, or where to.

        Returns:
            The address of the commit.

        Raises:
            UsageError: If the name of the repository is not one.
            InputError: If the folder is damaged.
            MissingError: If the address does not answer as a hub does.
            ConflictError: If the hub cannot be reached, or does not take the files.

        Examples:
            >>> adapted.push_to_hub("me/minilm-medicine", private=True)
        """
        from greenadapt.stages.push import push

        commit = push(self.folder, repo, make_progress(progress), private=private, shows_bars=progress is True)
        return str(commit["url"])


class EncoderModel(ModelFolder):
    """An encoder in a folder; ``greenadapt.load`` opens one. Each part is read when it is first used.

    Examples:
        >>> model = greenadapt.load("minilm")
        >>> len(model.tokenizer.encode("tachycardia").base.ids)
        4
    """

    @validate_arguments
    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = expand_home(folder).absolute()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    @cached_property
    def tokenizer(self) -> "DualTokenizer":
        """Both tokenizations of a text, which are the same without added words.

        Examples:
            >>> encoded = adapted.tokenizer.encode("acute tachycardia")
            >>> len(encoded.base.ids), len(encoded.expanded.ids)
            (6, 2)
        """
        from greenadapt.checkpoints.reader import Checkpoint
        from greenadapt.tokenization.dual_tokenizer import DualTokenizer

        return DualTokenizer.of_model(self.folder, Checkpoint(self.folder).n_rows)


@dataclass(frozen=True)
class AlignmentQuality:
    """How well rows of the model's recipe predict those of held-out words; see ``HeldOutFigures`` of
    ``greenadapt.vectors.quality``.
    """

    recipe: str
    """What the new rows are: ``--rows``."""
    n_heldout: int
    """Words that nothing was fitted on."""
    precision_at_1: float
    """Share of them whose own row is the nearest of all rows to the predicted one, by cosine."""
    precision_at_5: float
    """The same among the five nearest."""
    precision_at_10: float
    """The same among the ten nearest."""
    mrr: float
    """Mean reciprocal rank of the own row."""
    r2: float
    """Share of the variance that is explained."""
    cosine: float
    """Mean cosine of the predicted and the own row."""


class NeighbourList(list["Neighbours"]):
    """Neighbours of words in every view, each with ``word``, ``view`` and ``neighbours``, (label, cosine) pairs."""

    def __repr__(self) -> str:
        lines = []
        for entry in self:
            neighbours = ", ".join(f"{label} {cosine:.2f}" for label, cosine in entry.neighbours)
            lines.append(f"{entry.word}, {entry.view}: {neighbours}")
        return "\n".join(lines) or "[]"


class AdaptedModel(EncoderModel):
    """A model with rows for a domain's words, as ``greenadapt.adapt`` makes it.

    Examples:
        >>> adapted = greenadapt.load("adapted")
        >>> adapted
        AdaptedModel('adapted')
          BERT-base with 12,345 words of papers.txt
    """

    def __repr__(self) -> str:
        from greenadapt.checkpoints.provenance import read_facts

        facts = read_facts(self.folder)
        if facts is None:
            return super().__repr__()
        words = f"{facts['model']['name']} with {facts['words']:,} words of {facts['title']}"
        return f"{super().__repr__()}\n  {words}"

    @cached_property
    def facts(self) -> Json:
        """How the model was adapted: ``corpus``, ``title``, ``licence``, ``model``, ``words``, ``rows``, ``config``.

        Raises:
            MissingError: If the folder does not hold an adapted model.
        """
        from greenadapt.checkpoints.provenance import read_facts

        facts = read_facts(self.folder)
        if facts is None:
            raise MissingError(f"{self.folder} is not an adapted model", "open it with greenadapt.load")
        return facts

    @property
    def corpus(self) -> str:
        """The name of the corpus in the workspace."""
        return str(self.facts["corpus"])

    @property
    def words(self) -> list[str]:
        """The added words."""
        return list(dict.fromkeys(self.tokenizer.added.all_surfaces()))

    @property
    def alignment(self) -> AlignmentQuality:
        """How well the recipe of the new rows predicts the rows of held-out words.

        Raises:
            MissingError: If there are no figures, since fewer than 50 words could be compared.

        Examples:
            >>> adapted.alignment.precision_at_10
            0.41
        """
        from greenadapt.store.results import read_manifest

        rows = read_manifest(self.folder).facts.get("rows") or {"recipe": None, "heldout": {}}  # of another stage
        figures = rows["heldout"].get(rows["recipe"])
        if figures is None:
            raise MissingError(f"{self.folder} has no figures of rows of held-out words", "use a larger corpus")
        values = {**figures, **figures["base_rows"]["cosine"], "recipe": rows["recipe"]}
        return AlignmentQuality(**{field.name: values[field.name] for field in fields(AlignmentQuality)})

    @validate_arguments
    def neighbours(self, *words: str, top: Count = 5, progress: bool | Progress = False) -> NeighbourList:
        """The added words and wordpieces whose rows are nearest, and the neighbours of the word vectors.

        Args:
            words: Words, as the model's tokenizer splits them.
            top: Number of neighbours of each word in each view.
            progress: Whether to warn on stderr of words that are unknown, if others are known.

        Returns:
            One entry for each word and view, as ``greenadapt neighbours`` prints them.

        Raises:
            UsageError: If there is no word.
            MissingError: If no word has a row or a vector.

        Examples:
            >>> adapted.neighbours("tachycardia", top=3)
        """
        from greenadapt.stages.neighbours import neighbours

        if not words:
            raise UsageError("no word", "give one or more")
        session = make_session(SessionOptions(), progress)
        return NeighbourList(neighbours(session, None, str(self.folder), words, top))


class TaskModel(ModelFolder):
    """A model of a task, or of several on one encoder, as ``greenadapt.finetune`` makes it.

    ``greenadapt.load`` opens one. The weights are read when they are first used.

    Examples:
        >>> ner = greenadapt.load("runs/ner")
        >>> ner.predict("The patient had tachycardia.")["entities"]
        [{'first': 3, 'last': 3, 'type': 'Disease', 'score': 0.98, 'start': 16, 'end': 27, 'text': 'tachycardia'}]
    """

    @validate_arguments
    def __init__(
        self, folder: str | PathLike[str], task: str | None = None, reading: ReadingOptions = ReadingOptions()
    ) -> None:
        self.folder = expand_home(folder).absolute()
        self.task_name = task
        """Which of several tasks it is for; ``None`` for the only one, or for all."""
        self._reading = reading

    def __repr__(self) -> str:
        named = "" if self.task_name is None else f", task={self.task_name!r}"
        kinds = ", ".join(f"{name}: {kind}" if name else kind for name, kind in self.tasks.items())
        lines = [f"{type(self).__name__}({str(self.folder)!r}{named})", f"  {kinds}"]
        scores = self.scores
        if "mean" in scores:  # else it has no test set, or several tasks
            mean, std = (scores[name].get(scores["main"]) for name in ("mean", "std"))
            value = (
                "undefined"
                if mean is None
                else as_decimal(mean, 4) + ("" if std is None else f" ± {as_decimal(std, 4)}")
            )
            lines.append(f"  {pluralize(len(scores['seeds']), 'seed')}; test {scores['main']} {value}")
        return "\n".join(lines)

    @cached_property
    def tasks(self) -> dict[str, str]:
        """Name of each task → its kind, ``ner``, ``classification`` or ``qa``; the only one has the name ``""``."""
        return {name or "": self._folder(name).task.name for name in self._names}

    @property
    def labels(self) -> list[str]:
        """What the model tells apart: classes, or types of entities; none for numbers and answers."""
        name = self._only_task("labels")
        task = self._folder(name).task
        labels = task.head_config().get("id2label", {}).values()
        if task.name == "ner":
            labels = [label.split("-", 1)[-1] for label in labels if label != "O"]
        return [*dict.fromkeys(labels)]

    @property
    def scores(self) -> Json:
        """What ``scores.json`` holds: the scores on the test set, over all seeds and of each, of all tasks; empty for a
        model from elsewhere.

        Examples:
            >>> ner.scores["mean"]["f1"]
            0.87
        """
        from greenadapt.checkpoints.layout import SCORES, read_described

        return read_described(self.folder / SCORES) if (self.folder / SCORES).is_file() else {}

    @validate_arguments
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

    @validate_arguments
    def predictions(self, data: Data, *, tags: bool = False, progress: bool | Progress = False) -> Iterator[Json]:
        """``predict`` for data of any size: one prediction after the other, in order.

        Examples:
            >>> for row in ner.predictions(Path("abstracts.txt.gz")):
            ...     print(row["entities"])
        """
        progress = make_progress(progress)
        if isinstance(data, str | Mapping):
            data = [data]
        if isinstance(data, PathLike):
            blocks = self._predictor_of(fspath(data)).predict(progress)
        else:
            rows = _clean_records(rows_of(data, "data", takes_texts=True), progress)
            blocks = self._predictor.predict_records(rows, progress)
        return (prediction.row(tags=tags) for block in blocks for prediction in block)

    @validate_arguments
    def answer(self, question: str | Iterable[str], context: str | Iterable[str], *, top: Count = 1) -> Any:
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
        records = _questions(question, context)
        name = self._only_task("answer")
        if (kind := self.tasks[name or ""]) != "qa":
            raise UsageError(f"{self.folder} is for {kind}, not for question answering", "use predict")
        from greenadapt.inference.qa.lookups import QaModel, answers
        from greenadapt.inference.qa.question_set import pair_contexts

        [model] = self._predictor.members
        task: Any = model.task
        questions = [replace(task.example(record, f"item {i}"), id=str(i)) for i, record in enumerate(records)]
        question_set = pair_contexts(questions)
        rows: list[Any] = list(answers(QaModel(model, task, {"": model.settings.pool}), question_set, config))
        if top == 1:
            rows = [best[0] for best in rows]
        return rows[0] if is_single else rows

    @validate_arguments
    def evaluate(
        self, data: Data, *, options: SessionOptions = SessionOptions(), progress: bool | Progress = True
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

        name = self._only_task("evaluate")
        session = make_session(options, progress)
        sources = [str(single_labelled_source(data, session.workspace.root, "data"))]
        [scores] = evaluate(str(self.folder), sources, name, self._reading, (), session.progress)
        return scores

    @property
    def _names(self) -> tuple[str | None, ...]:
        from greenadapt.checkpoints.layout import is_multitask, task_names

        if self.task_name is not None or not is_multitask(self.folder):
            return (self.task_name,)
        return task_names(self.folder)

    def _only_task(self, method: str) -> str | None:
        """The name of the only task; raises ``UsageError`` if there are several."""
        names = self._names
        if len(names) != 1:
            named = ", ".join(map(str, names))
            raise UsageError(f"{method} is for one task, {self.folder} has {len(names)} ({named})", 'load(…, task="…")')
        return names[0]

    def _folder(self, name: str | None) -> Any:
        from greenadapt.models.task_folder import TaskFolder

        return TaskFolder.open(str(self.folder), self._reading.seed, name)

    def _predictor_of(self, source: str) -> "Predictor":
        from greenadapt.inference.predictor import PredictionRequest, Predictor

        names = tuple(name for name in self._names if name is not None)
        return Predictor(PredictionRequest((str(self.folder),), source, reading=self._reading, tasks=names))

    @cached_property
    def _predictor(self) -> "Predictor":
        return self._predictor_of("-")


@validate_arguments
def load(
    model: str | PathLike[str] | ModelFolder, task: str | None = None, reading: ReadingOptions = ReadingOptions()
) -> AdaptedModel | TaskModel | EncoderModel:
    """Open a model by what its folder holds.

    Args:
        model: A folder, a hub id, ``"minilm"`` or ``"mpnet"``.
        task: Which of several tasks.
        reading: Which of the folder's seeds predicts, and how it reads texts.

    Returns:
        A ``TaskModel`` for what ``finetune`` wrote and for question answering models from elsewhere, an
        ``AdaptedModel`` for what ``adapt`` wrote, and an ``EncoderModel`` for any other encoder.

    Raises:
        MissingError: If there is no such model.
        InputError: If the folder is another result, or a model of a task that ``finetune`` did not write.

    Examples:
        >>> greenadapt.load("adapted").words[:2]
        ['tachycardia', 'intubation']
        >>> greenadapt.load("runs/tasks-minilm-cola-sst2", task="sst2").predict("A fine film.")["label"]
        'positive'
    """
    from greenadapt.checkpoints.layout import FACTS_FILE, TASK_FILE, is_multitask
    from greenadapt.checkpoints.source import find_model
    from greenadapt.models.task_folder import TaskFolder, answers_from_elsewhere
    from greenadapt.tokenization.added_words import WORDS_FILE

    name = folder_of(model)
    source = find_model(name)
    folder = expand_home(name) if expand_home(name).is_dir() else source.folder
    is_ours = (folder / TASK_FILE).is_file() or is_multitask(folder)
    if is_ours or answers_from_elsewhere(folder):
        opened = TaskModel(folder, task, reading)
        for task_name in opened._names:
            TaskFolder.open(str(folder), reading.seed, task_name)
        return opened
    if task is not None or reading.explicit:
        raise UsageError(f"{name} is an encoder, which predicts nothing", "leave out task and reading")
    if (folder / FACTS_FILE).is_file() and (folder / WORDS_FILE).is_file():  # pre-training alone leaves no words
        return AdaptedModel(folder)
    _refuse_other_head(folder)
    return EncoderModel(folder)


def _refuse_other_head(folder: Path) -> None:
    """Raise ``InputError`` for a classifier or tagger from elsewhere, whose labels and inputs are not described."""
    from greenadapt.checkpoints.reader import Checkpoint

    architecture = str((Checkpoint(folder).config.get("architectures") or [""])[0])
    if architecture.endswith(("ForTokenClassification", "ForSequenceClassification", "ForMultipleChoice")):
        raise InputError(
            f"{folder} is a {architecture} that finetune did not write, so that its task is not known",
            "load it with transformers, or train it with greenadapt.finetune",
        )


def folder_of(model: Any) -> str:
    """A path, a hub id or a model of this API, as the stages read it."""
    if isinstance(model, PathLike):
        return str(Path(model))
    if isinstance(model, str):
        return model
    raise UsageError(f"model is of type {type(model).__name__}", "give a folder, a hub id or a model of greenadapt")


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
    records = ({"question": text, "context": around} for text, around in zip(questions, contexts, strict=True))
    return list(_clean_records(records, OnlyWarnings()))


def _clean_records(rows: Iterable[Any], progress: Progress) -> Iterator[Any]:
    """Records in JSON's types, and texts as a tokenizer takes them."""
    from greenadapt.corpus.text import Decoder

    decoder = Decoder()
    for row in rows:
        if isinstance(row, str):
            yield decoder.replace_surrogates(row, "data")
        else:
            yield decoder.replace_record_surrogates(plain_record(row), "data")
    decoder.warn_replaced("data", progress)
