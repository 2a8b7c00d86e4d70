"""Paths of a result's inputs: where they are, and which have changed."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenadapt.storage.names import expanded

Inputs = Mapping[str, Mapping[str, Any]]
"""As in a manifest: by name, ``sha256`` and ``path`` or ``source``."""


def with_relative(inputs: Inputs, place: Path) -> dict[str, dict[str, Any]]:
    """``inputs`` with paths relative to ``place``, which stay valid if both are moved together."""
    return {name: {**entry, **_relative(entry, place)} for name, entry in inputs.items()}


def found_at(entry: Mapping[str, Any], place: Path) -> Path:
    """Where an input of the result in ``place`` is: at its path or, if both were moved together, as far from the result
    as before.
    """
    path = expanded(entry.get("path") or entry.get("source") or "")
    if not path.exists() and "relative" in entry:
        return Path(os.path.normpath(place / entry["relative"]))  # by name: the result may be behind a link
    return path


def same_content(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether an input's content is unchanged; ``content`` is its hash if ``sha256`` also covers paths."""
    return bool(before["sha256"] == now["sha256"] or ("content" in before and before["content"] == now.get("content")))


def other_inputs(old: Inputs, new: Inputs, place: Path, *, linked: bool) -> dict[str, str]:
    """``old → new`` by name for every input that is a different file, folder or data set, or was added or removed.

    Moved files with the same content count as the same input, and so does new content under the same path. Stages of
    a workspace, where ``place`` is ``linked``, find each other's results by name: these do not count as different.
    """
    pairs = {name: (old.get(name), new.get(name)) for name in {**old, **new}}
    return {
        name: f"{_shown(before)} → {_shown(now)}"
        for name, (before, now) in pairs.items()
        if before is None or now is None or not _is_same(before, now, place, linked=linked)
    }


def paths_of(inputs: Inputs) -> dict[str, str]:
    """The files and folders that ``inputs`` are, by name; without those known by name, such as data sets on the hub."""
    paths: dict[str, str] = {}
    for name, entry in inputs.items():
        given = [_given(entry), *entry.get("sources", {})]
        paths |= {
            f"{name} {path}" if paths.get(name) else name: path for path in given if path and Path(path).is_absolute()
        }
    return paths


def _given(entry: Mapping[str, Any]) -> str | None:
    """The path or name of an input; ``None`` if the manifest has only its hash."""
    given: str | None = entry.get("path") or entry.get("source")
    return given


def _path(entry: Mapping[str, Any]) -> Path | None:
    """The path of an input; ``None`` for one known by name, such as a data set on the hub."""
    given = _given(entry)
    return Path(given) if given is not None and Path(given).is_absolute() else None


def _shown(entry: Mapping[str, Any] | None) -> str:
    return "none" if entry is None else _given(entry) or "other text"


def _is_same(before: Mapping[str, Any], now: Mapping[str, Any], place: Path, *, linked: bool) -> bool:
    if same_content(before, now):
        return True
    old, new = _path(before), _path(now)
    if old is None or new is None:
        names = _given(before), _given(now)
        return None in names or names[0] == names[1]
    if os.path.realpath(old) == os.path.realpath(new):
        return True
    if linked and old.parent == new.parent == place.parent:
        return True
    return before.get("relative") == _relative(now, place)["relative"]


def _relative(entry: Mapping[str, Any], place: Path) -> dict[str, str]:
    given = _path(entry)
    return {} if given is None else {"relative": os.path.relpath(given, place)}
