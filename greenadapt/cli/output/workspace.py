"""What is in a workspace, what was removed from it, and what is in a cluster, printed."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from datetime import datetime
from pathlib import Path

from greenadapt.cli.output.console import print_json, print_table, print_text
from greenadapt.errors import byte_size, counted, duration
from greenadapt.storage.files import Json

_COLUMNS = ["stage", "state", "made", "size", "time"]


def print_status(rows: Sequence[Json], root: Path | None) -> None:
    """The rows of ``status``; ``root`` is the workspace, if they are of one."""
    results = [row for row in rows if row["kind"] == "result"]
    if root is not None:
        print_text([f"Workspace {root}" if rows else f"Workspace {root}: nothing in it yet", ""])
    for group in dict.fromkeys(_group(row, root) for row in results):
        _print_group(group, [row for row in results if _group(row, root) == group], root)
    for row in rows:
        if row["kind"] == "unfinished":
            print_text(_unfinished(row))
        elif row["kind"] == "lock":
            print_text([f"Locked: {row['writer']} is writing", f"  {row['file']}"])
    left = [row for row in rows if row["kind"] == "leftovers"]
    if left:
        each = ", ".join(f"{_KINDS[row['what']][1]} {byte_size(row['bytes'])}" for row in left)
        print_text([f"greenadapt clean would remove: {each}"])


_KINDS = {
    "version": ("old version", "old versions"),
    "unfinished": ("unfinished work", "unfinished work"),
    "download": ("download", "downloads"),
    "input": ("kept input", "kept input"),
    "cache": ("cache", "caches"),
}
"""What can be removed, one and many."""


def _group(row: Json, root: Path | None) -> str:
    if root is None:
        return ""
    return ", ".join(filter(None, (row["corpus"], row["model"]))) if _is_below(row, root) else "Written elsewhere"


def _is_below(row: Json, root: Path) -> bool:
    return Path(row["folder"]).is_relative_to(root)


def _print_group(title: str, rows: Sequence[Json], root: Path | None) -> None:
    cells = [
        [
            _name(row, root),
            row["state"],
            "" if row["made"] is None else local_time(row["made"]),
            "" if row["bytes"] is None else byte_size(row["bytes"]),
            "" if row["seconds"] is None else duration(row["seconds"]),
        ]
        for row in rows
    ]
    print_table(title, _COLUMNS, cells)
    reasons = [f"{_name(row, root)}: {why}" for row in rows if row["state"] != "not made" for why in row["why"]]
    if reasons:
        print_text([*(f"  {reason}" for reason in reasons), ""])


def _name(row: Json, root: Path | None) -> str:
    """A stage with its variant, or outside a workspace with its folder."""
    if root is not None and not _is_below(row, root):
        return f"{row['stage']} {_from_home(row['folder'])}"
    if root is not None:
        return str(row["stage"]) + (f"@{row['variant']}" if row["variant"] else "")
    name = Path(row["folder"]).name
    return name if name == row["stage"] else f"{row['stage']} {name}"


def _from_home(folder: str) -> str:
    path = Path(folder)
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else folder


def _unfinished(row: Json) -> list[str]:
    what = " of ".join(filter(None, (row["stage"], ", ".join(filter(None, (row["corpus"], row["model"]))))))
    spent = f", {duration(row['seconds'])} so far" if row["seconds"] else ""
    state, after = (
        ("Being made", "") if row["writer"] else ("Unfinished", "; the same command resumes it or starts over")
    )
    said = f"{byte_size(row['bytes'])}, changed {local_time(row['changed'])}{spent}{after}"
    return [f"{state}: {what}: {said}", f"  {row['folder']}"]


def local_time(iso: str) -> str:
    """A time of day here, to the minute."""
    return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M")


def print_cleaning(removable: Sequence[Json], kept: Sequence[Json], as_json: bool, *, to_stderr: bool = False) -> None:
    """What ``clean`` would remove, and what it keeps."""
    if as_json:
        for row in [*removable, *kept]:
            print_json(row)
        return
    with redirect_stdout(sys.stderr) if to_stderr else nullcontext():
        print_text(line for row in removable for line in _removable(row))
        print_text(_sum("To remove", removable) if removable else ["nothing to remove"])
        print_text(line for row in kept for line in (f"Kept: {row['why']}", f"  {row['path']}"))


def print_removed(rows: Sequence[Json], as_json: bool) -> None:
    """What ``clean`` removed, and what it kept."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_text(_sum("Removed", [row for row in rows if row["action"] == "removed"]))
    print_text(line for row in rows if row["why"] for line in (f"Kept: {row['why']}", f"  {row['path']}"))


def _removable(row: Json) -> list[str]:
    of = ", ".join(filter(None, (row["corpus"], row["model"], row["stage"])))
    return [f"{_KINDS[row['what']][0]}{f' of {of}' if of else ''}: {byte_size(row['bytes'])}", f"  {row['path']}"]


def _sum(verb: str, rows: Sequence[Json]) -> list[str]:
    what = "file or folder", "files and folders"
    return [f"{verb}: {counted(len(rows), *what)}, {byte_size(sum(row['bytes'] for row in rows))}"]


def print_cluster(rows: Sequence[Json]) -> None:
    """The nodes of a cluster, what of them is free, and what uses them."""
    nodes = [row for row in rows if row["kind"] == "node"]
    sums = {name: sum(row[name] for row in nodes) for name in nodes[0] if name not in ("kind", "address")}
    shown = [*nodes, {**sums, "address": "all"}] if len(nodes) > 1 else nodes
    cells = [
        [
            row["address"],
            *(f"{row[f'free_{name}']:g} of {row[name]:g}" for name in ("cores", "gpus")),
            byte_size(row["memory_bytes"]),
        ]
        for row in shown
    ]
    print_table("", ["node", "free cores", "free GPUs", "memory"], cells)
    for row in rows:
        if row["kind"] == "program":
            where = f"process {row['process']} at {row['address']}, since {local_time(row['started'])}"
            print_text([f"Runs: {row['command']}", f"  {where}"])
