"""The finetune stage for one task: a model and labelled files in, a fine-tuned model's folder out."""

import shlex
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenadapt import __version__
from greenadapt.checkpoints.layout import SCORES, TASK_FILE, read_described
from greenadapt.checkpoints.provenance import adapted_input, base_id, model_facts
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.corpus.opening import require_source, source_input
from greenadapt.errors import InputError, require_torch
from greenadapt.stages.distributed import Build, run_together, start_machine
from greenadapt.stages.finetune.request import FinetuneRequest, Start
from greenadapt.stages.finetune.seeds import train_seeds
from greenadapt.stages.run_names import data_name
from greenadapt.stages.session import FINETUNE, Session
from greenadapt.storage.files import Json, write_json
from greenadapt.storage.results import Job, Outcome, Result
from greenadapt.tasks.base import make_task
from greenadapt.tasks.features import Encoder
from greenadapt.tasks.metrics import over_seeds
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.writer import copy_tokenizers

if TYPE_CHECKING:
    from greenadapt.models.machine import Machine
    from greenadapt.training.finetune.one_task import TaskSetup


def finetune(session: Session, request: FinetuneRequest) -> Result:
    """Train, score and write a model for each seed; does nothing where that is done, goes on where it was killed."""
    require_torch("fine-tuning")
    start = check_finetune(session, request)
    session = replace(session, out=session.out or default_out(request, start.model))
    settings = {**asdict(request.task), **asdict(request.training)}
    return run_together(
        session,
        session.place("", start.model.name, FINETUNE),
        partial(start_machine, session, request.training, request.run, settings),
        partial(_build, request, start),
        partial(_job, request, start, session.out),
    )


def check_finetune(session: Session, request: FinetuneRequest) -> Start:
    """What training begins with; raises what it would raise about models, files or the folder, before any work."""
    start = Start.of(request.model, request.memory, request.memory_config)
    for source in request.sources().values():
        require_source(source)
    session = replace(session, out=session.out or default_out(request, start.model))
    session.check(session.place("", start.model.name, FINETUNE), FINETUNE, _config(request, start))
    return start


def default_out(request: FinetuneRequest, chosen: PretrainedModel) -> Path:
    """Where a model is written whose folder the user did not name."""
    strategy = "" if request.memory is None else f"-{request.memory_config.strategy}"
    return Path("runs") / f"{request.task.task}-{chosen.name}-{data_name(request.train)}{strategy}"


def read_scores(result: Result) -> Json:
    """``scores.json`` of a fine-tuned model."""
    return read_described(result.folder / SCORES)


def _config(request: FinetuneRequest, start: Start) -> Json:
    """All that decides the result beside the content of files."""
    config: Json = {**asdict(request.task), **asdict(request.training)}
    config |= {"seeds": list(request.seeds), "save_logits": request.save_logits}
    return config if start.memory is None else {**config, "memory": asdict(start.memory.config)}


def _job(request: FinetuneRequest, start: Start, out: Path | None, build: Build) -> Job:
    config, inputs = _config(request, start), {"model": adapted_input(start.model)}
    if start.memory is not None:
        inputs["memory"] = start.memory.as_input()
    inputs |= {name: source_input(source) for name, source in request.sources().items()}

    def card(work: Path, outcome: Outcome, cost: Json) -> str:
        return _card(request, start, config, work, outcome.counts, cost)

    advice = {} if request.test is None else {"test": _scored_alone(out, request.test)}
    return Job(FINETUNE, config, inputs, build, resumes=True, card=card, kept=True, advice=advice)


def _scored_alone(out: Path | None, test: str) -> str:
    command = shlex.join(["greenadapt", "evaluate", "--model", str(out), "--test", test])
    return f"score the model on it with {command}, or train it again with --force"


def _card(request: FinetuneRequest, start: Start, config: Json, work: Path, counts: Json, cost: Json) -> str:
    from greenadapt.report.task_card import TaskCard

    settings, scores = (read_described(work / name) for name in (TASK_FILE, SCORES))
    return TaskCard(
        model=start.model.name,
        base=base_id(start.model),
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


def _build(request: FinetuneRequest, start: Start, session: Session, machine: "Machine", work: Path) -> Outcome:
    setup = _setup(request, start, session, machine)
    task, is_first = setup.task, machine.is_first
    finished = train_seeds(request.seeds, work, partial(_run_seed, setup, work), is_first=is_first)
    counts, *_ = [one.pop("counts") for one in finished]
    scores = _summary(request, task, finished)
    if is_first:
        copy_tokenizers(start.model.folder, work)
        training = request.training
        used: Json = {"pool": training.pool, "mix": training.mix, "max_length": setup.encoder.max_length}
        used["added_words"] = len(setup.encoder.tokenizer.added)
        if start.memory is not None:
            used["memory"] = start.memory.as_settings()
        write_json(work / TASK_FILE, {**task.settings(), **used})
        write_json(work / SCORES, scores)
    machine.end()
    facts = {"model": model_facts(start.model), "task": task.name, "scores": {**scores, "seeds": len(finished)}}
    return Outcome(counts, facts)


def _run_seed(setup: "TaskSetup", work: Path, seed: int, folder: Path, finished: list[Json]) -> None:
    """Train and write one seed's model; with the end of this function its memory is free for the next one."""
    from greenadapt.training.finetune.one_task import TaskRun

    run = TaskRun(setup, seed, folder, steps_before=sum(one["steps"] for one in finished))
    run.train()
    run.finish(work, is_whole=not finished)
    setup.machine.wait()


def _setup(request: FinetuneRequest, start: Start, session: Session, machine: "Machine") -> "TaskSetup":
    from greenadapt.training.finetune.one_task import Examples, TaskSetup

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
    start.tell(encoder, progress)
    examples = Examples(train, dev, test)
    return TaskSetup(
        task=task,
        checkpoint=checkpoint,
        encoder=encoder,
        examples=examples,
        train=request.training,
        run=request.run,
        machine=machine,
        progress=progress,
        save_logits=request.save_logits,
        general=None if start.memory is None else start.memory.open(),
        states=session.workspace.memory_cache() if request.run.cache_memory else None,
    )


def _summary(request: FinetuneRequest, task: Any, finished: list[Json]) -> Json:
    """``scores.json``: every seed's scores, and over the seeds the mean and the deviation (of a sample, n - 1)."""
    summary: Json = {"task": task.name, "main": task.main, "pool": request.training.pool, "seeds": finished}
    if request.test is not None:
        summary |= over_seeds([seed["test"] for seed in finished])
    if request.dev is not None:
        summary["dev"] = over_seeds([seed["dev"] for seed in finished])
    return summary
