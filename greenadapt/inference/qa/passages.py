"""Questions put to paragraphs instead of whole documents: to those that match them best."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from greenadapt.inference.search.bm25 import require
from greenadapt.inference.search.own_text import TextSearch, n_paragraphs
from greenadapt.inference.search.store import Passage
from greenadapt.inference.search.words import Words
from greenadapt.tasks.questions import PassageFacts, Question


def on_passages(question: Question, passages: Sequence[Passage], weight: float) -> Iterator[Question]:
    """The question on each paragraph that was found for it, best first.

    ``weight`` times how far the paragraph's score is below the best one, as a share of that, is subtracted from the
    logits of its answers: logits of different paragraphs are hardly comparable, and the score of the search says which
    one the question is about. Scores that are not positive, as cosines may be, count as 0.
    """
    best = passages[0].score if passages else 0.0
    for one in passages:
        penalty = weight * (1 - max(one.score, 0.0) / best) if best > 0 else 0.0
        facts = PassageFacts(one.start, one.title, penalty)
        yield replace(question, context=one.text, document=one.document, passage=facts, answers=(), impossible=False)


@dataclass(frozen=True)
class OwnPassages:
    """Finds the best paragraphs of a question's own context, by BM25 among the paragraphs of that context.

    Raises ``MissingError`` if a package is missing.
    """

    words: Words
    """What splits text into the words that are compared."""
    n: int
    """How many paragraphs of a context are read, at most."""
    weight: float
    """See ``on_passages``; scores are compared within a context."""

    def __post_init__(self) -> None:
        require("tantivy")

    def questions(self, questions: Iterable[Question]) -> Iterator[Question]:
        """Each question on its paragraphs, best first; a context is cut once for the questions on it that follow each
        other.
        """
        for _, together in groupby(questions, key=lambda one: (one.context, one.document)):
            search = None
            for one in together:
                search = search or TextSearch(one.context, self.words, one.document, one.title)
                yield from on_passages(one, search.best(one.question, self.n), self.weight)

    def n_of(self, text: str) -> int:
        """How many paragraphs of a text are read."""
        return min(self.n, n_paragraphs(text))
