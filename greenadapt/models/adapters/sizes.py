"""The number of weights of adapters, counted in the modules themselves, without allocating them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from greenadapt.checkpoints.reader import CODE_KEYS
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError
from greenadapt.models.adapters.kinds import Adapter, Parallel, Serial, make_adapter, own_pooler
from greenadapt.models.adapters.shape import AdapterShape, layer_parts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BERT_BASE = {"model_type": "bert"}
"""The configuration of BERT-base, uncased: transformers' own for its type."""


@dataclass(frozen=True)
class AdapterCount:
    """What one task that classifies texts adds to an encoder, without its head."""

    config: AdapterConfig
    shape: AdapterShape
    weights: int
    """As the paper counts: without biases and the vectors of layer norms."""
    parameters: int
    """All of them."""
    shared_weights: int = 0
    """Those of ``weights`` that all tasks share."""
    shared_parameters: int = 0
    """The same of ``parameters``."""


def shaped_encoder(settings: Mapping[str, Any], source: str) -> "PreTrainedModel":
    """The encoder of the configuration ``settings``, on torch's device "meta": shapes without values.

    Runs only transformers' code. Raises ``UsageError`` for an architecture that does not support adapters, and
    ``InputError``, naming ``source``, for settings that are not a model's.
    """
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    layer_parts(str(settings.get("model_type")))
    auto: Any = transformers.AutoModel
    own = {name: value for name, value in settings.items() if name not in ("model_type", "dtype", *CODE_KEYS)}
    try:
        config = transformers.AutoConfig.for_model(settings["model_type"], **own)
        with torch.device("meta"):
            encoder: PreTrainedModel = auto.from_config(config)
    except (StrictDataclassError, ValueError, TypeError, RuntimeError, KeyError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{source} does not describe a model: {reason}", "fetch the model again") from None
    if config.num_hidden_layers < 1:
        raise InputError(f"{source} describes a model of {config.num_hidden_layers} layers", "use a model with layers")
    return encoder


def count_adapter(config: AdapterConfig, encoder: "PreTrainedModel") -> AdapterCount:
    """The size of one task's adapter for ``encoder``, whose values are not read.

    Raises ``UsageError`` if ``config`` does not go with the encoder.
    """
    with torch.device("meta"):
        adapter = make_adapter(config, encoder)
        parts = nn.ModuleList([adapter, *([own_pooler(encoder)] if config.own_pooler else [])])
    model: Any = encoder.config
    shape = AdapterShape.of(config, model.hidden_size, model.num_hidden_layers)
    shared = _projections(adapter) if config.share_projections else nn.ModuleList()
    return AdapterCount(config, shape, _n_weights(parts), n_parameters(parts), _n_weights(shared), n_parameters(shared))


def _projections(adapter: Adapter) -> nn.ModuleList:
    assert isinstance(adapter, Parallel | Serial)
    return nn.ModuleList([adapter.function.encode, adapter.function.decode])


def n_parameters(module: nn.Module) -> int:
    """The number of trainable parameters in ``module``, shared ones once."""
    return sum(parameter.numel() for parameter in module.parameters())


def _n_weights(module: nn.Module) -> int:
    return sum(map(_weights, module.modules()))


def _weights(module: nn.Module) -> int:
    """The weights of ``module`` itself, without submodules, that the paper counts."""
    if isinstance(module, nn.LayerNorm):
        return 0
    own = module.named_parameters(recurse=False)
    return sum(parameter.numel() for name, parameter in own if name != "bias")
