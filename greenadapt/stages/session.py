"""State shared by the stages of a command; results found by names of corpora and models."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from greenadapt.checkpoints.provenance import base_id, licence_of, model_input
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import PretrainedModel, find_local_model, find_model, model_name
from greenadapt.config import SessionOptions
from greenadapt.corpus.opening import STDIN, is_hub_id
from greenadapt.corpus.recipes import corpus_name
from greenadapt.errors import ConflictError, InputError, MissingError, UsageError
from greenadapt.progress import Progress
from greenadapt.store.files import Json, expand_home, forget_hashed, naming, real_folder
from greenadapt.store.results import Build, Job, Manifest, Place, Result, check_out, run
from greenadapt.store.workspace import Workspace
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from greenadapt.workers import usable_cores

CORPUS, W2V, ALIGN, EXPAND = "corpus", "w2v", "align", "expand"
PRETRAIN, FINETUNE, COMPILE, QA = "pretrain", "finetune", "compile", "qa"
RUNS = Path("runs")
"""The folder of trained models without ``--out``."""


@dataclass(frozen=True)
class Session:
    """The options common to every stage of a command."""

    workspace: Workspace
    progress: Progress
    out: Path | None = None
    """The output folder of the command's last stage, instead of HOME."""
    download: bool = False
    workers: int = 1
    max_memory: int = 4 << 30
    """Bytes."""
    cluster: str | None = None
    """The address of a Ray cluster, see ``connect``; ``None`` for this machine alone."""
    gpus_each: float | None = None
    """GPUs of each task on the cluster; ``None``: 1 if the cluster has GPUs."""
    command: str | None = None
    """The command line, for manifests and cards; ``None`` if the stage is called from Python."""

    @classmethod
    def of(cls, options: SessionOptions, progress: Progress, command: str | None = None) -> "Session":
        """The session of a command with ``options``."""
        forget_hashed()
        return cls(
            Workspace.find(options.workspace),
            progress,
            out=options.out,
            download=options.download,
            workers=options.workers or usable_cores(),
            max_memory=options.max_memory,
            cluster=options.cluster,
            gpus_each=options.gpus_each,
            command=command,
        )

    def find_only(self, corpus: str | None, model: str | None, stage: str) -> Result:
        """A stage's newest result for --corpus and --model; see ``names`` for their defaults."""
        return self.workspace.find_result(*self.names(corpus, model, stage), stage)

    def check_out(self, stage: str, config: Json | None = None) -> None:
        """Raise ``ConflictError`` early if ``out`` holds anything but a result of ``stage``, with this ``config``."""
        if self.out is not None:
            check_out(self._own_folder(self.out), stage, config)

    def run(self, job: Job, build: Build, corpus: str = "", model: str = "") -> Result:
        """The result of ``job``, made unless it exists: in ``out``, or in HOME under ``corpus`` and ``model``."""
        root = self.workspace.root
        if self.out is None and not (root / "results").exists():
            self.progress.note(f"new workspace {root}: it keeps results and the whole text")
        job = replace(job, command=self.command)
        place = self.place(job, corpus, model)
        with naming(place.folder):  # some errors of a full disk do not name the file
            return run(place, job, build, self.progress)

    def place(self, job: Job, corpus: str = "", model: str = "") -> Place:
        """Where ``run`` puts the result of ``job``."""
        return self.workspace.place(job, corpus, model) if self.out is None else Place(self._own_folder(self.out))

    def _own_folder(self, out: Path) -> Path:
        """The folder that the user named; raises ``ConflictError`` for one where ``clean`` removes results."""
        folder = real_folder(out)
        if folder.is_relative_to(os.path.realpath(self.workspace.root / "results")):
            raise ConflictError(f"--out {out} lies in the workspace", "leave it out, or name a folder elsewhere")
        return folder

    def corpus_name(self, corpus: str) -> str:
        """The workspace name of ``--corpus``; raises ``UsageError`` for standard input."""
        if corpus == STDIN:
            raise UsageError(
                "only corpus prepare, w2v and adapt read standard input",
                "give the name that it got there (greenadapt corpus list shows it)",
            )
        return corpus if corpus in self.workspace.corpora() else corpus_name(corpus)

    def names(self, corpus: str | None, model: str | None, stage: str | None = None) -> tuple[str, str]:
        """The workspace names of ``--corpus`` and ``--model``, by default the only ones with a result of ``stage``.

        Notes which it is if no corpus is named; raises what ``Workspace.find_only_corpus`` and ``find_only_model`` do.
        """
        if corpus is not None:
            name = self.corpus_name(corpus)
            return name, self.model_name(name, model)
        name = self.workspace.find_only_corpus(None if model is None else model_name(model), stage)
        chosen = self.model_name(name, model)
        self.progress.note(f"using corpus {name} and model {chosen}, the only ones in {self.workspace.root}")
        return name, chosen

    def named_models(self, corpus: str | None, model: str | None) -> list[tuple[str, str]]:
        """Each corpus and model with results in the workspace; of ``corpus`` and of ``model`` if given.

        Raises ``MissingError`` if these have none.
        """
        workspace, of_model = self.workspace, None if model is None else model_name(model)
        corpora = workspace.corpora() if corpus is None else [self.corpus_name(corpus)]
        pairs = [(name, other) for name in corpora for other in workspace.models(name) if of_model in (None, other)]
        if not pairs and (corpus, model) != (None, None):
            raise MissingError(
                f"no results for {' and '.join(filter(None, (corpus, model)))} in {workspace.root}",
                f"there are results for: {', '.join(workspace.corpora()) or 'nothing'}",
            )
        return pairs

    def model_name(self, corpus: str, model: str | None) -> str:
        """The workspace name of ``--model``, by default of the only model with results for ``corpus``."""
        return model_name(model) if model is not None else self.workspace.find_only_model(corpus)


def model_of(result: Result, source: str | None = None) -> PretrainedModel:
    """The model that a result was made for; downloaded only if the user named the same ``source``."""
    recorded: str = result.manifest.facts["model"]["source"]
    return find_model(recorded) if recorded == source else find_local_model(recorded, result.path)


def require_made_for(session: Session, result: Result, option: str, corpus: str | None, model: str | None) -> None:
    """Raise ``UsageError`` if ``result``, the value of ``option``, is not of this ``corpus`` and ``model``."""
    facts = result.manifest.facts
    if corpus is not None and (name := session.corpus_name(corpus)) != facts["corpus"]:
        raise UsageError(
            f"{option} {result.path} is of the corpus {facts['corpus']}, and --corpus names {name}",
            "leave out one of them",
        )
    if model is None or model in facts["model"].values() or model_name(model) == facts["model"]["name"]:
        return
    # The same model may have several names; the manifest of a map has the hash of its files.
    if result.manifest.inputs.get("model", {}).get("sha256") != model_input(find_model(model))["sha256"]:
        raise UsageError(
            f"{option} {result.path} is for the model {facts['model']['source']}, and --model names {model}",
            "leave out one of them",
        )


@dataclass(frozen=True)
class OpenedBase:
    """The model that words are added to; each part is read lazily and once."""

    model: PretrainedModel

    @cached_property
    def entry(self) -> Json:
        """The model's entry in manifests, with the hash of its files."""
        return model_input(self.model)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """Its weights."""
        return Checkpoint(self.model.folder)

    @cached_property
    def vocabulary(self) -> BaseVocabulary:
        """The words with a row of their own."""
        return BaseVocabulary(load_tokenizer(self.model.folder))

    def require_unchanged(self, aligned: Result) -> None:
        """Raise ``InputError`` if the model changed since ``aligned`` was fitted on it."""
        if self.entry["sha256"] != aligned.manifest.inputs["model"]["sha256"]:
            raise InputError(
                f"{self.model.source} changed since {aligned.path} was fitted on it", "run greenadapt align again"
            )


def card_origin(session: Session, model: PretrainedModel, *manifests: Manifest) -> Json:
    """What a card says of ``model``, which was adapted or trained, and the distinct command lines of ``manifests`` and,
    last, of the ``session``.
    """
    commands = [*(manifest.facts.get("command") for manifest in manifests), session.command]
    distinct = list(dict.fromkeys(filter(None, commands)))
    return {"base": base_id(model), "licence_of_base": licence_of(model), "commands": distinct}


def find_adapted(session: Session, corpus: str | None, model: str | None) -> str:
    """``model``, or with ``corpus`` the workspace's adapted model; raises ``UsageError`` if both are ``None``."""
    if corpus is not None:
        return str(session.find_only(corpus, model, EXPAND).path)
    if model is None:
        raise UsageError("no model", "give a folder with --model, or the corpus it was adapted to with --corpus")
    return model


_NAMED = 3
"""The largest number of names that are written out."""
_SUFFIXES = re.compile(r"(\.[A-Za-z]\w{0,6}){1,2}$")
_COMMON = re.compile(
    r"([-_.\s\d]|train(ing)?|dev(el(opment)?)?|valid(ation)?|test|eval|datas?|sets?|all|full|of|raw|text)*", re.I
)
"""File names that do not name the data set."""


def data_name(sources: Iterable[str]) -> str:
    """The names of files or data sets; for a file such as ``NCBI-disease/train.tsv`` the folder's name."""
    return join_names(map(_data_name, sources))


def join_names(names: Iterable[str]) -> str:
    """The distinct names, joined with hyphens; of many names only the first are written out."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) > _NAMED:
        distinct = [*distinct[: _NAMED - 1], f"and-{len(distinct) - _NAMED + 1}-more"]
    return "-".join(distinct)


def _data_name(source: str) -> str:
    if is_hub_id(source):
        parts = ["-".join(source.partition(":")[0].split("/")[1:])]
    else:
        *folders, file = Path(source.partition("://")[2] or expand_home(source).absolute()).parts
        stem = _SUFFIXES.sub("", file)
        parts = [stem, *reversed(folders[1:]), stem]
    telling = (part for part in parts if not _COMMON.fullmatch(part))
    return re.sub(r"[^\w.-]+", "-", next(telling, parts[-1])).strip("-.") or "data"
