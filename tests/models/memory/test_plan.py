import subprocess
import sys
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.config import MemoryConfig
from greenadapt.errors import UsageError
from greenadapt.models.memory.choice import MemoryPlan

EVERY = tuple(range(1, 13))
DEPTHS = st.integers(2, 48)


def plan(n_domain: int = 12, n_general: int = 12, **config: Any) -> MemoryPlan:
    return MemoryPlan.of(MemoryConfig(**config), n_domain, n_general)


@pytest.mark.parametrize(
    ("strategy", "targets", "sources"),
    [
        ("single", (9,), ((12,),)),
        ("multiple", EVERY, tuple((i,) for i in EVERY)),
        ("gated", (9,), (EVERY,)),
        ("chunk", (6, 12), (EVERY[:6], EVERY[6:])),
    ],
)
def test_twelve_layers_as_in_the_paper_and_as_in_its_code(
    strategy: Any, targets: tuple[int, ...], sources: tuple[tuple[int, ...], ...]
) -> None:
    gated = strategy in ("gated", "chunk")
    assert plan(strategy=strategy) == MemoryPlan(targets, sources, gated)
    lower = tuple(tuple(state - 1 for state in states) for states in sources)
    assert plan(strategy=strategy, source="reference") == MemoryPlan(targets, lower, gated)


def test_the_default_is_chunks() -> None:
    assert plan() == plan(strategy="chunk")
    assert plan(source="reference").sources == ((0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11))


@given(DEPTHS, DEPTHS)
def test_any_depth(n_domain: int, n_general: int) -> None:
    target = ceil(Fraction(3, 4) * n_domain)
    every = tuple(range(1, n_general + 1))
    assert plan(n_domain, n_general, strategy="single") == MemoryPlan((target,), ((n_general,),), False)
    assert plan(n_domain, n_general, strategy="gated") == MemoryPlan((target,), (every,), True)
    half = n_general // 2
    expected = MemoryPlan((ceil(Fraction(n_domain, 2)), n_domain), (every[:half], every[half:]), True)
    assert plan(n_domain, n_general) == expected
    multiple = plan(n_domain, n_general, strategy="multiple")
    assert multiple.targets == tuple(range(1, n_domain + 1))
    assert multiple.sources == tuple((ceil(Fraction(i * n_general, n_domain)),) for i in multiple.targets)


@given(DEPTHS, st.data())
def test_chunks_for_other_layers_are_as_even_as_can_be(n_general: int, data: st.DataObject) -> None:
    layers = data.draw(st.sets(st.integers(1, 48), min_size=1, max_size=n_general))
    chosen = plan(48, n_general, layers=tuple(sorted(layers)))
    assert chosen.targets == tuple(sorted(layers))
    assert [state for states in chosen.sources for state in states] == list(range(1, n_general + 1))
    lengths = {len(states) for states in chosen.sources}
    assert max(lengths) - min(lengths) <= 1


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=4))
def test_each_state_is_read_once_and_found_again(bounds: list[tuple[int, int]]) -> None:
    ranges = [(min(bound), max(bound)) for bound in bounds]
    source = ",".join(f"{low}-{high}" for low, high in ranges)
    chosen = plan(layers=tuple(range(3, 3 + len(ranges))), source=source)
    assert chosen.sources == tuple(tuple(range(low, high + 1)) for low, high in ranges)
    assert chosen.states == tuple(sorted({state for states in chosen.sources for state in states}))
    for number, states in enumerate(chosen.sources):
        assert chosen.states[chosen.rows(number)] == states


def test_other_layers_and_states() -> None:
    assert plan(strategy="single", layers=(3,), source="0") == MemoryPlan((3,), ((0,),), False)
    assert plan(strategy="multiple", layers=(2, 5), n_general=6).sources == ((1,), (3,))
    assert plan(strategy="multiple", layers=(2, 5), source="4, 4-4").sources == ((4,), (4,))
    assert plan(strategy="gated", layers=(12,), source="10-12").sources == ((10, 11, 12),)


def test_models_of_one_layer() -> None:
    assert plan(1, 1, strategy="single") == MemoryPlan((1,), ((1,),), False)
    assert plan(1, 1, strategy="multiple") == MemoryPlan((1,), ((1,),), False)
    assert plan(1, 1, strategy="gated") == MemoryPlan((1,), ((1,),), True)
    assert plan(1, 2, layers=(1,)) == MemoryPlan((1,), ((1, 2),), True)
    assert plan(2, 1, source="0-1,1") == MemoryPlan((1, 2), ((0, 1), (1,)), True)
    with pytest.raises(UsageError, match=r"chunk feeds two layers, the domain model has 1: .*single or gated"):
        plan(1, 12)
    with pytest.raises(UsageError, match=r"feeds 2 layers .* the general model, which has 1 layer: "):
        plan(12, 1)


def test_added_logits_need_the_last_state_alone() -> None:
    chosen = plan(4, 7, strategy="logits")
    assert chosen == MemoryPlan((), ((7,),), False)
    assert chosen.states == (7,)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"layers": (6, 13)}, ["layer 13", "has 12"]),
        ({"strategy": "single", "layers": (3, 9)}, ["single feeds one layer", "names 2"]),
        ({"strategy": "gated", "layers": (3, 6, 9)}, ["gated feeds one layer", "names 3"]),
        ({"source": "1-6"}, ["has 1 ranges", "feeds 2 layers"]),
        ({"source": "1-6,7-13"}, ["state 13", "has 12 layers"]),
        ({"source": "1-6,12-7"}, ["'12-7' is not a range"]),
        ({"source": "1-6,"}, ["'' is not a range"]),
        ({"source": "1-6,-7"}, ["'-7' is not a range"]),
        ({"source": "papers"}, ["'papers' is not a range", "paper, reference"]),
        ({"strategy": "single", "source": "1-6"}, ["1-6", "takes one state"]),
        ({"strategy": "multiple", "layers": (1, 2), "source": "1,2-3"}, ["2-3", "takes one state"]),
    ],
)
def test_what_cannot_be_says_both_numbers(config: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**config)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.hint


def test_more_layers_than_states_is_refused() -> None:
    with pytest.raises(UsageError, match="feeds 3 layers with as many parts of the general model, which has 2 layers"):
        plan(12, 2, layers=(1, 2, 3))


def test_a_plan_needs_no_torch() -> None:
    code = "import sys, greenadapt.models.memory.choice; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
