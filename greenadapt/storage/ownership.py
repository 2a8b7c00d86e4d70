"""Whether a folder or a file is greenadapt's own: nothing else is reused, replaced or removed.

A folder is greenadapt's if it has greenadapt's mark, the file ``.greenadapt``, or the manifest of a finished result.
Its name says nothing.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from greenadapt import __version__
from greenadapt.errors import ConflictError, counted

MANIFEST, INDEX_FILE, MARK = "manifest.json", "index.json", ".greenadapt"
"""The files that mark a folder as a result, an index, or other work of greenadapt."""
INDEX = "index"
"""The value of ``of`` in the mark of an index."""
CARD, NEW_CARD = "README.md", "README.new.md"
"""The card of a result, which people may edit; the card of a new result if ``CARD`` was edited by hand."""
_SYSTEM_FILES = re.compile(r"\.DS_Store|\.nfs.*")
_PART = re.compile(r"\.(?P<name>.+?)(\.[0-9a-f]{8})?\.part")
"""A half-written file of a killed process."""
_INDEX_FILES = re.compile(
    r"index\.json|tokenizer\.json"
    r"|words/([0-9a-f]{32}\.[\w.]+|meta\.json|\.managed\.json|\.tantivy-(meta|writer)\.lock|\.tmp\w+)"
)


def is_own(folder: Path) -> bool:
    """Whether greenadapt made this folder; never of a symlink."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    return read_mark(folder) is not None or is_result(folder)


def is_result(folder: Path) -> bool:
    """Whether a folder has the manifest of a stage, of any format version."""
    values = _object(folder / MANIFEST)
    kinds = {"greenadapt": str, "stage": str, "config": dict, "inputs": dict, "files": dict}
    return all(isinstance(values.get(name), kind) for name, kind in kinds.items())


def is_index(folder: Path) -> bool:
    """Whether a folder is marked as an index."""
    return (read_mark(folder) or {}).get("of") == INDEX


def read_mark(folder: Path) -> dict[str, Any] | None:
    """The content of a folder's mark; ``None`` if it has none."""
    values = _object(folder / MARK)
    return values if isinstance(values.get("greenadapt"), str) else None


def write_mark(folder: Path, **content: Any) -> None:
    """Mark ``folder`` as greenadapt's, at once; ``content`` is kept in the mark."""
    part = folder / f".{MARK}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(json.dumps({**content, "greenadapt": __version__}, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / MARK)


def note_files(folder: Path, sizes: Mapping[str, int | None]) -> None:
    """Write into the mark of ``folder`` the bytes of files in it that greenadapt made, ``None`` for unfinished ones."""
    write_noted(folder, {**noted_files(folder), **sizes})


def write_noted(folder: Path, files: Mapping[str, int | None]) -> None:
    """Replace the noted files in the mark of ``folder``, and keep the rest."""
    write_mark(folder, **{**(read_mark(folder) or {}), "files": files})


def noted_files(folder: Path) -> dict[str, int | None]:
    """The files that the mark of ``folder`` notes: name → bytes, ``None`` for unfinished ones."""
    files = (read_mark(folder) or {}).get("files")
    return files if isinstance(files, dict) else {}


def is_noted(file: Path) -> bool:
    """Whether the mark of its folder notes that greenadapt made this file, or has begun to as ``NAME.part``, and nobody
    has replaced it since.
    """
    if file.is_symlink() or not file.is_file():
        return False
    noted, name = noted_files(file.parent), file.name
    return noted.get(name) == file.stat().st_size or noted.get(name.removesuffix(".part"), 0) is None


def require_own(path: Path, is_known: Callable[[Path], bool] = is_own) -> None:
    """Raise ``ConflictError`` if ``path`` is not greenadapt's; an empty folder is nobody's."""
    if not os.path.lexists(path) or is_known(path) or _is_empty(path):
        return
    raise ConflictError(
        f"{path} is in the way: greenadapt works there, and has not made it", "move it away, or choose another place"
    )


def new_folder(folder: Path, **content: Any) -> None:
    """Make the empty folder ``folder`` with a mark of that content, and remove what greenadapt left there before.

    Raises what ``require_own`` raises.
    """
    require_own(folder)
    remove_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_mark(folder, **content)


def remove_folder(folder: Path) -> None:
    """Remove ``folder``, if it exists; its marks go last, so that a killed removal can be finished.

    The caller knows that it is greenadapt's.
    """
    if not folder.is_dir() or folder.is_symlink():
        return
    last = [folder / name for name in (MANIFEST, INDEX_FILE, MARK)]
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path not in last:
            path.unlink()
    shutil.rmtree(folder)


def remove_if_own(folder: Path) -> None:
    """Remove ``folder`` if it is greenadapt's, or empty."""
    if is_own(folder) or _is_empty(folder):
        remove_folder(folder)


def added_files(folder: Path) -> list[str]:
    """The files, by name inside ``folder``, that greenadapt did not write into its result, index or download there."""
    of_result = (MANIFEST, CARD, NEW_CARD, *_object(folder / MANIFEST)["files"]) if is_result(folder) else ()
    noted = [name for file in noted_files(folder) for name in (file, f"{file}.part", f".{file}.part.version")]
    names, of_index = {MARK, *of_result, *noted}, is_index(folder)

    def is_known(name: str) -> bool:
        path = Path(name)
        if name in names or _SYSTEM_FILES.fullmatch(path.name) or (of_index and _INDEX_FILES.fullmatch(name)):
            return True
        part = _PART.fullmatch(path.name)
        return part is not None and is_known(path.with_name(part["name"]).as_posix())

    return sorted(name for name in _files(folder) if not is_known(name))


def refuse_added(folder: Path) -> None:
    """Raise ``ConflictError`` if ``folder`` has a file that greenadapt did not write, see ``added_files``."""
    if added := added_files(folder):
        raise ConflictError(
            f"{folder} holds {counted(len(added), 'file')} that greenadapt did not write, such as {added[0]}",
            "move them away, or give another --out",
        )


def _files(folder: Path) -> Iterator[str]:
    """Names of all files and links below ``folder``."""
    for base, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(base) / name).is_symlink()]
        for name in (*files, *links):
            yield (Path(base) / name).relative_to(folder).as_posix()


def _is_empty(path: Path) -> bool:
    """Whether a folder is empty, but for a half-written mark."""
    if path.is_symlink() or not path.is_dir():
        return False
    return all(file.name == f".{MARK}.part" for file in path.iterdir())


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        values = json.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
