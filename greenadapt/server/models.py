"""Models opened to answer requests, in each of their tokenizations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from greenadapt.config import Pool, QaConfig, ReadingOptions
from greenadapt.inference.models import OpenedModel
from greenadapt.inference.search.words import Words, words_of
from greenadapt.models.streaming import pooled
from greenadapt.models.task_folder import TaskFolder
from greenadapt.server.found import FoundModel
from greenadapt.server.near import NearRows
from greenadapt.server.wrong import TooLargeError
from greenadapt.storage.files import Json
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import Found, ranked, together

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
            for i, output in zip(numbers, opened.outputs([asked[i].example for i in numbers]), strict=True):
                results[i] = {view: self._result(output.example, pooled(output, view)) for view in views}
        return [results[i] for i in range(len(asked))]

    def _result(self, example: Example, logits: Any) -> Any:
        task: Any = self.folder.task
        if isinstance(example, Question):
            return task.found(example, logits, QaConfig.n_best)
        return {name: value for name, value in task.decode(example, logits).items() if name not in _UNSAID}

    def answers(self, found: Sequence[Found], places: Sequence[tuple[int, int]], top: int) -> list[Json]:
        """The ``top`` best answers by what was found in each text that was read, with the number of the ``document``.

        ``places`` are the document of each text, and the character of it that the text begins at. Raw logits are
        compared, as those of the windows of one document are; see ``together``.
        """
        task: Any = self.folder.task
        numbered = [
            Found(tuple(one.moved(str(number), begin) for one in each.candidates), each.null)
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
