"""Insert adapters into a transformers encoder by hooks on its modules, which do nothing without an adapter."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from greenadapt.architectures import ARCHITECTURES
from greenadapt.models.adapters.kinds import Adapter, LayerCall, first_of
from greenadapt.models.adapters.shape import layer_parts, not_adaptable

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class AdapterHooks:
    """Hooks in the layers of an encoder that apply the active adapter; without one it is the plain encoder."""

    def __init__(self, encoder: "PreTrainedModel") -> None:
        """Put hooks on the modules of ``encoder``, which must pass ``check_architecture``."""
        self._adapter: Adapter | None = None
        self._beside: list[Tensor | None] = []
        self._keep: Collection[int] = ()
        self.calls: list[LayerCall] = []
        """The layers' other arguments, while an adapter is active."""
        self.kept: dict[int, Tensor] = {}
        """The inputs of the layers that ``use`` keeps, (b, m, d), while an adapter is active."""
        kind = ARCHITECTURES[encoder.config.model_type]
        parts = layer_parts(kind.model_type)
        layers: Any = encoder.get_submodule(kind.layers)
        self._layers = list(layers)
        self._final_norm: Any = encoder.get_submodule(kind.final_norm) if kind.final_norm else nn.Identity()
        for number, layer in enumerate(layers):
            part = layer.get_submodule
            layer.register_forward_pre_hook(partial(self._enter, number), with_kwargs=True)
            if parts.first_norm:
                part(parts.first_norm).register_forward_hook(partial(self._after_norm, number))
            else:
                layer.register_forward_pre_hook(partial(self._read, number))
            part(parts.attention_output).register_forward_hook(partial(self._after_attention, number))
            part(parts.ffn).register_forward_pre_hook(partial(self._enter_ffn, number))
            part(parts.ffn_output).register_forward_hook(partial(self._after_ffn, number))
            if parts.norm:
                part(parts.norm).register_forward_pre_hook(partial(self._before_norm, number))
            layer.register_forward_hook(partial(self._leave, number, not parts.norm))

    @contextmanager
    def use(self, adapter: Adapter, keep: Collection[int] = ()) -> Iterator[None]:
        """Inside, the encoder runs with ``adapter``, and the inputs of the layers ``keep``, from 0, are ``kept``."""
        self._adapter, self._keep, self.calls = adapter, keep, [LayerCall()] * len(self._layers)
        try:
            yield
        finally:
            self._adapter, self._keep, self._beside = None, (), []
            self.calls, self.kept = [], {}

    def resume(self, states: Tensor, calls: Sequence[LayerCall], first: int) -> Tensor:
        """The encoder's output, (b, m, d), if layer ``first``, from 0, reads ``states`` and all get their ``calls``;
        ``states`` themselves if that is behind the last layer.
        """
        self.calls = list(calls)
        if first == len(self._layers):
            return states
        for layer, call in list(zip(self._layers, calls, strict=True))[first:]:
            states = first_of(layer(states, *call.args, **call.kwargs))
        output: Tensor = self._final_norm(states)
        return output

    def _at(self, layer: int) -> Adapter | None:
        return self._adapter if self._adapter is not None and layer in self._adapter.layers else None

    def _enter(self, number: int, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._adapter is not None:
            self.calls[number] = LayerCall(args[1:], kwargs)
        if number in self._keep:
            self.kept[number] = args[0]

    def _read(self, number: int, layer: Any, args: tuple[Any, ...]) -> None:
        if (adapter := self._at(number)) is not None:
            self._beside = [adapter.beside_layer(number, args[0], self.calls[number].mask)]

    def _after_norm(self, number: int, norm: Any, args: Any, output: Tensor) -> None:
        self._read(number, norm, (output,))

    def _after_attention(self, number: int, module: Any, args: Any, output: Tensor) -> Tensor:
        adapter = self._at(number)
        return output if adapter is None else adapter.after_attention(number, output)

    def _enter_ffn(self, number: int, module: Any, args: tuple[Any, ...]) -> None:
        if (adapter := self._at(number)) is not None:
            self._beside.append(adapter.beside_ffn(number, args[0], self.calls[number].mask))

    def _after_ffn(self, number: int, module: Any, args: Any, output: Tensor) -> Tensor:
        adapter = self._at(number)
        return output if adapter is None else adapter.after_ffn(number, output)

    def _before_norm(self, number: int, norm: Any, args: tuple[Any, ...]) -> tuple[Tensor] | None:
        return None if self._at(number) is None else (self._added(args[0]),)

    def _leave(self, number: int, is_sum: bool, layer: Any, args: Any, output: Any) -> Any:
        if (adapter := self._at(number)) is None:
            return output
        states = self._added(first_of(output)) if is_sum else first_of(output)
        states = adapter.after_layer(number, states, self.calls[number].mask)
        return (states, *output[1:]) if isinstance(output, tuple) else states

    def _added(self, total: Tensor) -> Tensor:
        for term in self._beside:
            total = total if term is None else total + term
        return total


def check_architecture(encoder: "PreTrainedModel") -> None:
    """Raise ``UsageError`` unless ``encoder`` supports adapters."""
    config: Any = encoder.config
    layer_parts(config.model_type)
    if getattr(config, "is_decoder", False):
        raise not_adaptable(config.model_type, "it is a decoder, which must not see later tokens")
    if chunk := getattr(config, "chunk_size_feed_forward", 0):
        raise not_adaptable(
            config.model_type, f"it uses chunked feed-forward ({chunk} pieces), and adapters need all pieces"
        )
    if getattr(config, "conv_kernel_size", 0):
        raise not_adaptable(config.model_type, "it has a convolution beside its first layer, as DeBERTa v2 XL")
