"""Choose the general model that is the memory of a domain model, and the states that each layer reads."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from greenadapt.checkpoints.layout import MEMORY_FILE, MEMORY_FOLDER, MULTITASK_FILE, TASK_FILE, is_multitask
from greenadapt.checkpoints.provenance import check_model, model_input, read_facts
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import PretrainedModel, find_local_model, find_model
from greenadapt.config import MemoryConfig, Strategy
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.models.task_folder import TaskFolder
from greenadapt.store.files import Json, parse_own

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_Ranges = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class MemoryPlan:
    """The layers that read memory, and the states that each reads (arXiv 2212.03613)."""

    targets: tuple[int, ...]
    """Layers of the domain model, from 1, ascending; empty if logits are added instead."""
    sources: _Ranges
    """Consecutive states of the general model, ascending, for each target, or those whose logits are added: state l is
    the output of layer l, state 0 that of the embeddings."""
    gated: bool
    """Whether a gate weights the states of a target; if not, each target has one state."""

    @classmethod
    def of(cls, config: MemoryConfig, n_domain: int, n_general: int) -> "MemoryPlan":
        """The plan for a domain model of ``n_domain`` layers and a general model of ``n_general``.

        ``single`` and ``gated`` feed layer ceil(0.75 n_domain), ``multiple`` every layer, ``chunk`` the layers
        ceil(n_domain / 2) and n_domain; ``config`` may name others. Raises ``UsageError`` for layers and states that do
        not exist, and if a layer would have no state.
        """
        if config.strategy == "logits":
            return cls((), ((n_general,),), False)
        targets = _targets(config, n_domain)
        gated = config.strategy in ("gated", "chunk")
        if config.source in ("paper", "reference"):
            sources = _sources(config.strategy, targets, n_domain, n_general)
            if config.source == "reference":
                sources = tuple(tuple(state - 1 for state in states) for states in sources)
        else:
            sources = _parse(config.source, n_general)
            _check_parsed(sources, targets, config, gated)
        return cls(targets, sources, gated)

    @property
    def states(self) -> tuple[int, ...]:
        """All states needed, ascending, without repetition."""
        return tuple(sorted({state for states in self.sources for state in states}))

    def rows(self, target: int) -> slice:
        """The slice of ``states`` for the target number ``target`` (from 0)."""
        first = self.states.index(self.sources[target][0])
        return slice(first, first + len(self.sources[target]))


def _targets(config: MemoryConfig, n_domain: int) -> tuple[int, ...]:
    beyond = [layer for layer in config.layers if layer > n_domain]
    if beyond:
        raise UsageError(
            f"--memory-layers has layer {beyond[0]}, the domain model has {n_domain}",
            f"name layers from 1 to {n_domain}",
        )
    if config.strategy in ("single", "gated"):
        if len(config.layers) > 1:
            raise UsageError(
                f"--strategy {config.strategy} feeds one layer, --memory-layers names {len(config.layers)}",
                "name one, or use --strategy chunk or multiple",
            )
        return config.layers or (-(-3 * n_domain // 4),)
    if config.strategy == "multiple":
        return config.layers or tuple(range(1, n_domain + 1))
    if not config.layers and n_domain < 2:
        raise UsageError(
            f"--strategy chunk feeds two layers, the domain model has {n_domain}", "use --strategy single or gated"
        )
    return config.layers or (-(-n_domain // 2), n_domain)


def _sources(strategy: Strategy, targets: tuple[int, ...], n_domain: int, n_general: int) -> _Ranges:
    """The states that each target reads, numbered from 1 as in the paper.

    ``gated`` and ``chunk`` split the states evenly among the targets.
    """
    if strategy == "single":
        return ((n_general,),)
    if strategy == "multiple":
        return tuple((-(-target * n_general // n_domain),) for target in targets)
    k = len(targets)  # 1 where gated
    if n_general < k:
        raise UsageError(
            f"--strategy {strategy} feeds {k} layers with as many parts of the general model, which has {n_general} "
            f"layer{'' if n_general == 1 else 's'}",
            "name fewer with --memory-layers, or use --strategy single or gated",
        )
    bounds = [part * n_general // k for part in range(k + 1)]
    return tuple(tuple(range(low + 1, high + 1)) for low, high in pairwise(bounds))


def _parse(source: str, n_general: int) -> _Ranges:
    """Ranges such as ``1-6,7-12`` or ``9``."""
    ranges = []
    for part in source.split(","):
        match = _RANGE.fullmatch(part.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if low > high:
            raise UsageError(
                f"--memory-source is {source!r}, but {part!r} is not a range",
                "give paper, reference or a range per layer, such as 1-6,7-12",
            )
        if high > n_general:
            raise UsageError(
                f"--memory-source has state {high}, the general model has {n_general} layers",
                f"name states from 0, the embeddings, to {n_general}",
            )
        ranges.append(tuple(range(low, high + 1)))
    return tuple(ranges)


def _check_parsed(sources: _Ranges, targets: tuple[int, ...], config: MemoryConfig, gated: bool) -> None:
    if len(sources) != len(targets):
        raise UsageError(
            f"--memory-source has {len(sources)} ranges, --strategy {config.strategy} feeds {len(targets)} layers",
            "give one range for each of the layers",
        )
    longest = max(sources, key=len)
    if not gated and len(longest) > 1:
        raise UsageError(
            f"--memory-source has {longest[0]}-{longest[-1]}, --strategy {config.strategy} takes one state per layer",
            "name one state, or use --strategy gated or chunk",
        )


@dataclass(frozen=True)
class MemoryChoice:
    """A general model as the memory of a domain model."""

    model: PretrainedModel
    config: MemoryConfig
    sha256: str
    """Of its configuration, tokenizer and weights."""

    @classmethod
    def find(cls, memory: str, domain: PretrainedModel, config: MemoryConfig) -> "MemoryChoice":
        """Find the model ``memory``; ``base`` is the model from which ``domain`` was adapted.

        Raises ``UsageError`` if ``domain`` is not an adapted model, or its layers and width do not fit ``config``.
        """
        if memory == "base":
            facts = read_facts(domain.folder)
            if facts is None:
                raise UsageError(
                    f"--memory base, but {domain.source} is not an adapted model",
                    "name the general model with --memory",
                )
            model = find_local_model(facts["model"]["source"], domain.folder, "--memory")
        else:
            model = find_model(memory)
        check_model(model, whole=True)
        depths = [Checkpoint(m.folder).setting("num_hidden_layers", "n_layers") for m in (domain, model)]
        if all(depths):  # other architectures are refused later, with the reason
            MemoryPlan.of(config, *depths)
        return cls(model, config, model_input(model)["sha256"])

    @classmethod
    def of_settings(cls, settings: Json, folder: Path, weights: Path, path: str | None = None) -> "MemoryChoice | None":
        """The memory that a model with these ``settings`` was trained with, ``None`` if it has none.

        A general model that was trained too is beside its ``weights``; a frozen one is searched for at ``path``, by
        default where it was during training. Raises ``MissingError`` if it does not exist, ``InputError`` for another
        model.
        """
        described = _MemoryEntry.of(settings, folder)
        if described is None:
            return None
        if not described.config.frozen:
            general = weights / MEMORY_FOLDER
            return cls(PretrainedModel(described.name, general, str(general)), described.config, "")
        model = described.find(folder, path)
        sha256 = model_input(model)["sha256"]
        if sha256 != described.sha256:
            raise InputError(
                f"{model.source} is not the general model that {folder} was trained with: its SHA-256 is "
                f"{sha256[:12]}…, need {described.sha256[:12]}…",
                f"name the folder of {described.name} as it was with --memory",
            )
        return cls(model, described.config, sha256)

    def as_input(self) -> Json:
        """The general model's entry in a manifest."""
        return {"sha256": self.sha256, "source": self.model.source}

    def as_settings(self) -> Json:
        """The entry ``memory`` of ``task.json``."""
        general = {"name": self.model.name, "source": self.model.source, "sha256": self.sha256}
        return {**asdict(self.config), "general": general}


def check_memories(folders: Iterable[TaskFolder], path: str | None) -> None:
    """Check the memories of models before any is opened, ``path`` being the value of ``--memory``.

    Raises ``UsageError`` for a ``path`` if no model needs a general model, ``MissingError`` or ``InputError`` if a
    model lacks its general model or the weights of its memory.
    """
    memories = [(folder, memory) for folder in folders if (memory := _MemoryEntry.of(folder.settings, folder.folder))]
    if path is not None and not any(memory.config.frozen for _, memory in memories):
        raise UsageError(f"--memory {path}, but no model here needs a general model beside it", "leave it out")
    for folder, memory in memories:
        if memory.config.frozen:
            Checkpoint(memory.find(folder.folder, path).folder)
        if not (folder.weights / MEMORY_FILE).is_file():
            raise MissingError(f"{folder.weights} has no {MEMORY_FILE}", "copy the whole folder, or train it again")


@dataclass(frozen=True)
class _MemoryEntry:
    """The memory of a model as described in ``task.json``."""

    config: MemoryConfig
    name: str
    source: str
    sha256: str

    def find(self, folder: Path, path: str | None) -> PretrainedModel:
        """The general model of the model in ``folder``, at ``path`` or where it was during training."""
        try:
            return find_model(path or self.source, download=path is not None)
        except (MissingError, InputError) as error:
            raise MissingError(
                f"{folder} needs the general model {self.name} as its memory ({error})",
                "name the folder where that is with --memory",
            ) from None

    @classmethod
    def of(cls, settings: Json, folder: Path) -> "_MemoryEntry | None":
        described: Any = settings.get("memory")
        if described is None:
            return None
        file = folder / (MULTITASK_FILE if is_multitask(folder) else TASK_FILE)
        config = parse_own(json.dumps(described), MemoryConfig, file, "train the model again")
        try:
            return cls(config, *(str(described["general"][name]) for name in ("name", "source", "sha256")))
        except (KeyError, TypeError):
            raise InputError(f"{file} does not say which general model it needs", "train the model again") from None
