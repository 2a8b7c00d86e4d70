"""What is to be trained for many tasks on one encoder, and what of it a manifest has."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from greenadapt.adapter_config import AdapterConfig
from greenadapt.config import MemoryConfig, RunConfig, SamplingConfig, TrainConfig
from greenadapt.errors import UsageError
from greenadapt.pipeline.memory_choice import check_memory
from greenadapt.pipeline.seeds import check_seeds
from greenadapt.store import Json
from greenadapt.tasks.tasks_file import TaskEntry


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
