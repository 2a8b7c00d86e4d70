"""Adapters in all architectures: they act where the layers add to their input."""

from typing import Any

import pytest
import torch
from torch import Tensor

from greenadapt.architectures import ARCHITECTURES as KNOWN
from greenadapt.architectures.base import LayerParts
from greenadapt.config import AdapterConfig
from greenadapt.errors import UsageError
from tests.support.small_encoders import PAD, WITH_MEMORY, batch
from tests.support.small_shared import ARCHITECTURES, moved, multitask, shared_encoder

pytestmark = pytest.mark.usefixtures("one_thread")

OTHERS = [name for name in WITH_MEMORY if name not in ARCHITECTURES]
FORMS = [(name, "paper") for name in ("pals", "low-rank", "attention", "ffn", "houlsby", "houlsby-pals", "lhuc")]
FORMS += [(name, "reference") for name in ("pals", "low-rank", "houlsby", "houlsby-pals")]
PALS = AdapterConfig("pals", 68)


def inputs(architecture: str) -> dict[str, Any]:
    padded = batch([7, 3, 5], 0, PAD[architecture])
    return {"input_ids": padded.ids, "attention_mask": padded.mask}


def head_input(base: Any, states: Tensor) -> Tensor:
    """What a head for texts reads: the pooler's output, or the first piece's state where there is none."""
    pooler = getattr(base, "pooler", None)
    return states[:, 0] if pooler is None else pooler(states)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", WITH_MEMORY)
def test_with_zero_up_projections_it_is_the_plain_model(architecture: str) -> None:
    base, arguments = shared_encoder(architecture), inputs(architecture)
    plain = head_input(base, base(**arguments).last_hidden_state)
    for adapter, form in FORMS:
        init: Any = "paper" if adapter == "lhuc" else "zero"
        config = AdapterConfig(adapter, None if adapter == "lhuc" else 12, form=form, init=init)  # type: ignore[arg-type]
        model = multitask({"t": config}, encoder=shared_encoder(architecture))
        expected = model.part("t").head(plain)
        assert torch.equal(model(**arguments, task="t")["logits"], expected), adapter
        moved(model.part("t").adapter)
        assert not torch.equal(model(**arguments, task="t")["logits"], expected), adapter


def plainly(layer: Any, last: Any, args: Any, kwargs: Any) -> tuple[Tensor, Tensor]:
    """The output of a layer without adapter, and what its last norm reads; without a norm, the output itself."""
    read: list[Tensor] = []
    hook = last.register_forward_hook(lambda norm, args, output: read.append(args[0]))
    output = layer(*args, **kwargs)
    hook.remove()
    output = output[0] if isinstance(output, tuple) else output
    return output, read[0] if read else output


@pytest.mark.parametrize("architecture", OTHERS)
def test_pals_are_added_before_the_last_norm(architecture: str) -> None:
    """LN(h + SA(h) + TS(h)), equation 8; where layers normalize their input, h + SA(LN(h)) + … + TS(LN(h))."""
    model = moved(multitask({"t": PALS}, "TokenClassification", shared_encoder(architecture)))
    kind = KNOWN[model.config.model_type]
    parts = kind.adapters
    assert isinstance(parts, LayerParts)
    layers: Any = model.encoder.get_submodule(kind.layers)
    calls: list[tuple[Any, Any, Tensor]] = []
    hooks = [
        layer.register_forward_hook(
            lambda layer, args, kwargs, output: calls.append((args, kwargs, output)), with_kwargs=True
        )
        for layer in layers
    ]
    model(**inputs(architecture), task="t")
    for hook in hooks:
        hook.remove()
    adapter: Any = model.part("t").adapter
    real = inputs(architecture)["attention_mask"].bool()
    for number, (args, kwargs, output) in enumerate(calls):
        layer = layers[number]
        read = args[0] if not parts.first_norm else layer.get_submodule(parts.first_norm)(args[0])
        last = layer.get_submodule(parts.norm) if parts.norm else torch.nn.Identity()
        plain, before = plainly(layer, last, args, kwargs)
        row = 1  # of three pieces
        alone = adapter.function(number, read[row : row + 1, :3], None)[0]
        expected = last(before[row, :3] + alone)
        got = output[0] if isinstance(output, tuple) else output
        torch.testing.assert_close(got[row, :3], expected, rtol=0, atol=1e-5)
        assert (got[real] - plain[real]).abs().max() > 1e-3


def test_what_does_not_go_together() -> None:
    serial = AdapterConfig("pals", 68, placement="serial")
    with pytest.raises(UsageError, match=r"placement serial .* modernbert"):
        multitask({"t": serial}, encoder=shared_encoder("ModernBert"))
    multitask({"t": serial}, encoder=shared_encoder("DistilBert"))
    with pytest.raises(UsageError, match=r"deberta-v2 .* convolution"):
        multitask({"t": PALS}, encoder=shared_encoder("DebertaV2", conv_kernel_size=3, conv_act="gelu"))
