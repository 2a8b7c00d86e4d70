"""Inputs as large as ``--scale`` says, once each, with the seconds and the memory of all processes of a command."""

import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from greenadapt.report.page.blocks import Plot
from greenadapt.report.page.charts import Axis, lines, write_plots
from greenadapt.storage.files import Json
from torture.campaign import Part
from torture.outcomes import Outcome
from torture.stages import make_inputs, make_models

_LONGEST = 3 * 3600.0
_HALVES, _N_HALVES = "halves of requests to serve", 1_100
_VOCABULARY = 5_000_000
"""Words that a generated text can have; the k-th has a share of about 1 / k."""
_KNOWN = 2_000
"""The most frequent of them are words of the model."""
_LINE = 20
_MOST_POINTS = 500
"""Of a plot."""
_BLOCK = 100_000
"""Lines that are generated at once."""


@dataclass
class Measured:
    """Commands that ran one after the other, and the peak of their time and memory."""

    seconds: float = 0.0
    rss: int = 0
    """Bytes that all processes of a command held in memory together, at most."""
    samples: list[tuple[str, float, int]] = field(default_factory=list)
    """The command's name, seconds since it began, bytes."""
    ended: "subprocess.CompletedProcess[str] | None" = None
    """The last command."""
    is_late: bool = False
    """Whether it took too long, and was killed."""


class Load(Part):
    """The cases, which ``docs/trust.md`` lists with what they took."""

    def __init__(self, folder: Path, scale: float) -> None:
        self._folder, self._scale = folder, scale
        self._cases: dict[str, Callable[[Path], tuple[str, list[str]]]] = {
            "one long line": self._long_line,
            "one word, ten million lines": self._one_word,
            "10,000 labels": self._labels,
            "100,000 files": self._files,
            "a context of ten million characters": self._context,
            "100,000 files in an index": self._indexed_files,
            "a million added words": self._added_words,
            "text of 2 GB, 300 dimensions": self._text,
            "predict on ten million lines": self._lines,
        }

    def cases(self) -> list[str]:
        return [_HALVES, *self._cases]

    def once(self, case: str) -> bool:
        return True

    def attempt(self, case: str, seed: int) -> Iterator[Outcome]:
        run = self._folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        self._models  # noqa: B018
        if case == _HALVES:
            yield self._halves()
            return
        try:
            size, commands = self._cases[case](run)
            measured = Measured()
            for command in commands:
                _measure(command.split(), run, measured)
            yield self._judged(case, size, measured)
        finally:
            shutil.rmtree(run, ignore_errors=True)

    def _judged(self, case: str, size: str, measured: Measured) -> Outcome:
        assert measured.ended is not None
        code, message = measured.ended.returncode, measured.ended.stderr.strip()
        name = re.sub(r"\W+", "-", case)
        (self._folder / f"memory-{name}.json").write_text(json.dumps(measured.samples))
        write_plots([memory_plot(name, measured.samples)], None, self._folder)
        facts = {"size": size, "seconds": measured.seconds, "rss": measured.rss}
        if "Traceback" in message:
            return Outcome("traceback", message[-2000:], facts=facts)
        if code == 0:
            return Outcome("done", facts=facts)
        if measured.is_late:
            return Outcome("hung", f"over {_LONGEST / 3600:.0f} hours", facts=facts)
        last = message.splitlines()[-1] if message else ""
        is_said = code == 1 and last.startswith("greenadapt: ")
        return Outcome("refused" if is_said else "crashed", f"exit code {code}: {last}", facts=facts)

    @cached_property
    def _models(self) -> Path:
        make_inputs(self._folder / "in")
        make_models(self._folder / "in")
        return self._folder / "in"

    def _halves(self) -> Outcome:
        """Whether a server answers others while so many clients send half a request and stop."""
        from tests.support.small_served import serving

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        with serving(self._models / "adapted") as (_, address), ExitStack() as stack:
            host, _, port = address.removeprefix("http://").partition(":")
            begin = time.monotonic()
            for i in range(_N_HALVES):
                connection = stack.enter_context(socket.create_connection((host, int(port)), 60))
                connection.sendall(
                    (b"GET /health HTTP/1.1\r\nHost: loc", b"POST /predict HTTP/1.1\r\nContent-L", b"")[i % 3]
                )
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=30) as answer:
                    answer.read()
            except OSError as error:
                return Outcome("hung", f"/health, beside {_N_HALVES:,} halves of requests: {error}")
        facts = {"size": f"{_N_HALVES:,} connections", "seconds": time.monotonic() - begin, "rss": 0}
        return Outcome("done", facts=facts)

    def _n(self, whole: float) -> int:
        return max(1, round(whole * self._scale))

    def _long_line(self, run: Path) -> tuple[str, list[str]]:
        n = self._n(100e6)
        with _text(run / "line.txt") as write:
            for lines in _zipf_lines(n):
                write(lines.replace("\n", " "))
        return _bytes(n), [f"corpus prepare line.txt -m ../in/base --workspace ws --workers {_cores()}"]

    def _one_word(self, run: Path) -> tuple[str, list[str]]:
        n = self._n(1e7)
        with _text(run / "word.txt") as write:
            for first in range(0, n, _BLOCK):
                write("tachycardia\n" * min(n - first, _BLOCK))
        prepare = "corpus prepare word.txt -m ../in/base --workspace ws --keep-duplicates"
        return f"{n:,} lines", [prepare, "w2v -c word.txt -m ../in/base --workspace ws --epochs 1 --keep-duplicates"]

    def _files(self, run: Path) -> tuple[str, list[str]]:
        n = self._small_files(run)
        return f"{n:,} files", ["corpus prepare files -m ../in/base --workspace ws --format text"]

    def _indexed_files(self, run: Path) -> tuple[str, list[str]]:
        n = self._small_files(run)
        return f"{n:,} files", ["index --documents files -o index", "search index heart --quiet"]

    def _small_files(self, run: Path) -> int:
        n = self._n(100_000)
        lines = "".join(_zipf_lines(n * 400)).splitlines()
        for i in range(n):
            file = run / "files" / f"{i // 1000}" / f"{i}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            at = 3 * i % len(lines)
            file.write_text("\n".join(lines[at : at + 3]) + f"\n{i}\n")
        return n

    def _context(self, run: Path) -> tuple[str, list[str]]:
        n = self._n(1e7)
        with _text(run / "context.txt") as write:
            for lines in _zipf_lines(n):
                write(lines)
        return f"{n:,} characters", ["qa -m ../in/qa --context context.txt -q heart --quiet"]

    def _labels(self, run: Path) -> tuple[str, list[str]]:
        n = self._n(10_000)
        with _text(run / "labels.jsonl") as write:
            for i in range(2 * n):
                write(json.dumps({"text": f"the heart rate of cell {i % n}", "label": f"class {i % n}"}) + "\n")
        train = "finetune --task classification --train labels.jsonl --test labels.jsonl -m ../in/adapted --epochs 1"
        return f"{n:,} labels", [f"{train} --batch-size 64 --max-length 32 -o out --quiet"]

    def _added_words(self, run: Path) -> tuple[str, list[str]]:
        n = self._n(1e6)
        with _text(run / "words.txt") as write:
            for first in range(0, 2 * n, _LINE // 2):
                new = " ".join(f"{_name(_KNOWN + (first + i) % n)} {_name(i * 7 % _KNOWN)}" for i in range(_LINE // 2))
                write(f"{new}\n")
        options = "-c words.txt -m minilm --workspace ws --epochs 1 --dim 100 --min-count 1"
        return f"{n:,} words", [f"adapt {options} --workers {_cores()} --quiet"]

    def _text(self, run: Path) -> tuple[str, list[str]]:
        n = self._n(2e9)
        with _text(run / "text.txt") as write:
            for lines in _zipf_lines(n):
                write(lines)
        options = f"-c text.txt -m minilm --workspace ws --workers {_cores()} --quiet"
        return _bytes(n), [
            f"corpus prepare text.txt -m minilm --workspace ws --workers {_cores()} --quiet",
            f"w2v {options} --dim 300 --epochs 1 --max-vocab 500000",
            "align -c text.txt -m minilm --workspace ws --quiet",
            "expand -c text.txt -m minilm --workspace ws --quiet",
        ]

    def _lines(self, run: Path) -> tuple[str, list[str]]:
        n = self._n(1e7)
        words = [_name(i) for i in range(_KNOWN)]
        with _text(run / "lines.txt") as write:
            for first in range(0, n, 1000):
                write("".join(f"{words[i % _KNOWN]} tachycardia\n" for i in range(first, min(first + 1000, n))))
        return f"{n:,} lines", ["predict -m ../in/ner -i lines.txt -o out.jsonl --pool expanded"]


def memory_plot(name: str, samples: Sequence[tuple[str, float, int]]) -> Plot:
    """Memory over time, a line for each of the commands, which ran one after the other."""
    rows: list[Json] = []
    begin, last, command = 0.0, 0.0, ""
    for named, seconds, held in samples:
        if named != command:
            begin, command = begin + last, named
        last = seconds
        rows.append({"command": command, "minutes": (begin + seconds) / 60, "memory": held / 1e9})
    every = -(-len(rows) // _MOST_POINTS)
    axes = Axis("minutes", "minutes", ".1f"), Axis("memory", "GB of all processes", ".2f"), Axis("command", "command")
    return lines(f"memory-{name}", "Memory over time", rows[::every], *axes)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _bytes(n: int) -> str:
    return f"{n / 1e9:g} GB" if n >= 1e9 else f"{n / 1e6:g} MB"


@contextmanager
def _text(path: Path) -> Iterator[Callable[[str], object]]:
    with open(path, "w", encoding="utf-8") as file:
        yield file.write


def _name(rank: int) -> str:
    """The word of a rank: common ones are short."""
    syllables = []
    number = rank + 1
    while number:
        number, letter = divmod(number, 100)
        syllables.append("bcdfghklmnprstvwxzjq"[letter // 5] + "aeiou"[letter % 5])
    return "".join(syllables)


def _zipf_lines(n_bytes: int) -> Iterator[str]:
    """About ``n_bytes`` of lines whose words are drawn with shares of 1 / rank, in blocks; the same each time."""
    draw = np.random.default_rng(1)
    frequent = np.array([_name(rank) for rank in range(1_000_000)], dtype=object)
    while n_bytes > 0:
        ranks = np.exp(draw.random((_BLOCK // 10, _LINE)) * np.log(_VOCABULARY)).astype(np.int64) - 1
        rows = [[frequent[r] if r < len(frequent) else _name(r) for r in row] for row in ranks.tolist()]
        text = "".join(" ".join(row) + ".\n" for row in rows)
        yield text[:n_bytes]
        n_bytes -= len(text)


def _measure(command: list[str], run: Path, measured: Measured) -> None:
    """Run a command if the ones before succeeded, and look at its memory twice a second."""
    if measured.ended is not None and measured.ended.returncode:
        return
    begin = time.monotonic()
    out, error = run / "stdout", run / "stderr"
    with open(out, "wb") as stdout, open(error, "wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "greenadapt", *command], cwd=run, stdout=stdout, stderr=stderr
        )
        while process.poll() is None and time.monotonic() - begin < _LONGEST:
            held = sum(map(_held, _family(process.pid)))
            measured.rss = max(measured.rss, held)
            measured.samples.append((command[0], round(time.monotonic() - begin, 1), held))
            time.sleep(0.5)
        measured.is_late = process.poll() is None
        process.kill()
        process.wait()
    measured.seconds += time.monotonic() - begin
    message = error.read_bytes()[-20_000:].decode(errors="replace")
    measured.ended = subprocess.CompletedProcess(command, process.returncode, "", message)


def _family(pid: int) -> Iterable[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def _held(pid: int) -> int:
    """Bytes that a process holds; shared memory is divided among its processes."""
    try:
        match = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(match[1]) if match else 0
