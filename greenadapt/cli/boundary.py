"""The error boundary: errors, signals and broken output become a line on stderr and an exit code."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TextIO

from greenadapt.errors import GreenadaptError
from greenadapt.progress import TIME_UP, time_limits
from greenadapt.store.files import STDOUT

_TERMINATED = 128 + signal.SIGTERM
_INTERRUPTED = 128 + signal.SIGINT
_BROKEN_PIPE = 128 + 13  # SIGPIPE, which Windows does not have
_STOPPED = {TIME_UP: "the time is up (--max-time)", _TERMINATED: "terminated"}
_MEMORY_ERRORS = (
    "can't start new thread",
    "out of memory",
    "allocate memory",
    "bad_alloc",
    "bad allocation",
    "could not create a primitive",
    "could not create a memory object",
    "failed to map segment",
)
"""Parts of the messages of torch, oneDNN and Python for lack of memory, for which they have no type."""
_AGAIN = "the same command resumes from its last checkpoint, or starts over if it has none"


@contextmanager
def report_errors() -> Iterator[None]:
    """Turn errors that users can act on into a line on stderr and ``SystemExit``."""
    try:
        with time_limits():
            yield
    except GreenadaptError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of the pipe, such as head, ended: exit silently with the code of SIGPIPE.
        flush(sys.stdout)
        raise SystemExit(_BROKEN_PIPE) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _fail(f"{error.strerror or error}{where}", 1)
    except Exception as error:
        if not lacks_memory(error):
            raise
        _fail("not enough memory: end other programs, or lower --batch-size, --max-tokens, --workers or --max-vocab", 1)
    except KeyboardInterrupt:
        _fail(f"interrupted: {_AGAIN}", _INTERRUPTED)
    except SystemExit as stop:
        if stop.code in _STOPPED:
            _fail(f"{_STOPPED[stop.code]}: {_AGAIN}", stop.code)
        if isinstance(stop.__context__, BrokenPipeError):  # rich, which writes help, ends with 1
            raise SystemExit(_BROKEN_PIPE) from None
        raise


def flush(stream: TextIO) -> int:
    """Flush ``stream``; if that fails, discard its buffer and return the error number, else 0."""
    try:
        stream.flush()
    except OSError as error:
        # Else Python tries again at exit, and prints an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error.errno or errno.EIO
    return 0


def lacks_memory(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is due to lack of memory."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or any(text in str(cause) for text in _MEMORY_ERRORS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def require_written() -> None:
    """Raise ``OSError`` if stdout cannot be flushed."""
    number = flush(sys.stdout)
    if number:
        raise OSError(number, os.strerror(number), STDOUT)


def exit_on_sigterm() -> None:
    """Make SIGTERM end the program like Ctrl-C, so that unfinished files are removed, or kept for resuming."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second signal ends it at once
        raise SystemExit(_TERMINATED)

    # One of several processes may wait for the others in C code, where no Python handler runs.
    is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if is_alone and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, stop)


def _fail(message: str, code: int) -> NoReturn:
    from greenadapt.cli.output.console import write_message

    flush(sys.stdout)
    line = " ".join(message.split())
    with suppress(OSError):
        write_message("error", f"greenadapt: {line}")
    flush(sys.stderr)
    raise SystemExit(code)
