"""Turns errors, signals and broken output into one line on stderr and an exit code; anything else is a bug."""

import errno
import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from greenadapt.errors import GreenadaptError
from greenadapt.progress import TIME_UP, time_limits
from greenadapt.storage.files import STDOUT

_TERMINATED = 128 + signal.SIGTERM
_INTERRUPTED = 128 + signal.SIGINT
_BROKEN_PIPE = 128 + 13  # SIGPIPE, which Windows does not have
_STOPPED = {TIME_UP: "the time is up (--max-time)", _TERMINATED: "terminated"}
_NEARLY = 0.95
_WITHOUT_MEMORY = (
    "can't start new thread",
    "out of memory",
    "allocate memory",
    "bad_alloc",
    "bad allocation",
    "could not create a primitive",
    "could not create a memory object",
    "failed to map segment",
)
"""What errors of torch, oneDNN and Python say when memory ends; they have no type of their own."""
_STAGES = "the same command resumes after the finished stages, and training where it was stopped"
_STEPS = "the same command resumes from the last checkpoint"
_GOES_ON = {
    "adapt": _STAGES,
    "demo": _STAGES,
    "w2v": "the same command resumes where training was stopped",
    "corpus": "the same command resumes a download, but splits the text from its beginning (with --cluster it goes on)",
    "assess": "with --train, the same command resumes after the last fold, and training from the last checkpoint",
    "finetune": _STEPS,
    "pretrain": _STEPS,
    "qa": "with --out, the same command resumes after the last question",
    "predict": "the same command starts from the first line (with --cluster it goes on); printed lines are complete",
    "index": "the same command goes on after the last document that it wrote",
}
"""Command → what running it again does after it was stopped; any other starts over."""
_OF_SEVERAL = frozenset({"adapt", "demo", "assess", "finetune"})
"""Commands that may finish several results."""
FORCED = "greenadapt.forced"
"""In a context's ``meta``: whether the command was given --force."""


@contextmanager
def in_words(ctx: Any = None) -> Iterator[None]:
    """Turn errors that a user can cause or meet into one line and ``SystemExit``; ``ctx`` knows the command."""
    try:
        with time_limits():
            yield
    except GreenadaptError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of a pipeline left (head, less): be silent, and exit as a shell reports SIGPIPE.
        flush(sys.stdout)
        raise SystemExit(_BROKEN_PIPE) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _fail(f"{error.strerror or error}{where}", 1)
    except Exception as error:
        if not lacks_memory(error):
            raise
        _fail("not enough memory: lower --batch-size or --max-tokens, or --max-memory, --workers or --max-vocab", 1)
    except KeyboardInterrupt:
        _fail(f"interrupted: {_what_is_left(ctx)}", _INTERRUPTED)
    except SystemExit as stop:
        if stop.code in _STOPPED:
            _fail(f"{_STOPPED[stop.code]}: {_what_is_left(ctx)}", stop.code)
        if isinstance(stop.__context__, BrokenPipeError):  # rich, which writes help, ends with 1
            raise SystemExit(_BROKEN_PIPE) from None
        raise


def flush(stream: TextIO) -> int:
    """Write what ``stream`` still holds; returns the error number if that fails, and drops it."""
    try:
        stream.flush()
    except OSError as error:
        # Python would try again when it ends, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error.errno or errno.EIO
    return 0


def lacks_memory(error: BaseException) -> bool:
    """Whether an error, or one that it came from, says that memory ended.

    Also if nearly all that ``ulimit -v`` allows was used, since then anything may fail in any way.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or any(text in str(seen) for text in _WITHOUT_MEMORY):
            return True
        seen = seen.__cause__ or seen.__context__
    try:
        import resource
    except ImportError:  # Windows
        return False
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return limit != resource.RLIM_INFINITY and _most_addresses() > _NEARLY * limit


def _most_addresses() -> int:
    """Bytes of addresses that this process had at most; 0 if the system does not say."""
    try:
        found = re.search(r"^VmPeak:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"), re.MULTILINE)
    except MemoryError:
        return sys.maxsize
    except (OSError, UnicodeError):
        return 0
    return 1024 * int(found[1]) if found else 0


class ClosedOutput(io.TextIOBase):
    """A standard output that was closed before the program began: what is written to it would be lost."""

    def write(self, text: str) -> int:
        """Raise ``OSError``, as writing to a closed file does, unless ``text`` is empty."""
        if text:
            raise OSError(errno.EBADF, "it is closed", STDOUT)
        return 0


def require_written() -> None:
    """Raise ``OSError`` if stdout does not take what was printed."""
    number = flush(sys.stdout)
    if number:
        raise OSError(number, os.strerror(number), STDOUT)


def exit_on_sigterm() -> None:
    """Let SIGTERM end the program as Ctrl-C does, so that unfinished files are removed or kept to resume from."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it at once
        raise SystemExit(_TERMINATED)

    # One of several processes may wait for the others where no handler of Python runs.
    is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if is_alone and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, stop)


def _what_is_left(ctx: Any) -> str:
    command = getattr(ctx, "invoked_subcommand", None) or ""
    if command in _OF_SEVERAL and ctx.meta.get(FORCED):
        return "the same command resumes what it was at, but does again, with --force, what is finished"
    return _GOES_ON.get(command, "the same command starts over")


def _fail(message: str, code: int) -> NoReturn:
    from greenadapt.cli.output.console import output, write_message

    flush(sys.stdout)
    line = " ".join(message.split())
    with suppress(OSError):
        if output().as_json:
            write_message("error", line, exit_code=code)
        else:
            write_message("error", f"greenadapt: {line}")
    flush(sys.stderr)
    raise SystemExit(code)
