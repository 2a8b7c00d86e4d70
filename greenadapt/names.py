"""Names in a workspace for what a user gives by path."""

import os
import re
from hashlib import sha256
from pathlib import PurePosixPath


def path_name(path: str) -> str:
    """The last part of a path or address, without suffixes, plus eight hash digits of the whole."""
    last = re.sub(r"[^\w-]+", "-", PurePosixPath(path).name.split(".")[0]).strip("-")
    return f"{last or 'unnamed'}-{sha256(os.fsencode(path)).hexdigest()[:8]}"
