"""What an index keeps, wherever it lies."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from tokenizers import Tokenizer

from greenadapt.inference.search.facts import IndexFacts

Change = Literal["added", "changed", "unchanged"]
"""What a document is, compared with an index."""


@dataclass(frozen=True)
class Passage:
    """A paragraph that a search found: characters ``start`` to before ``end`` of its document."""

    document: str
    title: str
    start: int
    end: int
    text: str
    score: float = 0.0
    """How well it matches; what the number means depends on how it was searched, see ``Index.search``."""

    def as_dict(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)

    def stored(self) -> dict[str, Any]:
        """Its fields but for the score."""
        return {name: value for name, value in asdict(self).items() if name != "score"}


@dataclass(frozen=True)
class Entry:
    """A paragraph as it is stored."""

    key: int
    """Of 63 bits: its id, and that of its vector."""
    passage: Passage
    words: str
    """What it is found by, separated by spaces."""


@dataclass(frozen=True)
class DocumentKey:
    """Hexadecimal hashes of a document: of its name, and of its name with its content."""

    name: str
    state: str


class ParagraphStore(Protocol):
    """Where an index lies, in a folder or on a server; several processes may read it while one writes."""

    place: str
    """The folder or the address."""

    def facts(self) -> IndexFacts | None:
        """What ``write_facts`` wrote last, ``None`` if there is no index; raises ``InputError`` if it is broken."""

    def create(self, facts: IndexFacts, tokenizer: Path | None) -> None:
        """Put an empty index in place of the one that may be there, with the tokenizer of this model's folder.

        Raises ``ConflictError`` if something else is there.
        """

    def write_facts(self, facts: IndexFacts) -> None:
        """Replace the facts at once."""

    def tokenizer(self) -> Tokenizer:
        """The one that it was created with; raises ``MissingError`` without one."""

    def state(self) -> str:
        """A hash of what it was made from, and of what was committed."""

    def __len__(self) -> int:
        """How many paragraphs were committed."""

    def search(self, words: Iterable[str], top: int) -> list[Passage]:
        """The ``top`` best by BM25 (k1 1.2, b 0.75), best first; each word counts once."""

    def changes(self, documents: Sequence[DocumentKey]) -> list[Change]:
        """What each document is, compared with what was committed."""

    def names(self) -> Iterator[str]:
        """The hashed names of all documents."""

    def writer(self) -> "StoreWriter":
        """The one writer; it must be closed."""


class StoreWriter(Protocol):
    """Changes that take effect at ``commit``."""

    def put(self, document: DocumentKey, entries: Sequence[Entry], *, is_new: bool) -> None:
        """Put a document's paragraphs in place of those that it has, if it is not new."""

    def remove(self, name: str) -> None:
        """Take out all paragraphs of the document of this hashed name."""

    def commit(self) -> None:
        """Make all changes so far last, and visible."""

    def close(self) -> None:
        """Leave out what was not committed, and wait for what goes on in the background."""


def in_order(passages: Iterable[Passage]) -> list[Passage]:
    """The best first; equal ones by their place."""
    return sorted(passages, key=lambda one: (-one.score, one.document, one.start))
