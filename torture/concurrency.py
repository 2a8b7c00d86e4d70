"""Many processes at once: the same stage ten times, readers while a result is replaced, two corpora; file systems."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from greenadapt.storage.files import hash_file
from tests.support.processes import MODULE, Forked
from torture.campaign import Part
from torture.faults import killed_at_write
from torture.outcomes import Outcome
from torture.stages import Stage, run_all
from torture.states import TIMED, NotWholeError, State
from torture.trials import Bench, PromiseError, Trial

_PROCESSES = 10
_MOUNTED = ("adapt", "ner", "index", "predict", "update")
"""Stages that are tried on other file systems."""
_FAILS = {("sshfs", "ner")}
"""What is known not to work, see ``docs/trust.md``."""
_IMAGE = 512 << 20
"""Bytes of the file that holds a file system; xfs needs 300 MB."""


class Concurrency(Part):
    """Kinds of it × stages."""

    def __init__(self, folder: Path, scale: float) -> None:
        self._bench = Bench(folder)
        self._kinds: dict[str, Callable[[Bench, Stage, random.Random], str]] = {"ten": ten, "readers": readers}
        self._systems = {name: mount for name, mount in SYSTEMS.items() if _has(name)} if os.geteuid() == 0 else {}

    def cases(self) -> list[str]:
        of_two = [f"readers/{name}" for name, stage in self._bench.stages.items() if stage.earlier]
        mounted = [f"{system}/{name}" for name in _MOUNTED for system in self._systems if (system, name) not in _FAILS]
        cases = [*(f"ten/{name}" for name in self._bench.stages), *of_two, "corpora/adapt", *mounted]
        random.Random(0).shuffle(cases)
        return cases

    def attempt(self, case: str, seed: int) -> Iterator[Outcome]:
        kind, _, name = case.partition("/")
        stage, draw = self._bench.stages[name], random.Random(seed)
        try:
            if kind in self._systems:
                note = on(self._bench, stage, draw, self._systems[kind])
            elif kind == "corpora":
                note = two_corpora(self._bench)
            else:
                note = self._kinds[kind](self._bench, stage, draw)
            yield Outcome("survived", note)
        except PromiseError as error:
            yield error.outcome

    def close(self) -> None:
        self._bench.clear()


def ten(bench: Bench, stage: Stage, draw: random.Random) -> str:
    """Ten processes start the same command; those that do not run it say so in a line, and the result is correct."""
    replaces = bool(stage.earlier) and draw.random() < 0.5
    reference = bench.reference(stage, replaces)
    bench.restore(stage, replaces)
    processes = []
    for _ in range(_PROCESSES):
        processes.append(bench.begun(stage, replaces))
        time.sleep(draw.choice([0.0, 0.0, 0.05]))
    ended = [process.completed(300) for process in processes]
    ran = sum(finished.returncode == 0 for finished in ended)
    for finished in ended:
        if "Traceback" in finished.stderr:
            raise PromiseError("traceback", finished.stderr[-2000:])
        last = "".join(finished.stderr.strip().splitlines()[-1:])
        if finished.returncode and not (
            bench.has_run(stage, finished) or (finished.returncode == 69 and "is writing" in last)
        ):
            raise PromiseError("unclear", f"exit code {finished.returncode}: {last}")
    if not ran:
        raise PromiseError("lost", "none of ten ran")
    bench.require(stage, reference.after)
    bench.require_probe(stage, reference.probes[1])
    return f"{ran} ran, {_PROCESSES - ran} said that another one does"


def readers(bench: Bench, stage: Stage, draw: random.Random) -> str:
    """While a result is replaced, every reading finds the old one or the new one; of a folder, file by file."""
    reference = bench.reference(stage, True)
    bench.restore(stage, True)
    allowed = _files(bench.run)
    process, seen, n = bench.begun(stage, True), set[tuple[str, str]](), 0
    while process.poll() is None:
        if (bench.run / "ws").is_dir() and stage.probe == ():
            bench.require(stage, reference.before, reference.after)
        seen |= _files(bench.run)
        n += 1
        time.sleep(draw.uniform(0, 0.02))
    finished = process.completed()
    if finished.returncode:
        raise PromiseError("lost", f"it ended with {finished.returncode}: {finished.stderr[-600:]}")
    bench.require(stage, reference.after)
    if stage.name == "index":  # its readers open it as a whole: what tantivy does while it writes is its own affair
        return f"{n} readings"
    if torn := seen - allowed - _files(bench.run):
        raise PromiseError("lost", f"neither old nor new: {sorted(torn)[:3]}")
    return f"{n} readings"


def _files(folder: Path) -> set[tuple[str, str]]:
    """The visible files with their hashes, but those that hold times."""
    files = set()
    for path in (Path(above, name) for above, folders, names in os.walk(folder) for name in (*folders, *names)):
        name = path.relative_to(folder).as_posix()
        if path.name in TIMED or path.suffix == ".html" or any(part.startswith(".") for part in Path(name).parts):
            continue
        try:
            files.add((name, hash_file(path)))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue  # a folder, or the folder that it lay in was replaced
    return files


def two_corpora(bench: Bench) -> str:
    """Prepare two corpora at once in one workspace: each result is as if the command had run alone."""
    bench.make_inputs()
    commands = [
        (*MODULE, *f"adapt -c ../in/{name}.txt -m ../in/base --workspace ws --workers 1 --min-count 1".split())
        for name in ("text", "more")
    ]
    states: list[State] = []
    for at_once in (False, True):
        bench.clear()
        bench.run.mkdir()
        begun = []
        for command in commands:
            begun.append(Forked(command, bench.run))
            while not at_once and begun[-1].poll() is None:
                time.sleep(0.05)
        for ended in [process.completed(300) for process in begun]:
            if ended.returncode:
                raise PromiseError("lost", f"exit code {ended.returncode}: {ended.stderr[-600:]}")
        try:
            states.append(bench.state(bench.stages["adapt"]))
        except NotWholeError as error:
            raise PromiseError("lost", str(error)) from None
    if states[0] != states[1]:
        raise PromiseError("lost", "other bytes than one after the other")
    return f"{len(states[0])} results"


def on(bench: Bench, stage: Stage, draw: random.Random, mount: Callable[[Path, Path], None]) -> str:
    """Run on another file system: kill the command, and run it again."""
    trial = Trial(bench, stage, draw, replaces=bool(stage.earlier) and draw.random() < 0.5)
    saved, store = bench.run.with_name("kept"), bench.run.with_name("store")
    for folder in (saved, store):
        shutil.rmtree(folder, ignore_errors=True)
    bench.run.rename(saved)
    bench.run.mkdir()
    store.mkdir()
    mount(bench.run, store)
    run_all([], bench.run)
    subprocess.run(["cp", "-rP", f"{saved}/.", str(bench.run)], check=True)
    n = killed_at_write(trial) if bench.has_shim else 0
    if not bench.has_shim:
        trial.signalled(signal.SIGKILL)
        trial.check()
    trial.finish()
    bench.clear()
    return f"{n} kills"


def _sshfs(run: Path, store: Path) -> None:
    """A folder by the protocol of SFTP, as over ssh, with its server as a child instead of on another machine."""
    ends = ["EXEC:/usr/lib/openssh/sftp-server", f"EXEC:sshfs -f -o passive \\:{store} {run}"]
    subprocess.Popen(["socat", *ends], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not os.path.ismount(run):
        if time.monotonic() > end:
            raise RuntimeError("sshfs does not mount")
        time.sleep(0.05)


def _formatted(kind: str) -> Callable[[Path, Path], None]:
    def mount(run: Path, store: Path) -> None:
        image = store / "image"
        with open(image, "wb") as file:
            file.truncate(_IMAGE)
        subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(run)], check=True)

    return mount


def _tmpfs(run: Path, store: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "none", str(run)], check=True)


def _overlay(run: Path, store: Path) -> None:
    for name in ("lower", "upper", "work"):
        (store / name).mkdir()
    options = f"lowerdir={store}/lower,upperdir={store}/upper,workdir={store}/work"
    subprocess.run(["mount", "-t", "overlay", "none", "-o", options, str(run)], check=True)


SYSTEMS: dict[str, Callable[[Path, Path], None]] = {
    "sshfs": _sshfs, "tmpfs": _tmpfs, "overlay": _overlay, "xfs": _formatted("xfs"), "btrfs": _formatted("btrfs"),
}  # fmt: skip
"""What can be mounted on a folder, by name."""


def _has(system: str) -> bool:
    """Whether this machine can mount a kind of file system."""
    needed = {"sshfs": ("sshfs", "socat"), "xfs": ("mkfs.xfs",), "btrfs": ("mkfs.btrfs",)}.get(system, ())
    file_systems = Path("/proc/filesystems").read_text().split()
    return all(map(shutil.which, needed)) and (system == "sshfs" or system in file_systems)
