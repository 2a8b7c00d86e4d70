"""``greenadapt serve`` under many clients on the loopback, with a worker that is killed in the middle.

    python benchmarks/serve_load.py --model MODEL --texts TEXT --clients 50 --seconds 300 --workers 2

MODEL finds entities or labels; TEXT is plain text, a text per line. Each client sends one text after the other, the
next as soon as the last is answered, over a connection that it keeps as long as the server does. Half way a worker gets
SIGKILL: what it was answering is lost, and counted as such; its clients connect again. Latencies are those of answers
with status 200. Memory is what each worker holds, PSS, and in brackets how much of it lies in no file, in a line every
tenth of the time. The clients run in this process, on the same machine. Other options are those of ``serve``.
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from machine import machine_line

WARM_UP = 10.0
"""Seconds before the measurement begins."""


class Clients:
    """The answers to clients: seconds and time of each, and the count of each outcome."""

    def __init__(self, host: str, port: int, bodies: Iterator[bytes]) -> None:
        self.host, self.port, self.bodies = host, port, bodies
        self.answers: list[tuple[float, float]] = []
        self.outcomes: Counter[str] = Counter()
        self.is_over = False

    async def run(self) -> None:
        """One client; it connects again as often as it must."""
        while not self.is_over:
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port)
            except OSError:
                self.outcomes["refused"] += 1
                await asyncio.sleep(0.1)
                continue
            try:
                while not self.is_over and await self._ask(reader, writer):
                    pass
            except (OSError, asyncio.IncompleteReadError):
                self.outcomes["lost"] += 1
            finally:
                writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the server keeps the connection."""
        body = next(self.bodies)
        began = time.perf_counter()
        head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answered = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        [length] = re.findall(r"content-length: (\d+)", answered)
        await reader.readexactly(int(length))
        status = answered.split()[1]
        self.outcomes[status] += 1
        if status == "200":
            time_now = time.perf_counter()
            self.answers.append((time_now, time_now - began))
        return "connection: close" not in answered


def main() -> None:
    """Start the server, load it, and print what happened."""
    options, remaining = _options()
    print(machine_line(["torch", "fastapi", "uvicorn"]), flush=True)
    texts = options.texts.read_text("utf-8").splitlines()
    bodies = [json.dumps({"texts": [text]}).encode() for text in texts if text.strip()]
    command = [sys.executable, "-m", "greenadapt", "serve", "--model", str(options.model), "--port", "0"]
    command += ["--workers", str(options.workers), *remaining]
    began = time.perf_counter()
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        [host, port] = re.findall(r"http://([\d.]+):(\d+)", server.stderr.readline())[0]
        asyncio.run(_measure(options, server.pid, Clients(host, int(port), itertools.cycle(bodies)), began))
        server.terminate()
        log = server.communicate(timeout=60)[1]
        print(f"stopped by SIGTERM with exit code {server.returncode}; it said: {log.strip() or 'nothing'}")
    finally:
        server.kill()


async def _measure(options: argparse.Namespace, server: int, clients: Clients, began: float) -> None:
    first = asyncio.create_task(clients.run())
    while not clients.answers:
        await asyncio.sleep(0.05)
    print(f"first answer after {clients.answers[0][0] - began:.1f} s")
    tasks = [first, *(asyncio.create_task(clients.run()) for _ in range(options.clients - 1))]
    await asyncio.sleep(WARM_UP)
    clients.answers.clear()
    clients.outcomes.clear()
    start = time.perf_counter()
    killed = 0.0
    for tenth in range(11):
        await asyncio.sleep(max(0.0, start + options.seconds * tenth / 10 - time.perf_counter()))
        print(f"{tenth * options.seconds / 10:5.0f} s: {_memory(server)}; {_counts(clients.outcomes)}", flush=True)
        if tenth == 5:
            killed = time.perf_counter()
            os.kill(_workers(server)[0], signal.SIGKILL)
    clients.is_over = True
    await asyncio.gather(*tasks)
    _report(options, clients, start, killed)


def _report(options: argparse.Namespace, clients: Clients, start: float, killed: float) -> None:
    ends = np.array([end for end, _ in clients.answers])
    seconds = np.array([seconds_of_answer for _, seconds_of_answer in clients.answers])
    undisturbed = seconds[(ends < killed) | (ends > killed + options.seconds / 10)]
    for name, times in (("all answers", seconds), ("without the tenth after the kill", undisturbed)):
        p50, p99, longest = np.quantile(times, [0.5, 0.99, 1.0]) * 1000
        print(f"{name}: {len(times):,}, p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {longest:.0f} ms")
    rate = len(seconds) / (ends.max() - start)
    print(f"{rate:.1f} answers/s for {options.clients} clients; {_counts(clients.outcomes)}")


def _counts(outcomes: Counter[str]) -> str:
    return ", ".join(f"{name}: {n:,}" for name, n in sorted(outcomes.items()))


def _workers(server: int) -> list[int]:
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _memory(server: int) -> str:
    sizes = []
    for worker in _workers(server):
        lines = Path(f"/proc/{worker}/smaps_rollup").read_text().splitlines()
        size, private = (_megabytes(lines, name) for name in ("Pss:", "Pss_Anon:"))
        sizes.append(f"{size:.0f} ({private:.0f})")
    return f"{' + '.join(sizes)} MB"


def _megabytes(lines: list[str], name: str) -> float:
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_known_args()


if __name__ == "__main__":
    main()
