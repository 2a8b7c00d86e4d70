"""The index stage: documents in, a search index out."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from greenadapt import __version__
from greenadapt.checkpoints.provenance import adapted_input
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import IndexConfig, SampleBy
from greenadapt.corpus.opening import input_name, is_read_once, path_sha256, refuse_twice, require_names
from greenadapt.cost import Meter
from greenadapt.errors import ConflictError, MissingError, UsageError
from greenadapt.inference.search.index import Builder, Index
from greenadapt.inference.search.store import FolderStore, IndexFacts, IndexModel, IndexSettings
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json, hash_json, real_folder
from greenadapt.storage.jobs import describe_difference
from greenadapt.storage.results import refuse_overlap


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
    update: bool = False
    """Whether ``documents`` may differ from those that the index was made from."""

    def __post_init__(self) -> None:
        for path in self.documents:
            if is_read_once(path):
                raise UsageError(f"{input_name(path)} is read once, an index reads it again", "name a file")
            if not Path(path).exists():
                raise MissingError(f"{path} does not exist", "check the path")
            require_names(path)
        refuse_twice(self.documents)

    def facts(self) -> IndexFacts:
        """The facts of the index to make."""
        names = {str(Path(path).absolute()): str(Path(path)) for path in self.documents}
        settings = IndexSettings(
            **asdict(self.config), format=self.format, fields=self.fields, sample_by=self.sample_by or "line"
        )
        facts = IndexFacts(names, settings)
        if self.model is None:
            return facts
        model = find_model(self.model)
        Checkpoint.open(model.folder)
        return replace(facts, model=IndexModel(model.source, adapted_input(model)["sha256"]))


def index(session: Session, request: IndexRequest) -> Json:
    """Make an index in the session's ``out``, or update it: new and changed documents are indexed, missing documents
    are removed. ``force`` empties the index first. The next run resumes a killed one after its last commit. Documents
    are not read if all bytes of their files are those of the last ``index``.

    Returns ``stage``, ``status``, ``folder``, ``config``, ``counts``, ``seconds`` and ``peak_memory_bytes``. Raises
    ``ConflictError`` if the folder is not an index, or is an index of other settings or, without ``update``, of other
    documents, and ``UsageError`` if the folder overlaps a document or the model.
    """
    assert session.out is not None
    out = real_folder(session.out)
    model_path = {} if request.model is None else {"model": request.model}
    refuse_overlap(out, {path: path for path in request.documents} | model_path)
    store = FolderStore(out)
    with session.locked(), Meter() as meter:
        if not session.force:
            store.require_whole()
        current = None if session.force else store.facts()
        facts = request.facts() if current is None else _updated(current, request, store.place)
        if current is None:
            tokenizer = None if request.model is None else find_model(request.model).folder
            store.create(facts, tokenizer)
        sources = hash_json([__version__, [[path, path_sha256(Path(path))] for path in facts.documents]])
        if facts.counts is not None and facts == current and sources == current.sources:
            counts = facts.counts | {"added": 0, "changed": 0, "removed": 0, "unchanged": facts.counts["documents"]}
        else:
            store.write_facts(replace(facts, counts=None, sources=None))
            counts = Builder(Index(store.place), session.progress, request.sample_by).build()
            store.write_facts(replace(facts, counts=counts, sources=sources))
    is_changed = any(counts[name] for name in ("added", "changed", "removed"))
    is_same = current is not None and current.counts is not None and not is_changed
    status = "up to date" if is_same else "done"
    cost = {"seconds": meter.cost.seconds, "peak_memory_bytes": meter.cost.peak_memory_bytes}
    description = {"folder": store.place, "config": {**asdict(facts.config), "model": request.model}}
    return {"stage": "index", "status": status, **description, "counts": counts, **cost}


def _updated(current: IndexFacts, request: IndexRequest, folder: str) -> IndexFacts:
    """The facts of the updated index; raises ``ConflictError`` if it was made differently."""
    facts = request.facts()
    advice = "keep both with another --out, or replace it with --force"
    if settings := describe_difference(asdict(current.config), asdict(facts.config)):
        fix = ""
        if current.config.sample_by != facts.config.sample_by:
            fix = f"give --sample-by {current.config.sample_by}, or "
        raise ConflictError(f"{folder} was made with other settings ({settings})", fix + advice)
    if (current.model and current.model.sha256) != (facts.model and facts.model.sha256):
        old, new = ("none" if model is None else model.source for model in (current.model, facts.model))
        fix = f"give --model {old}" if current.model and not facts.model else "use the same"
        raise ConflictError(f"{folder} was made with another model ({old}, now {new})", f"{fix}, or {advice}")
    if current.documents.keys() != facts.documents.keys() and not request.update:
        raise ConflictError(
            f"{folder} was made from other documents ({', '.join(current.documents.values())})",
            "name all documents and add --update, which removes those not named, or make another index",
        )
    taken = {name for path, name in current.documents.items() if path in facts.documents}
    documents = {
        path: current.documents.get(path, path if name in taken else name) for path, name in facts.documents.items()
    }
    return replace(current, documents=documents, model=facts.model)
