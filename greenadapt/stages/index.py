"""The index stage: documents in, a folder that answers searches out."""

import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from greenadapt.checkpoints.provenance import adapted_input
from greenadapt.checkpoints.source import find_model
from greenadapt.config import IndexConfig
from greenadapt.corpus.opening import input_name, is_read_once
from greenadapt.cost import Meter
from greenadapt.errors import ConflictError, MissingError, UsageError, require_torch
from greenadapt.inference.search.building import Builder
from greenadapt.inference.search.index import (
    INDEX_FILE,
    TOKENIZER,
    VECTORS,
    WORDS,
    Index,
    IndexFacts,
    require_search,
)
from greenadapt.inference.search.store import ParagraphStore
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json
from greenadapt.storage.publish import beside, creating, publish_folder, real_folder
from greenadapt.storage.results import describe_difference


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
        if repeated := next((path for path in self.documents if self.documents.count(path) > 1), None):
            raise UsageError(f"{repeated} is given twice", "give it once")

    def facts(self) -> IndexFacts:
        """What the index will say of itself."""
        given = {str(Path(path).absolute()): str(Path(path)) for path in self.documents}
        config = {**asdict(self.config), "format": self.format, "fields": list(self.fields)}
        if self.model is None:
            return IndexFacts(given, config)
        found = find_model(self.model)
        return IndexFacts(given, config, {"source": found.source, "sha256": adapted_input(found)["sha256"]})


def index(session: Session, request: IndexRequest) -> Json:
    """Make an index in the session's ``out``, or bring it up to date: documents that are new or changed are indexed,
    those that are gone are removed. With ``force`` it is emptied first. A killed run leaves what it committed, and the
    next one goes on from there.

    Returns ``stage``, ``status``, ``folder``, ``config``, ``counts``, ``seconds`` and ``peak_memory_bytes``. Raises
    ``ConflictError`` if the folder holds something else, or an index of other settings, or, without ``update``, of
    other documents.
    """
    require_search()
    if request.config.vectors:
        require_torch("vectors of paragraphs")
    assert session.out is not None
    out = real_folder(session.out)
    for path in request.documents:
        if Path(path).is_dir() and out.is_relative_to(Path(path).absolute()):
            raise UsageError(f"--out {out} lies in the documents, {path}", "choose another folder")
    with session.locked(), Meter() as meter:
        facts = _facts_for(request, out, force=session.force)
        was_whole = facts.counts is not None
        if not (out / INDEX_FILE).is_file() or session.force:
            _create(facts, out)
        replace(facts, counts=None).write(out)
        counts = Builder(Index(out), session.progress).build()
        replace(facts, counts=counts).write(out)
    is_same = was_whole and not any(counts[name] for name in ("added", "changed", "removed"))
    status = "up to date" if is_same else "done"
    cost = {"seconds": meter.cost.seconds, "peak_memory_bytes": meter.cost.peak_memory_bytes}
    config = {**facts.config, "model": request.model}
    return {"stage": "index", "status": status, "folder": str(out), "config": config, "counts": counts, **cost}


def _facts_for(request: IndexRequest, out: Path, *, force: bool) -> IndexFacts:
    """What the index in ``out`` is to be; raises ``ConflictError`` if what is there is in the way."""
    wanted = request.facts()
    if not (out / INDEX_FILE).is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConflictError(f"{out} is there already, and is no index", "choose another folder")
        return wanted
    if force:
        return wanted
    current = IndexFacts.read(out)
    keep_both = "keep both with another --out, or replace it with --force"
    if settings := describe_difference(current.config, wanted.config):
        raise ConflictError(f"{out} was made with other settings ({settings})", keep_both)
    if (current.model or {}).get("sha256") != (wanted.model or {}).get("sha256"):
        before, now = ((one or {}).get("source", "none") for one in (current.model, wanted.model))
        raise ConflictError(f"{out} was made with another model ({before}, now {now})", keep_both)
    if current.documents.keys() != wanted.documents.keys() and not request.update:
        raise ConflictError(
            f"{out} was made from other documents ({', '.join(current.documents.values())})",
            "name all that are to be in it and add --update, which removes the others, or choose another --out",
        )
    known = {path: current.documents.get(path, given) for path, given in wanted.documents.items()}
    return replace(current, documents=known, model=wanted.model)


def _create(facts: IndexFacts, out: Path) -> None:
    """An empty index in place of what is there."""
    work = beside(out, "new")
    shutil.rmtree(work, ignore_errors=True)
    with creating(out):
        for name in (WORDS, VECTORS):
            (work / name).mkdir(parents=True)
    if facts.model is not None:
        shutil.copyfile(find_model(facts.model["source"]).folder / TOKENIZER, work / TOKENIZER)
    ParagraphStore.create(work / WORDS)
    facts.write(work)
    publish_folder(work, out)
