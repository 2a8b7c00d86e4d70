"""Answering questions beside a plain loop with transformers: windows a second, over the same windows, in one run.

    python benchmarks/qa_speed.py --data covid-qa.json [--model minilm] [--questions 100] [--rounds 1]
    python benchmarks/qa_speed.py --data covid-qa.json --pages 1000 [--layers 2] [--precision bfloat16]

The plain loop is what one writes by hand: AutoTokenizer and AutoModelForQuestionAnswering, one question at a time, its
context cut into the paper's windows, one window at a time through the model. Windows that read the same pieces go
through once on both sides. Ours is what ``greenadapt qa`` runs, from questions to the best answers. Both use the base
tokenization and the same precision (float32 on a CPU, bfloat16 on a GPU), and take turns, some questions each, the loop
in a process of its own; loading the model is not timed. That both compute the same logits is checked on the first
questions. A model without a head for answers gets a random one, which costs the same.

With ``--pages`` it measures memory: the peak of a process that answers one question on a document of so many pages of
500 words, real contexts end to end, and of one that does so for ten pages. Run it on an idle machine.
"""

import argparse
import functools
import inspect
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from plain_loop import PlainProcess, PlainSetting, quiet
from turns import seconds_of, wait

from greenadapt.checkpoints.source import find_model
from greenadapt.config import Pool, QaConfig, ReadingOptions
from greenadapt.inference.models import OpenedModel
from greenadapt.inference.qa.lookups import QaModel, look_up
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Silent
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question, read_questions
from greenadapt.tasks.spans import find_units, word_units
from greenadapt.tokenization.export import copy_tokenizers

PAGE_WORDS = 500
FEW_PAGES = 10
CHECKED = 2  # questions


@dataclass
class Clock:
    """The seconds in a model's forward, and the number of windows that went through it."""

    is_timing: bool
    seconds: float = 0.0
    n_windows: int = 0

    def watch(self, model: Any) -> None:
        """Count what goes through ``model`` from now on."""
        forward = model.forward

        @functools.wraps(forward)
        def counted(*arguments: Any, **named: Any) -> Any:
            self.n_windows += len(named["input_ids"])
            if not self.is_timing:
                return forward(*arguments, **named)
            wait()
            begin = time.perf_counter()
            result = forward(*arguments, **named)
            wait()
            self.seconds += time.perf_counter() - begin
            return result

        assert inspect.signature(counted) == inspect.signature(forward)  # it tells which inputs the model takes
        model.forward = counted


@dataclass
class Ours:
    """What ``greenadapt qa`` runs."""

    opened: OpenedModel
    clock: Clock = field(default_factory=lambda: Clock(not torch.cuda.is_available()))

    @classmethod
    def open(cls, folder: Path, arguments: argparse.Namespace) -> "Ours":
        options = ReadingOptions("base", precision=arguments.precision, max_tokens=arguments.max_tokens)
        ours = cls(OpenedModel.open([TaskFolder.open_questions(find_model(str(folder)))], options))
        ours.clock.watch(ours.opened.runner.model)
        return ours

    def answer(self, questions: Sequence[Question], pool: Pool = "base") -> None:
        opened = replace(self.opened, settings=replace(self.opened.settings, pool=pool))
        task: Any = opened.task
        for _ in look_up([QaModel(opened, task, {"answers": pool})], iter(questions), QaConfig()):
            pass


def is_bfloat16(opened: OpenedModel) -> bool:
    """Whether a model's matrix products are in bfloat16."""
    with opened.settings.autocast():
        return torch.is_autocast_enabled(device_of(opened).type)


def device_of(opened: OpenedModel) -> torch.device:
    """The device of a model."""
    return next(opened.runner.model.parameters()).device


def with_head(model: str, target: Path, layers: int | None) -> Path:
    """A folder of the model that answers questions: its own where it has a head, else ``target`` with a random one."""
    import transformers

    folder = find_model(model).folder
    architecture = json.loads((folder / "config.json").read_text("utf-8")).get("architectures") or [""]
    if architecture[0].endswith("ForQuestionAnswering") and layers is None:
        return folder
    torch.manual_seed(0)
    changes = {} if layers is None else {"num_hidden_layers": layers}
    transformers.AutoModelForQuestionAnswering.from_pretrained(folder, **changes).save_pretrained(target)
    copy_tokenizers(folder, target)
    return target


def check(ours: Ours, plain: PlainProcess, questions: Sequence[Question]) -> None:
    """Both sides' logits of the words of a context; in bfloat16 they round differently."""
    task = QuestionTask()
    difference = 0.0
    for question, logits in ours.opened.logits(ours.opened.inputs(questions)):
        units = word_units(question.context, task.word_unit)
        owner = find_units(np.array(plain.call("begins", question)), units)
        expected = np.full((len(units), 2), -np.inf, np.float32)
        np.maximum.at(expected, owner, plain.call("logits", question))
        seen = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(logits[: len(units)]), seen)
        difference = max(difference, float(np.abs(logits[: len(units)] - expected)[seen].max()))
    if not is_bfloat16(ours.opened) and difference > 1e-4:
        raise SystemExit(f"the logits differ by {difference}: the two sides do not compute the same")
    print(f"the logits of {len(questions)} questions differ by at most {difference:.1e}")


def speed(arguments: argparse.Namespace, folder: Path, questions: list[Question]) -> None:
    """Print windows a second of both sides, the time outside the model, and the cost of two tokenizations."""
    ours = Ours.open(folder, arguments)
    device, threads = device_of(ours.opened), torch.get_num_threads()
    setting = PlainSetting(folder, ours.opened.encoder.max_length, device, is_bfloat16(ours.opened), threads)
    plain = PlainProcess(setting)
    is_gpu = device.type == "cuda"
    precision = "bfloat16" if is_bfloat16(ours.opened) else "float32"
    machine = torch.cuda.get_device_name() if is_gpu else f"CPU, {threads} threads"
    print(f"{arguments.model} on {machine}, {precision}, torch {torch.__version__}")
    check(ours, plain, questions[:CHECKED])
    size = arguments.chunk or (256 if is_gpu else 4)
    chunks = [questions[i : i + size] for i in range(0, len(questions), size)]
    times: dict[str, list[float]] = {"greenadapt": [], "plain loop": []}
    sides: dict[str, Any] = {"greenadapt": ours, "plain loop": plain}
    plain.n_windows()
    ours.clock.n_windows, ours.clock.seconds = 0, 0.0
    for number in range(arguments.rounds):
        spent = dict.fromkeys(times, 0.0)
        for i, chunk in enumerate(chunks):
            for name in sorted(sides, reverse=(number + i) % 2 == 1):
                spent[name] += seconds_of(functools.partial(sides[name].answer, chunk))
        for name, taken in spent.items():
            times[name].append(taken)
    assert plain.n_windows() == ours.clock.n_windows
    n_windows = ours.clock.n_windows // arguments.rounds
    print(f"{len(questions)} questions, {n_windows:,} windows, in turns of {size} questions")
    for name, all_taken in times.items():
        rounds = ", ".join(f"{n_windows / taken:.2f}" for taken in all_taken)
        print(f"{name:20}{n_windows * len(all_taken) / sum(all_taken):10.2f} windows/s  ({rounds})")
    ratio = sum(times["plain loop"]) / sum(times["greenadapt"])
    print(f"{'greenadapt is':20}{ratio:10.3f} x as fast")
    total = sum(times["greenadapt"])
    if is_gpu:  # waiting for the model in each batch slows it down, so that it has a run of its own
        ours.clock.is_timing = True
        total = seconds_of(lambda: ours.answer(questions))
    print(f"{'outside the model':20}{100 * (1 - ours.clock.seconds / total):10.1f} % of greenadapt's time")
    price(ours, chunks[: max(1, len(chunks) // 10)])


def price(ours: Ours, chunks: Sequence[list[Question]]) -> None:
    """Print how much longer both tokenizations take than the base one."""
    if not ours.opened.encoder.has_words:
        print("the model has no added words, and so one tokenization")
        return
    ours.clock.is_timing = False
    pools: tuple[Pool, ...] = ("base", "mean")
    spent = dict.fromkeys(pools, 0.0)
    for i, chunk in enumerate(chunks):
        for pool in pools[:: (-1) ** i]:
            spent[pool] += seconds_of(functools.partial(ours.answer, chunk, pool))
    print(f"{'both tokenizations':20}{spent['mean'] / spent['base']:10.2f} x the time of one")


def words(questions: Sequence[Question]) -> Iterator[str]:
    """The contexts end to end, again and again."""
    contexts = [*dict.fromkeys(question.context for question in questions)]
    while True:
        for context in contexts:
            yield from context.split(" ")


def answer_pages(arguments: argparse.Namespace, folder: Path, questions: list[Question]) -> None:
    """Answer one question on a document of ``--pages``, and print time and memory as JSON."""
    ours = Ours.open(folder, arguments)
    text = " ".join(islice(words(questions), PAGE_WORDS * arguments.pages))
    before = peak()
    took = seconds_of(lambda: ours.answer([replace(questions[0], context=text)]))
    figures = {"before": before, "peak": peak(), "seconds": took, "windows": ours.clock.n_windows}
    print(json.dumps({**figures, "characters": len(text)}))


def peak() -> float:
    """The most memory that this process has had, in MiB."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def memory(arguments: argparse.Namespace, folder: Path) -> None:
    """Print the peak memory for a long and for a short document, each in a process of its own."""
    print(f"{arguments.model}, one question on one document, base tokenization; memory of the process in MiB")
    print(f"{'pages':>8}{'characters':>14}{'windows':>10}{'seconds':>10}{'loaded':>10}{'peak':>10}")
    for pages in (FEW_PAGES, arguments.pages):
        command = [sys.executable, __file__, "--data", arguments.data, "--model", str(folder), "--pages", str(pages)]
        command += ["--precision", arguments.precision, "--max-tokens", str(arguments.max_tokens), "--is-child"]
        process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        figures = json.loads(process.stdout.splitlines()[-1])
        print(
            f"{pages:>8,}{figures['characters']:>14,}{figures['windows']:>10,}{figures['seconds']:>10.1f}"
            f"{figures['before']:>10,.0f}{figures['peak']:>10,.0f}"
        )


def main() -> None:
    """Measure speed, or memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="questions, as greenadapt qa reads them")
    parser.add_argument("--model", default="minilm", help="name or folder")
    parser.add_argument("--questions", type=int, help="the first so many; 100 by default, all on a GPU")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--chunk", type=int, help="questions at a turn; 4 by default, 256 on a GPU")
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--max-tokens", type=int, default=ReadingOptions.max_tokens)
    parser.add_argument("--threads", type=int, help="on a CPU; torch's choice by default")
    parser.add_argument("--layers", type=int, help="leave only so many layers of the model, and give it a random head")
    parser.add_argument("--pages", type=int, help="measure memory, for a document of so many pages")
    parser.add_argument("--is-child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    quiet()
    with TemporaryDirectory() as target:
        folder = with_head(arguments.model, Path(target), arguments.layers)
        if arguments.pages and not arguments.is_child:
            memory(arguments, folder)
            return
        questions = read_questions(arguments.data, Silent())
        if arguments.pages:
            answer_pages(arguments, folder, questions)
            return
        n_questions = arguments.questions or (len(questions) if torch.cuda.is_available() else 100)
        speed(arguments, folder, questions[:n_questions])


if __name__ == "__main__":
    main()
