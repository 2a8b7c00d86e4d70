"""Which settings go with which adapter."""

from typing import Any, get_args

import pytest

from greenadapt.config import ADAPTERS, AdapterConfig, AdapterName
from greenadapt.errors import UsageError

GIVEN: dict[str, dict[str, Any]] = {
    "--adapter-size": {"size": 12},
    "--layers": {"layers": "top"},
    "--placement serial": {"placement": "serial"},
    "--adapter-form reference": {"form": "reference"},
    "--adapter-init zero": {"init": "zero"},
    "--top-layers": {"top_layers": 3},
    "--share-projections": {"share_projections": True},
}
IN_LAYERS = {"pals", "low-rank", "attention", "ffn", "lhuc", "houlsby", "houlsby-pals"}
GOES_WITH: dict[str, set[str]] = {
    "--adapter-size": set(get_args(AdapterName)) - {"lhuc", "bert-layer", "none"},
    "--layers": IN_LAYERS,
    "--placement serial": {"pals", "low-rank", "attention", "ffn"},
    "--adapter-form reference": {"pals", "low-rank", "houlsby", "houlsby-pals"},
    "--adapter-init zero": IN_LAYERS - {"lhuc"},
    "--top-layers": {"top-attention", "top-ffn", "top-ffn-2"},
    "--share-projections": {"pals", "attention", "ffn"},
}


def test_every_name_is_of_a_kind() -> None:
    assert {*ADAPTERS} == {*get_args(AdapterName)}


@pytest.mark.parametrize("option", GIVEN)
def test_an_option_goes_with_some_adapters_and_is_refused_with_others(option: str) -> None:
    [(field, value)] = GIVEN[option].items()
    for adapter in ADAPTERS:
        if adapter in GOES_WITH[option]:
            assert getattr(AdapterConfig(adapter, **GIVEN[option]), field) == value
        else:
            with pytest.raises(UsageError, match=f"{option} does not go with --adapter {adapter}: leave it out"):
                AdapterConfig(adapter, **GIVEN[option])


def test_only_what_is_beside_its_layer_can_start_as_nothing() -> None:
    with pytest.raises(UsageError, match="--adapter-init zero does not go with --adapter pals"):
        AdapterConfig("pals", placement="serial", init="zero")
