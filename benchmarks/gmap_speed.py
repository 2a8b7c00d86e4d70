"""Fine-tuning with a general model as memory beside plain fine-tuning: time a step and peak memory, in one run.

    python benchmarks/gmap_speed.py --data DIR [--model minilm] [--memory minilm] [--steps 60]

Task: classification of the texts of ``DIR/train.txt``, JSON lines with ``text`` and ``label``, cut as ``finetune`` cuts
them. Two copies of one model go through the training loop of ``finetune``: ``plain`` has no memory, ``memory`` has
chunk-gated memory-attention (arXiv 2212.03613) whose frozen general model reads each batch. Both see the same batches
in the same order, and take turns, a few steps each, in another order each time, after some steps to warm up. Loading
models and preparing the data are not timed. The ratio to plain is that of the median steps, and beside it the median,
with quartiles, of the ratio of each step to the plain one on the same batch.

Peak memory is that of a process which makes the first steps of one side alone: of its resident pages, the imports
included, or of the memory that it has allocated on a GPU. Precision is float32 on a CPU and bfloat16 on a GPU. Run it
on an idle machine.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from turns import HEADINGS, PRECISION, WARM_UP, ratios, setting_lines, timed

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import MemoryConfig, RunConfig, TaskConfig, TrainConfig
from greenadapt.models.machine import Machine
from greenadapt.models.memory.choice import MemoryChoice
from greenadapt.models.memory.general_model import GeneralModel
from greenadapt.models.rows import Rows
from greenadapt.models.weights import open_model
from greenadapt.progress import Silent
from greenadapt.tasks.base import Encoder, Input, Task, make_task
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Feed, Plan
from greenadapt.training.loop import Training

SEED = 0
LIMITS = {"plain": None, "memory": 1.6}
"""Each side, and how many times a plain step it may take."""
ALONE = 10  # steps in which the peak memory is measured


@dataclass(frozen=True)
class Setting:
    """The data and models of all sides."""

    checkpoint: Checkpoint
    general: GeneralModel
    task: Task[Any]
    encoder: Encoder
    items: list[Input]
    machine: Machine
    plan: Plan

    @classmethod
    def read(cls, arguments: argparse.Namespace) -> "Setting":
        """The models, and the training examples."""
        domain = find_model(arguments.model)
        general = MemoryChoice.find(arguments.memory, domain, MemoryConfig(strategy="chunk")).open()
        checkpoint, silent = Checkpoint.open(domain.folder), Silent()
        encoder, task = Encoder.of(checkpoint, arguments.max_length), make_task(TaskConfig(task="classification"))
        texts = task.read(str(arguments.data / "train.txt"), silent)
        task = task.fit(texts, silent)
        items = task.training(texts, encoder, SEED, silent)
        n_steps = WARM_UP + arguments.steps
        train = TrainConfig(epochs=n_steps, max_steps=n_steps, batch_size=arguments.batch_size, mix="base")
        plan = Plan(train, RunConfig(), SEED)
        machine = Machine.start(arguments.precision)
        return cls(checkpoint, general, task, encoder, items, machine, plan)

    def training(self, side: str) -> Training:
        """One side, before its first step."""
        special, task = self.encoder.special, self.task
        rows = Rows.seen(self.items, special)
        model = open_model(self.checkpoint, task.head, task.head_config(), rows, SEED)
        memory = None
        if side == "memory":
            memory = self.general.reader(self.encoder)
            self.general.attach(model, self.encoder, self.machine, SEED)
        table = TaskDataset.of(self.items, rows, task.head, special.pad, memory)
        return Training(model, Feed([table], self.plan), self.machine)


def seconds_of(setting: Setting) -> dict[str, list[float]]:
    """Side → how long each of its steps takes, the warm-up left out."""
    trainings = {side: setting.training(side) for side in LIMITS}
    times = timed({side: trainings[side].train_steps() for side in LIMITS}, trainings["plain"].n_steps - WARM_UP)
    for steps in times.made.values():
        assert [step.pieces for step in steps] == [step.pieces for step in times.made["plain"]]
    return times.seconds


def train_alone(setting: Setting, side: str) -> int:
    """Make the first steps of one side; return the peak of this process's memory in bytes."""
    for step in setting.training(side).train_steps():
        if step.number == ALONE:
            break
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def peak(side: str) -> int:
    """The peak of one side in bytes, in a process of its own, which prints it last."""
    command = [sys.executable, __file__, *sys.argv[1:], "--alone", side]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        sys.exit(f"{side} alone failed")
    return int(json.loads(process.stdout.splitlines()[-1]))


def table(seconds: Mapping[str, Sequence[float]], peaks: Mapping[str, int]) -> list[str]:
    """One line a side; the ratios are to plain."""
    lines = [f"{'':8}{'ms a step':>12}{HEADINGS}{'peak MB':>10}{'ratio':>8}"]
    for side, limit in LIMITS.items():
        median = statistics.median(seconds[side])
        lines.append(
            f"{side:8}{median * 1e3:12.1f}{ratios(seconds[side], seconds['plain'], limit)}"
            f"{peaks[side] / 1e6:10,.0f}{peaks[side] / peaks['plain']:8.2f}"
        )
    return lines


def compare(arguments: argparse.Namespace) -> None:
    """Print time and memory of all sides."""
    setting = Setting.read(arguments)
    lengths = [len(item.base[0]) for item in setting.items]
    title = f"{arguments.model} with {arguments.memory} as memory"
    print(*setting_lines(title, lengths, setting.machine), sep="\n")
    print(f"{arguments.steps} steps of {arguments.batch_size} texts, after {WARM_UP} to warm up", flush=True)
    seconds = seconds_of(setting)
    print(*table(seconds, {side: peak(side) for side in LIMITS}), sep="\n")


def main() -> None:
    """Time all sides, and measure the memory of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt")
    parser.add_argument("--model", default="minilm", help="domain model: name or folder")
    parser.add_argument("--memory", default="minilm", help="general model: name or folder, or base")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--precision", default=PRECISION, choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--threads", type=int, help="on a CPU; torch's choice by default")
    parser.add_argument("--alone", choices=list(LIMITS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.alone:
        print(train_alone(Setting.read(arguments), arguments.alone))
        return
    compare(arguments)


if __name__ == "__main__":
    main()
