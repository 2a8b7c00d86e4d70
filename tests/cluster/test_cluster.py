"""A real Ray cluster of several nodes on this machine: found, checked, and given work."""

import _thread
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenadapt import cluster as clusters
from greenadapt.cluster import connect
from greenadapt.errors import InputError, ResourceError
from tests.support.small_cluster import ADDRESS

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]


@pytest.fixture
def cluster(nodes: Any) -> Iterator[clusters.Cluster]:
    with connect(nodes.address) as cluster:
        yield cluster


def _process() -> int:
    return os.getpid()


def _square(number: int) -> int:
    time.sleep(0.02 * (number % 3))  # so that they do not end in order
    return number * number


def _refuse(number: int, limit: int) -> int:
    if number > limit:
        raise InputError(f"{number} is too much", "take less")
    return number


def _wait_in_folder(number: int, folder: str) -> None:
    (Path(folder) / str(number)).touch()
    time.sleep(60)


def _end_process(code: int) -> None:
    os._exit(code)


def _end_process_once(flag: str) -> str:
    if not Path(flag).exists():
        Path(flag).touch()
        os._exit(1)
    return "made again"


def test_work_is_done_on_all_nodes_in_order_and_again_if_it_is_lost(cluster: clusters.Cluster, tmp_path: Path) -> None:
    assert len(cluster.nodes) == cluster.count(0) == 2
    assert len(set(cluster.run_on_each_node(_process).values())) == 2
    assert list(cluster.run(_square, range(20))) == [number * number for number in range(20)]
    answers = cluster.run(_refuse, range(9), 1)
    assert [next(answers), next(answers)] == [0, 1]
    with pytest.raises(InputError, match="2 is too much: take less"):
        next(answers)
    assert list(cluster.run(_end_process_once, [str(tmp_path / "flag")])) == ["made again"]


@pytest.mark.long
def test_work_whose_processes_die_is_given_up(cluster: clusters.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "ATTEMPTS", 1)
    with pytest.raises(ResourceError, match="after 1 attempts"):
        list(cluster.run(_end_process, [1]))


@pytest.mark.long
def test_work_ends_with_its_command(cluster: clusters.Cluster, tmp_path: Path) -> None:
    """As after Ctrl-C, which comes while it waits: other work gets the cores at once."""

    def interrupt() -> None:
        while len([*tmp_path.iterdir()]) < 2:
            time.sleep(0.1)
        time.sleep(1)  # Ray loses a signal that comes while it hands out work
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        next(cluster.run(_wait_in_folder, range(9), str(tmp_path)))
    begin = time.monotonic()
    assert list(cluster.run(_square, range(4))) == [0, 1, 4, 9]
    assert time.monotonic() - begin < 30


def test_what_nodes_do_not_see_is_refused(
    cluster: clusters.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words")
    cluster.require_files([tmp_path, text])
    cluster.require_shared(tmp_path / "workspace")
    assert list((tmp_path / "workspace").iterdir()) == []
    monkeypatch.chdir(tmp_path)
    here = Path("/proc/self/cwd")  # each process has its own
    for refused in (lambda: cluster.require_files([here / "text.txt"]), lambda: cluster.require_shared(here)):
        with pytest.raises(InputError, match=rf"node {ADDRESS} .*does not see /proc/self/cwd"):
            refused()
