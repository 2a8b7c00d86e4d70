"""A fine-tuning request, and its starting model."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from greenadapt.checkpoints.layout import MEMORY_FILE
from greenadapt.checkpoints.provenance import check_model, note_code, note_lowercasing, starting_model
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.config import (
    AdapterConfig,
    MemoryConfig,
    RunConfig,
    SamplingConfig,
    TaskConfig,
    TrainConfig,
    UnlabelledConfig,
)
from greenadapt.errors import UsageError
from greenadapt.models.memory.choice import MemoryChoice, check_memory
from greenadapt.progress import Progress
from greenadapt.stages.finetune.seeds import check_seeds
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Encoder, Fold
from greenadapt.tasks.tasks_file import TaskEntry


@dataclass(frozen=True)
class Start:
    """The starting point of training."""

    model: PretrainedModel
    memory: MemoryChoice | None

    @classmethod
    def of(cls, model: str, memory: str | None, config: MemoryConfig) -> "Start":
        """The model, and the general model that is its memory, by the user's names; both are checked."""
        found = starting_model(model)
        check_model(found, whole=True)
        return cls(found, None if memory is None else MemoryChoice.find(memory, found, config))

    def report(self, encoder: Encoder, progress: Progress) -> None:
        """Report what the model, with inputs by ``encoder``, lacks."""
        note_code(self.model, progress)
        note_lowercasing(self.model, progress)
        if not encoder.has_words:
            progress.note(f"{self.model.name} has no added words: both tokenizations are the same")
        if self.memory is None and (self.model.folder / MEMORY_FILE).is_file():
            progress.warn(f"{self.model.source} was trained with a memory, which needs --memory")


@dataclass(frozen=True)
class FinetuneRequest:
    """Tasks to train on a shared encoder, or a single task, see ``of_one``."""

    model: str
    tasks: tuple[TaskEntry, ...]
    adapter: AdapterConfig | None = field(default_factory=AdapterConfig)
    """What each task adds to the encoder; ``None`` for one task alone, a plain model with a head."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    run: RunConfig = field(default_factory=RunConfig)
    seeds: tuple[int, ...] = (0,)
    save_logits: bool = False
    """Keep the logits of the test set, of both views, of a task alone."""
    unlabelled: str | None = None
    """File of texts without labels, which train one task alone besides."""
    unlabelled_config: UnlabelledConfig = field(default_factory=UnlabelledConfig)
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
        **others: Any,
    ) -> "FinetuneRequest":
        """One task alone; ``train``, ``dev`` and ``test`` are files or data set ids, ``others`` further fields."""
        dev_sets, test_sets = ({} if given is None else {kind: given} for kind, given in (("dev", dev), ("test", test)))
        entry = TaskEntry("", task, train, dev_sets, test_sets, None)
        return cls(model, (entry,), None, training=training, **others)

    def __post_init__(self) -> None:
        check_memory(self.memory, self.memory_config, self.run)
        check_seeds(self.seeds)
        self._check_unlabelled()
        self._check_adapter()
        if not self.tasks:
            raise UsageError("no tasks", "give a file with tasks with --tasks")
        if not all(entry.train for entry in self.tasks):
            raise UsageError("nothing to train on", "give --train FILE")
        if not any(entry.dev for entry in self.tasks):
            hint = "give --dev FILE" if self.is_plain else "give one of the tasks a dev file"
            if self.training.keep == "best":
                raise UsageError("--keep best needs a development set", hint)
            if self.training.patience is not None:
                raise UsageError("--patience needs a development set", hint)
            if self.training.pool == "best":
                raise UsageError("--pool best needs a development set", hint)
        if self.training.pool == "best" and not self.is_plain:
            raise UsageError("--pool best chooses for one task alone", "leave out --tasks, or give another --pool")
        if self.save_logits and self.test is None:
            raise UsageError("--save-logits needs a test set", "give --test FILE")

    def _check_adapter(self) -> None:
        if self.adapter is None:
            return
        if self.memory is not None and self.memory_config.strategy == "logits":
            raise UsageError(
                "--strategy logits shares a single head with the general model, and each task has its own",
                "leave out --tasks, or choose another --strategy",
            )
        if self.adapter.own_pooler and all(entry.config.task != "classification" for entry in self.tasks):
            raise UsageError("--own-pooler is for tasks that classify texts, and there are none", "leave it out")

    def _check_unlabelled(self) -> None:
        if self.unlabelled is None:
            if self.unlabelled_config != UnlabelledConfig():
                raise UsageError(
                    "there are no texts without labels", "give --unlabelled FILE, or leave out its batch and weight"
                )
            return
        for is_wrong, message, hint in (
            (self.training.mix != "both", "has both tokenizations of a text teach each other", "add --mix both"),
            (not self.is_plain, "is for one task alone", "leave out --tasks"),
            (self.memory is not None, "does not go with a memory", "leave out one of them"),
            (
                any(entry.config.task == "qa" for entry in self.tasks),
                "is for NER and classification, this is question answering",
                "leave it out",
            ),
        ):
            if is_wrong:
                raise UsageError(f"--unlabelled {message}", hint)

    def leaving_out(self, fold: Fold) -> "FinetuneRequest":
        """The same for one task alone without the examples of ``fold``."""
        return replace(self, tasks=(replace(self.tasks[0], fold=fold),))

    @property
    def is_plain(self) -> bool:
        """Whether it is a single task, on a transformers model with a head."""
        return self.adapter is None

    @property
    def test(self) -> str | None:
        """The test set of one task alone."""
        return self.tasks[0].test.get("test") if self.is_plain else None

    def config(self) -> Json:
        """Everything that determines the result except the content of files and the memory."""
        seeds = {"seeds": list(self.seeds)}
        if self.adapter is None:
            first = self.tasks[0]
            own = first.config.settings() | self.training.settings() | seeds | {"save_logits": self.save_logits}
            if self.unlabelled is not None:
                own |= asdict(self.unlabelled_config)
            return own if first.fold is None else own | {"fold": asdict(first.fold)}
        return {
            "tasks": [entry.name for entry in self.tasks],  # their order affects random numbers
            **{f"task {entry.name}": {**entry.config.settings(), "metric": entry.metric} for entry in self.tasks},
            **self.adapter.settings(),
            **asdict(self.sampling),
            **self.training.settings(),
            **seeds,
        }

    def sources(self) -> dict[str, str]:
        """``cola: train 1``, ``mnli: dev m``, of a task alone ``train 1``, ``dev`` … → the file or data set id."""
        found: dict[str, str] = {}
        for entry in self.tasks:
            task = "" if self.is_plain else f"{entry.name}: "
            found |= {f"{task}train {number}": source for number, source in enumerate(entry.train, 1)}
            for kind, sets in (("dev", entry.dev), ("test", entry.test)):
                found |= {f"{task}{kind}{'' if self.is_plain else f' {name}'}": file for name, file in sets.items()}
        if self.unlabelled is not None:
            found["unlabelled"] = self.unlabelled
        return found
