"""The finetune stage: a model and labelled files in, a task's model folder with its scores out."""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from greenadapt import __version__
from greenadapt.added_words import WORDS_FILE
from greenadapt.checkpoint import Checkpoint
from greenadapt.config import MemoryConfig, RunConfig, TaskConfig, TrainConfig
from greenadapt.corpus.recipes import path_sha256
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.export import copy_tokenizers
from greenadapt.features import Encoder
from greenadapt.model import PretrainedModel, find_model
from greenadapt.pipeline.expand import read_facts
from greenadapt.pipeline.memory_choice import MemoryChoice
from greenadapt.pipeline.session import EXPAND, FINETUNE, Session, adapted_input, model_facts
from greenadapt.pipeline.together import run_together
from greenadapt.processes import launched_processes
from greenadapt.progress import Progress
from greenadapt.store import Job, Json, Outcome, Result, hash_json, write_json
from greenadapt.tasks.registry import make_task
from greenadapt.training.layout import SCORES, SEEDS, TASK_FILE

if TYPE_CHECKING:
    from greenadapt.training.machine import Machine
    from greenadapt.training.seed_run import Setup


@dataclass(frozen=True)
class FinetuneRequest:
    """What is to be trained on what."""

    model: str
    train: tuple[str, ...]
    """Files or data set ids; several are read one after the other."""
    dev: str | None = None
    test: str | None = None
    task: TaskConfig = field(default_factory=TaskConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    run: RunConfig = field(default_factory=RunConfig)
    seeds: tuple[int, ...] = (0,)
    save_logits: bool = False
    """Keep the logits of the test set, of both views."""
    memory: str | None = None
    """The general model whose states the trained one sees (G-MAP, arXiv 2212.03613), or ``base``."""
    memory_config: MemoryConfig = field(default_factory=MemoryConfig)

    def __post_init__(self) -> None:
        if self.memory is None and self.memory_config != MemoryConfig():
            raise UsageError("settings of a memory, but no memory", "name the general model with --memory")
        if self.run.cache_memory and self.memory is None:
            raise UsageError("--cache-memory, but no memory", "name the general model with --memory")
        if self.run.cache_memory and not self.memory_config.frozen:
            raise UsageError("--cache-memory keeps what a frozen model gives", "leave out --unfreeze-memory")
        if not self.train:
            raise UsageError("nothing to train on", "give --train FILE")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError("need at least one seed, and each once", "give --seeds 1 or more")
        for seed in self.seeds:
            if not 0 <= seed < 2**32:
                raise UsageError(f"--seed is {seed}, must be from 0 to {2**32 - 1}")
        if self.dev is None and self.training.keep == "best":
            raise UsageError("--keep best needs a development set", "give --dev FILE")
        if self.dev is None and self.training.patience is not None:
            raise UsageError("--patience needs a development set", "give --dev FILE")

    def sources(self) -> dict[str, str]:
        """``train 1``, ``dev`` and so on → the file or data set id."""
        named = {f"train {number + 1}": source for number, source in enumerate(self.train)}
        return named | {name: source for name, source in (("dev", self.dev), ("test", self.test)) if source is not None}


@dataclass(frozen=True)
class _Start:
    """What training begins with."""

    model: PretrainedModel
    memory: MemoryChoice | None

    @classmethod
    def of(cls, request: FinetuneRequest) -> "_Start":
        model, config = starting_model(request.model), request.memory_config
        return cls(model, None if request.memory is None else MemoryChoice.find(request.memory, model, config))


def adapted_model(session: Session, corpus: str | None, model: str | None) -> str:
    """``model`` itself, or the adapted one of ``corpus`` in the workspace; raises ``UsageError`` for neither."""
    if corpus is not None:
        name = session.corpus_name(corpus)
        return str(session.find(name, session.model_name(name, model), EXPAND).path)
    if model is None:
        raise UsageError("no model", "give a folder with --model, or the corpus it was adapted to with --corpus")
    return model


def finetune(session: Session, request: FinetuneRequest) -> Result:
    """Train, score and write a model for each seed; does nothing where that is done, goes on where it was killed."""
    require_torch("fine-tuning")
    start = _Start.of(request)
    session = replace(session, out=session.out or default_out(request, start.model))
    machine = _machine(session, request) if launched_processes()[1] > 1 else None

    def build(work: Path, progress: Progress) -> Outcome:
        return _build(replace(session, progress=progress), request, start, work, machine)

    def run(build: Callable[[Path], Outcome]) -> Result:
        with session.locked(None, start.model.name):
            return _run(session, request, start, build)

    return run_together(machine, session.place("", start.model.name, FINETUNE), session.progress, build, run)


def default_out(request: FinetuneRequest, chosen: PretrainedModel) -> Path:
    """Where a model is written whose folder the user did not name."""
    strategy = "" if request.memory is None else f"-{request.memory_config.strategy}"
    return Path("runs") / f"{request.task.task}-{chosen.name}{strategy}"


def read_scores(result: Result) -> Json:
    """``scores.json`` of a fine-tuned model."""
    scores: Json = json.loads((result.folder / SCORES).read_text("utf-8"))
    return scores


def _run(session: Session, request: FinetuneRequest, start: _Start, build: Any) -> Result:
    config: Json = {**asdict(request.task), **asdict(request.training)}
    config |= {"seeds": list(request.seeds), "save_logits": request.save_logits}
    inputs = {"model": adapted_input(start.model)}
    if start.memory is not None:
        config["memory"] = asdict(start.memory.config)
        inputs["memory"] = start.memory.as_input()
    inputs |= {name: source_input(source) for name, source in request.sources().items()}

    def card(work: Path, outcome: Outcome, cost: Json) -> str:
        return _card(request, start, config, work, outcome.counts, cost)

    job = Job(FINETUNE, config, inputs, build, resumes=True, card=card)
    return session.run(session.place("", start.model.name, FINETUNE), job)


def _card(request: FinetuneRequest, start: _Start, config: Json, work: Path, counts: Json, cost: Json) -> str:
    from greenadapt.report.task_card import TaskCard

    settings, scores = (json.loads((work / name).read_text("utf-8")) for name in (TASK_FILE, SCORES))
    made = read_facts(start.model.folder)
    return TaskCard(
        model=start.model.name,
        base=made["model"]["name"] if made else start.model.name,
        given=request.model,
        head=make_task(request.task).head,
        task=settings,
        config=config,
        sources=request.sources(),
        scores=scores,
        counts=counts,
        version=__version__,
        is_expanded=(work / WORDS_FILE).is_file(),
        cost=cost,
    ).text()


def _build(session: Session, request: FinetuneRequest, start: _Start, work: Path, machine: "Machine | None") -> Outcome:
    from greenadapt.training.seed_run import remove_state

    setup = _setup(session, request, start, machine or _machine(session, request))
    task, is_first = setup.task, setup.machine.is_first
    finished: list[Json] = []
    for seed in request.seeds:
        folder = work / SEEDS / str(seed)
        if not (folder / SCORES).is_file():
            _run_seed(setup, seed, work, finished)
        if is_first:
            remove_state(folder)
        finished.append(json.loads((folder / SCORES).read_text("utf-8")))
    counts, *_ = [one.pop("counts") for one in finished]
    scores = _summary(request, task, finished)
    if is_first:
        copy_tokenizers(start.model.folder, work)
        training = request.training
        used: Json = {"pool": training.pool, "mix": training.mix, "max_length": setup.encoder.max_length}
        if start.memory is not None:
            used["memory"] = start.memory.as_settings()
        write_json(work / TASK_FILE, {**task.settings(), **used})
        write_json(work / SCORES, scores)
    setup.machine.end()
    facts = {"model": model_facts(start.model), "task": task.name, "scores": {**scores, "seeds": len(finished)}}
    return Outcome(counts, facts)


def _run_seed(setup: "Setup", seed: int, work: Path, finished: list[Json]) -> None:
    """Train and write one seed's model; with the end of this function its memory is free for the next one."""
    from greenadapt.training.seed_run import SeedRun

    run = SeedRun(setup, seed, work / SEEDS / str(seed), steps_before=sum(one["steps"] for one in finished))
    run.train()
    run.finish(work, is_whole=not finished)
    setup.machine.wait()


def _setup(session: Session, request: FinetuneRequest, start: _Start, machine: "Machine") -> "Setup":
    from greenadapt.training.seed_run import Examples, Setup

    checkpoint = Checkpoint.open(start.model.folder)
    encoder = Encoder.of(checkpoint, request.task.max_length)
    task, progress = make_task(request.task), session.progress
    train = [example for source in request.train for example in task.read(source, progress)]
    if not train:
        raise InputError("--train has no examples", "give a file that has some")
    task = task.fit(train, progress)
    dev, test = (task.read(source, progress) if source else None for source in (request.dev, request.test))
    for name, read in (("dev", dev), ("test", test)):
        if read is not None and not read:
            raise InputError(f"--{name} has no examples", "give a file that has some")
    if not encoder.has_words:
        progress.note(f"{start.model.name} has no added words: both tokenizations are the same")
    examples = Examples(train, dev, test)
    return Setup(
        task,
        checkpoint,
        encoder,
        examples,
        request.training,
        request.run,
        machine,
        progress,
        request.save_logits,
        None if start.memory is None else start.memory.open(),
        session.workspace.memory_cache(),
    )


def _summary(request: FinetuneRequest, task: Any, finished: list[Json]) -> Json:
    """``scores.json``: every seed's scores, and over the seeds the mean and the deviation (of a sample, n - 1)."""
    summary: Json = {"task": task.name, "main": task.main, "pool": request.training.pool, "seeds": finished}
    if request.test is not None:
        summary |= _over_seeds([seed["test"] for seed in finished])
    if request.dev is not None:
        summary["dev"] = _over_seeds([seed["dev"] for seed in finished])
    return summary


def _over_seeds(each: list[Json]) -> Json:
    """Mean and deviation of every score that is a number under each seed; others have none."""
    names = [name for name in each[0] if all(isinstance(scores[name], float) for scores in each)]
    values = {name: [scores[name] for scores in each] for name in names}
    return {
        "mean": {name: float(np.mean(numbers)) for name, numbers in values.items()},
        "std": {name: float(np.std(numbers, ddof=1)) for name, numbers in values.items() if len(numbers) > 1},
    }


def _machine(session: Session, request: FinetuneRequest) -> "Machine":
    from greenadapt.training.machine import Machine

    out = session.out or Path()
    settings = {**asdict(request.task), **asdict(request.training)}
    folder = out.with_name(f"{out.name}-logs")
    return Machine.start(request.training.precision, request.run.report_to, folder, settings)


def source_input(source: str) -> Json:
    """A file, folder or data set as an input in a manifest: its content, but of a data set its id."""
    path = Path(source).expanduser()
    if path.exists():
        return {"sha256": path_sha256(path), "path": str(path.absolute())}
    return {"sha256": hash_json(source), "source": source}


def require_torch(what: str) -> None:
    """Raise ``MissingError`` where the packages that training and its models need are not installed."""
    needed = ("torch", "transformers", "accelerate", "sklearn")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"{what} needs {', '.join(missing)}, not installed", 'pip install "greenadapt[train]"')


def starting_model(model: str) -> PretrainedModel:
    """The model, by a name that says what it was adapted to, and by the path that the user gave; see ``find_model``."""
    found = find_model(model)
    made = read_facts(found.folder)
    if made is None:
        return found
    return replace(found, name=f"{made['model']['name']}-{made['corpus']}", source=str(Path(model).absolute()))
