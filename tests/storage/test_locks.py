import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from greenadapt.errors import ConflictError, LockedError
from greenadapt.storage.locks import holder, lock
from greenadapt.storage.workspace import Workspace

HOLD = """
import sys, time
from pathlib import Path
from greenadapt.storage.locks import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "model" / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(ConflictError, match=f"process {holder.pid} .*{tmp_path / 'model'}: "),
        lock(path),
    ):
        pass
    with pytest.raises(ConflictError, match=f"{tmp_path / 'result'}: "), lock(path, tmp_path / "result"):
        pass
    holder.kill()
    holder.communicate()
    with lock(path):  # a dead process leaves no lock behind
        pass
    assert not path.exists()


def test_the_same_process_may_take_it_inside(tmp_path: Path) -> None:
    with lock(tmp_path / "l"), lock(tmp_path / "l"):
        assert str(os.getpid()) in (tmp_path / "l").read_text()
    assert not (tmp_path / "l").exists()


def test_another_thread_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l"

    def take() -> None:
        with lock(path):
            pass

    with ThreadPoolExecutor(1) as thread, lock(path):
        with pytest.raises(LockedError, match=f"another thread .* {tmp_path}: wait"):
            thread.submit(take).result()
        assert path.exists()
        assert str(os.getpid()) in (holder(path) or "")
    take()


def test_asking_who_holds_it_disturbs_nobody(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ended = Event()

    def ask() -> None:
        while not ended.is_set():
            holder(path)

    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(ask) for _ in range(2)]
        try:
            for _ in range(200):
                path.write_text("process 1 on a killed host")
                with lock(path):
                    pass
        finally:
            ended.set()
        assert [each.result() for each in asking] == [None, None]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """Also where the lock is removed and made again all the time: each adds to a number, and none is lost."""
    code = (
        "import sys; from pathlib import Path; from greenadapt.errors import LockedError\n"
        "from greenadapt.storage.locks import lock\n"
        "path, left = Path(sys.argv[1]), 100\n"
        "while left:\n"
        "    try:\n"
        "        with lock(path):\n"
        "            number = path.with_name('number')\n"
        "            number.write_text(str(int(number.read_text()) + 1)); left -= 1\n"
        "    except LockedError: pass\n"
    )
    (tmp_path / "number").write_text("0")
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "l")]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "300"


def test_a_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    path = tmp_path / "l"
    code = (
        "import os, sys, time; from pathlib import Path; from greenadapt.storage.locks import lock\n"
        "with lock(Path(sys.argv[1])):\n"
        "    child = os.fork()\n"
        "    if child == 0: time.sleep(60); os._exit(0)\n"
        "    print(child, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    try:
        with lock(path):
            pass
    finally:
        os.kill(child, 9)


def test_why_it_cannot_be_created_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out"
    message = rf"{out} cannot be created \({tmp_path / 'file'} is not a folder\): give"
    with pytest.raises(ConflictError, match=message), lock(out.with_name(".out.lock"), out):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_folder_that_takes_no_files_is_named() -> None:
    message = r"/proc/out cannot be created \(.+\): give another path"
    with pytest.raises(ConflictError, match=message), lock(Path("/proc/.out.lock"), Path("/proc/out")):
        pass


@pytest.mark.slow
def test_a_second_command_is_told_which_one_is_running(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from greenadapt.progress import Silent
from greenadapt.stages.session import Session
from greenadapt.storage.workspace import Workspace
with Session(Workspace(Path(sys.argv[1])), Silent(), command="greenadapt w2v --corpus a").locked("a", "m"):
    print("held", flush=True)
    time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    message = rf"process {holder.pid} on .* \(greenadapt w2v --corpus a\) is writing {tmp_path}/a/m: wait"
    with pytest.raises(ConflictError, match=message), Workspace(tmp_path).locked("a", "m"):
        pass
    holder.kill()
    holder.communicate()
