"""The index stage: documents in, a search index out."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from greenadapt.checkpoints.provenance import adapted_input
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import IndexConfig, TextOptions
from greenadapt.corpus.opening import input_name, is_read_once, path_sha256, refuse_twice, require_names
from greenadapt.errors import MissingError, UsageError, require
from greenadapt.inference.search.index import INDEX, write_index
from greenadapt.stages.session import Session
from greenadapt.store.files import Json
from greenadapt.store.results import Job, Outcome, Result


def index(
    session: Session,
    paths: Sequence[str],
    model: str | None = None,
    config: IndexConfig = IndexConfig(),  # noqa: B008  (it is frozen)
    text: TextOptions = TextOptions(),  # noqa: B008
) -> Result:
    """Make an index of the documents in ``paths``, in the session's ``out``.

    The tokenizer of ``model`` splits text into words; without it words are runs of letters and digits.
    """
    for path in paths:
        if is_read_once(path):
            raise UsageError(f"{input_name(path)} can be read only once, an index reads it twice", "name a file")
        if not Path(path).exists():
            raise MissingError(f"{path} does not exist", "check the path")
        require_names(path)
    refuse_twice(paths)
    require("search", "tantivy", by="an index")
    settings: Json = asdict(config) | {
        "format": text.format,
        "fields": list(text.fields or ("text",)),
        "sample_by": text.sample_by or "line",
        "documents": [str(Path(path)) for path in paths],  # which begin the names of passages
    }
    session.check_out(INDEX, settings)
    documents = {str(Path(path).absolute()): str(Path(path)) for path in paths}
    inputs: dict[str, Json] = {
        f"documents {name}": {"sha256": path_sha256(Path(path)), "path": path} for path, name in documents.items()
    }
    tokenizer = None
    if model is not None:
        found = find_model(model)
        Checkpoint(found.folder)
        inputs["model"], tokenizer = adapted_input(found), found.folder

    def build(work: Path) -> Outcome:
        return Outcome(write_index(work, documents, tokenizer, settings, text.sample_by, session.progress))

    return session.run(Job(INDEX, settings, inputs), build)
