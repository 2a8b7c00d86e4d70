"""What each task adds to a shared encoder: the settings, and which of them go with which kind of adapter."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from greenadapt.config import check

AdapterName = Literal[
    "pals", "low-rank", "attention", "ffn", "lhuc", "houlsby", "houlsby-pals", "top-attention", "top-ffn", "bert-layer",
    "none",
]  # fmt: skip
Placement = Literal["parallel", "serial"]
AdapterForm = Literal["paper", "reference"]
AdapterInit = Literal["paper", "zero"]


@dataclass(frozen=True)
class AdapterKind:
    """What sets the adapters of one name apart."""

    is_in_layers: bool = True
    """In the layers of the encoder, some or all; the others but ``none`` are on top of it."""
    paper_size: int | None = None
    """Width d_s that states are projected to in the paper, whose model has a width of 768; ``None``: they are not."""
    has_heads: bool = False
    """Whether there is attention in it."""
    has_forms: bool = False
    """Whether the paper's released code has it otherwise than the paper."""
    can_be_serial: bool = False
    """Whether it may be behind its layer, and not only beside it."""


ADAPTERS: dict[AdapterName, AdapterKind] = {
    "none": AdapterKind(is_in_layers=False),
    "pals": AdapterKind(paper_size=204, has_heads=True, has_forms=True, can_be_serial=True),
    "low-rank": AdapterKind(paper_size=100, has_forms=True, can_be_serial=True),
    "attention": AdapterKind(paper_size=84, has_heads=True, can_be_serial=True),
    "ffn": AdapterKind(paper_size=204, can_be_serial=True),
    "lhuc": AdapterKind(),
    "houlsby": AdapterKind(paper_size=50, has_forms=True),
    "houlsby-pals": AdapterKind(paper_size=156, has_heads=True, has_forms=True),
    "top-attention": AdapterKind(is_in_layers=False, paper_size=204, has_heads=True),
    "top-ffn": AdapterKind(is_in_layers=False, paper_size=204),
    "bert-layer": AdapterKind(is_in_layers=False),
}
"""Name → kind, of all that there are."""
PALS_READ = "pals_read"
"""What a description of ``houlsby-pals`` says its PALs read; one without it is of a model whose PALs read another."""


@dataclass(frozen=True)
class AdapterConfig:
    """What each task adds to a shared encoder (BERT and PALs, arXiv 1902.02671)."""

    adapter: AdapterName = "pals"
    """Projected attention with projections shared over the layers (``pals``), low-rank layers, attention or
    feed-forward layers of a small width with projections of their own or shared, a factor an element (``lhuc``), two
    bottlenecks a layer (``houlsby``; with PALs in place of the second, ``houlsby-pals``), layers on top of the encoder
    (``top-…``, ``bert-layer``), or nothing but heads."""
    size: int | None = None
    """Width d_s that states are projected to; ``None``: as in the paper, in proportion to the model's width."""
    heads: int | None = None
    """Attention heads; ``None``: of 17 numbers or a few more, as in the paper."""
    layers: str = "all"
    """Layers that have an adapter: all, the top or the bottom half, or numbers from 1 such as ``1,3``."""
    placement: Placement = "parallel"
    """Beside the layer, or behind it with a layer norm of its own (much worse in the paper)."""
    form: AdapterForm = "paper"
    """As the paper has it, or as its released code does (GELU behind the projections, six heads)."""
    init: AdapterInit = "paper"
    """N(0, 0.02) for all weights, or zero for those that project up, so that training starts with the plain model."""
    freeze_encoder: bool = False
    """Whether nothing but adapters and heads is trained."""

    def __post_init__(self) -> None:
        for option, value, values in (
            ("--adapter", self.adapter, AdapterName),
            ("--placement", self.placement, Placement),
            ("--adapter-form", self.form, AdapterForm),
            ("--adapter-init", self.init, AdapterInit),
        ):
            check(value in get_args(values), f"{option} is {value!r}, must be one of {', '.join(get_args(values))}")
        for option, number in (("--adapter-size", self.size), ("--adapter-heads", self.heads)):
            check(number is None or number >= 1, f"{option} is {number}, must be at least 1")
        if self.size is not None and self.heads is not None:
            check(
                self.size % self.heads == 0,
                f"--adapter-size {self.size} is no multiple of --adapter-heads {self.heads}",
            )
        kind = self.kind
        has_size = kind.paper_size is not None
        can_be_zero = has_size and kind.is_in_layers and self.placement == "parallel"
        for option, is_given, is_possible in (
            ("--adapter-size", self.size is not None, has_size),
            ("--adapter-heads", self.heads is not None, kind.has_heads),
            ("--layers", self.layers != "all", kind.is_in_layers),
            ("--placement serial", self.placement != "parallel", kind.can_be_serial),
            ("--adapter-form reference", self.form != "paper", kind.has_forms),
            ("--adapter-init zero", self.init != "paper", can_be_zero),
        ):
            check(not is_given or is_possible, f"{option} does not go with --adapter {self.adapter}: leave it out")

    def settings(self) -> dict[str, Any]:
        """All that decides what the adapter computes, as JSON."""
        own = asdict(self)
        return own | {PALS_READ: "feed-forward input"} if self.adapter == "houlsby-pals" else own

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "AdapterConfig":
        """The configuration with these ``settings()``; raises ``TypeError`` or ``UsageError`` for others."""
        own = {**settings}
        own.pop(PALS_READ, None)
        return cls(**own)

    @property
    def kind(self) -> AdapterKind:
        """What there is to ``adapter``."""
        return ADAPTERS[self.adapter]
