"""An index of documents: what it was made from and how, and the search in it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from greenadapt.config import Count, SearchBy
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.fields import checked_call
from greenadapt.inference.search.connection import is_address
from greenadapt.inference.search.facts import AGAIN
from greenadapt.inference.search.folder_store import VECTORS, FolderStore
from greenadapt.inference.search.server_store import ServerStore
from greenadapt.inference.search.store import ParagraphStore, Passage
from greenadapt.inference.search.vectors import VectorFiles
from greenadapt.inference.search.words import Words, in_any_form, in_normal_form, model_words, raw_words
from greenadapt.progress import Progress, Silent
from greenadapt.storage.files import Json

if TYPE_CHECKING:
    from greenadapt.inference.sentence_vectors import SentenceEncoder

_RRF_K = 60
_DEEP = 100
"""How many paragraphs of each ranking a hybrid search looks at, at least."""


def open_store(place: str | PathLike[str]) -> ParagraphStore:
    """The store in a folder, or at the address of a server.

    Raises ``MissingError`` if a package is missing, ``UsageError`` if the address is wrong.
    """
    name = fspath(place)
    return ServerStore(name) if is_address(name) else FolderStore(Path(name))


def index_input(place: str) -> Json:
    """An index as an input in a manifest."""
    store = open_store(place)
    return {"sha256": store.state(), "path": store.place}


class Index:
    """An index that ``greenadapt index`` wrote; searches see what another process commits meanwhile.

    It is opened by its folder, or by its address on an OpenSearch or Elasticsearch server. Raises ``MissingError`` if
    there is no index or a package is missing, ``InputError`` if it is damaged, ``ServerError`` if the server does not
    answer.

    ``model`` is where the model is that made the vectors, if it is not where it was; only one named so is downloaded.

    Examples:
        >>> index = greenadapt.Index("papers.index")
        >>> index.search("incubation period of the virus", top=3)[0].document
        'PMC7095418.xml'
    """

    @checked_call
    def __init__(self, place: str | PathLike[str], model: str | None = None) -> None:
        self.store = open_store(place)
        """The paragraphs."""
        self.place = self.store.place
        """The index's folder, or its address."""
        facts = self.store.facts()
        if facts is None:
            raise MissingError(f"{self.place} is not a search index", "make one with greenadapt index")
        self.facts = facts
        """What it was made from, and how, when it was last searched."""
        self._model = model

    def __repr__(self) -> str:
        return f"Index({self.place!r})\n  {len(self):,} paragraphs"

    def __len__(self) -> int:
        """How many paragraphs there are now."""
        return len(self.store)

    @checked_call
    def search(self, query: str, top: Count = 10, by: SearchBy = "bm25") -> list[Passage]:
        """The ``top`` best paragraphs for a query, best first.

        ``bm25`` ranks by the words of title and paragraph: Okapi BM25 with k1 1.2 and b 0.75 (Robertson and Zaragoza,
        2009, doi 10.1561/1500000019), which is the ``score``. ``dense`` ranks by the cosine of the vectors of query and
        paragraph. ``hybrid`` ranks by reciprocal rank fusion of these two, the sum of 1 / (60 + rank) over the rankings
        that have the paragraph among their 100 best (Cormack et al., 2009, doi 10.1145/1571941.1572114).

        A lone surrogate in the query is replaced by U+FFFD. Raises ``UsageError`` for ``dense`` and ``hybrid`` if the
        index has no vectors, and for an argument that is not allowed.
        """
        query = Decoder().without_surrogates(query, "query")
        self._refresh()
        if by == "bm25":
            return self._by_words(query, top)
        if by == "dense":
            return self._by_vector(query, top)
        deep = max(top, _DEEP)
        return fused([self._by_words(query, deep), self._by_vector(query, deep)])[:top]

    @cached_property
    def vectors(self) -> VectorFiles:
        """Those of the paragraphs; raises ``UsageError`` if there are none."""
        if not self.facts.config.vectors:
            raise UsageError(f"{self.place} has no vectors", "search --by bm25, or index with --vectors, into a folder")
        assert isinstance(self.store, FolderStore)  # as there are vectors
        return VectorFiles(Path(self.place) / VECTORS, self.store)

    def require_vectors(self) -> None:
        """Raise ``InputError`` if there are fewer vectors than paragraphs, which have one each."""
        if len(self.vectors) < len(self):
            raise InputError(
                f"{self.place} has {len(self.vectors):,} vectors of {len(self):,} paragraphs: files of {VECTORS}/ are "
                "missing",
                AGAIN,
            )

    @cached_property
    def words(self) -> Words:
        """What splits a paragraph into the words that are compared."""
        words = self._raw_words
        return words if self.facts.normal_form is None else in_normal_form(words)

    @cached_property
    def words_of_query(self) -> Words:
        """The same of a query: in an index of version 0.2.0, whose words are as in the text, in every form."""
        return in_any_form(self._raw_words) if self.facts.normal_form is None else self.words

    @cached_property
    def _raw_words(self) -> Words:
        return raw_words if self.facts.model is None else model_words(self.store.tokenizer())

    @cached_property
    def encoder(self) -> "SentenceEncoder":
        """The model that makes the vectors; raises ``InputError`` if it is not the one that made those there."""
        from greenadapt.checkpoints.provenance import adapted_input
        from greenadapt.checkpoints.source import find_model, model_here
        from greenadapt.inference.sentence_vectors import SentenceEncoder

        assert self.facts.model is not None  # as there are vectors
        source = self.facts.model.source
        found = model_here(source, self.place) if self._model is None else find_model(self._model)
        if adapted_input(found)["sha256"] != self.facts.model.sha256:
            raise InputError(
                f"{found.source} is not, or no longer, the model {source} that {self.place} was made with",
                f"name that one with --model, or {AGAIN}",
            )
        return SentenceEncoder.open(found.folder)

    def warn_unfinished(self, progress: Progress) -> None:
        """Warn if not all documents are in it yet."""
        if self.facts.counts is None:
            progress.warn(
                f"{self.place} is not finished, it answers from {len(self):,} paragraphs: index is running, or was "
                "stopped, and the same command goes on"
            )

    def _refresh(self) -> None:
        """See whether another process made the index again meanwhile, with another model or configuration."""
        facts = self.store.facts()
        if facts is None or facts == self.facts:
            return
        if any(getattr(facts, name) != getattr(self.facts, name) for name in ("config", "model", "normal_form")):
            for name in ("vectors", "words", "words_of_query", "_raw_words", "encoder"):
                self.__dict__.pop(name, None)
        self.facts = facts

    def _by_words(self, query: str, top: int) -> list[Passage]:
        return self.store.search(self.words_of_query(query), top)

    def _by_vector(self, query: str, top: int) -> list[Passage]:
        self.vectors.refresh()
        assert isinstance(self.store, FolderStore)  # as there are vectors
        self.require_vectors()
        if not len(self.vectors):
            return []
        [vector] = self.encoder.vectors([query], "mean", 1, Silent())
        wanted = top
        while True:  # vectors of paragraphs that were removed are found, too
            near = self.vectors.search(vector, wanted)
            known = self.store.passages(key for key, _ in near)
            found = [replace(known[key], score=cosine) for key, cosine in near if key in known]
            if len(found) >= top or len(near) < wanted:
                return found[:top]
            wanted *= 4


def fused(rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
    """Paragraphs by reciprocal rank fusion: ``score`` is the sum of 1 / (60 + rank), ranks counted from 1."""
    scores: dict[tuple[str, int], float] = {}
    passages: dict[tuple[str, int], Passage] = {}
    for ranking in rankings:
        for rank, one in enumerate(ranking, start=1):
            place = one.document, one.start
            scores[place] = scores.get(place, 0.0) + 1 / (_RRF_K + rank)
            passages[place] = one
    best = sorted(scores, key=lambda place: (-scores[place], place))
    return [replace(passages[place], score=scores[place]) for place in best]
