"""Several tasks on one encoder (arXiv 1902.02671) beside plain models: time of a step, and of a text, in one run.

    python benchmarks/pals_speed.py --data DIR [--model minilm] [--steps 60] [--texts 1 32] [--threads 1]

Task: classification of the texts of ``DIR/train.txt``, JSON lines with ``text`` and ``label``, cut as ``finetune`` cuts
them. Precision is float32 on a CPU and bfloat16 on a GPU. Run it on an idle machine.

Training: ``plain`` is transformers' own model with one head, ``shared`` an encoder with the heads of three tasks,
``pals``, ``low-rank`` and ``top-attention`` the same with an adapter a task: PALs of a quarter of the model's width,
the others of their own choice. All go through the training loop of ``finetune`` and see the same batches in the same
order; where there are three tasks, each batch is another one's in turn.

Reading: what three tasks say of so many texts at once. ``separate`` is three plain models, one after the other;
``shared`` has nothing of a task's own but the heads, ``pals, top`` PALs in the upper half of the layers and ``pals,
all`` in all of them. What tasks share is computed once.

All sides take turns, a few steps each, in another order each time, after some to warm up. Loading models and preparing
the data are not timed. The ratio is that of the median times to the first side's, and beside it the median, with
quartiles, of the ratio of each step to the first side's on the same batch.
"""

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from turns import HEADINGS, PRECISION, WARM_UP, ratios, setting_lines, timed

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import AdapterConfig, RunConfig, TaskConfig, TrainConfig
from greenadapt.models.adapters.multitask import head_spec, open_multitask
from greenadapt.models.forward import TorchRunner, outputs
from greenadapt.models.machine import Machine
from greenadapt.models.rows import Rows
from greenadapt.models.streaming import Inference, stream_tasks
from greenadapt.models.weights import open_model
from greenadapt.progress import Silent
from greenadapt.tasks.base import Encoder, Input, Task, make_task
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Draw, Feed, Plan
from greenadapt.training.loop import Step, Training

SEED = 0
TASKS = ("first", "second", "third")
TRAINING = {"plain": None, "shared": None, "pals": 1.25, "low-rank": None, "top-attention": None}
READING = {"separate": None, "shared": None, "pals, top": 0.8, "pals, all": None}
"""Each side, and how many times the first one's time it may take."""


class InTurn(Feed):
    """Batches of one dataset; each is of the next task."""

    def draw(self, step: int) -> Draw:
        plain = super().draw(step)
        dataset: Any = plain.dataset
        return replace(plain, dataset=replace(dataset, task=TASKS[step % len(TASKS)]))


@dataclass(frozen=True)
class Setting:
    """The data and models of all sides."""

    checkpoint: Checkpoint
    task: Task[Any]
    encoder: Encoder
    items: list[Input]
    rows: Rows
    machine: Machine
    plan: Plan

    @classmethod
    def read(cls, arguments: argparse.Namespace) -> "Setting":
        """The model's files, and the training examples."""
        checkpoint, silent = Checkpoint.open(find_model(arguments.model).folder), Silent()
        encoder, task = Encoder.of(checkpoint, arguments.max_length), make_task(TaskConfig(task="classification"))
        texts = task.read(str(arguments.data / "train.txt"), silent)
        task = task.fit(texts, silent)
        items = task.training(texts, encoder, SEED, silent)
        rows = Rows.seen(items, encoder.special)
        n_steps = WARM_UP + arguments.steps
        train = TrainConfig(epochs=n_steps, max_steps=n_steps, batch_size=arguments.batch_size, mix="base")
        plan = Plan(train, RunConfig(), SEED)
        return cls(checkpoint, task, encoder, items, rows, Machine.start(arguments.precision), plan)

    def plain(self) -> Any:
        """A model with one head."""
        return open_model(self.checkpoint, self.task.head, self.task.head_config(), self.rows, SEED)

    def several(self, side: str) -> Any:
        """A model with all tasks, by the name of the side."""
        name, _, layers = side.partition(", ")
        quarter = int(self.checkpoint.config["hidden_size"]) // 4
        adapter = {
            "shared": AdapterConfig("none"),
            "pals": AdapterConfig("pals", size=quarter, layers=layers or "all"),
            "low-rank": AdapterConfig("low-rank"),
            "top-attention": AdapterConfig("top-attention"),
        }[name]
        heads = {task: head_spec(self.task, adapter) for task in TASKS}
        return open_multitask(self.checkpoint, heads, self.rows, SEED)

    def training(self, side: str) -> Training:
        """One side, before its first step."""
        dataset = TaskDataset.of(self.items, self.rows, self.task.head, self.encoder.special.pad)
        feed = (Feed if side == "plain" else InTurn)([dataset], self.plan)
        return Training(self.plain() if side == "plain" else self.several(side), feed, self.machine)

    def reading(self, side: str, n_texts: int) -> Iterator[int]:
        """One side, which reads the next texts with every step and tells how many outputs it has, for ever."""
        run = Inference(RunConfig.max_tokens, self.encoder.special.pad, self.machine.autocast, "base")
        models = [self.plain() for _ in TASKS] if side == "separate" else [self.several(side)]
        for model in models:
            model.to(self.machine.device)
        begin = 0
        while True:
            texts = [self.items[i % len(self.items)] for i in range(begin, begin + n_texts)]
            begin += n_texts
            if side == "separate":
                yield sum(len(list(outputs(model, self.rows, texts, run))) for model in models)
            else:
                inputs = (dict.fromkeys(TASKS, text) for text in texts)
                yield sum(map(len, stream_tasks(TorchRunner(models[0], self.rows, is_shared=True), inputs, run)))


def train(setting: Setting) -> dict[str, list[float]]:
    """Side → seconds of each training step."""
    sides: dict[str, Iterator[Step]] = {side: setting.training(side).train_steps() for side in TRAINING}
    times = timed(sides, setting.plan.train.epochs - WARM_UP)
    for steps in times.made.values():
        assert [step.pieces for step in steps] == [step.pieces for step in times.made["plain"]]
    return times.seconds


def read(setting: Setting, n_texts: int) -> dict[str, list[float]]:
    """Side → seconds for so many texts."""
    sides = {side: setting.reading(side, n_texts) for side in READING}
    times = timed(sides, setting.plan.train.epochs - WARM_UP)
    for numbers in times.made.values():
        assert set(numbers) == {n_texts * len(TASKS)}
    return times.seconds


def table(title: str, seconds: Mapping[str, Sequence[float]], limits: Mapping[str, float | None]) -> list[str]:
    """One line a side; the ratios are to the first one."""
    lines = [f"{title:16}{'ms':>10}{HEADINGS}"]
    first = seconds[next(iter(limits))]
    for side, limit in limits.items():
        lines.append(f"{side:16}{statistics.median(seconds[side]) * 1e3:10.1f}{ratios(seconds[side], first, limit)}")
    return lines


def compare(arguments: argparse.Namespace) -> None:
    """Print the times of all sides."""
    setting = Setting.read(arguments)
    lengths = [len(item.base[0]) for item in setting.items]
    print(*setting_lines(arguments.model, lengths, setting.machine), sep="\n")
    print(
        f"{arguments.steps} steps after {WARM_UP} to warm up, {arguments.batch_size} texts a training step", flush=True
    )
    print(*table("training", train(setting), TRAINING), sep="\n", flush=True)
    for n_texts in arguments.texts:
        title = f"reading {n_texts:,}"
        print(*table(title, read(setting, n_texts), READING), sep="\n", flush=True)


def main() -> None:
    """Time all sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt")
    parser.add_argument("--model", default="minilm", help="name or folder")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 32], help="how many are read at once")
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--precision", default=PRECISION, choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--threads", type=int, help="on a CPU; torch's choice by default")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    compare(arguments)


if __name__ == "__main__":
    main()
