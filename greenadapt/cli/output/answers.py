"""Answers and their scores as they are printed."""

import sys

from greenadapt.cli.output.console import print_lines
from greenadapt.cli.output.tables import print_tables
from greenadapt.report.tables import AnswerLines, answer_lines, changed_words, changes, comparison_tables, scores_table
from greenadapt.storage.files import Json


def print_answers(row: Json) -> None:
    """A question, the best answer marked in its sentence, and the further ones."""
    _print_marked(answer_lines(row))


def print_summary(summary: Json) -> None:
    """The scores, and how the model compares with its base model, as far as ``summary`` has them."""
    if "scores" in summary:
        print_tables([scores_table(summary["scores"])])
    if "comparison" not in summary:
        return
    comparison = summary["comparison"]
    print_tables(comparison_tables(comparison))
    print_lines([changed_words(comparison), ""])
    for group in changes(comparison):
        print_lines([group.title, ""])
        for question in group.questions:
            _print_marked(question)


def _print_marked(question: AnswerLines) -> None:
    """A question and its lines, which on a terminal go on further right in the next one.

    An answer within its sentence stands between ``[[`` and ``]]`` where there are no styles.
    """
    from rich.console import Console
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    begin, end = ("", "") if console.color_system else ("[[", "]]")
    paragraphs = [("", Text(question.question, style="bold"))]
    for line in question.lines:
        is_within = bool(line.before or line.after)
        answer = f"{begin}{line.answer}{end}" if is_within else line.answer
        text = Text(line.label + line.before).append(answer, style="bold green").append(line.after)
        paragraphs.append(("  ", text.append(f"  ({line.note})" if line.note else "", style="dim")))
    # Captured, since what is written to a terminal while a bar is shown there has to go above it.
    with console.capture() as drawn:
        for indent, text in paragraphs:
            width = max(console.width - len(indent) - 2, 20)
            for number, row in enumerate(text.wrap(console, width) if is_terminal else [text]):
                row.rstrip()
                console.print(Text(indent + "  " * (number > 0)).append(row), soft_wrap=True)
    print_lines([drawn.get()], styled=True)
