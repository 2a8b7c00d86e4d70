"""Heads of two layers and with a dropout of their own (G-MAP, arXiv 2212.03613, table 9), on models of transformers."""

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from greenadapt.errors import UsageError
from greenadapt.models.tensors import exact_linear
from greenadapt.tasks.base import HeadShape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FIRST, _LAST = ".first.", ".last."
_PART = re.compile(r"\.(first|last)\.(weight|bias)$")
_STD = 0.02


class ExactLinear(nn.Linear):
    """A linear layer that is ``exact_linear``."""

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, n_outputs) from (…, d)."""
        return exact_linear(inputs, self.weight, self.bias)


class TwoLayerHead(nn.Module):
    """W_2 tanh(W_1 h + b_1) + b_2 of states h (…, d), with dropout before W_2: (…, n_outputs)."""

    def __init__(self, width: int, n_outputs: int, dropout: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, width), ExactLinear(width, n_outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        """(…, n_outputs) from (…, d)."""
        output: Tensor = self.last(self.dropout(torch.tanh(self.first(states))))
        return output


def last_linear(model: "PreTrainedModel") -> tuple[str, nn.Linear]:
    """The layer that gives a model's logits, and its name."""
    encoder = f"{model.base_model_prefix}."  # in some models it comes behind the head
    named = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [(name, module) for name, module in named if not name.startswith(encoder)][-1]


def shape_head(model: "PreTrainedModel", shape: HeadShape, seed: int) -> None:
    """Give a model's head the layers and the dropout of ``shape``; a layer that it lacks is drawn by ``seed`` from N(0,
    0.02).

    Raises ``UsageError`` for a dropout if the head has none.
    """
    if shape.dropout is not None:
        modules = _dropouts(model)
        if not modules:
            raise UsageError(f"--head-dropout, but the head of a {type(model).__name__} has no dropout", "leave it out")
        for module in modules:
            module.p = shape.dropout
    if shape.layers == 2 and not _is_deep(model):
        with torch.random.fork_rng(devices=[]):
            head = _deepened(model)
        nn.init.normal_(head.first.weight, std=_STD, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(head.first.bias)


def split_head(weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of a model as transformers names them, and those of the first of two layers of its head by what is
    behind the layer's name, none if its head has one.
    """
    first: dict[str, Tensor] = {}
    others: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if (part := _PART.search(name)) is None:
            others[name] = weight
        elif part[1] == "first":
            first[part[2]] = weight
        else:
            others[name.replace(_LAST, ".")] = weight
    return others, first


def load_first(model: "PreTrainedModel", first: dict[str, Tensor]) -> None:
    """Put the weights of ``split_head`` into a model with one layer, if there are any: it has two then."""
    if first:
        _deepened(model).first.load_state_dict(first)


def _is_deep(model: "PreTrainedModel") -> bool:
    return any(isinstance(module, TwoLayerHead) for module in model.modules())


def _dropouts(model: "PreTrainedModel") -> list[nn.Dropout]:
    """Those of the head."""
    encoder = f"{model.base_model_prefix}."
    named = model.named_modules()
    return [one for name, one in named if isinstance(one, nn.Dropout) and not name.startswith(encoder)]


def _deepened(model: "PreTrainedModel") -> TwoLayerHead:
    name, layer = last_linear(model)
    dropout = max((module.p for module in _dropouts(model)), default=0.0)
    head = TwoLayerHead(layer.in_features, layer.out_features, dropout)
    head.last.load_state_dict(layer.state_dict())
    head.to(layer.weight.device, layer.weight.dtype).train(model.training)
    parent, _, own = name.rpartition(".")
    container: Any = model.get_submodule(parent)
    setattr(container, own, head)
    return head
