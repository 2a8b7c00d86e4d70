"""Fine-tuning beside the transformers Trainer: examples a second, on the same examples, in one run.

    python benchmarks/train_speed.py --data DIR [--model minilm] [--examples 512] [--rounds 3]

Task: named entity recognition on ``DIR/train.tsv``, cut as ``finetune`` cuts it, base tokenization. Each way trains one
epoch on the same examples with the same batch size, optimiser, clipping and precision (float32 on a CPU, bfloat16 on a
GPU); the ways take turns, in another order each round, after a few steps to warm up. Loading the model and preparing
the data is not timed. The Trainer has its defaults: DataCollatorForTokenClassification, all rows of the embedding
trained; and once more with batches of like lengths, which changes what a batch is. Run it on an idle machine.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import RunConfig, TaskConfig, TrainConfig
from greenadapt.models.machine import Machine
from greenadapt.models.rows import Rows
from greenadapt.models.weights import open_model
from greenadapt.progress import Silent
from greenadapt.tasks.base import Encoder, Input, Task, make_task
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Feed, Plan
from greenadapt.training.loop import Training

SEED = 0
RATE = 5e-5


@dataclass(frozen=True)
class Setting:
    """What all ways train on."""

    folder: Path
    task: Task[Any]
    encoder: Encoder
    items: list[Input]
    machine: Machine
    batch_size: int
    compiled: bool


def read(arguments: argparse.Namespace) -> Setting:
    """A random choice of the training examples, the same in every run."""
    folder = find_model(arguments.model).folder
    encoder = Encoder.of(Checkpoint.open(folder))
    task, silent = make_task(TaskConfig(task="ner")), Silent()
    sentences = task.read(str(arguments.data / "train.tsv"), silent)
    task = task.fit(sentences, silent)
    items = task.training(sentences, encoder, SEED, silent)
    chosen = np.random.default_rng(SEED).permutation(len(items))[: arguments.examples]
    items = [items[i] for i in chosen.tolist()]
    return Setting(folder, task, encoder, items, Machine.start("auto"), arguments.batch_size, arguments.compile)


def train_ours(setting: Setting, items: list[Input]) -> float:
    """Seconds that one epoch takes."""
    rows = Rows.seen(items, setting.encoder.special)
    checkpoint = Checkpoint.open(setting.folder)
    model = open_model(checkpoint, setting.task.head, setting.task.head_config(), rows, SEED)
    train = TrainConfig(mix="base", epochs=1, batch_size=setting.batch_size, learning_rate=RATE)
    plan = Plan(train, RunConfig(compile=setting.compiled), SEED)
    table = TaskDataset.of(items, rows, setting.task.head, setting.encoder.special.pad)
    training = Training(model, Feed([table], plan), setting.machine)
    begin = time.perf_counter()
    for _ in training.train_steps():
        pass
    return time.perf_counter() - begin


def train_trainer(setting: Setting, items: list[Input], *, strategy: str = "random") -> float:
    """Seconds that one epoch takes."""
    import transformers
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_callback import PrinterCallback

    class Clock(TrainerCallback):
        begin = end = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.begin = time.perf_counter()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.end = time.perf_counter()

    features = [item.base[0] for item in items]
    data = [
        {"input_ids": f.ids.tolist(), "attention_mask": [1] * len(f), "labels": np.asarray(f.target).tolist()}
        for f in features
    ]
    torch.manual_seed(SEED)
    model = transformers.AutoModelForTokenClassification.from_pretrained(setting.folder, **setting.task.head_config())
    clock = Clock()
    with TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            folder,
            num_train_epochs=1,
            per_device_train_batch_size=setting.batch_size,
            learning_rate=RATE,
            warmup_steps=0.1,
            bf16=setting.machine.is_bfloat16,
            train_sampling_strategy=strategy,
            torch_compile=setting.compiled,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
            dataloader_pin_memory=torch.cuda.is_available(),
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(setting.folder)
        collator = transformers.DataCollatorForTokenClassification(tokenizer)
        trainer = Trainer(model, options, collator, data, callbacks=[clock])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return clock.end - clock.begin


WAYS: dict[str, Callable[[Setting, list[Input]], float]] = {
    "greenadapt": train_ours,
    "Trainer": train_trainer,
    "Trainer, by length": lambda setting, items: train_trainer(setting, items, strategy="group_by_length"),
}


def main() -> None:
    """Time all ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.tsv")
    parser.add_argument("--model", default="minilm", help="name or folder")
    parser.add_argument("--examples", type=int, default=512, help="of at most 30 words")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="on a CPU; torch's choice by default")
    parser.add_argument("--compile", action="store_true", help="torch.compile, in every way")
    arguments = parser.parse_args()
    if torch.cuda.device_count() > 1:
        parser.error("the Trainer would take every GPU: set CUDA_VISIBLE_DEVICES to one of them")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    setting = read(arguments)
    items = setting.items
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for way in WAYS.values():
        way(setting, items[: 3 * setting.batch_size])
    names = list(WAYS)
    for turn in range(arguments.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(WAYS[name](setting, items))
    precision = "bfloat16" if setting.machine.is_bfloat16 else "float32"
    lengths = [len(item.base[0]) for item in items]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    print(f"{arguments.model} on {device}, {precision}, batch size {setting.batch_size}, torch {torch.__version__}")
    print(f"{len(items)} examples of {min(lengths)} to {max(lengths)} pieces, mean {statistics.mean(lengths):.1f}")
    print(f"{'':20}{'examples/s':>12}{'of each round':>28}{'greenadapt is':>16}")
    ours = statistics.median(seconds["greenadapt"])
    for name, times in seconds.items():
        rounds = " ".join(f"{len(items) / duration:.1f}" for duration in times)
        median = statistics.median(times)
        print(f"{name:20}{len(items) / median:>12.1f}{rounds:>28}{median / ours:>14.2f} x")


if __name__ == "__main__":
    main()
