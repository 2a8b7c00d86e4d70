"""The index stage: documents in, what answers searches out."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from greenadapt.checkpoints.provenance import adapted_input
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import IndexConfig, SampleBy
from greenadapt.corpus.opening import input_name, is_read_once, refuse_twice, require_names
from greenadapt.cost import Meter
from greenadapt.errors import ConflictError, MissingError, UsageError, require_torch
from greenadapt.inference.search.index import Builder, Index
from greenadapt.inference.search.store import FolderStore, IndexFacts, IndexModel, IndexSettings
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json, real_folder
from greenadapt.storage.jobs import describe_difference
from greenadapt.storage.results import refuse_overlap


@dataclass(frozen=True)
class IndexRequest:
    """What is indexed, and how."""

    documents: tuple[str, ...]
    """Files, folders or archives in any corpus format."""
    model: str | None = None
    """Whose tokenizer splits text into words, and whose vectors are kept with ``config.vectors``."""
    config: IndexConfig = field(default_factory=IndexConfig)
    format: str | None = None
    fields: tuple[str, ...] = ("text",)
    sample_by: SampleBy | None = None
    """What a document is in plain text; ``None`` is a line."""
    update: bool = False
    """Whether ``documents`` may be others than those that the index was made from."""

    def __post_init__(self) -> None:
        if self.config.vectors and self.model is None:
            raise UsageError("--vectors, but no model that makes them", "give one with --model")
        for path in self.documents:
            if is_read_once(path):
                raise UsageError(f"{input_name(path)} is read once, an index reads it again", "name a file")
            if not Path(path).exists():
                raise MissingError(f"{path} does not exist", "check the path")
            require_names(path)
        refuse_twice(self.documents)

    def facts(self) -> IndexFacts:
        """What the index will say of itself."""
        given = {str(Path(path).absolute()): str(Path(path)) for path in self.documents}
        settings = IndexSettings(
            **asdict(self.config), format=self.format, fields=self.fields, sample_by=self.sample_by or "line"
        )
        facts = IndexFacts(given, settings, normal_form="NFC")
        if self.model is None:
            return facts
        found = find_model(self.model)
        Checkpoint.open(found.folder)  # refuses a generative language model
        return replace(facts, model=IndexModel(found.source, adapted_input(found)["sha256"]))


def index(session: Session, request: IndexRequest) -> Json:
    """Make an index in the session's ``out``, or bring it up to date: documents that are new or changed are indexed,
    those that are gone are removed. With ``force`` it is emptied first. A killed run leaves what it committed, and the
    next one goes on from there.

    Returns ``stage``, ``status``, ``folder``, ``config``, ``counts``, ``seconds`` and ``peak_memory_bytes``. Raises
    ``ConflictError`` if something else is there, or an index of other settings, or, without ``update``, of other
    documents.
    """
    if request.config.vectors:
        require_torch("vectors of paragraphs")
    store = FolderStore(_folder(session, request))
    with session.locked(), Meter() as meter:
        if not session.force:
            store.require_whole()
        current = None if session.force else store.facts()
        facts = request.facts() if current is None else _updated(current, request, store.place)
        if current is None:
            tokenizer = None if request.model is None else find_model(request.model).folder
            store.create(facts, tokenizer)
        store.write_facts(replace(facts, counts=None))
        counts = Builder(Index(store.place), session.progress, request.sample_by).build()
        store.write_facts(replace(facts, counts=counts))
    is_changed = any(counts[name] for name in ("added", "changed", "removed"))
    is_same = current is not None and current.counts is not None and not is_changed
    status = "up to date" if is_same else "done"
    cost = {"seconds": meter.cost.seconds, "peak_memory_bytes": meter.cost.peak_memory_bytes}
    made = {"folder": store.place, "config": {**asdict(facts.config), "model": request.model}}
    return {"stage": "index", "status": status, **made, "counts": counts, **cost}


def _folder(session: Session, request: IndexRequest) -> Path:
    """Where the session writes; raises ``UsageError`` if that is, lies in or holds what is read."""
    assert session.out is not None
    out = real_folder(session.out)
    model = {} if request.model is None else {"model": request.model}
    refuse_overlap(out, {path: path for path in request.documents} | model)
    return out


def _updated(current: IndexFacts, request: IndexRequest, place: str) -> IndexFacts:
    """What the index is to say of itself; raises ``ConflictError`` if it cannot be brought up to date so."""
    wanted = request.facts()
    keep_both = "keep both with another --out, or replace it with --force"
    if settings := describe_difference(asdict(current.config), asdict(wanted.config)):
        same = ""
        if current.config.sample_by != wanted.config.sample_by:
            same = f"give --sample-by {current.config.sample_by}, or "
        raise ConflictError(f"{place} was made with other settings ({settings})", same + keep_both)
    if (current.model and current.model.sha256) != (wanted.model and wanted.model.sha256):
        old, now = ("none" if one is None else one.source for one in (current.model, wanted.model))
        same = f"give --model {old}" if current.model and not wanted.model else "use the same"
        raise ConflictError(f"{place} was made with another model ({old}, now {now})", f"{same}, or {keep_both}")
    if current.documents.keys() != wanted.documents.keys() and not request.update:
        raise ConflictError(
            f"{place} was made from other documents ({', '.join(current.documents.values())})",
            "name all that are to be in it and add --update, which removes the others, or make another index",
        )
    taken = {name for path, name in current.documents.items() if path in wanted.documents}
    known = {
        path: current.documents.get(path, path if given in taken else given) for path, given in wanted.documents.items()
    }
    return replace(current, documents=known, model=wanted.model)
