import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenadapt.workers import usable_cores, worker_pool

STARTER = """
import os, time
from greenadapt.workers import worker_pool
if __name__ == "__main__":
    with worker_pool(2) as pool:
        print(*{pool.submit(os.getpid).result() for _ in range(4)}, flush=True)
        time.sleep(60)
"""


def test_workers_start_with_what_they_are_told() -> None:
    with worker_pool(2, os.chdir, "/") as pool:
        assert pool.submit(os.getcwd).result() == "/"
    assert usable_cores() >= 1


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


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/a/b", {"a/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"}, 1),
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        (
            "4:cpu,cpuacct:/a",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "50000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            1,
        ),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ("0::/", {"cpu.max": "max 100000"}, 4),
        ("0::/", {"cpu.max": "900000 100000"}, 4),
        ("0::/", {}, 4),
        ("", {}, 4),
    ],
)
def test_cores_are_no_more_than_the_quota_of_a_container(
    own: str, files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    for name, content in {"proc/self/cgroup": own, **{f"sys/fs/cgroup/{n}": c for n, c in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content + "\n" if content else "")
    assert usable_cores(tmp_path) == cores
