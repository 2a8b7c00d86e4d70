"""Progress bars on a terminal; a file of its own, since rich takes a while to import."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import ProgressColumn, Task
from rich.text import Text

from greenadapt.cli.output.console import Speed, compact, rate
from greenadapt.progress import Bar

_MOST, _LEAST = 40, 8  # columns of the bar itself


@contextmanager
def drawn_bar(console: Console, label: str, total: float | None, unit: str) -> Iterator[Bar]:
    """Draw work of ``total`` units while the block runs; it stays, finished, if the block succeeds."""
    # What is written to stdout while the bar is shown goes above it on the same terminal, else where it belongs.
    with RichProgress(_Line(console, unit), console=console, redirect_stdout=sys.stdout.isatty()) as bars:
        speed = Speed(bars.get_time())
        task = bars.add_task(label, total=total, facts=(), speed=speed)

        class Drawn:
            def advance(self, amount: float, **facts: str) -> None:
                bars.update(task, advance=amount, facts=[f"{name} {value}" for name, value in facts.items()])
                speed.mark(bars.get_time(), bars.tasks[0].completed)

        yield Drawn()
        if total is not None:  # which may have been an estimate: what has ended is done
            bars.update(task, total=bars.tasks[0].completed)


class _Line(ProgressColumn):
    """Label, bar, share, facts and time, as many as fit."""

    max_refresh = 0.2  # seconds

    def __init__(self, console: Console, unit: str) -> None:
        super().__init__()
        self._console, self._unit = console, unit

    def render(self, task: Task) -> Text:
        width = self._console.width
        start = " ".join(task.description.split())
        share = f"{task.percentage:3.0f}%" if task.total else f"{compact(task.completed)} {self._unit}"
        time = _time(task)
        units, seconds = (task.completed, task.finished_time or 0) if task.finished else task.fields["speed"].recent
        speed = rate(units, seconds, self._unit)
        facts: Sequence[str] = [speed, *task.fields["facts"]] if task.total else [speed]
        while facts and len("  ".join([start, share, *facts, time])) > width:
            facts = facts[:-1]
        end = "  ".join([share, *facts, time])
        room = min(width - len(start) - len(end) - 2, _MOST)
        line = Text(no_wrap=True, overflow="ellipsis").append(start).append(" ")
        if task.total and room >= _LEAST:
            line.append_text(self._bar(task, room)).append(" ")
        return line.append(end)

    def _bar(self, task: Task, width: int) -> Text:
        mark = "-" if self._console.options.ascii_only else "━"
        filled = int(width * min(task.percentage, 100) / 100)
        return Text(mark * filled, "green" if task.finished else "cyan").append(mark * (width - filled), "bright_black")


def _time(task: Task) -> str:
    """Elapsed time and, at the speed of the last minute, remaining time."""
    elapsed = task.finished_time if task.finished else task.elapsed
    remaining = task.fields["speed"].seconds_of(task.remaining) if task.remaining and not task.finished else None
    return _clock(elapsed or 0) + ("" if remaining is None else f", {_clock(remaining)} left")


def _clock(seconds: float) -> str:
    minutes, remainder = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{remainder:02}" if hours else f"{minutes}:{remainder:02}"
