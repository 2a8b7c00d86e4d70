"""What fine-tuning is asked for, and what it begins with."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from greenadapt.checkpoints.layout import MEMORY_FILE
from greenadapt.checkpoints.provenance import (
    check_model,
    note_code,
    starting_model,
)
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.config import AdapterConfig, MemoryConfig, RunConfig, SamplingConfig, TaskConfig, TrainConfig
from greenadapt.errors import UsageError
from greenadapt.models.memory.choice import MemoryChoice, check_memory
from greenadapt.progress import Progress
from greenadapt.stages.finetune.seeds import check_seeds
from greenadapt.storage.files import Json
from greenadapt.tasks.features import Encoder
from greenadapt.tasks.tasks_file import TaskEntry

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Start:
    """What training begins with."""

    model: PretrainedModel
    memory: MemoryChoice | None

    @classmethod
    def of(cls, model: str, memory: str | None, config: MemoryConfig) -> "Start":
        """The model, and the general model that is its memory, by what the user called them; both are checked."""
        found = starting_model(model)
        check_model(found, whole=True)
        return cls(found, None if memory is None else MemoryChoice.find(memory, found, config))

    def tell(self, encoder: Encoder, progress: Progress) -> None:
        """Say what the model, which reads by ``encoder``, does not have or will not have."""
        note_code(self.model, progress)
        if not encoder.has_words:
            progress.note(f"{self.model.name} has no added words: both tokenizations are the same")
        if self.memory is None and (self.model.folder / MEMORY_FILE).is_file():
            progress.warn(f"{self.model.source} was trained with a memory, and has none without --memory")


@dataclass(frozen=True)
class MultitaskRequest:
    """What is to be trained on what."""

    model: str
    tasks: tuple[TaskEntry, ...]
    adapter: AdapterConfig = field(default_factory=AdapterConfig)
    """What each task adds to the encoder."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    run: RunConfig = field(default_factory=RunConfig)
    seeds: tuple[int, ...] = (0,)
    memory: str | None = None
    """The general model whose states the encoder sees (G-MAP, arXiv 2212.03613), or ``base``."""
    memory_config: MemoryConfig = field(default_factory=MemoryConfig)

    def __post_init__(self) -> None:
        check_memory(self.memory, self.memory_config, self.run)
        check_seeds(self.seeds)
        if not self.tasks:
            raise UsageError("no tasks", "give a file that has some with --tasks")
        if self.memory is not None and self.memory_config.strategy == "logits":
            raise UsageError(
                "--strategy logits lets a general model use the one head that there is, and each task has its own",
                "leave out --tasks, or choose another --strategy",
            )
        if not any(entry.dev for entry in self.tasks):
            for option, is_given in (
                ("--keep best", self.training.keep == "best"),
                ("--patience", self.training.patience is not None),
            ):
                if is_given:
                    raise UsageError(f"{option} needs a development set", "give one of the tasks a dev file")

    def config(self) -> Json:
        """All that decides the result beside the content of files."""
        return {
            "tasks": [entry.name for entry in self.tasks],  # their order decides what is drawn
            **{f"task {entry.name}": {**asdict(entry.config), "metric": entry.metric} for entry in self.tasks},
            **self.adapter.settings(),
            **asdict(self.sampling),
            **asdict(self.training),
            "seeds": list(self.seeds),
        }

    def sources(self) -> dict[str, str]:
        """``cola: train 1``, ``mnli: dev m`` and so on → the file or data set id."""
        return {f"{entry.name}: {what}": source for entry in self.tasks for what, source in sources_of(entry)}


def sources_of(entry: TaskEntry) -> Iterator[tuple[str, str]]:
    """``train 1``, ``dev m`` and so on, with the file or data set id."""
    for number, source in enumerate(entry.train, 1):
        yield f"train {number}", source
    for kind, sets in (("dev", entry.dev), ("test", entry.test)):
        for name, source in sets.items():
            yield f"{kind} {name}", source


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
        check_memory(self.memory, self.memory_config, self.run)
        if not self.train:
            raise UsageError("nothing to train on", "give --train FILE")
        check_seeds(self.seeds)
        if self.dev is None and self.training.keep == "best":
            raise UsageError("--keep best needs a development set", "give --dev FILE")
        if self.dev is None and self.training.patience is not None:
            raise UsageError("--patience needs a development set", "give --dev FILE")
        if self.test is None and self.save_logits:
            raise UsageError("--save-logits needs a test set", "give --test FILE")

    def sources(self) -> dict[str, str]:
        """``train 1``, ``dev`` and so on → the file or data set id."""
        named = {f"train {number + 1}": source for number, source in enumerate(self.train)}
        return named | {name: source for name, source in (("dev", self.dev), ("test", self.test)) if source is not None}
