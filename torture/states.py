"""The results in a folder, as its readers see them, each with the hash of its content."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from safetensors.numpy import load_file

from greenadapt.errors import GreenadaptError
from greenadapt.storage.files import hash_file, hash_json
from greenadapt.storage.results import MANIFEST, read_manifest, verified
from greenadapt.storage.results import Result as Opened

TIMED = {"manifest.json", "README.md", "README.new.md", "history.jsonl"}
"""Files that hold times and costs, so that they differ from run to run. So do pages of ``report``, and the header of a
fold that ``assess --train`` keeps.
"""
_FOLD = re.compile(r"[0-9a-f]{16}\.safetensors")
_MANY = "multitask.json"
_RUNNING = "running"
"""Where ``assess --train`` keeps what it has not finished."""

State = dict[str, str]
"""Path of each result → hash of its content."""


class NotWholeError(Exception):
    """A result that a reader sees is not whole."""


def state_of(folder: Path, leave_out: tuple[str, ...] = ()) -> State:
    """The results and other visible files in a folder; raises ``NotWholeError`` if one does not fit its manifest."""
    state: State = {}
    for path in _units(folder):
        name = path.relative_to(folder).as_posix()
        if name.partition("/")[0] not in leave_out:
            state[name] = _digest(path)
    return state


def hidden_in(folder: Path) -> list[str]:
    """Unfinished and temporary files, which no result needs."""
    kinds = (".part", ".work", ".lock", ".new", ".key", ".shards", ".old")
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_symlink() and (path.name.endswith(kinds) or ".part" in path.name)
        if not (path.is_dir() and not any(path.iterdir()))
    )


def _units(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == _RUNNING:
            continue
        if path.is_dir() and not (path / MANIFEST).is_file():
            yield from _units(path)
        else:
            yield path
            if (path / _MANY).is_file():
                yield from _units(path / "tasks")


def _digest(path: Path) -> str:
    if path.is_file():
        if _FOLD.fullmatch(path.name):
            return hash_json({name: array.tobytes().hex() for name, array in sorted(load_file(path).items())})
        is_page = path.suffix == ".html" and path.read_text("utf-8").rstrip().endswith("</html>")
        return "a page" if is_page else hash_file(path)
    folder = path.resolve()
    inside = [(file, file.relative_to(folder).parts) for file in sorted(folder.rglob("*")) if file.is_file()]
    files = [
        file for file, parts in inside if not _is_apart(folder, file) and not any(part[0] == "." for part in parts)
    ]
    try:
        verified(Opened(folder, read_manifest(folder), path))
    except GreenadaptError as error:
        raise NotWholeError(str(error)) from None
    return hash_json({str(file.relative_to(folder)): hash_file(file) for file in files if file.name not in TIMED})


def _is_apart(folder: Path, file: Path) -> bool:
    """Whether a file belongs to one of the tasks of a model with many, each of which counts by itself."""
    parts = file.relative_to(folder).parts
    return parts[0] == "tasks" and (folder / _MANY).is_file()


def differences(state_found: State, *allowed: State) -> str:
    """The results that differ from all ``allowed`` states, in a line; empty if there are none."""
    names = dict.fromkeys(name for state in (state_found, *allowed) for name in state)
    differing = [name for name in names if state_found.get(name) not in [state.get(name) for state in allowed]]
    return json.dumps({name: state_found.get(name, "gone")[:12] for name in differing}) if differing else ""
