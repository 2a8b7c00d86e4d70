"""Commands that work on the nodes of a Ray cluster, as a user starts them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Run, last_line
from tests.support.small_cluster import ADDRESS, free_port, started_cluster

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]

_OTHER = "import sys; from greenadapt.cluster import connected\nwith connected(sys.argv[1]): print(flush=True); input()"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with started_cluster(3) as cluster:
        yield cluster


def test_what_a_cluster_has_and_what_uses_it(run_alone: Run, nodes: Any) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER, nodes.address, "other program"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()  # it is connected
        rows = list(map(json.loads, run_alone("cluster", "--cluster", nodes.address, "--json").stdout.splitlines()))
        other.communicate("\n")
    assert [(row["address"], row["cores"], row["free_cores"], row["gpus"]) for row in rows[:-1]] == [
        (ADDRESS, 1, 1, 0)
    ] * 3
    assert rows[-1]["command"].endswith("'other program'")
    assert rows[-1]["process"] == other.pid
    shown = run_alone("cluster", "--cluster", nodes.address).stdout
    assert "3 of 3" in shown
    assert "Runs:" not in shown


def test_a_wrong_address_ends_a_command_at_once(run_alone: Run) -> None:
    address = f"{ADDRESS}:{free_port()}"
    assert address in last_line(run_alone("cluster", "--cluster", address, code=1))
