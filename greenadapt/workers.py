"""Parallel work: processes that end with their parent, a thread that prefetches, and items in groups."""

import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from types import ModuleType
from typing import Any, TypeVar


def shorten_spinning() -> None:
    """Let a thread that waits for work spin only briefly, unless the environment says otherwise.

    torch and numpy read this when they are imported. To spin for longer takes the cores from others, and to sleep at
    once makes training on an idle machine longer by a tenth.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        os.environ.setdefault("KMP_BLOCKTIME", "0")  # of LLVM's and Intel's OpenMP, in ms
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # 2⁴ cycles


def usable_cores(system: Path = Path("/")) -> int:
    """The number of cores that this process may use: its CPU affinity or its container's CPU quota, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([cores, *(max(1, math.ceil(share)) for share in _quotas(system))])


def _quotas(system: Path) -> Iterator[float]:
    """The CPU quotas of this process's control group (version 2) and those above it, in cores."""
    groups = system / "sys" / "fs" / "cgroup"
    try:
        lines = (system / "proc" / "self" / "cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    paths = [PurePosixPath(line.removeprefix("0::")) for line in lines if line.startswith("0::")]
    for path in (folder for group in paths for folder in (group, *group.parents)):
        try:
            quota, period = (groups / str(path).lstrip("/") / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue  # this group has no quota
        if quota != "max":
            yield int(quota) / int(period)


def launched_processes() -> tuple[int, int]:
    """The rank of this process and their number if a launcher (accelerate, torchrun) started several, else (0, 1)."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """A pool of ``workers`` processes.

    They are spawned, since a fork copies locks that other threads hold. Unlike in Python's own pool, they do not import
    the main script, which may be a user's without ``if __name__ == "__main__"``: everything they run is in modules.
    """
    return ProcessPoolExecutor(workers, _Context(), _start)


class _Process(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802  (the name in multiprocessing)
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # what a worker imports as the main script: nothing
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _Process


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the pool
    end_with_parent()


def end_with_parent() -> None:
    """Make this worker end when its parent ends: a killed parent cannot stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


Item = TypeVar("Item")


def prefetch(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Compute the next of ``items`` in a thread while the caller uses the current item; see ``yield_ready``."""
    with closing(yield_ready(items, 1)) as batches:
        for batch in batches:
            yield from batch


def yield_ready(items: Iterator[Item], most: int) -> Generator[list[Item], None, None]:
    """Compute ``items`` in a thread, up to ``most`` ahead of the caller, and yield all that are there, 1 to ``most``.

    Errors of ``items`` are raised in order. To stop early, close this iterator: it waits for the item in progress, and
    ends the thread.
    """
    queue: SimpleQueue[Any] = SimpleQueue()
    room, is_closed = threading.Semaphore(most), threading.Event()

    def compute() -> None:
        for item in items:
            queue.put(item)
            room.acquire()
            if is_closed.is_set():
                return

    with ThreadPoolExecutor(1, "ahead") as thread:
        end = thread.submit(compute)
        end.add_done_callback(queue.put)
        try:
            item = None
            while item is not end:
                item, batch = queue.get(), []
                while item is not end:
                    batch.append(item)
                    if len(batch) == most or queue.empty():
                        break
                    item = queue.get()
                if batch:
                    yield batch
                    room.release(len(batch))
            end.result()
        finally:
            is_closed.set()
            room.release()


def group(items: Iterable[Item], size: Callable[[Item], int], min_size: int, max_items: int) -> Iterator[list[Item]]:
    """Group consecutive ``items`` until their sizes add up to at least ``min_size``, or there are ``max_items``."""
    together: list[Item] = []
    total = 0
    for item in items:
        together.append(item)
        total += size(item)
        if len(together) == max_items or total >= min_size:
            yield together
            together, total = [], 0
    if together:
        yield together
