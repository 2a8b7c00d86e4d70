"""Fine-tuning with a small and a large table of added rows: seconds a step and peak memory, beside training every row.

    python benchmarks/rows.py [--model minilm] [--sizes 10000 1000000] [--work FOLDER] [--steps 12]

Each case runs in a process of its own, on the same made-up sentences: half of their pieces are old rows, half are of
``--used`` added rows drawn at random from the whole table. ``every row`` is the plain way, the whole table of
``AutoModelForTokenClassification.from_pretrained`` under AdamW; ``greenadapt`` holds and trains the rows that occur.
Both go through the same training loop, so that nothing but the table differs. Time is the median step, the first two
left out. Peak memory is that of the process's resident pages, the imports and the touched pages of the mapped file
included; memory of its own is what is neither shared nor mapped, after the last step. The large table takes 1.5 GB on
disk in ``--work``, and the plain way some 8 GB of memory.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEED = 1
HEAD = "TokenClassification"
LABELS = {"id2label": {"0": "O", "1": "B", "2": "I"}, "label2id": {"O": 0, "B": 1, "I": 2}}
PAD = 0


class RandomRows:
    """Rows drawn again whenever they are read, (``n``, ``dim``) float32 in blocks."""

    def __init__(self, n: int, dim: int) -> None:
        self.n, self.dim = n, dim

    def __iter__(self) -> Iterator[Any]:
        import numpy as np

        draw = np.random.default_rng(SEED)
        for begin in range(0, self.n, 10_000):
            yield draw.standard_normal((min(10_000, self.n - begin), self.dim), np.float32) * np.float32(0.05)


def make_model(arguments: argparse.Namespace, size: int) -> None:
    """Write the model with ``size`` random rows below its own."""
    import numpy as np

    from greenadapt.checkpoints.reader import Checkpoint
    from greenadapt.checkpoints.source import find_model
    from greenadapt.checkpoints.writer import write_expanded
    from greenadapt.store.arrays import StreamedArray

    checkpoint = Checkpoint(find_model(arguments.model).folder)
    rows = StreamedArray((size, checkpoint.dim), np.dtype(np.float32), RandomRows(size, checkpoint.dim))
    write_expanded(checkpoint, rows, arguments.work / str(size))


def make_items(arguments: argparse.Namespace, size: int, n_rows: int) -> list[Any]:
    """Sentences of random pieces with random labels, enough for all steps."""
    import numpy as np

    from greenadapt.tasks.base import Feature, Item

    draw = np.random.default_rng(SEED)
    old = np.arange(1000, n_rows - size)
    new = n_rows - size + draw.choice(size, arguments.used, replace=False)
    items = []
    for _ in range(arguments.steps * arguments.batch_size):
        n = int(draw.integers(20, 60))
        ids = np.where(draw.random(n) < 0.5, draw.choice(new, n), draw.choice(old, n)).astype(np.int32)
        places = np.arange(n, dtype=np.int32)
        feature = [Feature(ids, np.zeros(n, np.int32), places, draw.integers(0, 3, n).astype(np.int64))]
        items.append(Item(feature, feature, n))
    return items


def train(arguments: argparse.Namespace, size: int, *, every_row: bool) -> dict[str, float]:
    """Seconds of the median step, and bytes of memory."""
    from greenadapt.checkpoints.reader import Checkpoint
    from greenadapt.config import TrainConfig
    from greenadapt.models.machine import Machine
    from greenadapt.models.rows import Rows
    from greenadapt.models.weights import open_model
    from greenadapt.tokenization.files import SpecialIds
    from greenadapt.training.batches import TaskDataset
    from greenadapt.training.loop import Training
    from greenadapt.training.sampling import BatchSampler

    checkpoint = Checkpoint(arguments.work / str(size))
    items = make_items(arguments, size, checkpoint.n_rows)
    machine = Machine.start("float32")
    if every_row:
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        rows = Rows.all(checkpoint.n_rows)
        model = transformers.AutoModelForTokenClassification.from_pretrained(checkpoint.folder, **LABELS)
    else:
        rows = Rows.of(items, SpecialIds(PAD, PAD, PAD, PAD, PAD))
        model = open_model(checkpoint, HEAD, LABELS, rows, SEED)
    config = TrainConfig(epochs=1, batch_size=arguments.batch_size, weight_decay=arguments.weight_decay)
    sampler = BatchSampler([TaskDataset.of(items, rows, HEAD, PAD)], config, SEED)
    training = Training(model, sampler, machine)
    seconds, begin = [], time.perf_counter()
    for _ in training.train_steps():
        seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    return {"seconds": statistics.median(seconds[2:]), **memory(), "rows": float(len(rows))}


def memory() -> dict[str, float]:
    """Bytes of this process: the peak of its resident pages, or of the GPU's memory that it has, and the pages of its
    own that it has now.
    """
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kilobytes = {name: float(status[name].split()[0]) for name in ("VmHWM", "RssAnon")}
    import torch

    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else kilobytes["VmHWM"] * 1024
    return {"peak": peak, "own": kilobytes["RssAnon"] * 1024}


def measure(arguments: argparse.Namespace, case: str, size: int) -> dict[str, float]:
    """Run one case in a process of its own, which prints its figures last."""
    command = [sys.executable, __file__, *sys.argv[1:], "--work", str(arguments.work), "--case", case, str(size)]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        sys.exit(f"{case} with {size:,} rows failed")
    return json.loads(process.stdout.splitlines()[-1])


def run_case(arguments: argparse.Namespace, case: str, size: int) -> None:
    """Run one case in this process, and print its figures last."""
    if case == "make":
        make_model(arguments, size)
        print("{}")
    else:
        print(json.dumps(train(arguments, size, every_row=case == "every row")))


def print_table(arguments: argparse.Namespace) -> None:
    """One line a case and size; the ratio is to the smallest table."""
    titles = {"added rows": 12, "trained": 12, "ms a step": 12, "ratio": 8, "peak MB": 10, "ratio ": 8, "own MB": 10}
    print(" " * 12 + "".join(f"{title.strip():>{width}}" for title, width in titles.items()))
    for case in ("greenadapt", "every row"):
        first: dict[str, float] = {}
        for size in arguments.sizes:
            got = measure(arguments, case, size)
            first = first or got
            ratio = {name: got[name] / first[name] for name in ("seconds", "peak")}
            print(
                f"{case:12}{size:12,}{got['rows']:12,.0f}{got['seconds'] * 1e3:12.1f}{ratio['seconds']:8.2f}"
                f"{got['peak'] / 1e6:10,.0f}{ratio['peak']:8.2f}{got['own'] / 1e6:10,.0f}",
                flush=True,
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--used", type=int, default=2000, help="added rows that occur in the sentences")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--work", type=Path, help="folder for the models; kept and used again where given")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        run_case(arguments, arguments.case[0], int(arguments.case[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments.work = arguments.work or Path(folder)
        for size in arguments.sizes:
            if not (arguments.work / str(size) / "config.json").is_file():
                measure(arguments, "make", size)
        print_table(arguments)


if __name__ == "__main__":
    main()
