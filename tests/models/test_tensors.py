"""The exact linear layer, against torch's own in float32 and under autocast."""

import torch
from torch.nn.functional import linear

from greenadapt.models.weights import exact_linear


def test_autocast_rounds_torchs_layer_and_not_this_one() -> None:
    generator = torch.Generator().manual_seed(3)
    inputs, weight = torch.randn(4, 6, 32, generator=generator), torch.randn(5, 32, generator=generator)
    bias = torch.randn(5, generator=generator)
    expected = linear(inputs, weight, bias)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(inputs, weight, bias).dtype == torch.bfloat16
        assert torch.equal(exact_linear(inputs, weight, bias), expected)
        rounded = exact_linear(inputs.bfloat16(), weight, None)
    assert torch.equal(rounded, linear(inputs.bfloat16().float(), weight))
