"""Items that the processes of a real Ray cluster work on, of which some die."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from greenadapt.cluster import Spread
from greenadapt.errors import ResourceError
from tests.support.small_cluster import add_node

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]


def _marking(folder: str) -> Callable[[int], int]:
    """Ends the process that squares 3 as often as the file ``deaths`` says."""

    def square(number: int) -> int:
        (Path(folder) / f"item-{number}-{uuid4().hex}").touch()
        if number == 3 and len([*Path(folder).glob("item-3-*")]) <= int((Path(folder) / "deaths").read_text()):
            os._exit(1)
        return number * number

    return square


@pytest.mark.parametrize("deaths", [1, 99])
def test_an_item_whose_process_dies_is_done_again_by_another(
    four_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    monkeypatch.setattr("greenadapt.cluster.ATTEMPTS", 1)
    (tmp_path / "deaths").write_text(str(deaths))
    answers = Spread(four_nodes.address).over(_marking, range(12), str(tmp_path))
    if deaths == 1:
        assert [*answers] == [number * number for number in range(12)]
        assert len([*tmp_path.glob("item-*")]) == 12 + deaths
        return
    assert [next(answers) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(ResourceError, match="after 1 attempts"):
        next(answers)


def _waiting(folder: str) -> Callable[[int], int]:
    """Squares nothing before a node died; each process that began leaves a file in ``folder``."""

    def square(number: int) -> int:
        (Path(folder) / f"process-{os.getpid()}").touch()
        end = time.monotonic() + 60
        while not (Path(folder) / "node-died").exists() and time.monotonic() < end:
            time.sleep(0.05)
        return number * number

    return square


def test_work_of_a_node_that_died_is_done_by_those_that_are_left(four_nodes: Any, tmp_path: Path) -> None:
    def lose_node() -> None:
        while len(processes := [*tmp_path.glob("process-*")]) < 4:
            time.sleep(0.05)
        four_nodes.remove_node(four_nodes.list_all_nodes()[-1], allow_graceful=False)
        while all(Path(f"/proc/{path.name.partition('-')[2]}").exists() for path in processes):
            time.sleep(0.05)  # a process can outlive its node for an instant
        (tmp_path / "node-died").touch()

    threading.Thread(target=lose_node, daemon=True).start()
    answers = Spread(four_nodes.address).over(_waiting, range(12), str(tmp_path))
    try:
        assert [*answers] == [number * number for number in range(12)]
    finally:
        add_node(four_nodes)
