"""What is on the disk, and when, while a file or a folder takes the place of an older one."""

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.storage.files import publish_folder, publish_version, read_json, replace_json
from greenadapt.storage.outputs import open_file

Synced = dict[int, list[str]]
"""The inode of what was synced → what readers saw each time."""


def record(monkeypatch: pytest.MonkeyPatch, read: Callable[[], str]) -> Synced:
    seen, fsync = defaultdict[int, list[str]](list), os.fsync

    def noting(handle: int) -> None:
        fsync(handle)
        seen[os.fstat(handle).st_ino].append(read())

    monkeypatch.setattr("os.fsync", noting)
    return seen


def work_folder(parent: Path, text: str) -> Path:
    work = parent / "work"
    (work / "sub").mkdir(parents=True)
    for file in ("file.txt", "sub/file.txt"):
        (work / file).write_text(text)
    return work


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.json"])
def test_a_file_is_on_the_disk_before_it_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name

    def write(text: str) -> None:
        if name.endswith(".json"):
            replace_json(path, {"text": text})
        else:
            with open_file(path, "w") as stream:
                stream.write(text)

    write("old")
    before = path.stat().st_ino
    synced = record(monkeypatch, lambda: "old" if path.stat().st_ino == before else "new")
    write("new")
    assert synced[path.stat().st_ino] == ["old"]
    assert name != "a.json" or read_json(path) == {"text": "new"}


@pytest.mark.parametrize(
    ("publish", "can_exchange"), [(publish_version, True), (publish_folder, True), (publish_folder, False)]
)
def test_a_folder_is_on_the_disk_before_it_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publish: Callable[[Path, Path], Path], can_exchange: bool
) -> None:
    place = tmp_path / "place"
    publish(work_folder(tmp_path, "old"), place)
    if not can_exchange:  # as on some file systems
        monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    synced = record(monkeypatch, lambda: (place / "file.txt").read_text())
    publish(work_folder(tmp_path, "new"), place)
    assert (place / "sub" / "file.txt").read_text() == "new"
    for made in (place.resolve(), *place.resolve().rglob("*")):
        assert synced[made.stat().st_ino] == ["old"], made
    if place.is_symlink():  # the folder that the link names is in its own folder before the link names it
        assert synced[(tmp_path / ".versions").stat().st_ino] == ["old"]
    assert synced[tmp_path.stat().st_ino][-1] == "new"
