"""GLUE's published test tables, and predictions as its leaderboard takes them (arXiv 1804.07461)."""

from collections.abc import Iterator
from typing import Any

from greenadapt.config import TableFormat
from greenadapt.corpus.reading import STDIN
from greenadapt.errors import UsageError
from greenadapt.progress import Progress
from greenadapt.tasks import Json, Task
from greenadapt.tasks.entries import Entry
from greenadapt.tasks.records import records

GLUE_HEADER = "index\tprediction"
_AS_PUBLISHED = TableFormat(quotes=False)


def read_glue_entries(task: Task[Any], source: str, progress: Progress) -> Iterator[Entry]:
    """The unlabelled examples of a published test table, as they are asked for.

    Its first line names the columns, whatever those of the training files are called, and quotation marks are text.
    The id of an entry is its index, from 0, which the leaderboard wants. Raises ``UsageError`` for a task that is no
    classification and for standard input, and ``InputError`` with the line where a row has another number of columns
    or none for the text.
    """
    if task.name != "classification":
        raise UsageError(f"--glue is for classification, the model is for {task.name}", "leave out --glue")
    if source == STDIN:
        raise UsageError("a table of GLUE is read from a file", "name it with --input")
    for index, (where, row) in enumerate(records(source, progress, _AS_PUBLISHED)):
        example = task.example(row, where)
        yield Entry(None, index, example, len(example.text) + len(example.second or ""), where)


def glue_line(index: int, prediction: Json) -> str:
    """A line of a submission below ``GLUE_HEADER``, without its end: the class, or the number with three decimals."""
    told = prediction["label"] if "label" in prediction else f"{prediction['value']:.3f}"
    return f"{index}\t{told}"
