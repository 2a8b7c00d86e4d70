"""Preparing a corpus on a cluster: whether it gives the bytes of one machine, and what it costs.

A compressed text is also prepared as a plain file, which is cut. Both are prepared without a cluster and on nodes of
one core on this machine, of which some are killed while the text is split; files and counts must be the same. Then the
plain file is prepared without Ray and on one node in turns, each time with as many cores as this machine has. The
seconds are those of the stage, connecting included; it is also timed on its own.
"""

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_nodes import started

from greenadapt.storage.files import hash_file, read_object
from greenadapt.workers import usable_cores

_STORE = 400 << 20
"""Bytes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this part of ``cluster.py``."""
    parser.add_argument("--corpus", type=Path, required=True, help="a text file, gz too")
    parser.add_argument("--model", default="minilm", help="whose tokenizer splits the text")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each kind, for the cost")
    parser.add_argument("--work", type=Path, help="a folder for what is written and removed")


def main(options: argparse.Namespace) -> None:
    """Compare, measure, and print a line for each run."""
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        work, plain = Path(folder), options.corpus
        if plain.suffix == ".gz":
            plain = work / plain.stem
            with gzip.open(options.corpus) as packed, open(plain, "wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
        for text in dict.fromkeys([options.corpus, plain]):
            same_bytes(text, options, work)
        if options.pairs:
            overhead(plain, options, work)


@dataclass(frozen=True)
class Prepared:
    """What ``corpus prepare`` wrote: hashes of its files, its counts, what was read, and the seconds of the stage."""

    files: dict[str, str]
    counts: dict[str, Any]
    read: dict[str, int]
    seconds: float

    def same(self, other: "Prepared") -> bool:
        return (self.files, self.counts, self.read) == (other.files, other.counts, other.read)


class Preparation:
    """A running ``greenadapt corpus prepare`` with a workspace of its own."""

    def __init__(self, text: Path, model: str, workspace: Path, options: Sequence[object]) -> None:
        self.workspace = workspace
        shutil.rmtree(workspace, ignore_errors=True)
        command = ["corpus", "prepare", text, "--model", model, "--workspace", workspace, *options]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "greenadapt", *map(str, command), "--json"], stdout=subprocess.PIPE, text=True
        )

    def wait_for_parts(self, n: int) -> bool:
        """Wait until nodes work and so many parts are split; whether the command is still running."""
        while self._process.poll() is None:
            begun = list(self.workspace.glob("*/*/.work/corpus/parts-*/*"))
            if begun and sum(path.name.startswith("text-") for path in begun) >= n:
                return True
            time.sleep(0.02)
        return False

    def result(self) -> Prepared:
        output, _ = self._process.communicate()
        if self._process.returncode:
            sys.exit(f"corpus prepare ended with {self._process.returncode}")
        folder = Path(json.loads(output)["folder"])  # one line: nothing of Ray's on standard output
        manifest = read_object(folder / "manifest.json", "result")
        files = {path.name: hash_file(path) for path in sorted(folder.iterdir()) if path.name != "manifest.json"}
        return Prepared(files, manifest["counts"], manifest["facts"]["read"], manifest["cost"]["seconds"])


def same_bytes(text: Path, options: argparse.Namespace, work: Path) -> None:
    """Prepare ``text`` without a cluster, and on one whose nodes are killed; compare."""
    alone = Preparation(text, options.model, work / "alone", []).result()
    with started(options.nodes, 1, _STORE) as cluster:
        running = Preparation(text, options.model, work / "cluster", ["--cluster", cluster.address])
        killed = 0
        while killed < options.kills and running.wait_for_parts(1 + killed if text.suffix != ".gz" else 0):
            time.sleep(1)
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
            killed += 1
        shared = running.result()
    verdict = "the same bytes and counts" if shared.same(alone) else "OTHER BYTES OR COUNTS"
    print(
        f"{text.name}: {alone.counts['tokens']:,} words, {alone.counts['words']:,} distinct; {options.nodes} nodes, "
        f"{killed} killed: {verdict} ({shared.seconds:.1f} s, without a cluster {alone.seconds:.1f} s)",
        flush=True,
    )
    if not shared.same(alone):
        sys.exit(1)


def overhead(text: Path, options: argparse.Namespace, work: Path) -> None:
    """Time a preparation without Ray and one on one node, in turns."""
    cores, ratios = usable_cores(), []
    with started(1, cores, _STORE) as cluster:
        print(f"connecting to a node: {connection_seconds(cluster.address):.2f} s", flush=True)
        for pair in range(options.pairs):
            sides = {"alone": ["--workers", cores], "node": ["--cluster", cluster.address]}
            order = list(sides) if pair % 2 == 0 else list(sides)[::-1]
            results = {name: Preparation(text, options.model, work / name, sides[name]).result() for name in order}
            ratios.append(results["node"].seconds / results["alone"].seconds)
            rates = {name: side.counts["tokens"] / side.seconds for name, side in results.items()}
            print(
                f"{cores} cores: without Ray {results['alone'].seconds:.2f} s ({rates['alone']:,.0f} words/s), "
                f"one node {results['node'].seconds:.2f} s ({rates['node']:,.0f} words/s), ratio {ratios[-1]:.3f}",
                flush=True,
            )
    print(f"median ratio {statistics.median(ratios):.3f} (at most 1.10 is the aim)")


def connection_seconds(address: str) -> float:
    """Seconds to import Ray, connect to ``address`` and check versions, in a process of its own."""
    code = (
        "import sys, time; from greenadapt.cluster import connected; begin = time.perf_counter()\n"
        "with connected(sys.argv[1]): print(time.perf_counter() - begin)"
    )
    process = subprocess.run([sys.executable, "-c", code, address], stdout=subprocess.PIPE, text=True, check=True)
    return float(process.stdout)
