import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from greenadapt.errors import ConflictError, LockedError
from greenadapt.store.locks import holder, lock
from greenadapt.store.outputs import open_file
from tests.support.processes import held

IMPORTS = """
import os, sys, time
from pathlib import Path
from greenadapt.store.locks import lock
path = Path(sys.argv[1])
"""


@contextmanager
def running(code: str, path: Path) -> Iterator[tuple[int, str]]:
    """A process that runs ``code`` and is killed at the end: its number, and the first line that it prints."""
    with subprocess.Popen([sys.executable, "-c", IMPORTS + code, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()  # a child may still have it


def test_a_second_process_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "model" / ".lock"
    with held(path) as pid:
        with pytest.raises(ConflictError, match=f"process {pid} .*{tmp_path / 'model'}: "), lock(path):
            pass
        with pytest.raises(ConflictError, match=f"{tmp_path / 'result'}: "), lock(path, tmp_path / "result"):
            pass
    with lock(path):  # a dead process leaves no lock behind
        pass
    assert not path.exists()


def test_another_thread_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l"

    def take() -> None:
        with lock(path):
            pass

    with ThreadPoolExecutor(1) as thread, lock(path):
        with pytest.raises(LockedError, match=f"process {os.getpid()} .* {tmp_path}: wait"):
            thread.submit(take).result()
        assert path.exists()
        assert str(os.getpid()) in (holder(path) or "")
    take()


@pytest.mark.slow
def test_one_process_at_a_time(tmp_path: Path) -> None:
    """Also where the lock is removed and made again all the time: each adds to a number, and none is lost."""
    code = (
        "from greenadapt.errors import LockedError\n"
        "n, number = 30, path.with_name('number')\n"
        "while n:\n"
        "    try:\n"
        "        with lock(path): number.write_text(str(int(number.read_text()) + 1)); n -= 1\n"
        "    except LockedError: pass\n"
    )
    (tmp_path / "number").write_text("0")
    command = [sys.executable, "-c", IMPORTS + code, str(tmp_path / "l")]
    writers = [subprocess.Popen(command) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "90"


def test_a_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    path = tmp_path / "l"
    code = (
        "with lock(path):\n"
        "    child = os.fork()\n"
        "    if child == 0: time.sleep(60); os._exit(0)\n"
        "    print(child, flush=True); time.sleep(60)\n"
    )
    with running(code, path) as (_, child):
        pass
    try:
        with lock(path):
            pass
    finally:
        os.kill(int(child), 9)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("write", [lambda path: open_file(path, "w"), lambda path: lock(path.with_name("lock"), path)])
def test_why_it_cannot_be_created_is_one_error(tmp_path: Path, write: Callable[[Path], Any]) -> None:
    (tmp_path / "file").touch()
    for out, reason in ((tmp_path / "file" / "out", f"{tmp_path / 'file'} is not a folder"), (Path("/proc/out"), ".+")):
        with pytest.raises(ConflictError, match=rf"{out} cannot be created \({reason}\): give another"), write(out):
            pass
