"""The functions of adapters at their small width, and the projections to it and back."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

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
        mixed: Tensor = self.mix(context.transpose(1, 2).flatten(2))
        return mixed


class FeedForward(nn.Module):
    """FFN(x) = W_2 GELU(W_1 x + b_1) + b_2, of states x (b, m, d_s); a ``deep`` one has another hidden layer."""

    def __init__(self, size: int, hidden: int, *, deep: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(size, hidden), nn.Linear(hidden, size)
        self.middle = nn.Linear(hidden, hidden) if deep else None

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """(b, m, d_s) → (b, m, d_s)."""
        states = gelu(self.inner(states))
        if self.middle is not None:
            states = gelu(self.middle(states))
        output: Tensor = self.outer(states)
        return output


class Gelu(nn.Module):
    """GELU of each number."""

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """(b, m, d_s) → (b, m, d_s)."""
        return gelu(states)


class Identity(nn.Module):
    """The states themselves."""

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """(b, m, d_s) → (b, m, d_s)."""
        return states


class Residual(nn.Module):
    """LN(x + f(x)), of states x (b, m, d_s)."""

    def __init__(self, function: nn.Module, size: int, eps: float) -> None:
        super().__init__()
        self.function, self.norm = function, nn.LayerNorm(size, eps)

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """(b, m, d_s) → (b, m, d_s)."""
        output: Tensor = self.norm(states + self.function(states, mask))
        return output


class Projected(nn.Module):
    """TS_l(h) = V^D g_l(V^E h) in each layer l of some (arXiv 1902.02671, equation 7), of states h (b, m, d).

    Either all layers share one V^E (d_s, d) and V^D (d, d_s), or each has its own.
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
        """TS_l(h), (b, m, d), of the states of layer ``layer``, which has a function, and the mask of its attention."""
        name = _SHARED if self.shared else str(layer)
        output: Tensor = self.decode[name](self.functions[str(layer)](self.encode[name](states), mask))
        return gelu(output) if self.activated else output

    def share(self, other: "Projected") -> None:
        """Use the V^E and V^D of another task's function, of the same layers, from now on."""
        self.encode, self.decode = other.encode, other.decode

    def zero(self) -> None:
        """Set all V^D to zero, so that TS(h) is zero."""
        with torch.no_grad():
            for parameter in self.decode.parameters():
                parameter.zero_()
