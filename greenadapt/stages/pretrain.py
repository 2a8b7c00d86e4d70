"""The pretrain stage: continued pre-training of a model on text with masked language modelling."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenadapt.checkpoints.layout import (
    FACTS_FILE,
    HEAD_STATE,
    SCORES,
    STATE,
    TASK_FILE,
    WORD_VECTORS_FILE,
    is_multitask,
    read_described,
)
from greenadapt.checkpoints.provenance import (
    adapted_input,
    model_facts,
    read_facts,
    reads_sentences,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.writer import copy_side_files
from greenadapt.config import GMAP_PRETRAINING, MemoryConfig, PretrainConfig, SessionOptions, TextOptions, TrainConfig
from greenadapt.corpus.readers import CorpusReader, open_corpus
from greenadapt.corpus.recipes import Recipe, find_recipe
from greenadapt.corpus.text import Document
from greenadapt.errors import InputError, UsageError, require_torch
from greenadapt.progress import Progress
from greenadapt.stages.finetune.request import StartingModel
from greenadapt.stages.finetune.train import run_together
from greenadapt.stages.session import PRETRAIN, RUNS, Session, card_origin, data_name
from greenadapt.store.files import Json, hash_json, write_json
from greenadapt.store.results import Job, Outcome, Result
from greenadapt.tasks.base import Encoder
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.export import copy_tokenizers
from greenadapt.version import __version__

if TYPE_CHECKING:
    from greenadapt.models.machine import Machine
    from greenadapt.training.packed_text import PackedText
    from greenadapt.training.pretrain import PretrainRun

_USUAL_LENGTH = 128
_TASK_ONLY = ("pool", "keep", "patience")  # settings of training without a meaning for pre-training


@dataclass(frozen=True)
class PretrainRequest:
    """The model and the texts to train on."""

    model: str
    texts: tuple[str, ...]
    """Named corpora, recipes or paths."""
    general_text: str | None = None
    """General text, whose loss shows how much the model forgets."""
    reading: TextOptions = field(default_factory=TextOptions)
    """How ``texts`` are read, and but for the format the general text."""
    config: PretrainConfig = field(default_factory=PretrainConfig)
    training: TrainConfig = field(default_factory=lambda: TrainConfig(**GMAP_PRETRAINING))
    max_tokens: int = SessionOptions.max_tokens
    memory: str | None = None
    """The general model whose states the trained one sees (G-MAP, arXiv 2212.03613), or ``base``."""
    memory_config: MemoryConfig = field(default_factory=MemoryConfig)

    def __post_init__(self) -> None:
        if not self.texts:
            raise UsageError("nothing to train on", "give --text FILE")
        if self.memory_config.strategy == "logits":
            raise UsageError(
                "--strategy logits adds the logits of a task's head", "use another strategy in pre-training"
            )


def pretrain(session: Session, request: PretrainRequest) -> Result:
    """Train and write the model; does nothing if up to date, resumes a killed run."""
    require_torch("pre-training")
    run = _Pretraining.of(session, request)
    if session.out is None:
        name = f"pretrain-{run.start.model.name}-{data_name(request.texts)}-{run.job.key[:8]}"
        run = replace(run, session=replace(session, out=RUNS / name))
    run.session.check_out(PRETRAIN, run.config())
    return run_together(run.session, run.job, request.training.precision, run.build)


@dataclass(frozen=True)
class _Pretraining:
    """A run, with the models and texts that it starts from."""

    session: Session
    request: PretrainRequest
    start: StartingModel
    texts: tuple[CorpusReader, ...]
    general_text: CorpusReader | None

    @classmethod
    def of(cls, session: Session, request: PretrainRequest) -> "_Pretraining":
        """Find the models and open the texts; raises what is wrong with them before any work."""
        start = StartingModel.of(request.model, request.memory, request.memory_config)
        if (start.model.folder / TASK_FILE).is_file() or is_multitask(start.model.folder):
            raise UsageError(
                f"{request.model} is fine-tuned for a task, and pre-training would undo that",
                "give the model that it was fine-tuned from",
            )
        texts = tuple(_open(session, text, request.reading) for text in request.texts)
        general = None
        if request.general_text is not None:
            general = _open(session, request.general_text, replace(request.reading, format=None))
        return cls(session, request, start, texts, general)

    def config(self) -> Json:
        """The settings that determine the result, without the content of files."""
        request, reading = self.request, self.request.reading
        training = {name: value for name, value in asdict(request.training).items() if name not in _TASK_ONLY}
        config: Json = {**asdict(request.config), **training, "format": reading.format, "fields": list(reading.fields)}
        if reading.sample_by not in (None, Recipe.sample_by):
            config["sample_by"] = reading.sample_by
        return config if self.start.memory is None else {**config, "memory": asdict(self.start.memory.config)}

    def inputs(self) -> dict[str, Json]:
        """The manifest's entries for all inputs."""
        inputs = {"model": adapted_input(self.start.model)}
        if self.start.memory is not None:
            inputs["memory"] = self.start.memory.as_input()
        named = {f"text {number}": reading for number, reading in enumerate(self.texts, start=1)}
        if self.general_text is not None:
            named["general text"] = self.general_text
        for name, reading in named.items():
            recipe, sources = reading.recipe, reading.fingerprint()
            is_path = recipe.argument != recipe.name and "://" not in recipe.argument
            inputs[name] = {
                "sha256": hash_json([recipe.fields, list(sources.values())]),
                "sources": sources,
                **({"path": str(Path(recipe.argument).absolute())} if is_path else {"source": recipe.argument}),
            }
        return inputs

    @property
    def job(self) -> Job:
        """What determines the result."""
        config = self.config()

        def card(work: Path, outcome: Outcome, cost: Json) -> str:
            from greenadapt.report.cards import PretrainCard

            return PretrainCard(
                model=self.start.model.name,
                **card_origin(self.session, self.start.model),
                texts=self.request.texts,
                memory=None if self.start.memory is None else self.start.memory.as_settings()["general"],
                config=config,
                scores=read_described(work / SCORES),
                counts=outcome.counts,
                is_expanded=(work / WORDS_FILE).is_file(),
                cost=cost,
                reads_sentences=reads_sentences(work),
            ).text()

        return Job(
            PRETRAIN,
            config,
            self.inputs(),
            checkpoints=(HEAD_STATE, STATE),
            scratch=(".*",),
            card=card,
            named={"model": model_facts(self.start.model)},
        )

    def build(self, session: Session, machine: "Machine | None", work: Path) -> Outcome:
        """Train, and write the model into ``work``."""
        from greenadapt.models.machine import Machine
        from greenadapt.models.memory.general_model import GeneralModel
        from greenadapt.training.pretrain import PretrainRun

        machine = machine or Machine.start(self.request.training.precision)
        request, model, progress = self.request, self.start.model, session.progress
        checkpoint = Checkpoint(model.folder)
        encoder = Encoder.of(checkpoint, request.config.max_length)
        if request.config.max_length is None:
            encoder = replace(encoder, max_length=min(encoder.max_length, _USUAL_LENGTH))
        self.start.report(encoder, progress)
        run = PretrainRun(
            checkpoint=checkpoint,
            encoder=encoder,
            texts=self._pack(encoder, work, machine, progress),
            config=request.config,
            train_config=request.training,
            folder=work,
            max_tokens=request.max_tokens,
            machine=machine,
            progress=progress,
            general=None if self.start.memory is None else GeneralModel.open(self.start.memory),
        )
        _report_opened(run, model.name, request.config, progress)
        run.train()
        run.finish(work)
        if machine.is_first:
            copy_tokenizers(model.folder, work)
            if (vectors := model.folder / WORD_VECTORS_FILE).is_file():
                shutil.copyfile(vectors, work / WORD_VECTORS_FILE)
            copy_side_files(model.folder, work)
            write_json(work / FACTS_FILE, self._facts())
        losses = read_described(work / SCORES)["losses"] if machine.is_first else {}
        return Outcome(run.counts(), {"model": model_facts(model), "losses": losses})

    def _facts(self) -> Json:
        """``greenadapt.json``: how the model was adapted, if it was, and the texts of each pre-training since."""
        recipe = self.texts[0].recipe
        facts = read_facts(self.start.model.folder) or {
            "greenadapt": __version__,
            "corpus": recipe.name,
            "title": recipe.title,
            "licence": recipe.licence,
            "model": model_facts(self.start.model),
        }
        training = {"texts": [reading.recipe.name for reading in self.texts], "config": asdict(self.request.config)}
        if self.start.memory is not None:
            training["memory"] = self.start.memory.as_settings()
        return {**facts, "pretrained": [*facts.get("pretrained", []), training]}

    def _pack(self, encoder: Encoder, work: Path, machine: "Machine", progress: Progress) -> dict[str, "PackedText"]:
        """The tokenized inputs of all texts; the first process writes them unless an earlier attempt did."""
        from greenadapt.training.packed_text import PackedText, pack

        base, general, heldout = work / ".text", self.general_text, self.request.config.heldout
        domain = [base / name for name in (("train", "heldout") if heldout else ("train",))]
        folders = domain if general is None else [*domain, base / "general"]
        if machine.is_first:
            if any(PackedText.open(folder) is None for folder in domain):
                pack(_documents(self.texts, "text", progress), encoder, domain, heldout)
            if general is not None and PackedText.open(folders[-1]) is None:
                pack(_documents([general], "general text", progress), encoder, folders[-1:])
        machine.wait()
        packed: dict[str, Any] = {folder.name: PackedText.open(folder) for folder in folders}
        for name, text in packed.items():
            if left_out := text.counts["left_out"]:
                progress.warn(f"{name}: left out {left_out:,} words longer than {encoder.max_length} pieces")
            if not len(text) and name != "general" and heldout:
                raise InputError(
                    f"--heldout {heldout} leaves no text to {'train' if name == 'train' else 'measure'} on",
                    "give more documents (of plain text, a line is one), or --heldout 0 to train on all",
                )
            if not len(text):
                option = "--general-text" if name == "general" else "--text"
                raise InputError(f"{option} has no text", "give a file that has some")
        return packed


def _report_opened(run: "PretrainRun", model: str, config: PretrainConfig, progress: Progress) -> None:
    opened = run.opened
    if opened.has_new_head:
        steps = f"trained alone for {config.head_steps:,} steps first" if config.head_steps else "untrained"
        progress.note(f"{model} has no head for masked language modelling and gets a new one, {steps}")
    heads = [name for name in opened.left_out if "pooler" not in name and "position_ids" not in name]
    if heads:
        progress.warn(f"left out {len(heads)} weights of {model} that masked language models lack, such as {heads[0]}")


def _documents(readings: Sequence[CorpusReader], label: str, progress: Progress) -> Iterator[Document]:
    with progress.bar(label, None, "documents") as bar:
        for reading in readings:
            for document in reading.documents():
                bar.advance(1)
                yield document
            reading.warn_skipped(progress)


def _open(session: Session, text: str, reading: TextOptions) -> CorpusReader:
    recipe = find_recipe(text, reading.of_recipe())
    return open_corpus(recipe, session.workspace.downloads(recipe.name), workers=session.workers)
