"""The program as people and launchers start it, in processes of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from greenadapt.store import hash_file

MODULE = ("-m", "greenadapt")


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


def launched(program: Iterable[object], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Two processes of a launcher that run ``program``, a script or a module with its arguments, in ``folder``."""
    # accelerate launch starts several processes for GPUs only; what it starts then is torchrun, which is told of CPUs.
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu"]
    command += ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += ["--main_process_port", "0", *map(str, program)]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return done


def digests(folder: Path) -> dict[str, str]:
    """The files of a trained model's folder, of all that does not tell the time."""
    timed = {"README.md", "manifest.json", "history.jsonl"}
    found = [path for path in folder.rglob("*") if path.is_file() and path.name not in timed]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in found}
