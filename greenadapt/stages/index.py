"""The index stage: documents in, a search index out."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from greenadapt.checkpoints.provenance import adapted_input
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import IndexConfig, SampleBy
from greenadapt.corpus.opening import input_name, is_read_once, path_sha256, refuse_twice, require_names
from greenadapt.errors import MissingError, UsageError, require
from greenadapt.inference.search.index import INDEX, write_index
from greenadapt.stages.session import Session
from greenadapt.store.files import Json
from greenadapt.store.results import Job, Outcome, Result


@dataclass(frozen=True)
class IndexRequest:
    """The documents to index, and the settings."""

    documents: tuple[str, ...]
    """Files, folders or archives in any corpus format."""
    model: str | None = None
    """Its tokenizer splits text into words; ``None``: words are runs of letters and digits."""
    config: IndexConfig = field(default_factory=IndexConfig)
    format: str | None = None
    fields: tuple[str, ...] = ("text",)
    sample_by: SampleBy | None = None
    """The unit that is a document in plain text; ``None`` is a line."""

    def __post_init__(self) -> None:
        for path in self.documents:
            if is_read_once(path):
                raise UsageError(f"{input_name(path)} is read once, an index reads it again", "name a file")
            if not Path(path).exists():
                raise MissingError(f"{path} does not exist", "check the path")
            require_names(path)
        refuse_twice(self.documents)


def index(session: Session, request: IndexRequest) -> Result:
    """Make an index of documents, in the session's ``out``."""
    require("search", "tantivy", by="an index")
    settings: Json = asdict(request.config) | {
        "format": request.format,
        "fields": list(request.fields),
        "sample_by": request.sample_by or "line",
        "documents": [str(Path(path)) for path in request.documents],  # which begin the names of passages
    }
    session.check_out(INDEX, settings)
    documents = {str(Path(path).absolute()): str(Path(path)) for path in request.documents}
    inputs: dict[str, Json] = {
        f"documents {name}": {"sha256": path_sha256(Path(path)), "path": path} for path, name in documents.items()
    }
    tokenizer = None
    if request.model is not None:
        model = find_model(request.model)
        Checkpoint.open(model.folder)
        inputs["model"], tokenizer = adapted_input(model), model.folder

    def build(work: Path) -> Outcome:
        return Outcome(write_index(work, documents, tokenizer, settings, request.sample_by, session.progress))

    return session.run(Job(INDEX, settings, inputs, build))
