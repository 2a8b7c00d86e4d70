"""A fine-tuned model on a CPU beside a plain loop with transformers: inputs a second, scores, memory, start-up.

    python benchmarks/serving.py --model runs/ner --test test.tsv --work DIR [--threads 2] [--rounds 3] [--limit 300]
        [--kinds torch onnx onnx-int8] [--passages 5 10] [--lines 100000]

The plain loop is what one writes by hand: AutoTokenizer, AutoModelFor… in float32, 32 inputs of the base tokenization
at a time in the order of the file, padded to the longest; a question with its context goes through one at a time, in
windows (``plain_loop.py``). Ours goes from examples to predictions as ``greenadapt predict`` and ``qa`` do, in the base
tokenization, in both, and in both with the default margin; questions also on the best ``--passages`` of their contexts
only, in one and in both. All take turns on the first ``--limit`` examples, in one
process with ``--threads``; the fastest of ``--rounds`` counts, by the clock and by the processor's time of all threads,
which other work on the machine changes less. Scores are those of the whole test set. The model has to have added words.
The folders that ``greenadapt compile`` writes are kept in ``--work``. Start-up is ``greenadapt predict`` of one
example, in a process of its own, and so is the peak of memory; ``--lines`` measures that for two numbers of short
lines.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine_line
from plain_loop import Plain, PlainSetting, quiet
from tables import aligned, with_interval

from greenadapt.config import CompileConfig, Pool, QaConfig, Quantize, ReadingOptions
from greenadapt.inference.models import MARGIN, OpenedModel, stream_with_margin
from greenadapt.inference.qa.lookups import QaModel, answers
from greenadapt.inference.qa.question_set import narrow, pair_contexts
from greenadapt.inference.search.words import Words, words_of
from greenadapt.models.streaming import BLOCK_PIECES_CPU, Block, ViewOutputs, pool_views
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Silent
from greenadapt.stages.compile import compile_model
from greenadapt.stages.session import Session
from greenadapt.store.arrays import Array
from greenadapt.store.workspace import Workspace
from greenadapt.tasks.base import Item
from greenadapt.tasks.metrics import groups_of, paired_bootstrap, resample
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER

KINDS = ("torch", "onnx", "onnx-int8")
ONE_VIEW, BOTH_VIEWS = "one view", "both views"
MARGINS = (0.3, 0.5, 0.7, MARGIN)
WAYS: dict[str, tuple[Pool, float | None]] = {
    ONE_VIEW: ("base", None),
    BOTH_VIEWS: ("mean", None),
    f"{BOTH_VIEWS}, margin {MARGIN}": ("mean", MARGIN),
}
POOLS: dict[Pool, str] = {"base": "base tokenization", "expanded": "expanded", "mean": "both"}
BATCH = 32
PLAIN = "plain loop"
# A child that says its own peak at the end.
CHILD = """
import sys
from greenadapt.cli import app
try:
    app(sys.argv[1:])
except SystemExit:
    pass
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1], file=sys.stderr)
"""


@dataclass(frozen=True)
class Side:
    """A timed side: ``run`` processes examples, ``opened`` is our opened model, if the side is ours."""

    name: str
    run: Callable[[Sequence[Any]], Any]
    folder: Path
    opened: OpenedModel | None = None


class PlainTexts:
    """Words or texts through a model in a plain loop."""

    def __init__(self, folder: Path, task: Any, threads: int) -> None:
        import transformers

        torch.set_num_threads(threads)
        base = folder / BASE_FOLDER
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(base if base.is_dir() else folder)
        self._model = getattr(transformers, f"AutoModelFor{task.head}").from_pretrained(folder).eval()
        self._is_split = task.name == "ner"

    def run(self, examples: Sequence[Any]) -> None:
        pending = iter(examples)
        while block := list(islice(pending, BATCH)):
            texts = [list(example.words) if self._is_split else example.text for example in block]
            seconds = [] if self._is_split or block[0].second is None else [[example.second for example in block]]
            inputs = self._tokenizer(
                texts, *seconds, is_split_into_words=self._is_split, padding=True, truncation=True, max_length=512,
                return_tensors="pt",
            )  # fmt: skip
            with torch.no_grad():
                self._model(**inputs).logits.argmax(-1).tolist()


def plain_side(folder: TaskFolder, opened: OpenedModel, threads: int) -> Side:
    """The plain loop."""
    if isinstance(folder.task, QuestionTask):
        setting = PlainSetting(folder.folder, opened.encoder.max_length, torch.device("cpu"), False, threads)
        quiet()
        plain = Plain.open(setting)

        def run(examples: Sequence[Any]) -> None:
            with torch.no_grad():
                plain.answer(examples)

        return Side(PLAIN, run, folder.folder)
    return Side(PLAIN, PlainTexts(folder.folder, folder.task, threads).run, folder.folder)


def our_sides(folder: TaskFolder, kind: str, work: Path, passages: Sequence[int]) -> Iterator[Side]:
    """Our model, in the base tokenization and in both, of whole inputs and of the best paragraphs."""
    quantize: Quantize = "int8" if kind == "onnx-int8" else "none"
    path = folder.folder if kind == "torch" else compiled(folder.folder, quantize, work / kind)
    task_folder = TaskFolder.open(str(path))
    opened = OpenedModel.open(task_folder, ReadingOptions("mean", precision="float32"))
    for way, (pool, margin) in WAYS.items():
        view_model = replace(opened, settings=replace(opened.settings, pool=pool), margin=margin)

        def run(examples: Sequence[Any], view_model: OpenedModel = view_model) -> list[Any]:
            pairs = view_model.logits(view_model.inputs(examples))
            return [view_model.task.decode(example, logits) for example, logits in pairs]

        yield Side(f"{kind}, {way}", run, path, view_model)
    words = words_of(path)
    for n in passages:
        for way in (ONE_VIEW, BOTH_VIEWS):
            view_model = replace(opened, settings=replace(opened.settings, pool=WAYS[way][0]))
            yield Side(f"{kind}, {n} passages, {way}", partial(on_passages, view_model, words, n), path)


def on_passages(opened: OpenedModel, words: Words, n: int, questions: Sequence[Question]) -> list[Any]:
    """Answers from the ``n`` best paragraphs of each question's context, as ``greenadapt qa`` finds them."""
    task: Any = opened.task
    reader = QaModel(opened, task, {"": opened.settings.pool})
    question_set = narrow(pair_contexts(questions), words, n)
    return [pair[0] for pair in answers(reader, question_set, QaConfig())]


def compiled(model: Path, quantize: Quantize, out: Path) -> Path:
    """The compiled model, made if it is not there."""
    config = CompileConfig(quantize=quantize)
    compile_model(Session(Workspace(out.parent / "ws"), Silent(), out=out), str(model), config)
    return out


@dataclass
class Times:
    """Seconds by the clock and of the processor, of the fastest round each."""

    wall: float = float("inf")
    cpu: float = float("inf")

    def add(self, run: Callable[[Sequence[Any]], Any], examples: Sequence[Any]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        run(examples)
        self.wall = min(self.wall, time.perf_counter() - wall)
        self.cpu = min(self.cpu, time.process_time() - cpu)


def scored_rows(sides: Sequence[Side], examples: Sequence[Any], passages: Sequence[int]) -> Iterator[list[str]]:
    """A row of scores by each of ``POOLS`` for each kind, and for what is read of the best paragraphs only; these end
    with how much better both views are than when everything is read, with the 95 % interval of a paired bootstrap.
    """
    for side in sides:
        if side.opened is None or not side.name.endswith(BOTH_VIEWS):
            continue
        kind, opened = side.name.partition(",")[0], side.opened
        outputs = list(opened.outputs(opened.inputs(examples)))
        whole = [statistics(opened, examples, predicted(opened, outputs, pool)) for pool in POOLS]
        yield [kind, *(f"{points(opened, values):.2f}" for values in whole), *([""] if passages else [])]
        views = [replace(opened, settings=replace(opened.settings, pool=pool)) for pool in POOLS]
        for n in passages:
            predictions = [on_passages(view_model, words_of(side.folder), n, examples) for view_model in views]
            sums = [statistics(opened, examples, values) for values in predictions]
            gain = difference(opened, examples, sums[-1], whole[-1])
            yield [f"{kind}, {n} passages", *(f"{points(opened, values):.2f}" for values in sums), gain]


def difference(opened: OpenedModel, examples: Sequence[Any], ours: Array, theirs: Array) -> str:
    """Points, with their interval; whole contexts are drawn where there are enough."""
    groups = groups_of(examples)
    drawn = [resample(sums[np.newaxis], *groups)[0] for sums in (ours, theirs)]
    return with_interval(paired_bootstrap(drawn[0], drawn[1], opened.task.main_score))


def predicted(opened: OpenedModel, outputs: Iterable[ViewOutputs], pool: Pool) -> list[Any]:
    """A prediction for each output."""
    return [opened.task.decode(output.example, pool_views(output, pool)) for output in outputs]


def statistics(opened: OpenedModel, examples: Sequence[Any], predictions: Sequence[Any]) -> Array:
    """(n_examples, m) what the main score is made of."""
    task: Any = opened.task
    return np.asarray(task.statistics(examples, predictions))


def points(opened: OpenedModel, sums: Array) -> float:
    """The main score, in points."""
    return 100 * float(opened.task.main_score(sums.sum(axis=0)))


def doubts(opened: OpenedModel, examples: Sequence[Any]) -> Iterator[list[str]]:
    """A row for each of ``MARGINS``: what is read twice, pieces as a share of the base view's, score, and how many
    predictions have another label or text than those of both views.
    """
    names = ("tags", "label", "answer")
    inputs = list(opened.inputs(examples))
    n_base = sum(map(len, chain.from_iterable(item.base for item in inputs)))
    twice_read = predicted(opened, opened.read(inputs, "mean"), "mean")
    for margin in MARGINS:
        n_read = 0

        def read(inputs_left: Iterable[Item], pool: Pool) -> Iterator[ViewOutputs]:
            nonlocal n_read
            items = list(inputs_left)
            n_read += sum(map(len, chain.from_iterable(getattr(item, pool) for item in items)))
            return opened.read(items, pool)

        outputs = list(stream_with_margin(opened.task, inputs, margin, read, BLOCK_PIECES_CPU))
        twice = sum(item.base is not item.expanded for item in outputs) / len(examples)
        once_read = predicted(opened, outputs, "mean")
        n_other = sum(
            any(a.get(name) != b.get(name) for name in names) for a, b in zip(once_read, twice_read, strict=True)
        )
        score = f"{points(opened, statistics(opened, examples, once_read)):.2f}"
        yield [f"{margin}", f"{100 * twice:.1f} %", f"{n_read / n_base:.2f}", score, f"{n_other:,}"]


def pieces(opened: OpenedModel, examples: Sequence[Any]) -> list[int]:
    """Pieces that go through the model, without padding, by each of ``POOLS``; their ratio is what both views cost."""
    inputs = list(opened.inputs(examples))
    views = [replace(opened.settings, pool=pool).views for pool in POOLS]
    return [sum(map(len, Block.of(inputs, names, opened.settings.pad_id).inputs)) for names in views]


def child(arguments: Sequence[str], threads: int) -> tuple[float, float, float]:
    """Seconds by the clock and of the processor, and the peak of memory in MB, of a command."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    process = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        check=True, env=environment,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begin, cpu, int(process.stderr.split()[-1]) / 1024


def started(folder: Path, work: Path, task: str, threads: int) -> tuple[float, float, float]:
    """The fastest of three starts, see ``child``; the record is one that every task reads."""
    record = work / ("one.jsonl" if task == "qa" else "one.txt")
    line = '{"question": "What?", "context": "The patient was well."}' if task == "qa" else "The patient was well."
    record.write_text(line + "\n", "utf-8")
    runs = [child(["predict", "-m", str(folder), "-i", str(record)], threads) for _ in range(3)]
    wall, cpu, memory = (min(values) for values in zip(*runs, strict=True))
    return wall, cpu, memory


def megabytes(folder: Path) -> float:
    """The size of a model's files, without the second tokenizer and the records."""
    names = ("*.safetensors", "model.onnx", "model.xml", "model.bin", "tokenizer.json")
    return sum(file.stat().st_size for name in names for file in folder.glob(name)) / 1e6


def peaks(folder: Path, work: Path, n_lines: int, threads: int) -> list[tuple[int, float, float]]:
    """Lines, seconds and the peak of memory of ``predict`` for a tenth of so many short lines, and for all."""
    peaks_read = []
    for n in (n_lines // 10, n_lines):
        file = work / f"lines-{n}.txt"
        file.write_text("".join(f"Patient {i} had a rash.\n" for i in range(n)), "utf-8")
        wall, _, memory = child(["predict", "-m", str(folder), "-i", str(file), "-q"], threads)
        peaks_read.append((n, wall, memory))
        file.unlink()
    return peaks_read


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--scored", type=int, help="score only so many examples")
    parser.add_argument("--passages", type=int, nargs="*", default=(5, 10))
    parser.add_argument("--lines", type=int)
    return parser.parse_args()


def main() -> None:
    """Print the tables."""
    options = arguments()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    folder = TaskFolder.open(options.model)
    examples = folder.task.read(options.test, Silent())
    timed = examples[: options.limit]
    passages = options.passages if isinstance(folder.task, QuestionTask) else ()
    ours = [side for kind in options.kinds for side in our_sides(folder, kind, options.work, passages)]
    assert ours[0].opened is not None
    sides = [plain_side(folder, ours[0].opened, options.threads), *ours]
    for side in sides:  # once untimed: kernels are chosen, pages are read
        side.run(timed[:BATCH])
    times = {side.name: Times() for side in sides}
    for _ in range(options.rounds):
        for side in sides:
            times[side.name].add(side.run, timed)
    print(machine_line(["torch", "transformers", "onnxruntime"]), f"; {options.threads} threads")
    scored = examples[: options.scored]
    print(f"{folder.task.name}, {len(timed)} of {len(examples)} examples timed, {len(scored)} scored\n")
    rows = [["", "inputs/s", "ratio", "ratio by processor time", "one view = 1", "by processor time"]]
    for side in sides:
        spent, plain = times[side.name], times[PLAIN]
        base_usage = times.get(side.name.replace(BOTH_VIEWS, ONE_VIEW).partition(", margin")[0], spent)
        ratios = [f"{plain.wall / spent.wall:.2f}", f"{plain.cpu / spent.cpu:.2f}"]
        view_ratios = (
            [f"{spent.wall / base_usage.wall:.2f}", f"{spent.cpu / base_usage.cpu:.2f}"]
            if BOTH_VIEWS in side.name
            else ["", ""]
        )
        rows.append([side.name, f"{len(timed) / spent.wall:.1f}", *ratios, *view_ratios])
    print(aligned(rows), flush=True)
    n_base, n_expanded, n_both = pieces(ours[0].opened, timed)
    share = f"{n_expanded / n_base:.2f} and {n_both / n_base:.2f} times"
    counts = f"{n_base:,} in the base tokenization, {n_expanded:,} in the expanded one, {n_both:,} in both ({share})"
    print(f"pieces: {counts}\n")
    head = [f"{folder.task.main}, points", *POOLS.values(), *(["both, beside all of the context"] if passages else [])]
    print(aligned([head, *scored_rows(ours, scored, passages)]), flush=True)
    columns = ["margin", "read twice", "pieces, base view = 1", f"{folder.task.main}, points", "unlike both views"]
    fastest = next(side.opened for side in reversed(ours) if side.opened is not None)
    print(aligned([columns, *doubts(fastest, scored)]), flush=True)
    rows = [["predict of one input", "s", "s of the processor", "peak memory, MB", "model, MB"]]
    for path, name in {side.folder: side.name.partition(",")[0] for side in ours}.items():
        wall, cpu, memory = started(path, options.work, folder.task.name, options.threads)
        rows.append([name, f"{wall:.1f}", f"{cpu:.1f}", f"{memory:.0f}", f"{megabytes(path):.0f}"])
    print(aligned(rows), flush=True)
    if options.lines:
        rows = [["lines", "s", "peak memory, MB"]]
        for n, wall, memory in peaks(ours[-1].folder, options.work, options.lines, options.threads):
            rows.append([f"{n:,}", f"{wall:.0f}", f"{memory:.0f}"])
        print(aligned(rows))


if __name__ == "__main__":
    main()
