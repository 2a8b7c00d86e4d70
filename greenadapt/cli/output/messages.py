"""Messages on stderr: text for people, or with ``--log-format json`` one object a line for machines."""

import json
import os
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import IO, Any, Literal

from greenadapt.errors import one_line

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True)
class Output:
    """What the running command prints on stderr, and how."""

    quiet: bool = False
    """Only warnings and errors."""
    as_json: bool = False
    command: str = ""
    """The stage of messages that no stage sends."""


_output = Output()


def set_output(**changes: Any) -> None:
    """Change ``Output`` from now on; starts afresh with a ``command``."""
    global _output
    _output = replace(Output() if "command" in changes else _output, **changes)


def output() -> Output:
    """What is set."""
    return _output


def write_message(level: Level, message: str, **numbers: Any) -> None:
    """Write one line to stderr: as JSON with time, level, stage and ``numbers``, or the message as text."""
    if _output.as_json:
        from greenadapt.progress import STAGE

        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = {"time": time, "level": level, "stage": STAGE.get() or _output.command or None}
        sys.stderr.write(json.dumps({**head, "message": message, **numbers}) + "\n")
        return
    line = one_line(message)
    if level == "warning":
        line = f"warning: {' '.join(line.split())}"
        line = f"\x1b[33m{line}\x1b[0m" if has_colour(sys.stderr) else line
    sys.stderr.write(f"{line}\n")


def has_colour(stream: IO[str]) -> bool:
    """Whether to write colours: on a terminal, unless ``NO_COLOR`` is set, or if ``FORCE_COLOR`` is."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def show_details() -> None:
    """Write what the package logs (``logging``) as messages, for ``--verbose``."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            write_message("debug", record.getMessage())

    logger = logging.getLogger("greenadapt")
    logger.handlers = [Handler()]
    logger.propagate = False
    logger.setLevel(logging.DEBUG)


def hide_details() -> None:
    """The opposite of ``show_details``, if a command before it in this process was verbose."""
    if logging := sys.modules.get("logging"):
        logger = logging.getLogger("greenadapt")
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.NOTSET)
