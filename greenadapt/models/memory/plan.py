"""Map states of the general model to layers of the domain model, for models of any depth."""

import re
from dataclasses import dataclass
from itertools import pairwise

from greenadapt.config import MemoryConfig, Strategy
from greenadapt.errors import UsageError

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_Ranges = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class MemoryPlan:
    """The layers that see memory, and the states for each (arXiv 2212.03613)."""

    targets: tuple[int, ...]
    """Layers of the domain model, from 1, ascending; empty if logits are added instead."""
    sources: _Ranges
    """Consecutive states of the general model, ascending, for each target, or those whose logits are added: state l is
    the output of layer l, state 0 that of the embeddings."""
    gated: bool
    """Whether a gate weighs the states of a target; if not, each target has one."""

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
            sources = _parsed(config.source, n_general)
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
    """The states of each target as the paper numbers them, from 1."""
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


def _parsed(source: str, n_general: int) -> _Ranges:
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
