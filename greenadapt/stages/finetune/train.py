"""The finetune stage: a model and labelled files in, a fine-tuned model's folder out.

It runs in this process, or in several that a launcher started.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean, median_low, stdev
from typing import TYPE_CHECKING

from greenadapt.checkpoints.layout import (
    MULTITASK_FILE,
    SCORES,
    SEEDS,
    STATE,
    TASK_FILE,
    TASKS,
    WORD_VECTORS_FILE,
    n_weights,
    read_described,
)
from greenadapt.checkpoints.provenance import adapted_input, model_facts
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import Precision
from greenadapt.corpus.opening import require_source, source_input
from greenadapt.errors import InputError, UsageError
from greenadapt.models.adapters.shape import AdapterShape, layer_parts
from greenadapt.progress import PrefixedProgress, Silent
from greenadapt.stages.finetune.data import read_task_data
from greenadapt.stages.finetune.request import FinetuneRequest, StartingModel
from greenadapt.stages.session import FINETUNE, RUNS, Session, card_origin, data_name, join_names
from greenadapt.store.files import Json, write_json
from greenadapt.store.results import Job, Outcome, Result
from greenadapt.tasks.base import TaskData, make_task
from greenadapt.tasks.metrics import metric_of, over_seeds
from greenadapt.tokenization.added_words import has_added_words
from greenadapt.tokenization.export import copy_tokenizers
from greenadapt.vectors.stacked import StackedVectors
from greenadapt.workers import launched_processes

_READINGS, _OUTLYING = 10, 3.0

if TYPE_CHECKING:
    from greenadapt.models.machine import Machine
    from greenadapt.training.finetune import FinetuneSetup


def run_together(
    session: Session, job: Job, precision: Precision, build: "Callable[[Session, Machine | None, Path], Outcome]"
) -> Result:
    """Run a stage that trains: all processes ``build``, the first one reports progress and publishes the result.

    A single process passes no machine on: ``build`` reads its data before it starts one, which imports torch. Raises
    ``InputError`` in the other processes if the first one failed.
    """
    if launched_processes()[1] == 1:
        return session.run(job, partial(build, session, None))
    from greenadapt.models.machine import Machine

    machine = Machine.start(precision)
    if not machine.is_first:
        work = machine.broadcast(None)
        if work is not None:
            build(replace(session, progress=Silent()), machine, Path(work))
            machine.wait()
        result = session.place(job).find(job)
        if result is None:
            raise InputError("the first process failed", "see its error message")
        return result
    is_shared = False

    def build_and_share(work: Path) -> Outcome:
        nonlocal is_shared
        is_shared = machine.broadcast(str(work)) is not None
        return build(session, machine, work)

    try:
        result = session.run(job, build_and_share)
    finally:
        if not is_shared:
            machine.broadcast(None)
    if is_shared:  # until the result exists, which the other processes read; after an error the launcher ends them
        machine.wait()
    return result


def check_finetune(session: Session, request: FinetuneRequest, folder: Path | None = RUNS) -> "Finetuning":
    """Prepare a run, which without ``session.out`` writes into a new folder in ``folder``, or in HOME.

    Raises errors about models, files or the folder before any work.
    """
    start = StartingModel.of(request.model, request.memory, request.memory_config)
    if request.training.word_vectors and not (start.model.folder / WORD_VECTORS_FILE).is_file():
        raise UsageError(
            f"--word-vectors, but {start.model.source} has none", "adapt a model with WordPiece, or leave it out"
        )
    for source in request.sources().values():
        require_source(source)
    run = (Finetuning if request.is_plain else MultitaskFinetuning)(session, request, start)
    if session.out is None and folder is not None:
        run = replace(run, session=replace(session, out=folder / default_name(run)))
    run.inputs  # noqa: B018  (hashes the files before anything is trained)
    run.session.check_out(FINETUNE, run.config())
    return run


def count_following(runs: Sequence["Finetuning"]) -> list["Finetuning"]:
    """The runs, each of which knows how many trainings follow it."""
    trainings = [0 if run.folder.is_dir() else len(run.request.seeds) for run in runs]
    return [replace(run, later=sum(trainings[number:])) for number, run in enumerate(runs, 1)]


def default_name(run: "Finetuning") -> str:
    """The default name of a model's folder: its task, model and data, and the first digits of the result's key."""
    request, model = run.request, run.start.model.name
    strategy = "" if request.memory is None else f"-{request.memory_config.strategy}"
    first = request.tasks[0]
    if first.name:
        name = f"tasks-{model}-{join_names(entry.name for entry in request.tasks)}{strategy}"
    else:
        name = f"{first.config.task}-{model}-{data_name(first.train)}{strategy}"
    return f"{name}-{run.job.key[:8]}"


def find_undertrained(seeds: Sequence[Json]) -> dict[int, str]:
    """Seed → what is wrong with its training, for the ``seeds`` of a ``scores.json`` that learnt too little.

    A model that reads nothing has the ``chance`` loss. loss / chance is the share of the training labels' information
    that the model has not learnt, 1 - R² of McFadden: 1 for a model that always predicts the most frequent label. Over
    a half is too much for any use. A model whose weights are all trained memorizes even noisy examples when it has read
    them ``_READINGS`` times (0.04 is left for entities after 32 readings); for it over a quarter is too much. Seeds
    differ only by chance: a seed is also undertrained if its loss is over ``_OUTLYING`` times that of the median seed
    and more than a tenth of ``chance``, since differences of small losses mean nothing.
    """
    undertrained: dict[int, str] = {}
    for task in dict.fromkeys(task for seed in seeds for task in seed.get("losses", {})):
        trained = [seed for seed in seeds if task in seed.get("losses", {})]
        median = median_low(seed["losses"][task]["last"] for seed in trained)
        for seed in trained:
            last, chance = seed["losses"][task]["last"], seed["losses"][task]["chance"]
            knows_by_heart = seed["epochs"] >= _READINGS and "tasks" not in seed and task != "qa"
            ended = f"the training loss of {task} ended at {last:.2g}"
            if last >= chance / (4 if knows_by_heart else 2) > 0:
                undertrained[seed["seed"]] = f"{ended}, a model that reads nothing has {chance:.2g}"
            elif last > max(_OUTLYING * median, chance / 10):
                undertrained[seed["seed"]] = f"{ended}, that of other seeds at {median:.2g}"
    return undertrained


@dataclass(frozen=True)
class Finetuning:
    """One run of the stage, on a single task; its folder holds a transformers model with a head."""

    session: Session
    request: FinetuneRequest
    start: StartingModel
    later: int = 0
    """The number of trainings that follow those of this run, for the estimate of time."""

    @property
    def folder(self) -> Path:
        """The folder of the result."""
        return self.session.place(self.job).folder

    def with_prefix(self, name: str) -> "Finetuning":
        """The same run, whose messages begin with ``name``."""
        return replace(self, session=replace(self.session, progress=PrefixedProgress(self.session.progress, name)))

    def config(self) -> Json:
        """The settings that determine the result, without the content of files."""
        memory = self.start.memory
        return self.request.config() | ({} if memory is None else {"memory": asdict(memory.config)})

    @property
    def job(self) -> Job:
        """What determines the result."""
        return Job(
            FINETUNE,
            self.config(),
            self.inputs,
            named={"model": model_facts(self.start.model)},
            checkpoints=(f"{SEEDS}/*/{STATE}", f"{SEEDS}/*/{SCORES}"),
            card=self.card,
        )

    @cached_property
    def inputs(self) -> dict[str, Json]:
        """The files and models that determine the result, for a manifest, as they were when the command began."""
        inputs = {"model": adapted_input(self.start.model)}
        if self.start.memory is not None:
            inputs["memory"] = self.start.memory.as_input()
        return inputs | {name: source_input(source) for name, source in self.request.sources().items()}

    def build_seed(self, session: Session, work: Path, seed: int) -> None:
        """Train one seed in ``work``, side by side with other processes."""
        _train_seed(self._setup(session, None), work, seed, self.request.seeds[0])

    def build(self, session: Session, machine: "Machine | None", work: Path) -> Outcome:
        """Train every unfinished seed, and write what all seeds share into ``work``."""
        request = self.request
        setup = self._setup(session, machine)
        tasks, machine = setup.tasks, setup.machine
        from greenadapt.training.loop import remove_state

        finished: list[Json] = []
        unfinished = [seed for seed in request.seeds if not is_finished(work, seed)]
        for seed in request.seeds:
            folder = work / SEEDS / str(seed)
            if seed in unfinished:
                later = self.later + len(unfinished) - unfinished.index(seed) - 1
                _train_seed(setup, work, seed, request.seeds[0], later)
            if machine.is_first:
                remove_state(folder)
            finished.append(read_described(folder / SCORES))
        counts, *_ = [seed_scores.pop("counts") for seed_scores in finished]
        scores = self.summary(tasks, finished)
        if machine.is_first:
            self.describe(setup, work)
            write_json(work / SCORES, scores)
            if undertrained := find_undertrained(finished):
                seeds = f"{'seed' if len(undertrained) == 1 else 'seeds'} {', '.join(map(str, undertrained))}"
                n_steps = finished[0]["steps"]
                longer = "a higher --max-steps" if n_steps == request.training.max_steps else "more --epochs"
                session.progress.warn(
                    f"{seeds} learnt too little in {n_steps:,} steps: {next(iter(undertrained.values()))}; "
                    f"try {longer}, another --seed or a lower --learning-rate"
                )
        totals, task_facts = self.totals(tasks, counts)
        facts = {"model": model_facts(self.start.model), **task_facts, "scores": {**scores, "seeds": len(finished)}}
        return Outcome(totals, facts)

    def summary(self, tasks: Sequence[TaskData], finished: list[Json]) -> Json:
        """``scores.json`` from the scores of the ``finished`` seeds."""
        task, pool = tasks[0].task, self.request.training.pool
        scores: Json = {"task": task.name, "main": task.main, "pool": pool, "seeds": finished}
        scores["undertrained"] = [*find_undertrained(finished)]
        if "test" in finished[0]:
            scores |= over_seeds([seed["test"] for seed in finished])
        if "dev" in finished[0]:
            scores["dev"] = over_seeds([seed["dev"] for seed in finished])
        return scores

    def totals(self, tasks: Sequence[TaskData], counts: Json) -> tuple[Json, Json]:
        """The counts of the manifest, and the part of its facts about the tasks."""
        return counts, {"task": tasks[0].task.name}

    def main_scores(self, scores: Json) -> tuple[str, Json]:
        """The name of the main score, and its values on the test and the development set in a seed's ``scores``."""
        main = make_task(self.request.tasks[0].config).main
        return main, {kind: metric_of(scores[kind], main) for kind in ("test", "dev") if kind in scores}

    def prediction_settings(self, setup: "FinetuneSetup") -> Json:
        """The settings with which the trained model predicts."""
        first, training = setup.tasks[0], self.request.training
        settings: Json = {"pool": training.pool, "mix": training.mix}
        if not first.name:  # each named task has its own
            settings["max_length"] = first.encoder.max_length
        settings["added_words"] = len(first.encoder.tokenizer.added)
        if self.start.memory is not None:
            settings["memory"] = self.start.memory.as_settings()
        if training.word_vectors:
            settings["word_vectors"] = True
        return settings

    def _copy_encoder_files(self, work: Path) -> None:
        """Copy the tokenizers, and the word vectors that the trained model reads."""
        folder = self.start.model.folder
        copy_tokenizers(folder, work)
        if self.request.training.word_vectors:
            shutil.copyfile(folder / WORD_VECTORS_FILE, work / WORD_VECTORS_FILE)

    def describe(self, setup: "FinetuneSetup", work: Path) -> None:
        """Write the tokenizers, and the files that describe how to use the trained model."""
        [data] = setup.tasks
        self._copy_encoder_files(work)
        write_json(work / TASK_FILE, {**data.task.settings(), **self.prediction_settings(setup)})

    def card(self, work: Path, outcome: Outcome, cost: Json) -> str:
        """The text of ``README.md``."""
        request, start = self.request, self.start
        from greenadapt.report.cards import TaskCard

        return TaskCard(
            model=start.model.name,
            **card_origin(self.session, start.model),
            head=make_task(request.tasks[0].config).head,
            task=read_described(work / TASK_FILE),
            config=self.config(),
            sources=request.sources(),
            scores=read_described(work / SCORES),
            counts=outcome.counts,
            is_expanded=has_added_words(work),
            cost=cost,
        ).text()

    def _setup(self, session: Session, machine: "Machine | None") -> "FinetuneSetup":
        """The setup of all seeds; the data is read before torch is imported, which takes seconds."""
        request, start = self.request, self.start
        checkpoint = Checkpoint(start.model.folder)
        if request.adapter is not None:
            layer_parts(checkpoint.architecture.model_type)
            width = checkpoint.setting("hidden_size", "dim")
            AdapterShape.of(request.adapter, width, checkpoint.setting("num_hidden_layers", "n_layers"))
        tasks = tuple(read_task_data(entry, checkpoint, request.adapter, session.progress) for entry in request.tasks)
        start.report(tasks[0].encoder, session.progress, word_vectors=request.training.word_vectors)
        request.note_chosen(len(tasks[0].train), session.progress, has_words=tasks[0].encoder.has_words)
        for name, source in request.sources().items():  # another model may have been trained in between
            if source_input(source)["sha256"] != self.inputs[name]["sha256"]:
                raise InputError(
                    f"{source} changed since the command began", "run the command again when its files are finished"
                )
        from greenadapt.models.machine import Machine
        from greenadapt.models.memory.general_model import GeneralModel
        from greenadapt.training.finetune import FinetuneSetup

        vectors = start.model.folder / WORD_VECTORS_FILE
        return FinetuneSetup(
            tasks=tasks,
            checkpoint=checkpoint,
            train=request.training,
            max_tokens=request.max_tokens,
            machine=machine or Machine.start(request.training.precision),
            progress=session.progress,
            sampling=request.sampling,
            save_logits=request.save_logits,
            general=None if start.memory is None else GeneralModel.open(start.memory),
            word_vectors=StackedVectors.open(vectors) if request.training.word_vectors else None,
            hint_seed=None if any(entry.dev or entry.fold for entry in request.tasks) else request.seeds[0],
        )


class MultitaskFinetuning(Finetuning):
    """A run on tasks that share an encoder; its folder holds the encoder, and a folder for each task."""

    def summary(self, tasks: Sequence[TaskData], finished: list[Json]) -> Json:
        """The main score by task and set, and the average over all sets of all tasks (arXiv 1902.02671, table 2), each
        as the mean over the seeds and, of several seeds, the sample standard deviation.
        """
        first, metrics = finished[0], {task.name: task.metric for task in tasks}

        def of_set(task: str, kind: str, name: str) -> Json:
            return _over_seeds([metric_of(seed["tasks"][task][kind][name], metrics[task]) for seed in finished])

        return {
            "pool": self.request.training.pool,
            "metrics": metrics,
            "average": {kind: _over_seeds([seed["average"][kind] for seed in finished]) for kind in first["average"]},
            "tasks": {
                task: {kind: {name: of_set(task, kind, name) for name in sets} for kind, sets in kinds.items()}
                for task, kinds in first["tasks"].items()
            },
            "seeds": finished,
            "undertrained": [*find_undertrained(finished)],
        }

    def totals(self, tasks: Sequence[TaskData], counts: Json) -> tuple[Json, Json]:
        by_task = counts["tasks"].values()
        totals = {"tasks": len(by_task)}
        totals |= {name: sum(count[name] for count in by_task) for name in ("train", "inputs")}
        totals |= {kind: sum(sum(count[kind].values()) for count in by_task) for kind in ("dev", "test")}
        totals |= {"rows": counts["rows"], "rows_used": counts["rows_used"]}
        return totals, {"examples": counts["tasks"], "adapter": self._count_adapters()}

    def main_scores(self, scores: Json) -> tuple[str, Json]:
        return "average", scores["average"]

    def _count_adapters(self) -> Json:
        """What the tasks' adapters add to the encoder, see ``count_adapters``."""
        assert self.request.adapter is not None
        from greenadapt.models.adapters.kinds import count_adapters, make_meta_encoder

        start = Checkpoint(self.start.model.folder)
        encoder = make_meta_encoder({**start.config, "model_type": start.architecture.model_type}, str(start.folder))
        return count_adapters(self.request.adapter, encoder, len(self.request.tasks))

    def describe(self, setup: "FinetuneSetup", work: Path) -> None:
        self._copy_encoder_files(work)
        for task in setup.tasks:
            assert task.adapter is not None
            own = {"adapter": asdict(task.adapter), "metric": task.metric, "max_length": task.encoder.max_length}
            write_json(work / TASKS / task.name / TASK_FILE, {**task.task.settings(), **own})
        write_json(
            work / MULTITASK_FILE,
            {**self.prediction_settings(setup), "tasks": [task.name for task in setup.tasks]},
        )

    def card(self, work: Path, outcome: Outcome, cost: Json) -> str:
        from greenadapt.report.cards import MultitaskCard

        request, start = self.request, self.start
        folders = {entry.name: work / TASKS / entry.name for entry in request.tasks}
        return MultitaskCard(
            model=start.model.name,
            **card_origin(self.session, start.model),
            tasks={name: read_described(folder / TASK_FILE) for name, folder in folders.items()},
            weights={name: n_weights(folder) for name, folder in folders.items()},
            config=self.config(),
            entries=request.tasks,
            scores=read_described(work / SCORES),
            examples=outcome.facts["examples"],
            is_expanded=has_added_words(start.model.folder),
            memory=None if start.memory is None else start.memory.as_settings(),
            cost=cost,
        ).text()


def _over_seeds(values: Sequence[float | None]) -> Json:
    """Mean and sample standard deviation; ``None`` if a seed has no value."""
    numbers = [value for value in values if value is not None]
    is_complete = len(numbers) == len(values)
    over: Json = {"mean": fmean(numbers) if is_complete else None}
    if len(values) > 1:
        over["std"] = stdev(numbers) if is_complete else None
    return over


def is_finished(work: Path, seed: int) -> bool:
    """Whether a seed is finished in the work folder of a run."""
    return (work / SEEDS / str(seed) / SCORES).is_file()


def _train_seed(setup: "FinetuneSetup", work: Path, seed: int, first: int, later: int = 0) -> None:
    """Train one seed, which ``later`` trainings follow; the model of the ``first`` one is that of the whole folder.

    Frees the memory of the model on return.
    """
    from greenadapt.training.finetune import FinetuneRun

    folder = work / SEEDS / str(seed)
    run = FinetuneRun(setup, seed, folder)
    run.train(later)
    run.finish(work if seed == first else folder)
    setup.machine.wait()
