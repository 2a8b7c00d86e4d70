"""Stages are killed, signalled, and run where disks are full or break, clocks jump, memory ends or locks were left."""

import errno
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from greenadapt.storage.results import MANIFEST
from torture.campaign import Part
from torture.outcomes import Outcome
from torture.trials import Bench, PromiseError, Trial

_ERRORS = (errno.ENOSPC, errno.ENOSPC, errno.EIO, errno.EDQUOT)
_LEAST = 20_000_000
"""Bytes of memory without which Python does not begin."""
_YEAR = 365 * 24 * 3600
_AT_WRITES = ("kill-at-write", "write-error")


class Faults(Part):
    """Kinds of faults × stages. Each attempt starts with an earlier result or without, as drawn."""

    def __init__(self, folder: Path, scale: float) -> None:
        self._bench = Bench(folder)
        self._kinds: dict[str, Callable[[Trial], int]] = {
            "kill": killed, "term": terminated, "interrupt": interrupted, "size": limited, "full-disk": full_disk,
            "memory": starved, "lock": locked,
        }  # fmt: skip
        if self._bench.has_shim:
            self._kinds |= {"kill-at-write": killed_at_write, "write-error": failing_writes, "clock": wrong_clock}
        if os.geteuid() != 0:
            del self._kinds["full-disk"]  # nobody else may mount one

    def cases(self) -> list[str]:
        """All, mixed, so that a short campaign has tried something of everything; kills twice as often as others."""
        kinds = [*self._kinds, "kill"] + ["kill-at-write"] * self._bench.has_shim
        cases = [f"{kind}/{stage}" for kind in kinds for stage in self._bench.stages]
        random.Random(0).shuffle(cases)
        return cases

    def attempt(self, case: str, seed: int) -> Iterator[Outcome]:
        kind, _, name = case.partition("/")
        stage = self._bench.stages[name]
        draw = random.Random(seed)
        trial = Trial(self._bench, stage, draw, replaces=bool(stage.earlier) and draw.random() < 0.5)
        if kind in _AT_WRITES and not trial.reference.changes:
            yield Outcome("survived", "it changes no file", n=0)
            return
        try:
            n = self._kinds[kind](trial)
            remains = trial.finish()
            yield Outcome("survived", "; ".join(trial.notes), n=n, facts={"left": remains} if remains else {})
        except PromiseError as error:
            yield error.outcome

    def close(self) -> None:
        self._bench.clear()


def killed(trial: Trial) -> int:
    """Send SIGKILL at one to three random moments."""
    for n in range(trial.draw.randint(1, 3)):
        ended = trial.signalled(signal.SIGKILL)
        if ended.returncode != -signal.SIGKILL:
            trial.judge(ended)
            return max(n, 1)
        trial.check()
    return n + 1


def killed_at_write(trial: Trial) -> int:
    """SIGKILL just before a random change of a file, one to three times."""
    for n in range(trial.draw.randint(1, 3)):
        at = trial.draw.randint(1, trial.reference.changes)
        arm = [str(trial.bench.run), at, -signal.SIGKILL, 0]
        ended = trial.bench.ended(trial.stage, trial.replaces, arm=arm)
        trial.notes.append(f"at change {at} of {trial.reference.changes}")
        if ended.returncode != -signal.SIGKILL:  # what the runs before left was nearly done
            trial.judge(ended)
            return max(n, 1)
        trial.check()
    return n + 1


def terminated(trial: Trial) -> int:
    """Send SIGTERM at a random moment."""
    trial.judge(trial.signalled(signal.SIGTERM), (143,))
    return 1


def interrupted(trial: Trial) -> int:
    """Send SIGINT at a random moment."""
    trial.judge(trial.signalled(signal.SIGINT), (130,))
    return 1


def failing_writes(trial: Trial) -> int:
    """From a random change on, or only there, changes of files fail."""
    at, error = trial.draw.randint(1, trial.reference.changes), trial.draw.choice(_ERRORS)
    goes_on = int(error != errno.EIO or trial.draw.random() < 0.5)
    trial.notes.append(f"{errno.errorcode[error]} {'from' if goes_on else 'at'} {at} of {trial.reference.changes}")
    arm = [str(trial.bench.run), at, error, goes_on]
    trial.judge(trial.bench.ended(trial.stage, trial.replaces, arm=arm))
    return 1


def limited(trial: Trial) -> int:
    """No file may grow beyond a random size (``ulimit -f``)."""
    size = round(10 ** trial.draw.uniform(1, 5.7))
    trial.notes.append(f"{size} bytes")
    ended = trial.bench.ended(trial.stage, trial.replaces, file_bytes=size)
    if len(ended.stderr) >= size - 500:  # standard error is a file here, and was cut, too
        ended.stderr = "greenadapt: cut"
    trial.judge(ended)
    return 1


def full_disk(trial: Trial) -> int:
    """A disk of its own, which the stage fills."""
    run = trial.bench.run
    saved = run.with_name("kept")
    subprocess.run(["rm", "-rf", str(saved)], check=True)
    run.rename(saved)
    run.mkdir()
    used = int(subprocess.run(["du", "-sk", str(saved)], capture_output=True, text=True, check=True).stdout.split()[0])
    size = used + 64 + round(10 ** trial.draw.uniform(0, 3.3))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(run)], check=True)
    subprocess.run(["cp", "-a", f"{saved}/.", str(run)], check=True)
    trial.notes.append(f"{size} kB, of which {used} were used")
    trial.judge(trial.bench.ended(trial.stage, trial.replaces))
    subprocess.run(["mount", "-o", "remount,size=1g", str(run)], check=True)
    return 1


def wrong_clock(trial: Trial) -> int:
    """The clock is wrong by up to twenty years, from the start or from a random reading; so are times of files."""
    for path in [*trial.bench.run.rglob("*"), *trial.bench.inputs.glob("*.txt")]:
        if path.is_file() and trial.draw.random() < 0.5:
            when = time.time() + trial.draw.uniform(-20, 20) * _YEAR
            os.utime(path, (when, when))
    seconds, reads = round(trial.draw.uniform(-20, 20) * _YEAR), trial.draw.choice([0, trial.draw.randint(1, 60)])
    trial.notes.append(f"{seconds} s after {reads} readings")
    ended = trial.bench.ended(trial.stage, trial.replaces, clock=[seconds, reads])
    if ended.returncode:
        raise PromiseError("lost", f"ended with {ended.returncode}: {ended.stderr[-600:]}")
    trial.judge(ended)
    return 1


def starved(trial: Trial) -> int:
    """The stage gets a random part of the memory that it needs (``ulimit -v``)."""
    size = _LEAST + round(trial.draw.uniform(0.0, 1.0) * trial.reference.memory)
    trial.notes.append(f"{size / 1e6:.0f} of {trial.reference.memory / 1e6:.0f} MB")
    ended = trial.bench.ended(trial.stage, trial.replaces, memory=size)
    by_library = ended.returncode == 127 and ended.stderr.rstrip().endswith("ABORT")  # of the dynamic linker
    signals = (-signal.SIGABRT, -signal.SIGTRAP, -signal.SIGSEGV, -signal.SIGILL, -signal.SIGBUS)
    if by_library or ended.returncode in signals:
        trial.check()  # libraries in C++ and Rust end the process themselves
        trial.notes.append(f"ended by a library: {' '.join(ended.stderr.split())[-200:]}")
        return 1
    before_message, _, after = ended.stderr.partition("greenadapt: not enough memory")
    if after:
        ended.stderr = before_message + "greenadapt: not enough memory"  # libraries may complain when Python ends
    trial.judge(ended)
    return 1


def locked(trial: Trial) -> int:
    """Dead processes left locks. The case ``neighbours`` has other files of these names, which are refused."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    contents = [b"", f"process {dead.pid} on elsewhere".encode(), b"process 1 on here"]
    results = {path.parent for path in trial.bench.run.rglob(MANIFEST)}
    folders = [path for path in trial.bench.run.rglob("*") if path.is_dir() and not path.is_symlink()]
    for folder in (path for path in folders if results.isdisjoint([path, *path.parents])):
        (folder / ".lock").write_bytes(trial.draw.choice(contents))
    for name in ("out", "index", "many"):
        (trial.bench.run / f".{name}.lock").write_bytes(trial.draw.choice(contents))
    trial.judge(trial.bench.ended(trial.stage, trial.replaces))
    return 1
