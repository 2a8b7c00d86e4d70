"""The baseline without memory: one head for the domain and the general model, whose logits are added."""

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from greenadapt.config import MemoryConfig
from greenadapt.errors import UsageError
from greenadapt.models.memory.attention import MEMORY_TYPES
from greenadapt.models.memory.fusion import KEYWORDS, GeneralMemory, add_general
from greenadapt.models.memory.plan import MemoryPlan

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FIRST_PIECE = "ForSequenceClassification"
"""Classes of this name read only the first piece."""


def attach_logits_fusion(
    model: "PreTrainedModel", general: "PreTrainedModel", config: MemoryConfig, seed: int
) -> GeneralMemory:
    """Let the head of ``model``, its pooler included, read ``general`` too, and add the logits (arXiv 2212.03613).

    ``model`` is called with one of ``KEYWORDS`` besides its own; each of its logits becomes the sum of those for its
    own last state and for the general model's. Heads that label pieces need inputs of one length, else ``ValueError``.
    The result is ``model.memory``. Raises ``UsageError`` if the models or ``config`` do not fit.
    """
    if model.config.model_type not in MEMORY_TYPES:
        raise UsageError(
            f"--strategy logits does not support models of type {model.config.model_type}",
            f"use one of type {', '.join(MEMORY_TYPES)}",
        )
    if getattr(model.config, "classifier_pooling", "cls") == "mean" and type(model).__name__.endswith(_FIRST_PIECE):
        raise UsageError(
            "--strategy logits adds logits of the first piece, and the head of this model reads the mean of all",
            "use another strategy",
        )
    plan = MemoryPlan.of(config, model.config.num_hidden_layers, general.config.num_hidden_layers)
    if plan.targets:
        raise ValueError(f"strategy {config.strategy} adds no logits")
    memory = add_general(model, general, plan, config, seed)
    reads_first = type(model).__name__.endswith(_FIRST_PIECE)
    read: dict[str, Tensor] = {}  # from one hook to the next: not all models pass arguments on to their encoder
    model.register_forward_pre_hook(partial(_read_general, read), with_kwargs=True)
    model.base_model.register_forward_hook(partial(_stack, reads_first, read))
    model.register_forward_hook(_add_halves)
    return memory


def _read_general(
    read: dict[str, Tensor], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Take the general model's arguments, and leave its states (b, m, d_D) to ``_stack``."""
    if kwargs.get("labels") is not None or kwargs.get("start_positions") is not None:
        raise ValueError("a model whose logits are added computes no loss: leave out the labels")
    given = {name: value for name, value in kwargs.items() if name in KEYWORDS}
    own = {name: value for name, value in kwargs.items() if name not in KEYWORDS}
    read["states"] = model.memory.projected(model.memory.read(**given)[0])
    return args, own


def _stack(reads_first: bool, read: dict[str, Tensor], encoder: Any, args: tuple[Any, ...], output: Any) -> Any:
    """The encoder's output with the general model's states below its own: (2 b, n, d_D)."""
    own: Tensor = output.last_hidden_state
    other = read.pop("states").to(own.dtype)
    if getattr(encoder, "pooler", None) is not None:
        output.pooler_output = torch.cat([output.pooler_output, encoder.pooler(other)])
    if reads_first:
        own, other = own[:, :1], other[:, :1]
    if own.shape[1] != other.shape[1]:
        raise ValueError(
            f"the domain model reads {own.shape[1]} pieces and the general model {other.shape[1]}: "
            "logits of pieces can only be added if both read the same"
        )
    output.last_hidden_state = torch.cat([own, other])
    return output


def _add_halves(model: Any, args: tuple[Any, ...], output: Any) -> Any:
    for name in ("logits", "start_logits", "end_logits"):
        if name in output:
            own, other = output[name].chunk(2)
            output[name] = own + other
    return output
