"""The size, heads and layers of adapters, and the encoders that support them."""

from dataclasses import dataclass
from typing import Any

from greenadapt.architectures import ARCHITECTURES
from greenadapt.architectures.base import LayerParts
from greenadapt.config import AdapterConfig
from greenadapt.errors import UsageError

PAPER_WIDTH = 768
"""Width of the paper's model, to which its sizes refer."""
_PAPER_SIZE_OF_HALF = 276  # of PALs in six layers of twelve
_PAPER_BOTTLENECK = 50
_HEAD_WIDTH = 17
_REFERENCE_HEADS = 6


@dataclass(frozen=True)
class AdapterShape:
    """An ``AdapterConfig`` resolved for a model's width and depth."""

    layers: tuple[int, ...]
    """Layers with an adapter, from 0, ascending; empty if it is on top or absent."""
    size: int
    """Width d_s that states are projected to; 0 if nothing is projected."""
    heads: int
    """Attention heads; 0 if there is no attention."""
    bottleneck: int
    """Width of the second bottleneck of ``houlsby-pals``."""

    @classmethod
    def of(cls, config: AdapterConfig, width: int, n_layers: int) -> "AdapterShape":
        """The shape for a model of width d and ``n_layers`` layers.

        The default size is the paper's · d / 768, rounded to a multiple of the heads. The heads are six in the form
        ``reference``, else the largest divisor of d_s up to d_s / 17 (17 is the width of a head in the paper).
        Raises ``UsageError`` for layers that do not exist, and for heads that do not divide the size.
        """
        layers = parse_layers(config.layers, n_layers) if config.kind.is_in_layers else ()
        size = _default_size(config, width) if config.size is None else config.size
        if config.kind.paper_size is None:
            size = 0
        heads = _heads(config, size) if config.kind.has_heads else 0
        return cls(layers, size, heads, max(1, round(_PAPER_BOTTLENECK * width / PAPER_WIDTH)))


def parse_layers(layers: str, n_layers: int) -> tuple[int, ...]:
    """``all``, ``top``, ``bottom`` or numbers from 1 such as ``1,3``, as numbers from 0, ascending.

    A half of an odd number of layers is rounded up. Raises ``UsageError``.
    """
    if layers in ("all", "top", "bottom"):
        first = n_layers // 2 if layers == "top" else 0
        return tuple(range(first, -(-n_layers // 2) if layers == "bottom" else n_layers))
    numbers = []
    for part in layers.split(","):
        if not part.strip().isdecimal():
            raise UsageError(
                f"--layers is {layers!r}, but {part!r} is not a number",
                "give all, top, bottom, or numbers as in 1,3",
            )
        numbers.append(int(part))
    beyond = [number for number in numbers if not 1 <= number <= n_layers]
    if beyond:
        raise UsageError(
            f"--layers has layer {beyond[0]}, the model has {n_layers}", f"give layers from 1 to {n_layers}"
        )
    if sorted(set(numbers)) != numbers:
        raise UsageError(f"--layers is {layers}, must ascend, each layer once", "sort the numbers")
    return tuple(number - 1 for number in numbers)


def _default_size(config: AdapterConfig, width: int) -> int:
    paper = config.kind.paper_size or 0
    if config.adapter == "pals" and config.layers in ("top", "bottom"):
        paper = _PAPER_SIZE_OF_HALF
    unit = 1
    if config.kind.has_heads:
        is_reference = config.form == "reference"
        unit = _REFERENCE_HEADS if is_reference else max(1, round(_most_heads(paper) * width / PAPER_WIDTH))
    return unit * max(1, round(paper * width / PAPER_WIDTH / unit))


def _most_heads(size: int) -> int:
    return next(heads for heads in range(max(1, round(size / _HEAD_WIDTH)), 0, -1) if size % heads == 0)


def _heads(config: AdapterConfig, size: int) -> int:
    if config.form == "paper":
        return _most_heads(size)
    if size % _REFERENCE_HEADS:
        raise UsageError(
            f"--adapter-size is {size}, not a multiple of the {_REFERENCE_HEADS} heads of --adapter-form reference",
            f"use --adapter-size {max(1, round(size / _REFERENCE_HEADS)) * _REFERENCE_HEADS}",
        )
    return _REFERENCE_HEADS


def first_setting(config: Any, *names: str) -> Any:
    """The first of these settings that a configuration has; their names differ between architectures."""
    return next(value for name in names if (value := getattr(config, name, None)) is not None)


def layer_parts(model_type: str) -> LayerParts:
    """The modules between which adapters act; raises ``UsageError`` for encoders that do not support adapters."""
    parts = ARCHITECTURES[model_type].adapters if model_type in ARCHITECTURES else "its layers are unknown"
    if isinstance(parts, str):
        raise not_adaptable(model_type, parts)
    return parts


def not_adaptable(model_type: str, reason: str) -> UsageError:
    """The error for encoders that do not support adapters."""
    supported = (name for name, kind in ARCHITECTURES.items() if not isinstance(kind.adapters, str))
    return UsageError(
        f"a model of type {model_type} cannot be shared by tasks: {reason}",
        f"use an encoder of type {', '.join(supported)}",
    )
