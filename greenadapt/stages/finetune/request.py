"""A fine-tuning request: its starting model, its tasks, the settings of the training, and its seeds."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any, get_args

from greenadapt.checkpoints.layout import MEMORY_FILE, MULTITASK_FILE, TASK_FILE, WORD_VECTORS_FILE, read_described
from greenadapt.checkpoints.provenance import check_model, note_lowercasing, starting_model
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.config import (
    CHOSEN_FOR_ENTITIES,
    CHOSEN_FOR_TRAINING,
    PALS_PAPER,
    PAPER,
    AdapterConfig,
    MemoryConfig,
    Pool,
    SamplingConfig,
    SessionOptions,
    TaskConfig,
    TrainConfig,
    paper_values,
)
from greenadapt.corpus.opening import refuse_read_once, require_source
from greenadapt.errors import UsageError, pluralize
from greenadapt.models.memory.choice import MemoryChoice
from greenadapt.progress import Progress, Silent
from greenadapt.store.files import Json
from greenadapt.tasks.base import Encoder, make_task
from greenadapt.tasks.tasks_file import TaskEntry, read_tasks_file
from greenadapt.tokenization.added_words import has_added_words


@dataclass(frozen=True)
class StartingModel:
    """The model to train, and the general model that is its memory."""

    model: PretrainedModel
    memory: MemoryChoice | None

    @classmethod
    def of(cls, model: str, memory: str | None, config: MemoryConfig) -> "StartingModel":
        """Find and check both models by the user's names."""
        source = starting_model(model)
        check_model(source, whole=True)
        return cls(source, None if memory is None else MemoryChoice.find(memory, source, config))

    def report(self, encoder: Encoder, progress: Progress, *, word_vectors: bool = False) -> None:
        """Report what the model lacks, and what it has learnt to read and does not read now.

        ``encoder`` makes its inputs; ``word_vectors`` says whether it reads them.
        """
        note_lowercasing(self.model, progress)
        if not encoder.has_words:
            progress.note(f"{self.model.name} has no added words, and so a single tokenization")
        if (self.model.folder / MEMORY_FILE).is_file():
            files = (self.model.folder / name for name in (TASK_FILE, MULTITASK_FILE))
            learnt_vectors = any(read_described(file).get("word_vectors") for file in files if file.is_file())
            what = "word vectors: give --word-vectors"
            if not learnt_vectors:
                what = "a memory: give the general model with --memory"
            if not (word_vectors if learnt_vectors else self.memory is not None):
                progress.warn(f"{self.model.source} was trained with {what}")


@dataclass(frozen=True)
class FinetuneRequest:
    """Tasks to train on a shared encoder, or a single task, see ``of_one``."""

    model: str
    tasks: tuple[TaskEntry, ...]
    adapter: AdapterConfig | None = field(default_factory=AdapterConfig)
    """The adapter of each task; ``None`` for a single task, a plain model with a head."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    automatic: Collection[str] = ()
    """The settings of ``training`` that the user left to greenadapt: a finished result keeps its own."""
    max_tokens: int = SessionOptions.max_tokens
    seeds: tuple[int, ...] = (0,)
    save_logits: bool = False
    """Whether to keep the logits of both views on the test set; for a single task only."""
    memory: str | None = None
    """The general model whose states the trained one sees (G-MAP, arXiv 2212.03613), or ``base``."""
    memory_config: MemoryConfig = field(default_factory=MemoryConfig)

    @classmethod
    def of_one(
        cls,
        model: str,
        train: tuple[str, ...],
        dev: str | None = None,
        test: str | None = None,
        task: TaskConfig = TaskConfig(),  # noqa: B008  (it is frozen)
        training: TrainConfig = TrainConfig(),  # noqa: B008
        **fields: Any,
    ) -> "FinetuneRequest":
        """A single task; ``train``, ``dev`` and ``test`` are files or data set ids, ``fields`` further fields.

        ``automatic`` also names the settings of ``task`` that the user left to greenadapt.
        """
        dev_sets = {} if dev is None else {"dev": dev}
        entry = TaskEntry("", task, train, dev_sets, {} if test is None else {"test": test}, None)
        automatic = {*fields.pop("automatic", ())}
        of_training = CHOSEN_FOR_TRAINING & automatic
        return cls(model, (entry.choose_settings(automatic),), None, training=training, automatic=of_training, **fields)

    def choose_training(self, n_examples: int | None = None) -> "FinetuneRequest":
        """The request with the ``automatic`` settings of a single task's training chosen, for ``n_examples``; ``None``:
        all examples of its files, which are read for that.

        With s = max(1, hidden size / 384): peak rate 2e-4 / s, batches of 16, 600 · s steps, and at least 4 readings of
        each example. Too few steps leave a model untrained (arXiv 2006.04884). Rate and steps were chosen on
        development sets for hidden sizes of 384 and 768.
        """
        if not self.automatic:
            return self
        folder, entry = starting_model(self.model).folder, self.tasks[0]
        scale = max(1, int(Checkpoint(folder).setting("hidden_size", "dim")) / _WIDTH)
        has_vectors = (folder / WORD_VECTORS_FILE).is_file()
        values: Json = {
            "mix": "both" if has_added_words(folder) else TrainConfig.mix,
            "word_vectors": has_vectors and entry.config.task == "ner" and self.memory is None,
            "learning_rate": float(f"{_RATE / scale:.2g}"),
            "batch_size": _BATCH_SIZE,
            "keep": "best" if entry.dev else "last",
        }
        training = replace(self.training, **{name: values[name] for name in values.keys() & {*self.automatic}})
        if "epochs" in self.automatic:
            steps = _steps_per_epoch(training, _number_of_examples(entry) if n_examples is None else n_examples)
            epochs = max(ceil(_MIN_READINGS / _views(training)), ceil(_MIN_STEPS * scale / steps))
            training = replace(training, epochs=epochs)
        return replace(self, training=training)

    def is_capped(self, n_examples: int) -> bool:
        """Whether ``max_steps`` ends a single task's training on ``n_examples`` before its last epoch does."""
        training, most = self.training, self.training.max_steps
        return most is not None and most < training.epochs * _steps_per_epoch(training, n_examples)

    def note_chosen(self, n_examples: int, progress: Progress, *, has_words: bool) -> None:
        """Note how long a single task is trained, if greenadapt chose that; ``has_words``: the model has added ones."""
        if "epochs" not in self.automatic:
            return
        training = self.training
        examples = pluralize(n_examples, "example")
        if training.mix == "both":
            examples += ", each in both tokenizations" if has_words else ", each twice"
        if training.word_vectors:
            examples += ", with word vectors"
        if self.is_capped(n_examples):
            option, length = "--max-steps", f"{pluralize(training.max_steps or 0, 'step')} on {examples}"
        else:  # the number of parts that long examples are split into is not known before they are encoded
            n_steps = training.epochs * _steps_per_epoch(training, n_examples)
            epochs = pluralize(training.epochs, "epoch")
            option, length = "--epochs", f"{epochs} of {examples}: {n_steps:,} or more steps"
        progress.note(f"{length}, peak rate {training.learning_rate:g}; {option} and --learning-rate change this")

    def __post_init__(self) -> None:
        if self.memory is None and self.memory_config != MemoryConfig():
            raise UsageError("options of the memory, but no memory", "give the general model with --memory")
        for seed in self.seeds:
            if not 0 <= seed < 2**32:
                raise UsageError(f"--seed is {seed}, must be from 0 to {2**32 - 1}")
        if self.memory is not None and self.training.word_vectors:
            raise UsageError("--word-vectors does not go with a memory", "leave out one of them")
        self._check_adapter()
        if not all(entry.train for entry in self.tasks):
            raise UsageError("nothing to train on", "give --train FILE")
        if not any(entry.dev for entry in self.tasks):
            hint = "give one of the tasks a dev file" if self.tasks[0].name else "give --dev FILE"
            if self.training.keep == "best":
                raise UsageError("--keep best needs a development set", hint)
            if self.training.patience is not None:
                raise UsageError("--patience needs a development set", hint)
        if self.save_logits and self.test is None:
            raise UsageError("--save-logits needs a test set", "give --test FILE")

    def _check_adapter(self) -> None:
        if self.adapter is None:
            return
        if self.adapter.own_pooler and all(entry.config.task != "classification" for entry in self.tasks):
            raise UsageError("--own-pooler is for classification, and no task is one", "leave it out")
        if self.memory is not None and self.memory_config.strategy == "logits":
            raise UsageError(
                "--strategy logits shares a single head with the general model, and each task has its own",
                "leave out --tasks, or choose another --strategy",
            )

    @property
    def is_plain(self) -> bool:
        """Whether it is a single task, on a transformers model with a head."""
        return self.adapter is None

    @property
    def test(self) -> str | None:
        """The test set of a single task."""
        return self.tasks[0].test.get("test") if self.is_plain else None

    def config(self) -> Json:
        """The settings that determine the result, without the content of files and the memory."""
        seeds = {"seeds": list(self.seeds)}
        if self.adapter is None:
            first = self.tasks[0]
            config = first.config.settings() | asdict(self.training) | seeds | {"save_logits": self.save_logits}
            return config if first.fold is None else config | {"fold": asdict(first.fold)}
        return {
            "tasks": [entry.name for entry in self.tasks],  # their order affects random numbers
            **{f"task {entry.name}": {**entry.config.settings(), "metric": entry.metric} for entry in self.tasks},
            **asdict(self.adapter),
            **asdict(self.sampling),
            **asdict(self.training),
            **seeds,
        }

    def sources(self) -> dict[str, str]:
        """The files or data set ids by ``cola: train 1``, ``mnli: dev m``, of a single task ``train 1``, ``dev`` …."""
        sources: dict[str, str] = {}
        for entry in self.tasks:
            task = f"{entry.name}: " if entry.name else ""
            sources |= {f"{task}train {number}": source for number, source in enumerate(entry.train, 1)}
            for kind, sets in (("dev", entry.dev), ("test", entry.test)):
                sources |= {f"{task}{kind}{f' {name}' if entry.name else ''}": file for name, file in sets.items()}
        return sources


def make_request(
    model: str, tasks: TaskConfig | Path, preset: str | None, explicit: Collection[str], **fields: Any
) -> FinetuneRequest:
    """The request of ``greenadapt finetune`` and of its Python function, for one task or for the file ``tasks``.

    ``fields`` are those of either kind of request; those of the other kind are left out. The ``preset`` sets, and
    greenadapt chooses, what is not among the ``explicit`` settings.
    """
    is_paper, is_one = preset is not None, isinstance(tasks, TaskConfig)
    papers = {"training": PAPER} if is_one else {"training": PALS_PAPER, "sampling": paper_values(SamplingConfig)}
    for name, paper in papers.items() if is_paper else ():
        values = {setting: value for setting, value in paper.items() if setting not in explicit}
        fields[name] = replace(fields[name], **values)
    training = fields["training"]
    if training.mix in get_args(Pool) and "pool" not in explicit:
        fields["training"] = replace(training, pool=training.mix)
    others = ("adapter", "sampling") if is_one else ("train", "dev", "test", "save_logits")
    fields = {name: value for name, value in fields.items() if name not in others}
    if not isinstance(tasks, TaskConfig):
        return FinetuneRequest(model, read_tasks_file(tasks, is_paper=is_paper), **fields)
    chosen = set() if is_paper else CHOSEN_FOR_TRAINING | CHOSEN_FOR_ENTITIES.keys()
    return FinetuneRequest.of_one(model, task=tasks, automatic=chosen - {*explicit}, **fields)


_BATCH_SIZE, _MIN_STEPS, _MIN_READINGS = 16, 600, 4
_RATE, _WIDTH = 2e-4, 384
"""The best peak rate for 300 labels, and the hidden size of the model for which rate and steps were measured."""


def _views(training: TrainConfig) -> int:
    """How often an example is read in an epoch."""
    return 2 if training.mix == "both" else 1


def _steps_per_epoch(training: TrainConfig, n_examples: int) -> int:
    return max(1, ceil(_views(training) * n_examples / training.batch_size))


def _number_of_examples(entry: TaskEntry) -> int:
    """The number of training examples; reads the files, which are read again for training."""
    for source in entry.train:
        require_source(source)
        refuse_read_once(source)
    task = make_task(entry.config)
    return sum(len(task.read(source, Silent())) for source in entry.train)
