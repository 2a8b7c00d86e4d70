"""The one rule for where a command may write: not onto what it reads, not into it, and not around it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from greenadapt.errors import UsageError
from greenadapt.storage.names import expanded

_READ: ContextVar[Mapping[str, str | os.PathLike[str]]] = ContextVar("read")
"""Files and folders that the running command reads, by what they are called in messages."""


@contextmanager
def reading(read: Mapping[str, str | os.PathLike[str]]) -> Iterator[None]:
    """Protect ``read``, files and folders by what they are called in messages, from what is written in the block; those
    that are not there need no protection.
    """
    token = _READ.set({**_READ.get({}), **{name: path for name, path in read.items() if expanded(path).exists()}})
    try:
        yield
    finally:
        _READ.reset(token)


def refuse_overlap(out: Path, read: Mapping[str, str | os.PathLike[str]] = {}, *, is_replaced: bool = True) -> None:
    """Raise ``UsageError`` if ``out``, a file or a folder, is or lies in one of ``read`` or of what this command reads
    anyway, see ``reading``; or if ``out`` holds one, unless it is a folder that is added to, not replaced.
    """
    target = _real(out)
    for name, path in {**_READ.get({}), **read}.items():
        source = _real(path)
        if target == source:
            how = "is"
        elif source in target.parents:
            how = "lies in"
        elif is_replaced and target in source.parents:
            how = "holds"
        else:
            continue
        raise UsageError(f"{out} {how} {os.fspath(path)}, which is an input ({name})", "choose another place")


def _real(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.realpath(expanded(path)))
