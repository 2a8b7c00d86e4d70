"""Adapters of a shared encoder (BERT and PALs, arXiv 1902.02671), and their numbers of weights."""

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from greenadapt.architectures import ARCHITECTURES
from greenadapt.checkpoints.reader import CODE_KEYS
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.models.adapters.shape import AdapterShape, first_setting, layer_parts
from greenadapt.models.weights import convert_errors
from greenadapt.store.files import Json

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_SHARED = "shared"


class SelfAttention(nn.Module):
    """MH(x) = W^o [Att_1(x); …; Att_n(x)], Att_i(x) = softmax(Q_i K_iᵀ / √(d_s / n)) V_i (arXiv 1902.02671, equations
    1 and 2), of states x (b, m, d_s); without ``mixing`` there is no W^o.
    """

    def __init__(self, size: int, heads: int, dropout: float, *, mixing: bool = False) -> None:
        """``dropout`` is the probability that an attention weight is dropped in training."""
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.mix = nn.Linear(size, size) if mixing else nn.Identity()

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """(b, m, d_s) → (b, m, d_s); ``mask`` is the layer's attention mask, (b, 1, 1 or m, m), bool or to be added."""
        query, key, value = (
            layer(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        if mask is not None and mask.is_floating_point():
            mask = mask.to(query.dtype)
        dropout = self.dropout if self.training else 0.0
        context = scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return self.mix(context.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """FFN(x) = W_2 GELU(W_1 x + b_1) + b_2, of states x (b, m, d_s); a ``deep`` one has another hidden layer."""

    def __init__(self, size: int, hidden: int, *, deep: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(size, hidden), nn.Linear(hidden, size)
        self.middle = nn.Linear(hidden, hidden) if deep else None

    def forward(self, states: Tensor) -> Tensor:
        """(b, m, d_s) → (b, m, d_s)."""
        states = gelu(self.inner(states))
        if self.middle is not None:
            states = gelu(self.middle(states))
        return self.outer(states)


def _apply(function: nn.Module, states: Tensor, mask: Tensor | None) -> Tensor:
    """``function`` of the states; only attention reads the ``mask``."""
    return function(states, mask) if isinstance(function, SelfAttention) else function(states)


class Residual(nn.Module):
    """LN(x + f(x)), of states x (b, m, d_s)."""

    def __init__(self, function: nn.Module, size: int, eps: float) -> None:
        super().__init__()
        self.function, self.norm = function, nn.LayerNorm(size, eps)

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """(b, m, d_s) → (b, m, d_s)."""
        return self.norm(states + _apply(self.function, states, mask))


class Projection(nn.Module):
    """TS_l(h) = V^D g_l(V^E h) of states h (b, m, d) in layers l (arXiv 1902.02671, equation 7).

    The layers share V^E (d_s, d) and V^D (d, d_s), or each has its own.
    """

    def __init__(
        self, width: int, size: int, functions: Mapping[int, nn.Module], *, shared: bool, activated: bool = False
    ) -> None:
        """``functions`` has g_l by layer, from 0; ``activated``: GELU(V^D g_l(V^E h)), as in the released code."""
        super().__init__()
        self.shared, self.activated = shared, activated
        self.functions = nn.ModuleDict({str(layer): function for layer, function in functions.items()})
        names = [_SHARED] if shared else list(self.functions)
        self.encode = nn.ModuleDict({name: nn.Linear(width, size) for name in names})
        self.decode = nn.ModuleDict({name: nn.Linear(size, width) for name in names})

    @property
    def layers(self) -> tuple[int, ...]:
        """From 0."""
        return tuple(map(int, self.functions))

    def forward(self, layer: int, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """TS_l(h), (b, m, d), of the states of ``layer`` and the mask of its attention."""
        name = _SHARED if self.shared else str(layer)
        output: Tensor = self.decode[name](_apply(self.functions[str(layer)], self.encode[name](states), mask))
        return gelu(output) if self.activated else output

    def share(self, source: "Projection") -> None:
        """Use V^E and V^D of ``source``, which has the same layers."""
        self.encode, self.decode = source.encode, source.decode

    def zero(self) -> None:
        """Set all V^D to zero, so that TS(h) is zero."""
        with torch.no_grad():
            for parameter in self.decode.parameters():
                parameter.zero_()


_STD = 0.02


@dataclass(frozen=True, eq=False)
class LayerCall:
    """The arguments of each layer besides the states."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def mask(self) -> Tensor | None:
        """The mask of the layer's attention, (b, 1, 1 or m, m), bool or to be added; ``None``: no padding."""
        mask: Tensor | None = self.args[0] if self.args else self.kwargs.get("attention_mask")
        if mask is None or mask.is_floating_point() or mask.dtype == torch.bool:
            return mask
        return mask[:, :, :1].bool()  # of DeBERTa, where padding itself sees nothing: the first piece sees all others


def first_of(output: Any) -> Tensor:
    """The states in what a layer returns, which is a tuple in some architectures."""
    return output[0] if isinstance(output, tuple) else output


class Adapter(nn.Module):
    """The adapter ``none``, which does nothing; the methods are hooks for subclasses.

    States are always (b, m, d), layers are numbered from 0; ``layers`` are those that the adapter changes.
    """

    layers: tuple[int, ...] = ()

    def beside_layer(self, layer: int, states: Tensor, mask: Tensor | None) -> Tensor | None:
        """Added before the last layer norm of a layer with input ``states``."""
        return None

    def beside_ffn(self, layer: int, states: Tensor, mask: Tensor | None) -> Tensor | None:
        """Added before the last layer norm of a layer whose feed-forward part has input ``states``."""
        return None

    def after_attention(self, layer: int, states: Tensor) -> Tensor:
        """Replaces the attention's output, before it is added to the layer's input."""
        return states

    def after_ffn(self, layer: int, states: Tensor) -> Tensor:
        """Replaces the feed-forward part's output, before it is added to that part's input."""
        return states

    def after_layer(self, layer: int, states: Tensor, mask: Tensor | None) -> Tensor:
        """Replaces the layer's output."""
        return states

    def on_top(self, states: Tensor, call: LayerCall) -> Tensor:
        """Replaces the last layer's output."""
        return states

    def zero(self) -> None:
        """Set the projections to the model's width to zero, which gives the plain model."""

    def share(self, source: "Adapter") -> None:
        """Use the projections of another task's adapter of the same kind."""


class _Layerwise(Adapter):
    """An adapter with a ``function`` TS in each layer."""

    def __init__(self, function: Projection) -> None:
        super().__init__()
        self.function, self.layers = function, function.layers

    def share(self, source: Adapter) -> None:
        assert isinstance(source, _Layerwise)
        self.function.share(source.function)


class Parallel(_Layerwise):
    """h^{l+1} = LN(h^l + SA(h^l) + TS(h^l)): equation 8."""

    def beside_layer(self, layer: int, states: Tensor, mask: Tensor | None) -> Tensor:
        return self.function(layer, states, mask)

    def zero(self) -> None:
        self.function.zero()


class Serial(_Layerwise):
    """h^{l+1} = LN(h' + TS(h')) of the layer's output h': equation 10."""

    def __init__(self, function: Projection, width: int, eps: float) -> None:
        super().__init__(function)
        self.norms = nn.ModuleDict({str(layer): nn.LayerNorm(width, eps) for layer in self.layers})

    def after_layer(self, layer: int, states: Tensor, mask: Tensor | None) -> Tensor:
        return self.norms[str(layer)](states + self.function(layer, states, mask))


class Lhuc(Adapter):
    """h · 2 σ(a) of the output h of each layer, with a vector a (d,) per layer, initially zero: a factor of one."""

    def __init__(self, width: int, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = layers
        self.scales = nn.ParameterDict({str(layer): torch.zeros(width) for layer in layers})

    def after_layer(self, layer: int, states: Tensor, mask: Tensor | None) -> Tensor:
        return states * (2 * torch.sigmoid(self.scales[str(layer)]))


class Houlsby(Adapter):
    """x + V^D GELU(V^E x) of the outputs of attention and of the feed-forward part (arXiv 1902.00751), before they are
    added to their inputs.

    With ``beside``, as in the released code of PALs, the second is TS(a) of the feed-forward part's input a, added to
    its output, where TS is another bottleneck or PALs (``houlsby-pals``).
    """

    def __init__(self, first: Projection, second: Projection, *, beside: bool) -> None:
        super().__init__()
        self.first, self.second, self.layers = first, second, first.layers
        self.beside = beside

    def after_attention(self, layer: int, states: Tensor) -> Tensor:
        return states + self.first(layer, states)

    def after_ffn(self, layer: int, states: Tensor) -> Tensor:
        return states if self.beside else states + self.second(layer, states)

    def beside_ffn(self, layer: int, states: Tensor, mask: Tensor | None) -> Tensor | None:
        return self.second(layer, states, mask) if self.beside else None

    def zero(self) -> None:
        self.first.zero()
        self.second.zero()


class OnTop(Adapter):
    """h^f = TS(h) = V^D g(V^E h) of the last layer's output h, where g is a stack of layers (equations 6 and 7)."""

    def __init__(self, width: int, size: int, layers: list[Residual]) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(width, size), nn.Linear(size, width)
        self.stack = nn.ModuleList(layers)

    def on_top(self, states: Tensor, call: LayerCall) -> Tensor:
        states = self.encode(states)
        for layer in self.stack:
            states = layer(states, call.mask)
        return self.decode(states)


class LayerOnTop(Adapter):
    """Another layer of the encoder on top, with new weights."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def on_top(self, states: Tensor, call: LayerCall) -> Tensor:
        return first_of(self.layer(states, *call.args, **call.kwargs))


def make_adapter(config: AdapterConfig, encoder: "PreTrainedModel") -> Adapter:
    """The adapter of a task for ``encoder``, before ``draw_weights``.

    Raises ``UsageError`` if ``config`` does not fit the encoder.
    """
    model: Any = encoder.config
    shape = AdapterShape.of(config, model.hidden_size, model.num_hidden_layers)
    eps = next(float(module.eps) for module in encoder.modules() if isinstance(module, nn.LayerNorm))

    def bottleneck(size: int) -> Projection:  # GELU between projections of each layer
        return Projection(model.hidden_size, size, {layer: nn.GELU() for layer in shape.layers}, shared=False)

    if config.adapter == "none":
        return Adapter()
    if config.adapter == "lhuc":
        return Lhuc(model.hidden_size, shape.layers)
    if config.adapter == "houlsby":
        return Houlsby(bottleneck(shape.size), bottleneck(shape.size), beside=config.form == "reference")
    if config.adapter == "houlsby-pals":
        return Houlsby(bottleneck(shape.bottleneck), _function(config, shape, model), beside=True)
    if config.kind.has_stack:
        return OnTop(model.hidden_size, shape.size, _stack(config, shape, model, eps))
    if config.adapter == "bert-layer":
        return LayerOnTop(_new_layer(encoder))
    if config.placement == "serial":
        if ARCHITECTURES[model.model_type].final_norm:
            raise UsageError(
                f"--placement serial normalizes each layer's output, which a model of type {model.model_type} does not",
                "use --placement parallel",
            )
        return Serial(_function(config, shape, model), model.hidden_size, eps)
    return Parallel(_function(config, shape, model))


def own_pooler(encoder: "PreTrainedModel") -> nn.Module:
    """A copy of the encoder's pooler for a task; raises ``UsageError`` if it has none."""
    pooler: nn.Module | None = getattr(encoder, "pooler", None)
    if pooler is None:
        raise UsageError(f"--own-pooler, but a model of type {encoder.config.model_type} has no pooler", "leave it out")
    return copy.deepcopy(pooler)


def _new_layer(encoder: "PreTrainedModel") -> nn.Module:
    """A layer of the class of the last layer of ``encoder``, which reads no memory."""
    config: Any = encoder.config
    layers: Any = encoder.get_submodule(ARCHITECTURES[config.model_type].layers)
    layer_class = type(layers[-1])
    has_index = "layer_idx" in inspect.signature(layer_class).parameters
    return layer_class(config, **({"layer_idx": len(layers) - 1} if has_index else {}))


def _function(config: AdapterConfig, shape: AdapterShape, model: Any) -> Projection:
    """The function beside or after each layer of an encoder with the configuration ``model``."""
    size, is_reference = shape.size, config.form == "reference"
    kinds: dict[str, Callable[[], nn.Module]] = {
        "low-rank": nn.GELU if is_reference else nn.Identity,
        "ffn": partial(FeedForward, size, round(1.5 * size)),  # with as many weights as attention
    }
    make = kinds.get(config.adapter, partial(_attention, shape, model))
    functions = {layer: make() for layer in shape.layers}
    has_pals = config.adapter in ("pals", "houlsby-pals")
    is_shared = has_pals or config.adapter == "ffn"
    return Projection(model.hidden_size, size, functions, shared=is_shared, activated=has_pals and is_reference)


def _stack(config: AdapterConfig, shape: AdapterShape, model: Any, eps: float) -> list[Residual]:
    """The layers on top, of the adapter's width."""
    size = shape.size
    kinds: dict[str, Callable[[], nn.Module]] = {  # with as many weights each, 4 · size² or the nearest to it
        "top-attention": partial(_attention, shape, model, mixing=True),
        "top-ffn": partial(FeedForward, size, 2 * size),
        "top-ffn-2": partial(FeedForward, size, round((math.sqrt(5) - 1) * size), deep=True),
    }
    make = kinds[config.adapter]
    return [Residual(make(), size, eps) for _ in range(config.top_layers)]


def _attention(shape: AdapterShape, model: Any, *, mixing: bool = False) -> SelfAttention:
    dropout = first_setting(model, "attention_probs_dropout_prob", "attention_dropout")
    return SelfAttention(shape.size, shape.heads, dropout, mixing=mixing)


def draw_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Draw the matrices of ``module``, which is on the CPU, from N(0, 0.02); biases are 0, layer norms 1 and 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=_STD, generator=generator)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
        if isinstance(part, nn.Linear | nn.LayerNorm) and part.bias is not None:
            nn.init.zeros_(part.bias)


def make_meta_encoder(settings: Mapping[str, Any], source: str) -> "PreTrainedModel":
    """The encoder of the configuration ``settings``, on torch's device "meta": shapes without values.

    Runs only transformers' code. Raises ``UsageError`` for an architecture that does not support adapters, and
    ``InputError``, naming ``source``, for settings that are not a model's.
    """
    import transformers

    layer_parts(str(settings.get("model_type")))
    options = {name: value for name, value in settings.items() if name not in ("model_type", "dtype", *CODE_KEYS)}
    with convert_errors(source):
        config = transformers.AutoConfig.for_model(settings["model_type"], **options)
        with torch.device("meta"):
            encoder: PreTrainedModel = transformers.AutoModel.from_config(config)
    if config.num_hidden_layers < 1:
        raise InputError(f"{source} describes a model of {config.num_hidden_layers} layers", "use a model with layers")
    return encoder


def count_adapters(config: AdapterConfig, encoder: "PreTrainedModel", n_tasks: int) -> Json:
    """Count the weights that the adapters of ``n_tasks`` tasks for texts add to ``encoder``, whose values are not read.

    ``adapter``, ``placement``, ``form``, ``size`` and ``heads`` (``None`` without them), ``layers`` (from 1) and
    ``tasks``; ``weights`` of one task and ``all_weights`` of all tasks, shared weights once, as in the paper without
    biases and layer norms; ``parameters`` and ``all_parameters`` with these; ``base_parameters`` of the encoder with
    its pooler, and ``ratio`` of all parameters to them. Heads are not counted. Raises ``UsageError`` if ``config`` does
    not fit the encoder.
    """
    with torch.device("meta"):
        adapter = make_adapter(config, encoder)
        parts = nn.ModuleList([adapter, *([own_pooler(encoder)] if config.own_pooler else [])])
    model: Any = encoder.config
    shape = AdapterShape.of(config, model.hidden_size, model.num_hidden_layers)
    shared = nn.ModuleList()
    if config.share_projections:
        assert isinstance(adapter, _Layerwise)
        shared.extend([adapter.function.encode, adapter.function.decode])
    weights, parameters, base = _n_weights(parts), n_parameters(parts), n_parameters(encoder)
    all_parameters = n_tasks * parameters - (n_tasks - 1) * n_parameters(shared)
    return {
        "adapter": config.adapter,
        "placement": config.placement,
        "form": config.form,
        "size": shape.size or None,
        "heads": shape.heads or None,
        "layers": [layer + 1 for layer in shape.layers],
        "tasks": n_tasks,
        "weights": weights,
        "all_weights": n_tasks * weights - (n_tasks - 1) * _n_weights(shared),
        "parameters": parameters,
        "all_parameters": all_parameters,
        "base_parameters": base,
        "ratio": (base + all_parameters) / base,
    }


def n_parameters(module: nn.Module) -> int:
    """The number of trainable parameters in ``module``, shared ones once."""
    return sum(parameter.numel() for parameter in module.parameters())


def _n_weights(module: nn.Module) -> int:
    """The number of weights without biases and layer norms, as the paper counts."""
    parts = [part for part in module.modules() if not isinstance(part, nn.LayerNorm)]
    named = (pair for part in parts for pair in part.named_parameters(recurse=False))
    return sum(parameter.numel() for name, parameter in named if name != "bias")
