"""What an index says of itself."""

from dataclasses import asdict, dataclass, replace
from typing import Literal

from greenadapt.config import SampleBy
from greenadapt.errors import InputError
from greenadapt.inference.search.marks import FileMark
from greenadapt.storage.files import Json, hash_json
from greenadapt.storage.own_json import parse_own
from greenadapt.storage.results import FORMAT

AGAIN = "index again with --force"


@dataclass(frozen=True)
class IndexSettings:
    """``IndexConfig``, and how the documents are read."""

    vectors: bool
    paragraph_chars: int
    format: str | None
    fields: tuple[str, ...]
    shards: int | None = None
    sample_by: SampleBy = "document"
    """In indexes of version 0.2.0 a file of plain text is one document."""

    def as_json(self) -> Json:
        """Its fields, ``shards`` only if given."""
        return {name: value for name, value in asdict(self).items() if name != "shards" or value is not None}


@dataclass(frozen=True)
class IndexModel:
    """The model that splits text into words, and that makes the vectors."""

    source: str
    sha256: str


@dataclass(frozen=True)
class IndexFacts:
    """What an index was made from, and how."""

    documents: dict[str, str]
    """Absolute paths of files and folders, and what each was first given as, which its documents are called by."""
    config: IndexSettings
    model: IndexModel | None = None
    counts: dict[str, int] | None = None
    """What ``index`` counted when it last went through all documents; ``None`` until then."""
    version: int = FORMAT
    normal_form: Literal["NFC"] | None = None
    """The Unicode form of the words; ``None`` in indexes of version 0.2.0, whose words are as in the text."""
    files: dict[str, FileMark] | None = None
    """Size and checksums of the files in the folder, by path; ``None`` in indexes of version 0.2.0, and on a server.
    Those of the words are there only while no ``index`` is at work.
    """
    seal: str | None = None
    """Hash of all else, where ``files`` are there."""

    @classmethod
    def of(cls, content: bytes | str, place: str) -> "IndexFacts":
        """Those that ``as_json`` gave, found in ``place``; raises ``InputError`` if they are broken."""
        facts = parse_own(content, cls, place, AGAIN)
        if facts.version != FORMAT:
            raise InputError(f"{place} has format version {facts.version}, this is {FORMAT}", AGAIN)
        if facts.seal != (None if facts.files is None else facts.sealed().seal):
            raise InputError(f"{place} was changed since index wrote it, or is damaged: its checksum differs", AGAIN)
        return facts

    def as_json(self) -> Json:
        """Its fields."""
        return {**asdict(self), "config": self.config.as_json()}

    def sealed(self) -> "IndexFacts":
        """The same with its ``seal``."""
        return replace(self, seal=hash_json(replace(self, seal=None).as_json()))
