import time
from pathlib import Path

import pytest
import torch

from greenadapt.errors import InputError
from greenadapt.training.loop import TENSORS, State, load_state, remove_state, save_state
from tests.support.processes import Forked, printed_random

SAVING = """
import sys
from pathlib import Path
import torch
from greenadapt.training.loop import State, save_state
number = 0
while True:
    number += 1
    tensors = {"w": torch.full((200_000,), float(number))}
    save_state(Path(sys.argv[1]), State(tensors, {"number": number}, {"n": number}))
    print(number, flush=True)
"""


def test_a_state_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    assert load_state(folder) is None
    for number in (1, 2):
        tensors = {"a/x": torch.randn(3, 2).T, "b": torch.tensor(number)}
        save_state(folder, State(tensors, {"number": number, "shrink": 0.1}, {"best": None}))
        state = load_state(folder)
        assert state is not None
        assert (state.position, state.record) == ({"number": number, "shrink": 0.1}, {"best": None})
        assert state.tensors.keys() == tensors.keys()
        assert all(torch.equal(state.tensors[name], tensor) for name, tensor in tensors.items())
    assert [path.name for path in folder.parent.iterdir()] == ["state"]


def test_a_state_that_was_moved_away_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    save_state(folder, State({"w": torch.ones(1)}, {"number": 4}, {}))
    folder.rename(tmp_path / ".state.old")
    state = load_state(folder)
    assert state is not None
    assert state.position == {"number": 4}


def test_a_broken_state_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    save_state(folder, State({"w": torch.ones(100)}, {"number": 4}, {}))
    content = (folder / TENSORS).read_bytes()
    (folder / TENSORS).write_bytes(content[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        load_state(folder)


@pytest.mark.parametrize("name", ["state.json", "record.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_json_that_is_no_object_is_named(tmp_path: Path, name: str, content: str) -> None:
    save_state(tmp_path / "state", State({"w": torch.ones(1)}, {"number": 4}, {}))
    (tmp_path / "state" / name).write_text(content)
    with pytest.raises(InputError, match=rf"{name} is .*: remove this folder to train from the beginning"):
        load_state(tmp_path / "state")


@pytest.mark.slow
def test_a_kill_while_saving_leaves_a_whole_state(tmp_path: Path) -> None:
    draw = printed_random()
    folders = [tmp_path / str(i) / "state" for i in range(3)]
    running = [Forked(["-c", SAVING, folder]) for folder in folders]
    for folder, process in zip(folders, running, strict=True):
        while not folder.is_dir() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(draw.uniform(0.05, 0.2))
        process.kill()
        told = [0, *map(int, process.completed().stdout.split())]
        state = load_state(folder)
        assert state is not None
        number = state.position["number"]
        assert number in (told[-1], told[-1] + 1)
        assert state.record == {"n": number}
        assert torch.equal(state.tensors["w"], torch.full((200_000,), float(number)))


def test_only_hidden_files_are_removed_in_the_end(tmp_path: Path) -> None:
    for name in (".state", "..state.new", "shown"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    for name in (".best.safetensors", ".scores.json", "scores.json"):
        (tmp_path / name).write_text("x")
    remove_state(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.json", "shown"]
