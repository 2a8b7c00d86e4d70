"""What an index says of itself."""

from dataclasses import asdict, dataclass

from greenadapt.errors import InputError
from greenadapt.storage.files import Json, described_in
from greenadapt.storage.results import FORMAT


@dataclass(frozen=True)
class IndexFacts:
    """What an index was made from, and how."""

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
    def of(cls, values: Json, place: str) -> "IndexFacts":
        """Those that ``as_json`` gave, found in ``place``; raises ``InputError`` if they are broken."""
        if values.get("version", FORMAT) != FORMAT:
            raise InputError(
                f"{place} has format version {values['version']}, this is {FORMAT}", "index again with --force"
            )
        with described_in(place, "index again with --force"):
            return cls(**values)

    def as_json(self) -> Json:
        """Its fields."""
        return asdict(self)
