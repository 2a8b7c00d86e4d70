"""What ``adapt --update`` costs, and how good its vectors are, beside a full run of the same text.

    python benchmarks/update.py --corpus TEXT --model minilm --work DIR
    python benchmarks/update.py --corpus TEXT --model minilm --work DIR --first 0.9 --updates 10

TEXT is plain text, a document per line, compressed or not. A full run adapts to all of it. Beside it, a full run of its
first lines (``--first``, a share of them) is updated until all lines are there, in ``--updates`` equal steps. Time is
that of the whole command, on the wall and of the processor; precision is that of ``align``'s map, on the held-out words
of the command and, of the first and the last run, as the mean of ten held-out tenths. Finished runs are kept in DIR,
and the same command goes on after them.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from machine import machine_line
from records import Records, resumable
from tables import aligned
from vector_quality import alignment

from greenadapt.corpus.opening import open_binary
from greenadapt.storage.files import Json
from greenadapt.vectors.word_vectors import WordVectors


def main() -> None:
    """Do the missing runs, and print the table."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    records = Records(options.work / "records.jsonl")
    with open_binary(str(options.corpus)) as file:
        lines = file.readlines()
    print(machine_line(["numpy", "numba"]), flush=True)
    rows = [
        ["run", "documents", "new", "s", "CPU s", "s, of full", "CPU s, of full", "P@10 of align", "P@10, ten tenths"]
    ]
    full = _record(records, options, lines, Run("full"))
    rows.append(_row("full run", full, full))
    steps = [options.first + (1 - options.first) * step / options.updates for step in range(options.updates + 1)]
    for number, share in enumerate(steps):
        key = f"{options.first}, {number} of {options.updates}"
        run = Run(key, share, update=number > 0, measured=number in (0, options.updates))
        record = _record(records, options, lines, run)
        rows.append(_row(f"update {number}" if number else f"first {share:.0%}", record, full))
    print(aligned(rows))


@dataclass(frozen=True)
class Run:
    """A run of ``adapt`` on the first ``share`` of the lines."""

    key: str
    share: float = 1.0
    update: bool = False
    measured: bool = True
    """Whether ten tenths are held out, too."""


def _record(records: Records, options: argparse.Namespace, lines: list[bytes], run: Run) -> Json:
    key = f"{options.corpus.name}, {options.model}, {options.workers} workers, {' '.join(options.options)}, {run.key}"
    if key in records.by_key:
        return records.by_key[key]
    folder = options.work / ("full" if run.key == "full" else f"from-{options.first}-{options.updates}")
    if not run.update:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_bytes(b"".join(lines[: round(run.share * len(lines))]))
    command = [sys.executable, "-m", "greenadapt", "adapt", "--corpus", str(folder / "text.txt"), "--json", "-q"]
    command += ["--model", options.model, "--workspace", str(folder / "workspace"), "--rows", "map", *options.options]
    command += ["--workers", str(options.workers), *(["--update"] if run.update else [])]
    began, used = time.perf_counter(), _cpu_seconds()
    printed = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    seconds, cpu = time.perf_counter() - began, _cpu_seconds() - used
    corpus, trained, aligned = printed["stages"]
    updates = corpus["facts"].get("updates", [])
    return records.add(
        {
            "key": key,
            "seconds": seconds,
            "cpu_seconds": cpu,
            "documents": corpus["counts"]["documents"],
            "new": updates[-1]["new_documents"] if run.update else corpus["counts"]["documents"],
            "afresh": trained["facts"].get("afresh", ""),
            "align": aligned["facts"]["heldout"]["figures"]["base_rows"]["cosine"],
            "tenths": alignment(WordVectors.load(Path(trained["folder"])), options.model) if run.measured else None,
        }
    )


def _row(name: str, record: Json, full: Json) -> list[str]:
    cells = [
        f"{record['documents']:,}",
        f"{record['new']:,}",
        f"{record['seconds']:.1f}",
        f"{record['cpu_seconds']:.1f}",
    ]
    cells += [f"{record[name] / full[name]:.3f}" for name in ("seconds", "cpu_seconds")]
    cells += [f"{record['align']['precision_at_10']:.4f}"]
    cells += [f"{record['tenths']['P@10']:.4f}" if record["tenths"] else ""]
    return [f"{name}, afresh" if record["afresh"] else name, *cells]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--first", type=float, default=0.99, help="share of the lines in the first run")
    parser.add_argument("--updates", type=int, default=1, help="in how many steps the rest is added")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("options", nargs="*", help="options of adapt, after --")
    return parser.parse_args()


if __name__ == "__main__":
    resumable(main)
