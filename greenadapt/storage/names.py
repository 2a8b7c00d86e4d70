"""Names for paths, in a workspace and in published files; where greenadapt's own files lie."""

import os
import re
from hashlib import sha256
from pathlib import Path, PurePosixPath

from greenadapt.errors import InputError

_LONGEST = 100  # bytes


def own_folder(name: str) -> Path:
    """A folder that comes with greenadapt: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    return package / name if (package / name).is_dir() else package.parent / name


def path_name(path: str) -> str:
    """The last part of a path or address, without suffixes, plus eight hash digits of the whole."""
    last = re.sub(r"[^\w-]+", "-", PurePosixPath(path).name.split(".")[0]).strip("-")
    last = last.encode()[:_LONGEST].decode(errors="ignore")  # a folder's name may have 255 bytes
    return f"{last or 'unnamed'}-{sha256(os.fsencode(path)).hexdigest()[:8]}"


def require_utf8(path: str | os.PathLike[str]) -> None:
    """Raise ``InputError`` for a name whose bytes are not UTF-8: manifests, cards and tokenizers could not hold it."""
    name = os.fspath(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise InputError(f"{shown} is not UTF-8", "rename it (convmv -f latin1 -t utf8 does it)") from None


def expanded(path: str | os.PathLike[str]) -> Path:
    """``path`` with the home folder for ``~``, or as it is if the user is unknown (``Path.expanduser`` fails)."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def short(source: str) -> str:
    """A path for publication: relative if it lies in the working folder, else only its last part, since the rest, like
    a file's URL, may reveal something about its owner. Other names, such as hub ids, are unchanged.
    """
    if "://" in source:
        return PurePosixPath(source.partition("?")[0]).name
    given = expanded(source)
    if not (given.is_absolute() or given.exists()):
        return source
    here = Path.cwd()
    path = Path(os.path.normpath(here / given))
    is_below = here in path.parents and here not in Path(os.environ.get("HOME", "~")).parents
    return str(path.relative_to(here)) if is_below else path.name
