"""The program as users and launchers start it, in processes of its own."""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from greenadapt.store.files import hash_file

MODULE = ("-m", "greenadapt")


# Imports what training takes seconds to import, once; then forks a process for each line that says what to run.
_FORKING = """
import gc, json, os, runpy, sys
import accelerate, torch.distributed, transformers.models.bert.modeling_bert
import greenadapt.cli, greenadapt.stages.adapt, greenadapt.vectors.engine.local

gc.freeze()
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork() if "arguments" in asked else None
    if child == 0:
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.argv = [*asked["arguments"]]
        for number, path in enumerate([os.devnull, asked["out"], asked["error"]]):
            os.dup2(os.open(path, os.O_RDWR), number)
        if sys.argv[0] == "-c":
            del sys.argv[1]
            exec(compile(asked["arguments"][1], "-c", "exec"), {"__name__": "__main__"})
        elif sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    if child is None:
        ended, status = os.waitpid(asked["pid"], os.WNOHANG)
        child = os.waitstatus_to_exitcode(status) if ended else None
    print(json.dumps(child), flush=True)
"""


class Forked:
    """A Python process that need not import torch and transformers: it is forked from one that has.

    Like ``subprocess.Popen``; ``arguments`` are those of Python, beginning with ``-m``, ``-c`` or a script.
    """

    _parent: subprocess.Popen[str] | None = None

    def __init__(self, arguments: Iterable[object], folder: Path | None = None, **environment: str) -> None:
        self.args = list(map(str, arguments))
        self.returncode: int | None = None
        self._said = [tempfile.NamedTemporaryFile("w+", prefix="greenadapt-test-") for _ in range(2)]  # noqa: SIM115
        out, error = (file.name for file in self._said)
        request = {"arguments": self.args, "folder": str(folder or Path.cwd()), "out": out, "error": error}
        self.pid: int = self._ask(**request, environment={**os.environ, "OMP_NUM_THREADS": "1", **environment})

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._ask(pid=self.pid)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def completed(self, seconds: float = 150) -> subprocess.CompletedProcess[str]:
        """The output and the exit code; a process that takes longer than ``seconds`` is killed."""
        deadline = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(0.02)
        out, error = (file.read() for file in self._said)
        for file in self._said:
            file.close()
        return subprocess.CompletedProcess(self.args, self.returncode or 0, out, error)

    @classmethod
    def _ask(cls, **request: Any) -> Any:
        if cls._parent is None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-c", _FORKING]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            cls._parent = subprocess.Popen(command, **pipes, text=True, env=environment)
            atexit.register(cls._parent.communicate)  # closes its standard input, with which it ends
        assert cls._parent.stdin is not None
        assert cls._parent.stdout is not None
        print(json.dumps(request), file=cls._parent.stdin, flush=True)
        return json.loads(cls._parent.stdout.readline())


_SAVING_OFTEN = """
import runpy
from greenadapt.training import loop

loop.CHECKPOINT_STEPS = 1
runpy.run_module("greenadapt", run_name="__main__", alter_sys=True)
"""


def interrupted(command: Iterable[object], state: str, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Start ``greenadapt`` with ``command`` and send it a signal once a file that ``state`` matches has content.

    It saves the state of a training after each step.
    """
    process = Forked(["-c", _SAVING_OFTEN, *command])
    deadline = time.monotonic() + 100
    while process.poll() is None and time.monotonic() < deadline:
        if any(path.stat().st_size for path in Path().glob(state)):
            break
        time.sleep(0.005)
    process.send_signal(number)
    ended = process.completed(60)
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    if number == signal.SIGINT:
        assert ended.stderr.splitlines()[-1].startswith("greenadapt: interrupted: ")
    codes = {signal.SIGINT: (130, -number), signal.SIGTERM: (143,), signal.SIGKILL: (-number,)}
    assert ended.returncode in codes[number], ended.stderr
    return ended


def launched(program: Iterable[object]) -> subprocess.CompletedProcess[str]:
    """Run ``program``, a script or a module with its arguments, by a launcher as two processes."""
    # accelerate launch starts several processes for GPUs only; what it starts then is torchrun, which is told of CPUs.
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu"]
    command += ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += ["--main_process_port", "0", *map(str, program)]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, ended.stderr
    return ended


_HOLDING = """
import sys
from pathlib import Path
from greenadapt.store.locks import lock
with lock(Path(sys.argv[1]), command=sys.argv[2] or None):
    print(flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(path: Path, command: str = "") -> Iterator[int]:
    """Another process, killed at the end, holds the lock ``path``, for ``command`` if that is not empty; its number."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", _HOLDING, str(path), command], **pipes) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"\n"
            yield process.pid
        finally:
            process.kill()


def digests(folder: Path) -> dict[str, str]:
    """The hash of each file in a trained model's folder, without files that contain times."""
    timed = {"README.md", "manifest.json", "history.jsonl"}
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in timed]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in paths}
