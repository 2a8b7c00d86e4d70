"""The weights of adapters as they are counted: the paper's, and those of real modules."""

from collections.abc import Iterable
from typing import Any

import pytest

from greenadapt.config import ADAPTERS, AdapterConfig
from greenadapt.models.adapters.kinds import count_adapters, make_adapter, make_meta_encoder

Json = dict[str, Any]
METHODS = (
    *map(AdapterConfig, ADAPTERS),
    *(AdapterConfig("pals", layers=half) for half in ("top", "bottom")),
)
"""Every method at the paper's sizes."""

# adapter, layers: width, heads, weights of a task, of eight tasks, ratio (arXiv 1902.02671, and its code for the last
# two), as far as it can be recomputed; ratios there are to a base of 110 million and without biases.
PAPER = {
    ("none", "all"): (None, None, 0, 0, 1.00),
    ("pals", "all"): (204, 12, 1_811_520, 14_492_160, 1.132),
    ("low-rank", "all"): (100, None, 1_843_200, 14_745_600, 1.134),
    ("pals", "top"): (276, 12, 1_795_104, 14_360_832, 1.131),
    ("pals", "bottom"): (276, 12, 1_795_104, 14_360_832, 1.131),
    ("attention", "all"): (84, 4, 1_802_304, 14_418_432, 1.131),
    ("ffn", "all"): (204, None, 1_811_520, 14_492_160, 1.132),
    ("top-attention", "all"): (204, 12, 1_312_128, 10_497_024, 1.095),
    ("top-ffn", "all"): (204, None, 1_312_128, 10_497_024, 1.095),
    ("top-ffn-2", "all"): (204, None, 1_311_264, 10_490_112, 1.095),
    ("bert-layer", "all"): (None, None, 7_077_888, 56_623_104, 1.515),
    ("lhuc", "all"): (None, None, 9_216, 73_728, 1.0007),
    ("houlsby", "all"): (50, None, 1_843_200, 14_745_600, 1.134),
    ("houlsby-pals", "all"): (156, 6, 2_037_312, 16_298_496, 1.148),
}


def counts(configs: Iterable[AdapterConfig], n_tasks: int) -> list[Json]:
    """Of tasks that share BERT-base."""
    encoder = make_meta_encoder({"model_type": "bert"}, "BERT-base")
    return [count_adapters(config, encoder, n_tasks) for config in configs]


def test_the_table_is_the_papers() -> None:
    rows = counts(METHODS, 8)
    assert {(config.adapter, config.layers) for config in METHODS} == set(PAPER)
    for config, row in zip(METHODS, rows, strict=True):
        width, heads, weights, of_all, ratio = PAPER[config.adapter, config.layers]
        assert [row[name] for name in ("size", "heads", "weights", "all_weights")] == [width, heads, weights, of_all]
        digits = 4 if config.adapter == "lhuc" else 3
        assert round(1 + row["all_weights"] / 110e6, digits) == ratio
        assert row["base_parameters"] == 109_482_240
        assert row["ratio"] == pytest.approx(1 + 8 * row["parameters"] / 109_482_240)
        assert row["all_parameters"] == 8 * row["parameters"]


def test_what_the_paper_tried_besides_is_of_its_formulas() -> None:
    """d_m = 768, T = 8 tasks: layers on top T(2 d_m d_s + n 4 d_s²), two hidden layers of 252 instead of one of 408, a
    pooler of d_m² for each task, and encoder and decoder matrices for all tasks once.
    """
    d, tasks = 768, 8
    expected = {
        AdapterConfig("top-attention", top_layers=3): tasks * (2 * d * 204 + 3 * 4 * 204**2),
        AdapterConfig("top-attention", top_layers=12): tasks * (2 * d * 204 + 12 * 4 * 204**2),
        AdapterConfig("top-ffn"): tasks * (2 * d * 204 + 6 * 2 * 204 * 408),
        AdapterConfig("top-ffn-2"): tasks * (2 * d * 204 + 6 * (2 * 204 * 252 + 252**2)),
        AdapterConfig("pals", 168, own_pooler=True): tasks * (2 * d * 168 + 12 * 3 * 168**2 + d**2),
        AdapterConfig("none", own_pooler=True): tasks * d**2,
        AdapterConfig("pals", 216, share_projections=True): 2 * d * 216 + tasks * 12 * 3 * 216**2,
        AdapterConfig("attention", 192, share_projections=True): 12 * 2 * d * 192 + tasks * 12 * 3 * 192**2,
        AdapterConfig("low-rank", 10): 1_474_560,  # the small budgets of the paper
        AdapterConfig("pals", 54): 1_503_360,
    }
    rows = counts(expected, tasks)
    assert [row["all_weights"] for row in rows] == list(expected.values())
    assert rows[5]["all_parameters"] == tasks * (d**2 + d)  # with biases; those of V^E and V^D are shared, too
    assert rows[6]["all_parameters"] == 2 * d * 216 + 216 + d + tasks * 12 * 3 * (216**2 + 216)


def test_counts_are_those_of_real_modules(tiny_model: Any) -> None:
    import transformers

    folder = tiny_model("RobertaModel", width=24)
    encoder = transformers.AutoModel.from_pretrained(folder)
    for config in METHODS:
        row = count_adapters(config, encoder, 3)
        adapter = make_adapter(config, encoder)
        assert row["parameters"] == sum(weight.numel() for weight in adapter.state_dict().values())
        matrices = [weight.numel() for name, weight in adapter.named_parameters() if weight.ndim == 2]
        assert row["weights"] == sum(matrices) or config.adapter == "lhuc"
        assert row["base_parameters"] == sum(weight.numel() for weight in encoder.parameters())
