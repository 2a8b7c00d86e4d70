"""What the stages of one command share, and how they find each other's results by name."""

import importlib.util
import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from greenadapt.checkpoint import Checkpoint
from greenadapt.corpus.reading import STDIN
from greenadapt.corpus.recipes import Recipe, corpus_name, path_sha256
from greenadapt.corpus.standard_input import keep_input
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.locks import lock
from greenadapt.model import PretrainedModel, find_model, model_name
from greenadapt.processes import launched_processes
from greenadapt.progress import Progress
from greenadapt.publish import beside, naming, real_folder
from greenadapt.special_tokens import read_settings
from greenadapt.store import Job, Json, Place, Result, check_place, hash_file, hash_json, open_result, run_job
from greenadapt.tasks.records import is_hub_id
from greenadapt.workspace import Workspace

CORPUS, W2V, ALIGN, EXPAND, INTERPOLATE = "corpus", "w2v", "align", "expand", "interpolate"
PRETRAIN, FINETUNE, QA = "pretrain", "finetune", "qa"


@dataclass(frozen=True)
class Session:
    """The options that every stage of a command obeys."""

    workspace: Workspace
    progress: Progress
    out: Path | None = None
    """Where the command's last stage writes instead of the workspace."""
    variant: str | None = None
    force: bool = False
    updates: bool = False
    """Whether a finished model is trained again where the content of an input changed, without ``force``."""
    download: bool = False
    workers: int = 1
    max_memory: int = 4 << 30
    """Bytes."""

    def place(self, corpus: str, model: str, stage: str) -> Place:
        """Where this command writes a stage."""
        if self.out is not None:
            return Place(real_folder(self.out), linked=False)
        return self.workspace.place(corpus, model, stage, self.variant)

    def find(self, corpus: str, model: str, stage: str) -> Result:
        """A stage's result that an earlier command wrote."""
        return open_result(self.workspace.find_place(corpus, model, stage, self.variant).path, stage)

    @contextmanager
    def locked(self, corpus: str | None = None, model: str = "") -> Iterator[None]:
        """Be the one writer of all that this command may write; ``corpus=None`` leaves the workspace out."""
        with ExitStack() as locks:
            if corpus is not None:
                locks.enter_context(self.workspace.locked(corpus, model))
            if self.out is not None:
                out = real_folder(self.out)
                locks.enter_context(lock(beside(out, "lock"), out))
            yield

    def check(self, place: Place, stage: str, config: Json) -> None:
        """Refuse at once what ``run`` would refuse of ``place`` after the work before it; see ``check_place``."""
        check_place(place, stage, config, force=self.force)

    def run(self, place: Place, job: Job) -> Result:
        """Bring ``place`` up to date with ``job``."""
        job = replace(job, kept=job.kept and not self.updates)
        with naming(place.work):  # where it is not known which file of it did not go onto a full disk
            return run_job(place, job, force=self.force, progress=self.progress)

    def standard_input(self, said: Json) -> Recipe:
        """The corpus on standard input; raises ``UsageError`` where several processes would have to share it."""
        if launched_processes()[1] > 1:
            raise UsageError("several processes cannot share standard input", "write the text to a file")
        stream: IO[bytes] = io.BytesIO() if sys.stdin is None else sys.stdin.buffer
        return keep_input(stream, self.workspace.root, said, self.progress)

    def corpus_name(self, corpus: str | None) -> str:
        """The workspace name of ``--corpus``; raises ``UsageError`` where it was left out."""
        if corpus is None:
            raise UsageError("no corpus", "name one with --corpus (greenadapt corpus list shows what there is)")
        if corpus == STDIN:
            raise UsageError(
                "standard input is read by corpus prepare, w2v and adapt",
                "give the name that it got there (greenadapt corpus list shows it)",
            )
        return corpus if corpus in self.workspace.corpora() else corpus_name(corpus)

    def model_name(self, corpus: str, model: str | None) -> str:
        """The workspace name of ``--model``, or of the one model that has results for ``corpus``."""
        return model_name(model) if model is not None else self.workspace.only_model(corpus)


def model_facts(model: PretrainedModel) -> Json:
    """How a manifest names a model, so that later stages find it."""
    return {"name": model.name, "source": model.source}


def model_of(result: Result) -> PretrainedModel:
    """The model that a result was made for."""
    return find_model(result.manifest.facts["model"]["source"])


def check_model(model: PretrainedModel, *, whole: bool = False) -> Checkpoint:
    """Open a model's weights, and refuse before anything else what would fail, or spoil the result, in the end.

    Raises ``InputError`` or ``MissingError`` for broken files and for NaN or infinity in the embedding, or in any
    weight if the ``whole`` model is going to be copied or trained.
    """
    checkpoint = Checkpoint.open(model.folder)
    checkpoint.require_finite(None if whole else [checkpoint.embedding_name])
    return checkpoint


def model_input(model: PretrainedModel) -> Json:
    """A model as an input in a manifest: a hash of its configuration, tokenizer files and weights."""
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
    present = [model.folder / name for name in names if (model.folder / name).is_file()]
    files = [*present, *Checkpoint.open(model.folder).files]
    return {"sha256": hash_json({path.name: hash_file(path) for path in files}), "source": model.source}


def note_code(model: PretrainedModel, progress: Progress) -> None:
    """Say which files of ``model`` name code (``auto_map``), which a folder that is made from it does not."""
    named = {
        "config.json": Checkpoint.open(model.folder).names_code,
        "tokenizer_config.json": "auto_map" in read_settings(model.folder),
    }
    if files := [name for name, names_code in named.items() if names_code]:
        progress.note(f"left out auto_map of {model.name}'s {' and '.join(files)}: it names code, which is never run")


def require_source(source: str) -> None:
    """Raise ``MissingError`` for what is neither a file or folder that is there, nor a data set of the hub or a URL."""
    if not (Path(source).expanduser().exists() or "://" in source or is_hub_id(source)):
        raise MissingError(f"{source} does not exist", "check the path")


def source_input(source: str) -> Json:
    """A file, folder or data set as an input in a manifest: its content, but of a data set its id.

    Raises ``MissingError`` for a file that does not exist.
    """
    path = Path(source).expanduser()
    if path.exists():
        return {"sha256": path_sha256(path), "path": str(path.absolute())}
    require_source(source)
    return {"sha256": hash_json(source), "source": source}


def require_torch(what: str) -> None:
    """Raise ``MissingError`` where the packages that training and its models need are not installed."""
    needed = ("torch", "transformers", "accelerate", "sklearn")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"{what} needs {', '.join(missing)}, not installed", 'pip install "greenadapt[train]"')


def require_same_model(aligned: Result, model: Json) -> None:
    """Refuse a model, as ``model_input`` names it, that changed since ``aligned`` was fitted on it."""
    if model["sha256"] != aligned.manifest.inputs["model"]["sha256"]:
        raise InputError(
            f"{model['source']} changed since {aligned.path} was fitted on it", "run greenadapt align again"
        )
