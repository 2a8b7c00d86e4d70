"""The program as people and launchers start it, in processes of its own."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from greenadapt.storage.files import hash_file

MODULE = ("-m", "greenadapt")


def printed_random() -> random.Random:
    """Random moments for kills. A failing test shows the seed; ``GREENADAPT_TEST_SEED`` draws the same again."""
    seed = int(os.environ.get("GREENADAPT_TEST_SEED") or random.randrange(2**32))
    print(f"GREENADAPT_TEST_SEED={seed}")  # noqa: T201
    return random.Random(seed)


def interrupted(command: Iterable[object], state: Path, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Start ``greenadapt`` with ``command`` and send it a signal once the file ``state`` is there."""
    process = subprocess.Popen(
        [sys.executable, *MODULE, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 100
    while not state.is_file() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(number)
    out, error = process.communicate(timeout=60)
    assert out == ""
    assert "Traceback" not in error
    if number == signal.SIGINT:
        assert error.splitlines()[-1].startswith("greenadapt: interrupted: ")
    codes = {signal.SIGINT: (130, -number), signal.SIGTERM: (143,), signal.SIGKILL: (-number,)}
    assert process.returncode in codes[number], error
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


# Does as a launcher, but imports torch and transformers once, not three times; it has the store, as torchrun does.
_TWO = """
import os, runpy, signal, sys
import accelerate, torch.distributed as dist, transformers.models.bert.modeling_bert

os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", TORCHELASTIC_USE_AGENT_STORE="True")
port, told = os.pipe()  # the store has a thread, so there can be none before the processes part
children = []
for rank in "01":
    child = os.fork()
    if child == 0:
        signal.alarm(140)  # should the other one, or whoever waits, be gone
        os.environ.update(RANK=rank, LOCAL_RANK=rank, MASTER_PORT=os.read(port, 5).decode())
        sys.argv = sys.argv[1:]
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    children.append(child)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
os.write(told, f"{store.port:05}".encode() * 2)
while children:
    ended, status = os.wait()
    children.remove(ended)
    if status:
        for child in children:
            os.kill(child, signal.SIGTERM)
        sys.exit(1)
"""


def together(program: Iterable[object], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``launched`` without the launcher and most of its time; ``tests/cli/test_finetune.py`` uses the real one."""
    return _two([sys.executable, "-c", _TWO, *map(str, program)], folder)


def launched(program: Iterable[object], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Two processes of a launcher that run ``program``, a script or a module with its arguments, in ``folder``."""
    # accelerate launch starts several processes for GPUs only; what it starts then is torchrun, which is told of CPUs.
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu"]
    command += ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    return _two([*command, "--main_process_port", "0", *map(str, program)], folder)


def _two(command: list[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return done


def digests(folder: Path) -> dict[str, str]:
    """The files of a trained model's folder, of all that does not tell the time."""
    timed = {"README.md", "manifest.json", "history.jsonl"}
    found = [path for path in folder.rglob("*") if path.is_file() and path.name not in timed]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in found}
