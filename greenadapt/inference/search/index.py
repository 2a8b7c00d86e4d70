"""An index of documents in a folder: what it was made from and how, and the search in it."""

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from greenadapt.config import SearchBy
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.inference.search.store import ParagraphStore, Passage
from greenadapt.inference.search.vectors import VectorFiles
from greenadapt.inference.search.words import Words, model_words, plain_words
from greenadapt.progress import Progress, Silent
from greenadapt.storage.files import Json, described_in, hash_file, hash_json, read_object, write_json
from greenadapt.storage.results import FORMAT

if TYPE_CHECKING:
    from greenadapt.inference.sentence_vectors import SentenceEncoder

INDEX_FILE = "index.json"
WORDS, VECTORS, TOKENIZER = "words", "vectors", "tokenizer.json"
"""Folders of the two indexes, and the tokenizer that splits text into words."""
_RRF_K = 60
_DEEP = 100
"""How many paragraphs of each ranking a hybrid search looks at, at least."""


@dataclass(frozen=True)
class IndexFacts:
    """What ``index.json`` holds."""

    documents: dict[str, str]
    """Absolute paths of files and folders, and what each was first given as, which its documents are called by."""
    config: Json
    """``IndexConfig``, with ``format`` and ``fields`` of the documents."""
    model: Json | None = None
    """``source`` and ``sha256`` of the model that splits text into words, and that makes the vectors."""
    counts: Json | None = None
    """What ``index`` counted when it last went through all documents; ``None`` until then."""
    version: int = FORMAT

    @classmethod
    def read(cls, folder: Path) -> "IndexFacts":
        """Those of an index; raises ``MissingError`` if it is none, ``InputError`` if the file is broken."""
        values = read_object(folder / INDEX_FILE, "search index", "make one with greenadapt index")
        if values.get("version", FORMAT) != FORMAT:
            raise InputError(f"{folder} has format version {values['version']}, this is {FORMAT}", "index again")
        with described_in(folder / INDEX_FILE, "index again with --force"):
            return cls(**values)

    def write(self, folder: Path) -> None:
        """Replace the file at once."""
        part = folder / f"{INDEX_FILE}.part"
        write_json(part, asdict(self))
        part.replace(folder / INDEX_FILE)


def index_input(folder: Path) -> Json:
    """An index as an input in a manifest: a hash of what it was made from and of what was committed last."""
    committed = folder / WORDS / "meta.json"
    if not committed.is_file():
        IndexFacts.read(folder)
    return {"sha256": hash_json([hash_file(folder / INDEX_FILE), hash_file(committed)]), "path": str(folder.absolute())}


def require_search() -> None:
    """Raise ``MissingError`` where the packages that a search needs are not installed."""
    missing = [name for name in ("tantivy", "usearch") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"an index needs {', '.join(missing)}, not installed", 'pip install "greenadapt[search]"')


class Index:
    """An index that ``greenadapt index`` wrote; searches see what another process commits meanwhile.

    Raises ``MissingError`` if the folder is no index or a package is missing, ``InputError`` if it is damaged.

    Examples:
        >>> index = greenadapt.Index("papers.index")
        >>> index.search("incubation period of the virus", top=3)[0].document
        'PMC7095418.xml'
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        require_search()
        self.folder = Path(folder).expanduser().absolute()
        """The index's folder."""
        self.facts = IndexFacts.read(self.folder)
        """What it was made from, and how."""
        self.store = ParagraphStore(self.folder / WORDS)
        """The paragraphs."""

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r})\n  {len(self):,} paragraphs"

    def __len__(self) -> int:
        """How many paragraphs there are now."""
        self.store.refresh()
        return len(self.store)

    def search(self, query: str, top: int = 10, by: SearchBy = "bm25") -> list[Passage]:
        """The ``top`` best paragraphs for a query, best first.

        ``bm25`` ranks by the words of title and paragraph: Okapi BM25 with k1 1.2 and b 0.75 (Robertson and Zaragoza,
        2009, doi 10.1561/1500000019), which is the ``score``. ``dense`` ranks by the cosine of the vectors of query and
        paragraph. ``hybrid`` ranks by reciprocal rank fusion of these two, the sum of 1 / (60 + rank) over the rankings
        that have the paragraph among their 100 best (Cormack et al., 2009, doi 10.1145/1571941.1572114).

        Raises ``UsageError`` for ``dense`` and ``hybrid`` if the index has no vectors, and where ``top`` is below 1.
        """
        if top < 1:
            raise UsageError(f"top is {top}, must be at least 1")
        self.store.refresh()
        if by == "bm25":
            return [passage for _, passage in self._by_words(query, top)]
        if by == "dense":
            return self._by_vector(query, top)
        deep = max(top, _DEEP)
        return fused([[one for _, one in self._by_words(query, deep)], self._by_vector(query, deep)])[:top]

    @cached_property
    def vectors(self) -> VectorFiles:
        """Those of the paragraphs; raises ``UsageError`` if there are none."""
        if not self.facts.config["vectors"]:
            raise UsageError(f"{self.folder} has no vectors", "search --by bm25, or index with --vectors")
        return VectorFiles(self.folder / VECTORS)

    @cached_property
    def words(self) -> Words:
        """What splits text into the words that are compared."""
        return plain_words if self.facts.model is None else model_words(self.folder / TOKENIZER)

    @cached_property
    def encoder(self) -> "SentenceEncoder":
        """The model that makes the vectors; raises ``InputError`` if it is not the one that made those there."""
        from greenadapt.checkpoints.provenance import adapted_input
        from greenadapt.checkpoints.source import find_model
        from greenadapt.inference.sentence_vectors import SentenceEncoder

        assert self.facts.model is not None  # as there are vectors
        found = find_model(self.facts.model["source"])
        if adapted_input(found)["sha256"] != self.facts.model["sha256"]:
            raise InputError(f"{found.source} changed since {self.folder} was made with it", "index again with --force")
        return SentenceEncoder.open(found.folder)

    def warn_unfinished(self, progress: Progress) -> None:
        """Warn if not all documents are in it yet."""
        if self.facts.counts is None:
            progress.warn(
                f"{self.folder} is not finished, it answers from {len(self):,} paragraphs: index is running, or was "
                "stopped, and the same command goes on"
            )

    def _by_words(self, query: str, top: int) -> list[tuple[int, Passage]]:
        return self.store.search(self.words(query), top)

    def _by_vector(self, query: str, top: int) -> list[Passage]:
        self.vectors.refresh()
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
