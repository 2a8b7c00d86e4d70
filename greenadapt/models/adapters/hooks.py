"""Insert adapters into a transformers encoder by hooks on its modules, which do nothing without an adapter."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from greenadapt.architectures.registry import ARCHITECTURES
from greenadapt.models.adapters.kinds import Adapter, LayerCall
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
        self.call = LayerCall()
        """The layers' other arguments, while an adapter is active."""
        self.kept: dict[int, Tensor] = {}
        """The inputs of the layers that ``use`` keeps, (b, m, d), while an adapter is active."""
        kind: str = encoder.config.model_type
        parts = layer_parts(kind)
        layers: Any = encoder.get_submodule(ARCHITECTURES[kind].layers)
        self._layers = list(layers)
        for number, layer in enumerate(layers):
            part = layer.get_submodule
            layer.register_forward_pre_hook(partial(self._enter, number), with_kwargs=True)
            part(parts.attention_output).register_forward_hook(partial(self._after_attention, number))
            part(parts.ffn).register_forward_pre_hook(partial(self._enter_ffn, number))
            part(parts.ffn_output).register_forward_hook(partial(self._after_ffn, number))
            part(parts.norm).register_forward_pre_hook(partial(self._add, number))
            layer.register_forward_hook(partial(self._leave, number))

    @contextmanager
    def use(self, adapter: Adapter, keep: Collection[int] = ()) -> Iterator[None]:
        """Inside, the encoder runs with ``adapter``, and the inputs of the layers ``keep``, from 0, are ``kept``."""
        self._adapter, self._keep = adapter, keep
        try:
            yield
        finally:
            self._adapter, self._keep, self._beside = None, (), []
            self.call, self.kept = LayerCall(), {}

    def resume(self, states: Tensor, call: LayerCall, first: int) -> Tensor:
        """The last layer's output, (b, m, d), if layer ``first``, from 0, reads ``states`` and all get ``call``."""
        self.call = call
        for layer in self._layers[first:]:
            states = layer(states, *call.args, **call.kwargs)
        return states

    def _at(self, layer: int) -> Adapter | None:
        return self._adapter if self._adapter is not None and layer in self._adapter.layers else None

    def _enter(self, number: int, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._adapter is not None:
            self.call = LayerCall(args[1:], kwargs)
        if number in self._keep:
            self.kept[number] = args[0]
        if (adapter := self._at(number)) is not None:
            self._beside = [adapter.beside_layer(number, args[0], self.call.mask)]

    def _after_attention(self, number: int, module: Any, args: Any, output: Tensor) -> Tensor:
        adapter = self._at(number)
        return output if adapter is None else adapter.after_attention(number, output)

    def _enter_ffn(self, number: int, module: Any, args: tuple[Any, ...]) -> None:
        if (adapter := self._at(number)) is not None:
            self._beside.append(adapter.beside_ffn(number, args[0], self.call.mask))

    def _after_ffn(self, number: int, module: Any, args: Any, output: Tensor) -> Tensor:
        adapter = self._at(number)
        return output if adapter is None else adapter.after_ffn(number, output)

    def _add(self, number: int, norm: Any, args: tuple[Any, ...]) -> tuple[Tensor] | None:
        if self._at(number) is None:
            return None
        total: Tensor = args[0]
        for term in self._beside:
            total = total if term is None else total + term
        return (total,)

    def _leave(self, number: int, layer: Any, args: Any, output: Any) -> Any:
        if (adapter := self._at(number)) is None:
            return output
        return adapter.after_layer(number, output, self.call.mask)


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
