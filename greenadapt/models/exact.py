"""A linear layer that autocast leaves exact."""

import torch
from torch import Tensor
from torch.nn.functional import linear


def exact_linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b (…, n) of x (…, d), W (n, d) and b (n,), in the type of W under autocast, too.

    In bfloat16 the logits of a long context would have many ties.
    """
    with torch.autocast(inputs.device.type, enabled=False):
        return linear(inputs.to(weight.dtype), weight, bias)
