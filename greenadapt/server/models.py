"""The models that the server opened, and the neighbours and paragraphs that it looks up."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException

from greenadapt.checkpoints.layout import TASK_FILE, is_multitask, task_names
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import Pool, QaConfig, ReadingOptions
from greenadapt.errors import InputError, UsageError
from greenadapt.inference.models import OpenedModel
from greenadapt.inference.search.words import Words, words_of
from greenadapt.models.streaming import pooled
from greenadapt.models.task_folder import TaskFolder, answers_from_elsewhere
from greenadapt.server.guard import TooLargeError
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json, expanded
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import AnswerCandidates, ranked, together
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary, WordSplitter
from greenadapt.vectors.neighbours import near_names, nearest


@dataclass(frozen=True, eq=False)
class NearRows:
    """The rows of a model with added words: of the base model's pieces, and after them of the added words.

    Nothing but the model's folder is needed; ``greenadapt neighbours`` also has the word vectors themselves.
    """

    rows: Array
    """(n, dim), memory-mapped."""
    n_base: int
    labels: Sequence[str]
    """Of each row."""
    words: Mapping[str, int]
    """Word → its row, an added one where there are both."""
    hidden: Sequence[int]
    """Rows that are nobody's neighbours: special tokens."""
    splitter: WordSplitter

    @classmethod
    def open(cls, folder: Path) -> "NearRows":
        """Those of a model's folder."""
        checkpoint = Checkpoint.open(folder)
        tokenizer = DualTokenizer.of_model(folder, checkpoint.n_rows)
        vocabulary, added = BaseVocabulary(tokenizer.base), tokenizer.added.all_surfaces()
        first = tokenizer.added.first_id
        pieces = [tokenizer.base.id_to_token(row) or f"[{row}]" for row in range(first)]
        words = {**vocabulary.whole_words, **{word: first + i for i, word in enumerate(added)}}
        hidden = sorted(vocabulary.special_ids)
        return cls(checkpoint.embedding(), first, [*pieces, *added], words, hidden, WordSplitter(tokenizer.base))

    def near(self, word: str, top: int) -> Json:
        """The ``top`` added words and the ``top`` wordpieces whose rows are nearest to the row of ``word``, by cosine.

        Raises ``HTTPException``: 400 for what is not one word, 404 for a word without a row.
        """
        parts = self.splitter.split(word)
        if len(parts) != 1:
            raise HTTPException(400, f"{word!r} is {len(parts)} words as the model splits it: give one word at a time")
        [known] = parts
        if known not in self.words:
            near = near_names(known, self.words)
            hint = f"near: {', '.join(near)}" if near else "give one of the corpus, or of the base model"
            raise HTTPException(404, f"no row for {known!r}: {hint}")
        row, n = self.words[known], len(self.labels)
        found = {"added": self._near(row, self.n_base, n, top), "pieces": self._near(row, 0, self.n_base, top)}
        return {"word": known, "is_added": row >= self.n_base, **found}

    def _near(self, row: int, begin: int, end: int, top: int) -> list[Json]:
        """The nearest of the rows from ``begin`` up to ``end``; those of the same word, which may be two, left out."""
        hidden = [one - begin for one in (row, *self.hidden) if begin <= one < end]
        exclude = np.array([hidden or [-1]], np.int64)
        k = min(2 * top + 1, end - begin)
        indices, cosines = nearest(self.rows[row : row + 1], self.rows[begin:end], k, exclude)
        found: dict[str, float] = {}
        for index, cosine in zip(indices[0].tolist(), cosines[0].tolist(), strict=True):
            if index >= 0 and (label := self.labels[begin + index]) != self.labels[row]:
                found.setdefault(label, cosine)
        return [{"word": label, "cosine": cosine} for label, cosine in list(found.items())[:top]]


WORDS = "words"
"""The kind of a model that has added words and no task."""


@dataclass(frozen=True)
class FoundModel:
    """A model with a task, with added words, or with both."""

    name: str
    """What requests call it."""
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


def find_models(models: Sequence[str], reading: ReadingOptions, task: str | None) -> tuple[FoundModel, ...]:
    """What to serve of folders and hub ids: each model, or of several tasks on one encoder each, or only ``task``.

    The name is the last part of the path, or all of it where several would have the same; a task of several is
    ``model:task``. Raises ``UsageError`` if a model is given twice, or a ``task`` and no model of several,
    ``MissingError`` or ``InputError`` for what is no model, or has neither task nor words.
    """
    folders = [find_model(model).folder for model in models]
    for folder, n in Counter(folder.resolve() for folder in folders).items():
        if n > 1:
            raise UsageError(f"{folder} is given {n} times", "give each --model once")
    if task is not None and not any(map(is_multitask, folders)):
        raise UsageError(f"--task {task}, but no --model has several tasks", "leave out --task")
    last = [expanded(model).resolve().name for model in models]
    names = [name if last.count(name) == 1 else model for name, model in zip(last, models, strict=True)]
    return tuple(
        each for folder, name in zip(folders, names, strict=True) for each in _found(folder, name, reading.seed, task)
    )


def _found(folder: Path, name: str, seed: int | None, task: str | None) -> Iterator[FoundModel]:
    if is_multitask(folder):
        for one in task_names(folder) if task is None else (task,):
            yield FoundModel(f"{name}:{one}", folder, TaskFolder.find(str(folder), seed, one))
    elif (folder / TASK_FILE).is_file() or answers_from_elsewhere(folder):
        yield FoundModel(name, folder, TaskFolder.find(str(folder), seed))
    elif (folder / WORDS_FILE).is_file():
        yield FoundModel(name, folder, None)
    else:
        raise InputError(f"{folder} has neither a task nor added words", "give what finetune or adapt wrote")


VIEWS: tuple[Pool, ...] = ("mean", "base", "expanded")
Example = Any
ByView = dict[Pool, Any]
"""View → a prediction as JSON, or for question answering what was found in one text."""
_UNSAID = ("id", "tags")


@dataclass(frozen=True)
class Asked:
    """An example for a model, and the views that are wanted."""

    model: "ServedModel"
    example: Example
    views: tuple[Pool, ...]
    size: int
    """About how many characters it has."""


class ServedModel:
    """A model as requests know it; ``opened`` is ``None`` if it has no task."""

    def __init__(self, found: FoundModel, opened: OpenedModel | None) -> None:
        self.found = found
        self.opened = opened

    @classmethod
    def open(cls, found: FoundModel, reading: ReadingOptions) -> "ServedModel":
        """Read the weights; raises what ``OpenedModel.open`` raises."""
        return cls(found, None if found.task is None else OpenedModel.open(found.task, reading))

    @cached_property
    def near(self) -> NearRows:
        """Neighbours of words, read when they are first asked for."""
        return NearRows.open(self.found.folder)

    @cached_property
    def words(self) -> Words:
        """What splits text into the words that a search compares."""
        return words_of(self.found.folder)

    @property
    def folder(self) -> TaskFolder:
        """That of its task."""
        assert self.found.task is not None
        return self.found.task

    @property
    def view(self) -> Pool | None:
        """By which it predicts if a request does not say."""
        return None if self.opened is None else self.opened.run.pool

    def described(self) -> Json:
        """What a client has to know."""
        named = {"name": self.found.name, "kind": self.found.kind, "view": self.view}
        has_views = self.opened is not None and self.opened.encoder.has_words
        return {**named, "views": list(VIEWS) if has_views else [], "neighbours": self.found.has_words}

    def check_question(self, question: str) -> None:
        """Raise ``TooLargeError`` for a question that takes more than half of the pieces that the model reads at once.

        The rest is for a window of the context, and the narrower the windows are, the more of them are read: beside the
        longest question that leaves any room, one for every piece.
        """
        assert self.opened is not None
        encoder = self.opened.encoder
        n, most = encoder.n_pieces(question), encoder.max_length // 2
        if n > most:
            raise TooLargeError(f"question has {n:,} pieces for {self.found.name}, the most is {most:,}: shorten it")

    def example(self, record: str | Json, where: str) -> Example:
        """What its task reads; raises ``InputError`` for anything else."""
        return self.folder.task.example(record, where)

    def predicted(self, asked: Sequence[Asked]) -> list[ByView]:
        """A result by view for each of ``asked``, all of this model; those that want the same views go together."""
        assert self.opened is not None
        results: dict[int, ByView] = {}
        for views in dict.fromkeys(one.views for one in asked):
            # Where either view is shown, too, all is read in both.
            margin = self.opened.margin if views == ("mean",) else None
            run = replace(self.opened.run, pool=views[0] if len(views) == 1 else "mean")
            opened = replace(self.opened, run=run, margin=margin)
            numbers = [i for i, one in enumerate(asked) if one.views == views]
            inputs = opened.inputs(asked[i].example for i in numbers)
            for i, output in zip(numbers, opened.outputs(inputs), strict=True):
                results[i] = {view: self._result(output.example, pooled(output, view)) for view in views}
        return [results[i] for i in range(len(asked))]

    def _result(self, example: Example, logits: Any) -> Any:
        task: Any = self.folder.task
        if isinstance(example, Question):
            return task.find_candidates(example, logits, QaConfig.n_best)
        return {name: value for name, value in task.decode(example, logits).items() if name not in _UNSAID}

    def answers(self, found: Sequence[AnswerCandidates], places: Sequence[tuple[int, int]], top: int) -> list[Json]:
        """The ``top`` best answers by what was found in each text that was read, with the number of the ``document``.

        ``places`` are the document of each text, and the character of it that the text begins at. Raw logits are
        compared, as those of the windows of one document are; see ``together``.
        """
        task: Any = self.folder.task
        numbered = [
            AnswerCandidates(tuple(one.moved(str(number), begin) for one in each.candidates), each.null)
            for (number, begin), each in zip(places, found, strict=True)
        ]
        best = ranked(together(numbered, QaConfig.n_best), task.null_threshold)[:top]
        return [
            {
                **one.candidate.as_dict(one.score),
                "document": int(one.candidate.document) if one.candidate.document else None,
            }
            for one in best
        ]


def predicted(asked: Sequence[Asked]) -> list[ByView]:
    """The results of any models, in order; what one model is asked goes through it together."""
    results: dict[int, ByView] = {}
    for model in dict.fromkeys(one.model for one in asked):
        own = [i for i, one in enumerate(asked) if one.model is model]
        results |= zip(own, model.predicted([asked[i] for i in own]), strict=True)
    return [results[i] for i in range(len(asked))]
