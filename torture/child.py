"""A process that has imported greenadapt and what it needs, and forks another for each thing to try.

Reads a JSON object a line and answers with one: ``code``, negative for a signal and null for what had to be killed.
"""

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_IMPORTS = (
    "accelerate", "torch", "transformers.models.bert.modeling_bert", "gensim.models.fasttext", "greenadapt.cli",
    "greenadapt.stages.adapt", "greenadapt.stages.finetune.train", "greenadapt.inference.predictor",
    "tests.support.small_served",  # its import makes a folder, which must not look like one made by an input
)  # fmt: skip


class Child:
    """The process, as the campaign sees it; it starts with the first request."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **request: Any) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-m", "torture.child"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()


def _serve() -> None:
    for name in _IMPORTS:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            _redirect(request)
            try:
                _try(request)
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            except BaseException:
                import traceback

                traceback.print_exc()
                code = 99
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(code)
        print(json.dumps({"code": _wait(child, request["seconds"])}), flush=True)


def _wait(child: int, seconds: float) -> int | None:
    """The exit code; ``None`` if it had to be killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _redirect(request: dict[str, Any]) -> None:
    os.chdir(request["folder"])
    os.environ.update(request.get("environment", {}))
    for number, name in enumerate((os.devnull, request["out"], request["error"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o644), number)


def _try(request: dict[str, Any]) -> None:
    """Run a command (``arguments``), or read ``n`` changed files of a ``reader`` or send requests (``http``)."""
    from torture.fuzzing import fuzz, limit_memory
    from torture.readers import READERS
    from torture.watch import watch

    limit_memory()
    folder = Path(request["folder"])
    starts = request.get("starts", ())
    seen = watch(
        [folder / path for path in request["readable"]], [folder / path for path in request["writable"]], starts
    )
    if "arguments" in request:
        from greenadapt.cli import main

        sys.argv = ["greenadapt", *request["arguments"]]
        try:
            main()
        finally:
            Path(request["seen"]).write_text(json.dumps(seen), "utf-8")
        return
    if request["reader"] == "http":
        from torture.requests import send

        tally = send(folder, request["seed"], request["n"], Path(request["at"]))
    else:
        tally = fuzz(READERS[request["reader"]], folder, request["seed"], request["n"], Path(request["at"]))
    result = {"counts": dict(tally.counts), "bad": list(tally.bad.values()), "seen": seen}
    Path(request["seen"]).write_text(json.dumps(result), "utf-8")


if __name__ == "__main__":
    _serve()
