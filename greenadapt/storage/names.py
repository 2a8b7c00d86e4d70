"""Names for paths, in a workspace and in published files; where greenadapt's own files lie."""

import os
import re
from hashlib import sha256
from pathlib import Path, PurePosixPath


def own_folder(name: str) -> Path:
    """A folder that comes with greenadapt: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    return package / name if (package / name).is_dir() else package.parent / name


def path_name(path: str) -> str:
    """The last part of a path or address, without suffixes, plus eight hash digits of the whole."""
    last = re.sub(r"[^\w-]+", "-", PurePosixPath(path).name.split(".")[0]).strip("-")
    return f"{last or 'unnamed'}-{sha256(os.fsencode(path)).hexdigest()[:8]}"


def short(source: str) -> str:
    """A path for publication: relative if it lies in the working folder, else only its last part, since the rest, like
    a file's URL, may reveal something about its owner. Other names, such as hub ids, are unchanged.
    """
    if "://" in source:
        return PurePosixPath(source.partition("?")[0]).name
    given = Path(source).expanduser()
    if not (given.is_absolute() or given.exists()):
        return source
    here = Path.cwd()
    path = Path(os.path.normpath(here / given))
    is_below = here in path.parents and here not in Path(os.environ.get("HOME", "~")).parents
    return str(path.relative_to(here)) if is_below else path.name
