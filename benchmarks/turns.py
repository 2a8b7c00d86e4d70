"""Several sides that make the same steps in turns, so that a machine that slows down slows all of them down."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from greenadapt.config import Precision

WARM_UP = 5
"""Steps of each side that are not timed."""
AT_A_TURN = 2
PRECISION: Precision = "auto" if torch.cuda.is_available() else "float32"
"""Of training beside other programs, which train in float32 on a CPU."""


@dataclass(frozen=True)
class Timed:
    """The results of each side's steps, and the seconds of each step after the warm-up."""

    made: dict[str, list[Any]]
    seconds: dict[str, list[float]]


def timed(sides: Mapping[str, Iterator[Any]], n_steps: int) -> Timed:
    """Have the sides make ``n_steps`` steps after the warm-up, a few at a turn, in another order each time."""
    times = Timed({side: [] for side in sides}, {side: [] for side in sides})
    names, n_left = list(sides), WARM_UP + n_steps
    for turn in range(-(-n_left // AT_A_TURN)):
        for side in names[turn % len(names) :] + names[: turn % len(names)]:
            for _ in range(min(AT_A_TURN, n_left - turn * AT_A_TURN)):
                begin = time.perf_counter()
                times.made[side].append(next(sides[side]))
                wait()
                times.seconds[side].append(time.perf_counter() - begin)
    return Timed(times.made, {side: seconds[WARM_UP:] for side, seconds in times.seconds.items()})


def setting_lines(title: str, lengths: Sequence[int], machine: Any) -> list[str]:
    """Lines about the machine, the setting, and the lengths of the texts in pieces."""
    precision = "bfloat16" if machine.trains_in_bfloat16 else "float32"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    return [
        f"{title} on {device}, {precision}, torch {torch.__version__}",
        f"{len(lengths):,} texts of {min(lengths)} to {max(lengths)} pieces, mean {statistics.mean(lengths):.1f}",
    ]


def wait() -> None:
    """Wait until a GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(work: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    wait()
    begin = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begin


HEADINGS = f"{'ratio':>8}{'of each step':>24}{'at most':>10}"


def ratios(seconds: Sequence[float], first: Sequence[float], limit: float | None) -> str:
    """Columns under ``HEADINGS``: of the median to the first side's, and median and quartiles of that of each step."""
    pairs = [time / first_time for time, first_time in zip(seconds, first, strict=True)]
    low, middle, high = statistics.quantiles(pairs, method="inclusive")
    of_medians = statistics.median(seconds) / statistics.median(first)
    quartiles = f"{middle:.3f} ({low:.3f}–{high:.3f})"
    return f"{of_medians:8.3f}{quartiles:>24}{'' if limit is None else f'{limit:.2f}':>10}"
