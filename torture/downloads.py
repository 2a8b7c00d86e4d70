"""Corpora from a server on this machine that stalls, cuts connections, changes files and lies about them."""

import hashlib
import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.file_server import Server, serving
from tests.support.processes import Forked
from torture.campaign import Part
from torture.injected import CODE
from torture.outcomes import Outcome
from torture.states import State, hidden_in, state_of
from torture.trials import Bench, PromiseError, check_message, is_worded

_COMMAND = "corpus prepare texts.toml -m ../in/base --download --workspace ws --workers 1"
_FILES = ("text.txt", "words.txt")


class Downloads(Part):
    """``corpus prepare --download`` of a recipe with two files and their SHA-256."""

    def __init__(self, folder: Path, scale: float) -> None:
        self._bench = Bench(folder)
        self._kinds: dict[str, Callable[[Download], None]] = {
            "stall": stalled, "truncate": truncated, "change": changed, "lie": lied_to, "busy": refused, "kill": killed,
        }  # fmt: skip
        self._expected: State = {}

    def cases(self) -> list[str]:
        return [f"download/{kind}" for kind in self._kinds]

    def attempt(self, case: str, seed: int) -> Iterator[Outcome]:
        self._bench.make_inputs()
        with serving({f"/{name}": (self._bench.inputs / name).read_bytes() for name in _FILES}) as server:
            download = Download(self._bench, server, random.Random(seed))
            if not self._expected:
                download.succeed()
                self._expected = download.results()
                download = Download(self._bench, server, random.Random(seed))
            try:
                self._kinds[case.partition("/")[2]](download)
                download.succeed()
                if download.results() != self._expected:
                    raise PromiseError("lost", "other bytes than those of an undisturbed run")
                yield Outcome("survived", download.note, facts={"left": hidden_in(self._bench.run)})
            except PromiseError as error:
                yield error.outcome

    def close(self) -> None:
        self._bench.clear()


class Download:
    """One attempt, in an empty folder."""

    def __init__(self, bench: Bench, server: Server, draw: random.Random) -> None:
        self.bench, self.server, self.draw, self.note = bench, server, draw, ""
        self.whole = dict(server.files)
        bench.clear()
        bench.run.mkdir()
        recipe = 'title = "texts"\nlicence = "none"\nformat = "text"\n'
        for path, content in self.whole.items():
            digest = hashlib.sha256(content).hexdigest()
            recipe += f'[[sources]]\nurl = "{server.address}{path}"\nsha256 = "{digest}"\n'
        # Under the same name whatever the port of the server, as the corpus is named after the file.
        (bench.run / "texts.toml").write_text(recipe)

    def started(self) -> Forked:
        """The command; it waits for an answer for a second."""
        return Forked(["-c", CODE, json.dumps({"patience": 1}), *_COMMAND.split()], self.bench.run)

    def fail(self) -> None:
        ended = self.started().completed(120)
        if ended.returncode == 0:
            raise PromiseError("lost", "it succeeded with a broken download")
        check_message(ended)
        self.require_nothing_wrong()

    def succeed(self) -> None:
        ended = self.started().completed(120)
        if ended.returncode:
            raise PromiseError("lost", f"the next run ended with {ended.returncode}: {ended.stderr[-800:]}")
        self.require_nothing_wrong()

    def require_nothing_wrong(self) -> None:
        """Raise ``PromiseError`` unless files under their final names are whole."""
        for path in self.bench.run.glob("ws/*/.sources/*.txt"):
            if path.read_bytes() != self.whole[f"/{path.name}"]:
                raise PromiseError("lost", f"{path.name} is not what the recipe says")

    def results(self) -> State:
        return {name: value for name, value in state_of(self.bench.run).items() if name != "texts.toml"}


def stalled(download: Download) -> None:
    """Delay some answers beyond the client's patience; the download continues, or fails with a message."""
    slow = download.draw.randint(1, 8)
    countdown = iter(range(slow))

    def wait(path: str) -> str:
        if next(countdown, None) is not None:
            time.sleep(1.5)
        return ""

    download.server.before = wait
    download.note = f"{slow} answers"
    ended = download.started().completed(120)
    if ended.returncode:
        check_message(ended)
    download.require_nothing_wrong()
    download.server.before = lambda _: ""


def truncated(download: Download) -> None:
    """Connections end early, a few times or always."""
    server = download.server
    server.cut_after, server.cuts = download.draw.randint(0, 100_000), download.draw.choice([1, 3, 1000])
    server.ranges = download.draw.random() < 0.7
    download.note = f"{server.cuts} times after {server.cut_after} bytes"
    ended = download.started().completed(120)
    if ended.returncode:
        check_message(ended)
    download.require_nothing_wrong()
    server.cuts, server.ranges = 0, True


def changed(download: Download) -> None:
    """The file on the server becomes another one between two requests."""
    server, whole = download.server, dict(download.server.files)
    server.cut_after, server.cuts = download.draw.randint(1, 100_000), 1
    countdown = iter(range(download.draw.randint(1, 4)))

    def change(path: str) -> str:
        if next(countdown, None) is None:
            server.files = {name: bytes(reversed(content)) + b"more" for name, content in whole.items()}
        return ""

    server.before = change
    download.fail()
    server.before, server.files, server.cuts = (lambda _: ""), whole, 0


def lied_to(download: Download) -> None:
    """The file on the server is not the one that the recipe states: a byte differs, or it is shorter."""
    server, whole = download.server, dict(download.server.files)
    for name, content in whole.items():
        at = download.draw.randrange(len(content))
        server.files[name] = content[:at] + (b"" if download.draw.random() < 0.3 else b"\xff" + content[at + 1 :])
    download.fail()
    server.files = whole


def refused(download: Download) -> None:
    """The server is busy, or has no such file."""
    server = download.server
    if download.draw.random() < 0.5:
        server.unavailable, server.status, server.retry_after = 1000, download.draw.choice([403, 410, 503]), "0"
    else:
        server.files = {}
    download.fail()
    server.unavailable, server.files = 0, dict(download.whole)


def killed(download: Download) -> None:
    """SIGKILL or SIGTERM while it downloads slowly."""
    download.server.before = lambda _: time.sleep(0.2) or ""  # type: ignore[func-returns-value]
    process = download.started()
    time.sleep(download.draw.uniform(0.05, 1.5))
    number = download.draw.choice([signal.SIGKILL, signal.SIGTERM])
    process.send_signal(number)
    ended: subprocess.CompletedProcess[str] = process.completed(60)
    download.require_nothing_wrong()
    if is_worded(ended):
        check_message(ended, (143,))
    download.server.before = lambda _: ""
