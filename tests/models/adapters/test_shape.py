from collections.abc import Callable

import pytest

from greenadapt.config import AdapterConfig, AdapterName
from greenadapt.errors import UsageError
from greenadapt.models.adapters.shape import AdapterShape, parse_layers


@pytest.mark.parametrize(
    ("config", "width", "n_layers", "expected"),
    [
        (AdapterConfig("pals", layers="top"), 768, 12, AdapterShape((6, 7, 8, 9, 10, 11), 276, 12, 50)),
        (AdapterConfig("pals", layers="7,8"), 768, 12, AdapterShape((6, 7), 204, 12, 50)),
        (AdapterConfig("pals", form="reference"), 768, 12, AdapterShape(tuple(range(12)), 204, 6, 50)),
        (AdapterConfig("pals"), 384, 6, AdapterShape(tuple(range(6)), 102, 6, 25)),
        (AdapterConfig("pals"), 1024, 2, AdapterShape((0, 1), 272, 16, 67)),
        (AdapterConfig("pals", form="reference"), 32, 2, AdapterShape((0, 1), 6, 6, 2)),
    ],
)
def test_sizes_are_the_papers_in_proportion(
    config: AdapterConfig, width: int, n_layers: int, expected: AdapterShape
) -> None:
    assert AdapterShape.of(config, width, n_layers) == expected


@pytest.mark.parametrize("adapter", ["pals", "top-attention"])
def test_heads_always_divide_a_size_that_is_not_given(adapter: AdapterName) -> None:
    for width in range(1, 1100, 3):
        shape = AdapterShape.of(AdapterConfig(adapter), width, 2)
        assert shape.size % shape.heads == 0
        if width >= 256:
            assert 12 < shape.size / shape.heads < 52


def test_halves_of_an_odd_number_of_layers_overlap() -> None:
    assert parse_layers("top", 5) == (2, 3, 4)
    assert parse_layers("bottom", 5) == (0, 1, 2)
    assert parse_layers("top", 1) == parse_layers("bottom", 1) == (0,)
    assert parse_layers(" 1, 3", 3) == (0, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: parse_layers("1,13", 12), "--layers has layer 13, the model has 12"),
        (lambda: parse_layers("1,x", 12), "--layers is '1,x', but 'x' is not a number"),
        (
            lambda: AdapterShape.of(AdapterConfig("pals", 200, form="reference"), 768, 12),
            "--adapter-size is 200, not a multiple of the 6 heads of --adapter-form reference: use --adapter-size 198",
        ),
    ],
)
def test_what_is_impossible_is_refused_in_words(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert str(caught.value).startswith(message)
