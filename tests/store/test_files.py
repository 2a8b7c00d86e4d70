"""Files are read with limits, and written whole or not at all."""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.errors import InputError, MissingError
from greenadapt.store.files import (
    path_name,
    publish_folder,
    read_object,
    read_small,
    real_folder,
    shorten_path,
)


def test_anything_but_an_object_is_refused_in_one_line_with_the_name(tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text('{"task": "ner"}', "utf-8")
    assert read_object(file, "fine-tuned model") == {"task": "ner"}
    for content, reason in (
        (b"", "is empty"),
        (b'{"task": "n', "is not JSON"),
        (b"\xff{}", "is not JSON"),
        (b"[1]", "is not a JSON object"),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=rf"task\.json {reason}.*: do it again") as caught:
            read_object(file, "fine-tuned model", "do it again")
        assert "\n" not in str(caught.value)
    for path in (tmp_path / "nowhere" / "task.json", file / "task.json"):
        with pytest.raises(MissingError, match=r"fine-tuned model.*task\.json"):
            read_object(path, "fine-tuned model")


def test_a_path_is_named_by_its_last_part_and_its_place() -> None:
    a, b = path_name("/a/bert.v2.tar.gz"), path_name("/b/bert.v2.tar.gz")
    assert a != b
    assert a.startswith("bert-")
    assert len(a) == len("bert-") + 8
    assert path_name("https://x.org/../?").startswith("unnamed-")
    for long in ("a" * 250, "文" * 83):
        assert len(path_name(f"/{long}.txt").encode()) < 120


def test_others_read_a_path_from_the_working_folder_or_by_its_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "me"
    (home / "project" / "data").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "project")
    for path in ("data", "./data", home / "project" / "data", "~/project/data", "../project/data"):
        assert shorten_path(str(path)) == "data"
    assert shorten_path(str(home / "project" / "gone" / "file.txt")) == "gone/file.txt"
    (home / "project" / "data" / "link").symlink_to("/")
    assert shorten_path("data/link") == "data/link"
    for path in (tmp_path / "private", "~/private", "/not/private", "s3://bucket/private", "https://h/private?token=x"):
        assert shorten_path(str(path)) == "private"
    assert (shorten_path(".."), shorten_path(".")) == ("me", "project")
    for name in ("org/model", "minilm", "org/data/part:train"):
        assert shorten_path(name) == name
    for folder in (tmp_path, "/"):
        monkeypatch.chdir(folder)
        assert shorten_path(str(home / "project" / "data")) == "data"


Synced = dict[int, list[str]]
"""The inode of what was synced → what readers saw each time."""


def record(monkeypatch: pytest.MonkeyPatch, read: Callable[[], str]) -> Synced:
    seen, fsync = defaultdict[int, list[str]](list), os.fsync

    def noting(handle: int) -> None:
        fsync(handle)
        seen[os.fstat(handle).st_ino].append(read())

    monkeypatch.setattr("os.fsync", noting)
    return seen


def test_a_folder_behind_a_symlink_is_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data" / "run")
    assert real_folder(tmp_path / "link") == real_folder(tmp_path / "x" / ".." / "data" / "run")
    assert real_folder(tmp_path / "other") == tmp_path / "other"


def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, place = tmp_path / "work", tmp_path / "place"
    (work / "sub").mkdir(parents=True)
    for file in ("file.txt", "sub/file.txt"):
        (work / file).write_text("new")
    synced = record(monkeypatch, lambda: "new" if place.exists() else "old")
    publish_folder(work, place)
    assert (place / "sub" / "file.txt").read_text() == "new"
    for path in (place, *place.rglob("*")):
        assert synced[path.stat().st_ino] == ["old"], path
    assert synced[tmp_path.stat().st_ino] == ["new"]


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_small(tmp_path / "a", 5) == b"12345"
    with pytest.raises(InputError, match="larger than"):
        read_small(tmp_path / "a", 4)
    assert read_small(Path(os.devnull)) == b""
    with pytest.raises(IsADirectoryError) as caught:
        read_small(tmp_path)
    assert caught.value.filename == str(tmp_path)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    begin = time.monotonic()
    for read in (
        lambda: read_small(tmp_path / "fifo"),
        lambda: read_object(tmp_path / "fifo", "file"),
        lambda: read_small(Path("/dev/zero")),
    ):
        with pytest.raises(InputError, match="pipe or a device"):
            read()
    assert time.monotonic() - begin < 5
