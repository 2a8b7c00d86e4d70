"""The trained weights with which a model reads the vectors of words beside its own states."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from greenadapt.architectures import ARCHITECTURES
from greenadapt.models.word_vectors import KEYWORD

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SPEED = 5.0
"""How much faster than other weights the map learns: Adam's steps do not depend on the scale of a weight."""
_STD = 0.02
_DROPOUT = 0.3


class WordVectorMap(nn.Module):
    """h + s (B v + b) after the layer in the middle, for each piece of a word with a vector.

    h (d,) is the layer's state, v (dim,) the word's vector with dropout, B (d, dim) and b (d,) are trained, and s = 5.
    """

    frozen = True
    """There is no general model beside it that is trained."""

    def __init__(self, dim: int, width: int, random: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, dim, generator=random) * _STD / _SPEED)
        self.bias = nn.Parameter(torch.zeros(width))
        self._current: Tensor | None = None

    def take(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Keep the argument ``word_vectors`` (b, n, dim) of a model's ``forward`` for the layer in the middle."""
        self._current = kwargs.pop(KEYWORD)
        return args, kwargs

    def add(self, _: Any, __: Any, output: Any) -> Any:
        """The output of the layer with the vectors added."""
        vectors = self._current
        assert vectors is not None
        has_vector = (vectors != 0).any(-1, keepdim=True)
        added = _SPEED * linear(dropout(vectors, _DROPOUT, self.training), self.weight, self.bias) * has_vector
        return (output[0] + added, *output[1:]) if isinstance(output, tuple) else output + added


def attach_word_vectors(model: "PreTrainedModel", dim: int, seed: int) -> None:
    """Make ``model`` take vectors (b, n, dim) as its argument ``word_vectors``; ``seed`` initializes the new weights.

    The new weights are ``model.memory``.
    """
    config: Any = model.config
    layers: Any = model.base_model.get_submodule(ARCHITECTURES[config.model_type].layers)
    memory = WordVectorMap(dim, config.hidden_size, torch.Generator().manual_seed(2**32 - 1 - seed))
    layers[max(0, len(layers) // 2 - 1)].register_forward_hook(memory.add)
    model.register_forward_pre_hook(memory.take, prepend=True, with_kwargs=True)
    model.memory = memory.to(model.device, model.dtype).train(model.training)
