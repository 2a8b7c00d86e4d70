"""Which general model is the memory of a domain model, and where it is found again."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from greenadapt.checkpoint import Checkpoint
from greenadapt.config import MemoryConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.model import PretrainedModel, find_model
from greenadapt.pipeline.expand import read_facts
from greenadapt.pipeline.session import model_input
from greenadapt.pipeline.task_folder import TaskFolder
from greenadapt.store import Json
from greenadapt.training.layout import MEMORY_FOLDER

if TYPE_CHECKING:
    from greenadapt.training.general_model import GeneralModel

ITS_BASE = "base"
"""As ``--memory``: the model that the domain model was adapted from."""


@dataclass(frozen=True)
class MemoryChoice:
    """A general model as the memory of a domain model."""

    found: PretrainedModel
    config: MemoryConfig
    sha256: str
    """Of its configuration, tokenizer and weights."""

    @classmethod
    def find(cls, memory: str, domain: PretrainedModel, config: MemoryConfig) -> "MemoryChoice":
        """The model ``memory``, or ``base``; raises ``UsageError`` where ``domain`` was adapted from none."""
        if memory == ITS_BASE:
            made = read_facts(domain.folder)
            if made is None:
                raise UsageError(
                    f"--memory base, but {domain.source} is no adapted model", "name the general model with --memory"
                )
            memory = made["model"]["source"]
        found = find_model(memory)
        return cls(found, config, model_input(found)["sha256"])

    def as_input(self) -> Json:
        """How a manifest names the general model."""
        return {"sha256": self.sha256, "source": self.found.source}

    def as_settings(self) -> Json:
        """What ``task.json`` says under ``memory``."""
        general = {"name": self.found.name, "source": self.found.source, "sha256": self.sha256}
        return {**asdict(self.config), "general": general}

    def open(self) -> "GeneralModel":
        """The general model."""
        from greenadapt.training.general_model import GeneralModel

        return GeneralModel(Checkpoint.open(self.found.folder), self.config, self.sha256)


def find_again(folder: TaskFolder, given: str | None) -> MemoryChoice | None:
    """The memory that a fine-tuned model was trained with, ``None`` where it has none.

    It is looked for where it was then, or where it is ``given`` to be. Raises ``MissingError`` where it is not there,
    ``InputError`` where it is another one, ``UsageError`` where it is given to a model that needs none.
    """
    described: Any = folder.settings.get("memory")
    if described is None:
        if given is not None:
            raise UsageError(f"--memory {given}, but {folder.folder} was trained without memory", "leave it out")
        return None
    general = described["general"]
    settings = {name: value for name, value in described.items() if name != "general"}
    config = MemoryConfig(**{**settings, "layers": tuple(settings["layers"])})
    if not config.frozen:
        if given is not None:
            raise UsageError(f"--memory {given}, but {folder.folder} holds its own general model", "leave it out")
        own = folder.weights / MEMORY_FOLDER
        return MemoryChoice(PretrainedModel(general["name"], own, str(own)), config, "")
    try:
        found = find_model(given or general["source"])
    except (MissingError, InputError) as error:
        raise MissingError(
            f"{folder.folder} needs the general model {general['name']} as its memory ({error})",
            "name the folder where that is with --memory",
        ) from None
    sha256 = model_input(found)["sha256"]
    if sha256 != general["sha256"]:
        raise InputError(
            f"{found.source} is not the general model that {folder.folder} was trained with: its SHA-256 is "
            f"{sha256[:12]}…, need {general['sha256'][:12]}…",
            f"name the folder of {general['name']} as it was with --memory",
        )
    return MemoryChoice(found, config, sha256)
