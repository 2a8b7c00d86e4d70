"""One rule for every file that a command writes."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from greenadapt.errors import ConflictError, LockedError, MissingError
from greenadapt.store.outputs import check_file, open_file


def write(path: Path, text: str = "new\n") -> None:
    with open_file(path, "w") as stream:
        stream.write(text)


def test_a_file_appears_once_it_is_complete_and_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with suppress(KeyboardInterrupt), open_file(path, "w") as stream:
        stream.write("half")
        stream.flush()
        assert not path.exists()
        raise KeyboardInterrupt
    assert [*tmp_path.iterdir()] == []
    (tmp_path / ".a.txt.part").write_text("what a killed command left")
    with open_file(path, "w") as first:  # two writers do not mix
        first.write("first\n")
        with pytest.raises(LockedError, match=r"another command is writing .*a\.txt"):
            write(path, "second\n")
    with pytest.raises(ConflictError, match="exists"):
        write(path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.txt", "first\n")]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_the_same_content_gives_the_same_bytes_whatever_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    path = tmp_path / f"a.txt{suffix}"
    written = []
    for when in (1.0, 1e9):
        monkeypatch.setattr("time.time", lambda when=when: when)
        write(path)
        written.append(path.read_bytes())
        path.unlink()
    assert written[0] == written[1]


def test_what_is_no_file_is_written_as_it_is(tmp_path: Path) -> None:
    fifo, read = tmp_path / "pipe", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    write(fifo)
    reader.join()
    assert read == ["new\n"]
    assert fifo.is_fifo()
    link = tmp_path / "null"
    link.symlink_to(os.devnull)
    write(link)
    assert link.is_symlink()
    assert Path(os.devnull).is_char_device()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["null", "pipe"]


def test_what_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    (tmp_path / "lost").symlink_to("no/x")
    (tmp_path / "loop").symlink_to("loop")
    for name, why in (("there", "exists"), ("lost", "exists"), ("loop", "exists"), (".", "is a folder")):
        with pytest.raises(ConflictError, match=why):
            check_file(tmp_path / name)
    with pytest.raises(MissingError, match=f"no/x: .*{tmp_path / 'no'}"):
        check_file(tmp_path / "no" / "x")
    with pytest.raises(ConflictError, match="there is not a folder"):
        check_file(tmp_path / "there" / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "lost", "there"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_named() -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        write(Path("/dev/full"))
