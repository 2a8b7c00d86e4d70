"""Small files that users name: pipes, devices, and files that do not end."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from greenadapt.errors import InputError
from greenadapt.storage import files
from greenadapt.storage.files import read_json, read_small, read_toml
from tests.conftest import Run, last_line


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
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(InputError, match="pipe or a device"):
            read_small(path)
        with pytest.raises(InputError, match="pipe or a device"):
            read_json(path)
    with pytest.raises(InputError, match="pipe or a device"):
        read_small(Path("/dev/zero"), may_be_pipe=True)
    assert time.monotonic() - begin < 5


def test_a_pipe_is_read_once_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    later = threading.Timer(0.2, lambda: path.write_text("epochs = 7"))
    later.start()
    assert read_toml(path, "", may_be_pipe=True) == {"epochs": 7}
    assert read_toml(path, "", may_be_pipe=True) == {"epochs": 7}
    later.join()


def test_a_pipe_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    monkeypatch.setattr(files, "_PATIENCE", 0.3)
    with pytest.raises(InputError, match="has not ended"):
        read_small(path, may_be_pipe=True)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, b"epochs = 7")
    with pytest.raises(InputError, match="has not ended"):
        read_small(path, may_be_pipe=True)
    os.write(writer, b"x" * 200)
    with pytest.raises(InputError, match="larger than"):
        read_small(path, 100, may_be_pipe=True)
    os.close(writer)


def test_files_of_settings_and_tasks_that_are_none_are_one_line(run_alone: Run, tmp_path: Path) -> None:
    os.mkfifo("fifo")
    tasks = ("finetune", "-m", "minilm", "--out", "out", "--tasks")
    for command in (("config", "--config", "/dev/zero"), (*tasks, "fifo"), (*tasks, "/dev/zero")):
        assert "pipe or a device" in last_line(run_alone(*command, code=1))
    Path("large.toml").write_text("a = 1\n" * 300_000)
    for command in (("config", "--config", "large.toml"), (*tasks, "large.toml"), ("reproduce", "large.toml")):
        assert "larger than" in last_line(run_alone(*command, code=1))


def test_settings_come_from_a_pipe_of_the_shell(tmp_path: Path) -> None:
    command = f"{sys.executable} -m greenadapt config --config <(echo 'epochs = 7') --json"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert '"epochs"' in ended.stdout
