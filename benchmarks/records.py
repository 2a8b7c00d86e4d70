"""Scripts that resume: records of finished runs, and the last line of a stopped script."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from greenadapt.errors import GreenadaptError, one_line
from greenadapt.store.files import Json, naming, read_own_lines


class Records:
    """Finished runs by what decides them, each a line of a file; the rest of a line cut off by a kill is removed.

    Raises ``InputError`` if another line is no JSON object.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        content = path.read_bytes() if path.is_file() else b""
        n_whole = content.rfind(b"\n") + 1
        if n_whole < len(content):
            os.truncate(path, n_whole)
        rows = read_own_lines(path, "remove that line") if path.is_file() else ()
        self.by_key: dict[str, Json] = {row["key"]: row for row in rows}

    def add(self, record: Json) -> Json:
        with naming(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.by_key[record["key"]] = record
        return record


def resumable(main: Callable[[], None]) -> None:
    """Run a script that resumes where it was stopped; print its errors as one line."""
    try:
        main()
    except KeyboardInterrupt:
        _fail("stopped; the same command goes on from here", 130)
    except GreenadaptError as error:
        _fail(str(error), error.exit_code)


def _fail(message: str, code: int) -> None:
    print(one_line(message), file=sys.stderr)
    sys.exit(code)
