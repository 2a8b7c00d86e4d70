import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from greenadapt.errors import InputError
from greenadapt.workers import prefetch, usable_cores

STARTER = """
import os, time
from greenadapt.workers import worker_pool
if __name__ == "__main__":
    with worker_pool(2) as pool:
        print(*{pool.submit(os.getpid).result() for _ in range(4)}, flush=True)
        time.sleep(60)
"""


def test_workers_do_not_run_an_unguarded_script_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nfrom greenadapt.workers import worker_pool\nprint('once')\n"
        "with worker_pool(1) as pool:\n    print(pool.submit(os.getpid).result() != os.getpid())\n"
    )
    completed = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["once", "True"]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")
def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(STARTER)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [Path("/proc", pid) for pid in parent.stdout.readline().split()]
    assert workers
    assert all(worker.exists() for worker in workers)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10
    while any(map(_runs, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(_runs, workers))


def _runs(process: Path) -> bool:
    """Whether it exists and is no zombie that waits for whoever inherited it."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def container(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A system whose control group and its files are the parameter."""
    group, files = request.param
    for name, content in {"proc/self/cgroup": group, **{f"sys/fs/cgroup/{n}": c for n, c in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content + "\n" if content else "")
    return tmp_path


@pytest.mark.parametrize(
    ("container", "cores"),
    [
        (("0::/", {"cpu.max": "150000 100000"}), 2),
        (("0::/a/b", {"a/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"}), 1),
        (("0::/", {"cpu.max": "max 100000"}), 4),
        (("0::/", {}), 4),
    ],
    indirect=["container"],
)
def test_cores_are_no_more_than_the_quota_of_a_container(
    container: Path, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert usable_cores(container) == cores


def threads() -> set[threading.Thread]:
    """Those that make items."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("ahead")}


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = threads()
    yield
    assert threads() <= before


def test_the_next_item_is_made_while_one_is_used() -> None:
    makers, second_made = [], threading.Event()

    def items() -> Iterator[int]:
        for i in range(3):
            makers.append(threading.get_ident())
            if i == 1:
                second_made.set()
            yield i

    with closing(prefetch(items())) as stream:
        assert next(stream) == 0
        assert second_made.wait(10)
    assert threading.get_ident() not in makers
    assert len(set(makers)) == 1


def test_an_error_comes_in_its_place_and_ends_the_thread() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise InputError("broken")

    before = threads()
    stream = prefetch(items())
    assert threads() <= before  # it starts with the first item
    assert next(stream) == 1
    with pytest.raises(InputError, match="broken"):
        next(stream)
    assert threads() <= before
    assert list(stream) == []


def test_an_error_in_its_use_ends_the_thread() -> None:
    with pytest.raises(InputError), closing(prefetch(iter(range(5)))) as stream:  # noqa: PT012
        for _ in stream:
            raise InputError("not wanted")
