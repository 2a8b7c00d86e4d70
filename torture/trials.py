"""Runs of a stage from the same start state, always in the same folder."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import greenadapt
from greenadapt.storage.files import hash_file, hash_json
from tests.support.processes import MODULE, Forked
from torture.injected import CODE
from torture.outcomes import Outcome, Verdict
from torture.stages import Stage, make_inputs, make_models, reads_models, run_all, stages
from torture.states import NotWholeError, State, differences, hidden_in, state_of

_SHIM = "torture-shim.so"
_BY_SIGNAL = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM)
_LONGEST = 300.0
"""Seconds after which a run hangs."""


class PromiseError(Exception):
    """Something is not as promised."""

    def __init__(self, verdict: Verdict, detail: str) -> None:
        super().__init__(detail)
        self.outcome = Outcome(verdict, detail)


@dataclass(frozen=True)
class Reference:
    """An undisturbed run."""

    before: State
    after: State
    probes: tuple[str, str]
    seconds: float
    changes: int
    """How many calls changed files."""
    memory: int
    """Bytes of addresses that it took beyond those of its parent."""


class Bench:
    """Inputs, start states and references, made when they are first needed; ``run`` is where the stages run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.inputs, self.run = folder / "in", folder / "run"
        self.has_shim = os.environ.get("LD_PRELOAD", "").endswith(_SHIM)
        """Whether what is started has it, see ``preload``."""
        self._references: dict[tuple[str, bool], Reference] = {}
        self._code = hash_json({str(path): hash_file(path) for path in Path(greenadapt.__file__).parent.rglob("*.py")})

    @cached_property
    def stages(self) -> dict[str, Stage]:
        return stages()

    def reference(self, stage: Stage, replaces: bool) -> Reference:
        key = stage.name, replaces
        if key not in self._references:
            self._references[key] = self._saved_reference(stage, replaces) or self._new_reference(stage, replaces)
        return self._references[key]

    def make_inputs(self) -> None:
        make_inputs(self.inputs)

    def restore(self, stage: Stage, replaces: bool) -> None:
        self.clear()
        shutil.copytree(self._start(stage, replaces), self.run, symlinks=True)

    def clear(self) -> None:
        subprocess.run(["umount", "-q", str(self.run)], check=False, capture_output=True)
        shutil.rmtree(self.run, ignore_errors=True)

    def command(self, stage: Stage, replaces: bool) -> tuple[str, ...]:
        return (*stage.run, *([stage.force] if replaces and stage.force else []))

    def begun(self, stage: Stage, replaces: bool, **faults: Any) -> Forked:
        command = self.command(stage, replaces)
        return Forked(["-c", CODE, json.dumps(faults), *command] if faults else [*MODULE, *command], self.run)

    def ended(self, stage: Stage, replaces: bool, **faults: Any) -> "subprocess.CompletedProcess[str]":
        """The ended stage; raises ``PromiseError`` if it hangs."""
        start = time.monotonic()
        process = self.begun(stage, replaces, **faults).completed(_LONGEST)
        if time.monotonic() - start > _LONGEST:
            raise PromiseError("hung", f"{_LONGEST:.0f} s: {process.stderr[-300:]}")
        return process

    def has_run(self, stage: Stage, process: "subprocess.CompletedProcess[str]") -> bool:
        """Whether a run says that another run did the work, of a command that cannot run twice."""
        return bool(stage.again) and process.returncode == 1 and stage.again in process.stderr

    def require(self, stage: Stage, *allowed: State) -> None:
        """Raise ``PromiseError`` if a result is not as in one of the states, or not whole."""
        try:
            state = self.state(stage)
        except NotWholeError as error:
            raise PromiseError("lost", str(error)) from None
        if differing := differences(state, *allowed):
            raise PromiseError("lost", f"neither as before nor as an undisturbed run leaves it: {differing}")

    def require_probe(self, stage: Stage, *allowed: str) -> None:
        """The same for what the stage's probe prints; an index that is not finished answers from what it has."""
        if stage.probe and (answer := self._probe(stage)) not in allowed:
            if len(allowed) > 1 and stage.name == "index" and not answer.startswith("error"):
                return
            raise PromiseError("lost", f"{' '.join(stage.probe)} prints {answer[:200]}")

    def state(self, stage: Stage) -> State:
        return state_of(self.run, ("index",) if stage.probe[:1] == ("search",) else ())

    def _probe(self, stage: Stage) -> str:
        if not stage.probe:
            return ""
        process = Forked([*MODULE, *stage.probe], self.run).completed(_LONGEST)
        return process.stdout if process.returncode == 0 else f"error {process.returncode}: {process.stderr}"

    def _start(self, stage: Stage, replaces: bool) -> Path:
        return self._folder / "starts" / f"{stage.name}{'-again' if replaces else ''}"

    def _saved_reference(self, stage: Stage, replaces: bool) -> Reference | None:
        try:
            values = json.loads(self._start(stage, replaces).with_suffix(".json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if values.pop("code") != self._code:
            return None
        return Reference(**{**values, "probes": tuple(values["probes"])})

    def _new_reference(self, stage: Stage, replaces: bool) -> Reference:
        self.make_inputs()
        if reads_models(stage):
            make_models(self.inputs)
        start = self._start(stage, replaces)
        self.clear()
        self.run.mkdir()
        run_all([*stage.before, *(stage.earlier if replaces else ())], self.run)
        shutil.rmtree(start, ignore_errors=True)
        shutil.copytree(self.run, start, symlinks=True)
        before, first = self.state(stage), self._probe(stage)
        count = self._folder / "count.json"
        counted = {"arm": [str(self.run), -1, 0, 0]} if self.has_shim else {}
        self._complete(stage, replaces, count=str(count), **counted)
        after = self.state(stage)
        self.restore(stage, replaces)
        begin = time.monotonic()
        self._complete(stage, replaces)
        seconds = time.monotonic() - begin
        if differing := differences(self.state(stage), after):
            raise PromiseError("lost", f"two undisturbed runs differ: {differing}")
        reference = Reference(before, after, (first, self._probe(stage)), seconds, **json.loads(count.read_text()))
        values = {"code": self._code, **asdict(reference)}
        start.with_suffix(".json").write_text(json.dumps(values), "utf-8")
        return reference

    def _complete(self, stage: Stage, replaces: bool, **faults: Any) -> None:
        process = self.ended(stage, replaces, **faults)
        if process.returncode:
            raise RuntimeError(f"{stage.name} ended with {process.returncode}: {process.stderr[-1000:]}")


class Trial:
    """One attempt at a stage, from its start state."""

    def __init__(self, bench: Bench, stage: Stage, draw: random.Random, *, replaces: bool) -> None:
        self.bench, self.stage, self.draw, self.replaces = bench, stage, draw, replaces
        self.reference: Reference = bench.reference(stage, replaces)
        self.notes: list[str] = []
        bench.restore(stage, replaces)

    def check(self) -> None:
        """Every result is as before or as it should become."""
        self.bench.require(self.stage, self.reference.before, self.reference.after)
        if self.draw.random() < 0.3 or self.stage.probe[:1] == ("tasks",):
            self.bench.require_probe(self.stage, *self.reference.probes)

    def judge(self, process: "subprocess.CompletedProcess[str]", codes: tuple[int, ...] = (1,)) -> None:
        """Check that a run with a fault either succeeds or fails as promised."""
        has_begun = bool(process.stderr or process.stdout)
        is_over = process.returncode in (-signal.SIGTERM, -signal.SIGINT) and has_begun  # Python was ending
        if process.returncode == 0 or is_over:
            self.bench.require(self.stage, self.reference.after)
        else:
            self.check()
            if has_begun or process.returncode not in _BY_SIGNAL:
                check_message(process, codes)

    def finish(self) -> list[str]:
        """Check that the next run ends as an undisturbed one; return the temporary files that remain."""
        process = self.bench.ended(self.stage, self.replaces)
        if process.returncode and not self.bench.has_run(self.stage, process):
            raise PromiseError("lost", f"the next run ended with {process.returncode}: {process.stderr[-1500:]}")
        self.bench.require(self.stage, self.reference.after)
        self.bench.require_probe(self.stage, self.reference.probes[1])
        return hidden_in(self.bench.run)

    def signalled(self, number: int) -> "subprocess.CompletedProcess[str]":
        """Run the stage and send a signal at a random moment."""
        process = self.bench.begun(self.stage, self.replaces)
        time.sleep(self.draw.uniform(0.02, 1.0) * self.reference.seconds)
        process.send_signal(number)
        return process.completed(120)


def check_message(process: "subprocess.CompletedProcess[str]", codes: tuple[int, ...] = (1,)) -> None:
    """Raise ``PromiseError`` unless a run that failed says so in one line, with the right exit code."""
    lines = process.stderr.strip().splitlines()
    if "Traceback" in process.stderr or "Exception ignored" in process.stderr:
        raise PromiseError("traceback", process.stderr[-3000:])
    if process.returncode not in codes:
        name = signal.Signals(-process.returncode).name if process.returncode < 0 else str(process.returncode)
        raise PromiseError("crashed", f"exit code {name}: {process.stderr[-600:]}")
    if not lines or not lines[-1].startswith("greenadapt: "):
        raise PromiseError("unclear", f"the last line is not an error's: {process.stderr[-600:]}")


def is_worded(process: "subprocess.CompletedProcess[str]") -> bool:
    """Whether a run that a signal stopped must say so: not before it began, nor when it was over and Python ended."""
    return process.returncode not in (0, -signal.SIGKILL) and not (
        process.returncode in _BY_SIGNAL and (process.stdout or not process.stderr)
    )


def preload(folder: Path) -> None:
    """Compile the shim, and have it loaded into what this process starts."""
    if shutil.which("cc") is None:
        print("no C compiler (cc): no write errors and no wrong clocks are tried", file=sys.stderr)
        return
    shim = folder.absolute() / _SHIM
    source = str(Path(__file__).with_name("shim.c"))
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(shim), source, "-ldl"], check=True)
    os.environ["LD_PRELOAD"] = str(shim)
