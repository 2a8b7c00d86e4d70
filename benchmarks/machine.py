"""What a benchmark says of its machine, and how much memory a process has had at most. Linux only (reads /proc)."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path


def machine_line(packages: Sequence[str]) -> str:
    """Processor, how many of it this process may use, and the versions of Python and ``packages``."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = cpu[0].partition(":")[2].strip() if cpu else platform.machine()
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    return f"{name}, {len(os.sched_getaffinity(0))} CPUs; Python {platform.python_version()}, {versions}"


def peak_memory(process: int | str = "self") -> float:
    """The most memory that a process has had, in MB; 0 where it has ended and nobody has waited for it yet.

    Not ``ru_maxrss``, which a process inherits from the one that starts it.
    """
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def family(pid: int) -> list[int]:
    """``pid`` and its descendants."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(descendant for child in children for descendant in family(child))]
