"""What less context in the windows of ``qa`` costs in F1, and saves in pieces that the model reads.

    python benchmarks/windows.py --model READER --test questions.json --strides 160 180 [--backend onnx --quantize int8]

READER is what ``finetune --task qa`` wrote. By default half of each window is searched and the rest is context, as in
arXiv 2004.03354. A stride is the number of pieces between the starts of two windows, as in BERT's code for SQuAD: a
larger one means less context. Differences to the default have 95 % intervals (paired bootstrap over contexts).
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

from records import resumable
from serving import difference, points, predicted, statistics
from tables import aligned

from greenadapt.config import ReadingOptions
from greenadapt.inference.models import OpenedModel
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Silent
from greenadapt.storage.arrays import Array
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question, read_questions


@dataclass(frozen=True)
class Reading:
    """The answers of a model with a stride."""

    opened: OpenedModel
    pieces: int
    """Pieces that the model read, in the base tokenization."""
    seconds: float
    statistics: Array
    """(n_questions, 2), see ``QuestionTask.statistics``."""


def main() -> None:
    """Print a table with a row for each stride."""
    options = _options()
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    questions = list(read_questions(str(options.test), Silent()))
    reading = ReadingOptions(backend=options.backend, quantize=options.quantize, max_length=options.max_length)
    default = answered(options.model, questions, None, reading)
    rows = [["stride", "pieces", "seconds", "F1", "to the default"]]
    rows.append(["half of the window", "1.00", f"{default.seconds:.0f}", _f1(default), ""])
    for stride in options.strides:
        result = answered(options.model, questions, stride, reading)
        share = f"{result.pieces / default.pieces:.2f}"
        compared = difference(result.opened, questions, result.statistics, default.statistics)
        rows.append([str(stride), share, f"{result.seconds:.0f}", _f1(result), compared])
    print(aligned(rows))


def answered(model: str, questions: list[Question], stride: int | None, reading: ReadingOptions) -> Reading:
    """Answer all questions with windows that begin every ``stride`` pieces; ``None`` is the default."""
    folder = TaskFolder.open(model)
    assert isinstance(folder.task, QuestionTask)
    opened = OpenedModel.open([replace(folder, task=replace(folder.task, stride=stride))], reading)
    inputs = list(opened.inputs(questions))
    begin = time.perf_counter()
    predictions = predicted(opened, opened.outputs(inputs), opened.settings.pool)
    seconds = time.perf_counter() - begin
    pieces = sum(len(feature) for example in inputs for feature in example.base)
    return Reading(opened, pieces, seconds, statistics(opened, questions, predictions))


def _f1(result: Reading) -> str:
    return f"{points(result.opened, result.statistics):.2f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--test", type=Path, required=True, help="questions in SQuAD's JSON")
    parser.add_argument("--strides", type=int, nargs="+", required=True)
    parser.add_argument("--max-length", type=int, help="pieces of a window; as trained by default")
    parser.add_argument("--backend", choices=["torch", "onnx", "openvino"])
    parser.add_argument("--quantize", choices=["int8"])
    parser.add_argument("--threads", type=int, help="of torch")
    return parser.parse_args()


if __name__ == "__main__":
    resumable(main)
