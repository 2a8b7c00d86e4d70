"""The errors a user can cause or meet; the command line turns each into one line and an exit code."""

import importlib.util

_LONGEST = 1400
"""Characters of a message, in which names and words from files may be of any length."""
_BEGIN, _END = 800, 500


class GreenadaptError(Exception):
    """Something the user can act on.

    ``message`` says what is wrong, where, and both numbers; ``hint`` says what to do. Both are one line, and the middle
    of a very long one is left out.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = _shortened(message)
        self.hint = _shortened(hint)

    def __str__(self) -> str:
        return f"{self.message}: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[type["GreenadaptError"], tuple[str, str]]:
        # Worker processes send their errors to the parent, which must get message and hint back.
        return type(self), (self.message, self.hint)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_BEGIN]} … {text[-_END:]}"


class UsageError(GreenadaptError):
    """The command line or a setting asks for something that makes no sense (exit code 2)."""

    exit_code = 2


class InputError(GreenadaptError):
    """A file or an array is not what it should be."""


class MissingError(GreenadaptError):
    """A corpus, a model, a file or an earlier stage is not there."""


class ConflictError(GreenadaptError):
    """Something that is there already, or runs already, stands in the way."""


class LockedError(ConflictError):
    """Another run is writing the same results (exit code 69, EX_UNAVAILABLE of sysexits.h)."""

    exit_code = 69


class ResourceError(GreenadaptError):
    """Memory or disk would not be enough."""


class ServerError(GreenadaptError):
    """A server that is asked does not answer, or refuses."""


def is_panic(error: BaseException) -> bool:
    """Whether Rust's code in a library gave up; such an error is no ``Exception``."""
    return type(error).__name__ == "PanicException"


def first_line(error: BaseException) -> str:
    """The first line of what a library's error says, or the error's type if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def require_torch(what: str) -> None:
    """Raise ``MissingError`` where the packages that training and its models need are not installed."""
    needed = ("torch", "transformers", "accelerate", "sklearn")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"{what} needs {', '.join(missing)}, not installed", 'pip install "greenadapt[train]"')
