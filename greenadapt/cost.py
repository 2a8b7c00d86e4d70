"""What a stage costs: time, memory, energy, CO2 and money, by the formula of the paper's Table 1 (arXiv 2004.03354)."""

import os
import resource
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import reduce
from itertools import zip_longest
from operator import add
from pathlib import Path
from typing import Any

_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes

# Strubell et al. 2019 (arXiv 1906.02243), which the paper follows.
PUE = 1.58
"""Power usage effectiveness: power of an average data centre over that of its computers (Uptime Institute 2018)."""
LBS_CO2_PER_KWH = 0.954
"""Pounds of CO2 emitted for one kilowatt-hour of electricity, US average (EPA 2018)."""
KG_PER_LB = 0.45359237

CORES = 12 * 12
"""Cores of the paper's CPU machine: twelve Intel Xeon E7-8857 v2 with twelve cores each."""
WATTS_PER_CORE = 1560 / CORES
"""Power of one busy core in watts: the paper's 1560 W over its cores (130 W per processor, according to Intel)."""


# The paper's dollars divided by its hours; both rows of a machine imply the same price.
CPU_MACHINE = 1.33, 6.33
"""Dollars per hour, lowest and highest offer, for twelve Xeon E7-8857 processors (144 cores)."""
GPUS = 8
"""GPUs of the machine on which BioBERT was pre-trained: V100 with 32 GB each."""
WATTS_PER_GPU = 1505 / GPUS
"""Power of a busy GPU in watts, including its share of the machine: the paper's 1,505 W divided by its GPUs."""
GPU_MACHINE = 5.92, 19.84
"""Dollars per hour, lowest and highest offer, for the machine with these GPUs."""


@dataclass(frozen=True)
class Cost:
    """The cost of some work.

    ``seconds`` of wall time, ``cpu_seconds`` of this process and its finished children, ``peak_memory_bytes`` of the
    largest single process, ``energy_kwh`` of the computer, ``co2_kg`` including the data center's
    overhead (``PUE``), and ``usd_low`` to ``usd_high``, the hours of cores and GPUs at the paper's prices.
    ``energy_source`` and ``co2_source`` say how energy and CO2 were estimated.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    energy_kwh: float = 0.0
    energy_source: str = ""
    co2_kg: float = 0.0
    co2_source: str = ""
    usd_low: float = 0.0
    usd_high: float = 0.0

    def __add__(self, second: "Cost") -> "Cost":
        """The cost of both in sequence: sums, and the higher peak of memory."""
        a, b = asdict(self), asdict(second)
        sums = {name: a[name] + b[name] for name in a}
        sources = {name: _join_sources(a[name], b[name]) for name in ("energy_source", "co2_source")}
        peak = max(self.peak_memory_bytes, second.peak_memory_bytes)
        return Cost(**{**sums, **sources, "peak_memory_bytes": peak})


def total(costs: Iterable[Mapping[str, Any]]) -> Cost:
    """The cost of several stages in sequence, from their manifests; a missing entry counts as 0."""
    names = [field.name for field in fields(Cost)]
    return reduce(add, (Cost(**{name: cost[name] for name in names if name in cost}) for cost in costs), Cost())


def _join_sources(first: str, second: str) -> str:
    return "; ".join(dict.fromkeys(filter(None, [*first.split("; "), *second.split("; ")])))


def estimate(seconds: float, cpu_seconds: float, peak_memory_bytes: int, gpus: int = 0) -> Cost:
    """Estimate energy from CPU time at ``WATTS_PER_CORE`` and wall time of ``gpus`` at ``WATTS_PER_GPU``, CO2 at the US
    average, and the price of the hours.

    CO2 in pounds is kW · h · 1.58 · 0.954 (Strubell et al. 2019), as in the paper's Table 1. Core-hours are CPU time or
    wall time, whichever is longer, since waiting is billed too. The energy of memory, disks and idle cores is not
    included.
    """
    gpu_hours = gpus * seconds / 3600
    energy_kwh = (cpu_seconds / 3600 * WATTS_PER_CORE + gpu_hours * WATTS_PER_GPU) / 1000
    core_hours = max(seconds, cpu_seconds) / 3600
    of_gpus = f", wall time at {WATTS_PER_GPU:.0f} W a GPU" if gpus else ""
    return Cost(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_memory_bytes=peak_memory_bytes,
        energy_kwh=energy_kwh,
        energy_source=f"estimate: CPU time at {WATTS_PER_CORE:.1f} W a core{of_gpus}",
        co2_kg=energy_kwh * PUE * LBS_CO2_PER_KWH * KG_PER_LB,
        co2_source=f"estimate: {LBS_CO2_PER_KWH} lbs/kWh (US average), PUE {PUE}",
        usd_low=core_hours * CPU_MACHINE[0] / CORES + gpu_hours * GPU_MACHINE[0] / GPUS,
        usd_high=core_hours * CPU_MACHINE[1] / CORES + gpu_hours * GPU_MACHINE[1] / GPUS,
    )


class Meter:
    """Measures the work inside ``with Meter() as meter:``; ``meter.cost`` is its cost afterwards.

    The peak of memory is that of the work on Linux, and that of the process on macOS.
    """

    cost: Cost

    def __enter__(self) -> "Meter":
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        self._children_before = _peak(resource.RUSAGE_CHILDREN)
        self._allocations_before = _gpu_allocations()
        self._begin = time.perf_counter(), _cpu_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        began, cpu_before = self._begin
        children = _peak(resource.RUSAGE_CHILDREN)
        # A peak that has not grown is of earlier children.
        peak = max(_own_peak(), children if children > self._children_before else 0)
        allocations = zip_longest(_gpu_allocations(), self._allocations_before, fillvalue=0)
        gpus = sum(now > before for now, before in allocations)
        self.cost = estimate(time.perf_counter() - began, _cpu_seconds() - cpu_before, peak, gpus)


def _cpu_seconds() -> float:
    return sum(os.times()[:4])  # user and system time, of this process and of its children


def _gpu_allocations() -> list[int]:
    """How often torch has allocated memory of each GPU; none where this process does not use GPUs."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    gpus = range(torch.cuda.device_count())
    return [int(torch.cuda.memory_stats(gpu).get("allocation.all.allocated", 0)) for gpu in gpus]


def _own_peak() -> int:
    """The peak of this process's memory in bytes."""
    with suppress(OSError):  # of Linux, where ru_maxrss would include a larger peak of the parent
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return _peak(resource.RUSAGE_SELF)


def _peak(whose: int) -> int:
    return resource.getrusage(whose).ru_maxrss * _MAXRSS_UNIT
