"""One rule for every file that a command writes."""

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from greenadapt.errors import ConflictError, MissingError, UsageError
from greenadapt.storage.outputs import Shards, check_file, check_files, open_file, open_output
from tests.conftest import Run, last_line
from tests.support.small_tasks import TinyModel


def write(path: Path, text: str = "new\n") -> None:
    with open_file(path, "w") as stream:
        stream.write(text)


def test_a_file_is_replaced_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old\n")
    path.chmod(0o600)
    with suppress(KeyboardInterrupt), open_file(path, "w") as stream:
        stream.write("half")
        stream.flush()
        assert path.read_text() == "old\n"
        raise KeyboardInterrupt
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.txt", "old\n")]
    write(path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.txt", "new\n")]
    assert path.stat().st_mode & 0o777 == 0o600
    with open_file(path, "w") as first:  # two writers do not mix
        first.write("first\n")
        write(path, "second\n" * 2)
        assert path.read_text() == "second\n" * 2
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.txt", "first\n")]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_the_same_content_gives_the_same_bytes_whatever_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    path = tmp_path / f"a.txt{suffix}"
    written = []
    for when in (1.0, 1e9):
        monkeypatch.setattr("time.time", lambda when=when: when)
        write(path)
        written.append(path.read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_symlink_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    link, target = tmp_path / name, tmp_path / "data" / "real"
    link.symlink_to("data/real")
    for _ in range(2):  # where the target is not there, and where it is
        write(link)
        assert link.is_symlink()
        raw = target.read_bytes()
        assert (gzip.decompress(raw) if name.endswith(".gz") else raw) == b"new\n"
    assert [file.name for file in target.parent.iterdir()] == ["real"]


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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_what_stdout_is_appended_to_is_not_replaced(tmp_path: Path, name: str) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    code = "from pathlib import Path\nfrom greenadapt.storage.outputs import open_file\n"
    code += f"with open_file(Path({name!r}), 'w') as s:"
    with log.open("a") as stdout:
        subprocess.run([sys.executable, "-c", f"{code} s.write('new\\n')"], stdout=stdout, check=True)
    assert log.read_text() == "before\nnew\n"
    completed = subprocess.run([sys.executable, "-c", f"{code} s.write('new\\n')"], capture_output=True, check=True)
    assert completed.stdout == b"new\n"


def test_what_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    (tmp_path / "lost").symlink_to("no/x")
    (tmp_path / "same").symlink_to("there")
    check_file(tmp_path / "there", {"a": "elsewhere", "b": "-"})
    with pytest.raises(ConflictError, match="is a folder"):
        check_file(tmp_path)
    for name in ("no/x", "lost"):
        with pytest.raises(MissingError, match=f"{name}: .*{tmp_path / 'no'}"):
            check_file(tmp_path / name)
        with pytest.raises(MissingError), open_file(tmp_path / name, "w"):
            pass
    for name in ("there", "same"):
        with pytest.raises(UsageError, match="is an input"):
            check_file(tmp_path / name, {"a": tmp_path / "there"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lost", "same", "there"]


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    (tmp_path / "b").symlink_to("a")
    check_files(tmp_path / "a", None, tmp_path / "c")
    check_files(Path("/dev/null"), Path("/dev/null"))
    with pytest.raises(UsageError, match="b is given twice"):
        check_files(tmp_path / "a", tmp_path / "b")


def test_without_a_file_rows_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with open_output(None) as (stream, is_ascii):
        stream.write("row\n")
    assert (capsys.readouterr().out, is_ascii) == ("row\n", False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_named() -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        write(Path("/dev/full"))


@pytest.mark.slow
def test_a_stage_follows_a_symlink_to_a_folder(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    model, link, target = tiny_model("BertForMaskedLM"), tmp_path / "link", tmp_path / "data" / "run"
    target.parent.mkdir()
    link.symlink_to(target)
    (tmp_path / "a.vec").write_text("2 32\n" + "".join(f"{word}{' 0.5' * 32}\n" for word in ("heart", "patient")))
    command = ("align", "--vectors", "a.vec", "--model", model, "--out", link, "--method")
    assert run_alone(*command, "random").stdout.startswith("align: done")
    assert run_alone(*command, "random").stdout.startswith("align: up to date")
    assert run_alone(*command, "identity", "--force").stdout.startswith("align: done")
    assert link.is_symlink()
    assert json.loads((target / "manifest.json").read_text())["config"]["method"] == "identity"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.vec", "bertformaskedlm", "data", "link"]
    assert [path.name for path in target.parent.iterdir()] == ["run"]
    (tmp_path / "file").touch()
    (tmp_path / "other").symlink_to("file")
    refused = run_alone(*command[:-2], tmp_path / "other", code=1)
    assert last_line(refused) == f"greenadapt: {tmp_path / 'file'} exists and is not a folder: give another --out"


def test_finished_shards_are_found_again_and_other_ones_are_not(tmp_path: Path) -> None:
    out = tmp_path / "out.txt.gz"
    out.write_text("old")

    def until_killed() -> Iterator[str]:
        yield from ("one\n", "two\n")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Shards(out, "key").add(until_killed())
    with open(tmp_path / ".out.txt.gz.shards", "a") as file:
        file.write("thr")  # what a kill cut off
    assert Shards(out, "another key").n == 0
    shards = Shards(out, "key")
    assert shards.n == 2
    assert out.read_text() == "old"
    shards.add(["three\n"])
    shards.publish()
    with gzip.open(out, "rt") as stream:
        assert stream.read() == "one\ntwo\nthree\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt.gz"]
    assert Shards(out, "key").n == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_an_open_file_that_is_read_is_refused_by_its_number_too(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("one\n")
    with open(tmp_path / "texts.txt", "a") as stream, pytest.raises(UsageError, match=r"an input \(--input\)"):
        check_file(Path(f"/proc/self/fd/{stream.fileno()}"), {"--input": tmp_path / "texts.txt"})
