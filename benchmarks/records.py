"""What the benchmarks that take long have done so far, so that a stopped one goes on where it was."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from greenadapt.errors import GreenadaptError, InputError
from greenadapt.storage.files import Json


class Records:
    """Finished runs by what decides them, each a line of a file; a line that a kill has cut off is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text("utf-8") if path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole, "utf-8")
        try:
            self.by_key: dict[str, Json] = {row["key"]: row for row in map(json.loads, whole.splitlines())}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} has a line that is no record ({error!r})", "remove that line") from None

    def add(self, record: Json) -> Json:
        """Write one more line, and have it on disk."""
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.by_key[record["key"]] = record
        return record


def resumable(main: Callable[[], None]) -> None:
    """Run a benchmark that goes on where it was stopped."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
    except GreenadaptError as error:
        sys.exit(str(error))
