"""Items that the processes of a real Ray cluster work on, of which some die."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from greenadapt.cluster import Spread
from greenadapt.errors import ResourceError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]


def _ending(folder: str) -> Callable[[int], int]:
    """Ends each process that squares 3."""

    def square(number: int) -> int:
        (Path(folder) / f"item-{number}-{uuid4().hex}").touch()
        if number == 3:
            os._exit(1)
        return number * number

    return square


def test_an_item_whose_processes_die_is_given_up(nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenadapt.cluster.ATTEMPTS", 1)
    answers = Spread(nodes.address).over(_ending, range(12), str(tmp_path))
    assert [next(answers) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(ResourceError, match="after 1 attempts"):
        next(answers)
    assert len([*tmp_path.glob("item-3-*")]) > 1
