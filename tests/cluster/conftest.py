"""The cluster of these tests; it ends with them, since its processes are never quite idle."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.small_cluster import add_node, started_cluster


@pytest.fixture(scope="package")
def any_nodes() -> Iterator[Any]:
    """A Ray cluster on this machine, of two nodes, or of one after a test that killed the other."""
    with started_cluster() as cluster:
        yield cluster


@pytest.fixture
def nodes(any_nodes: Any) -> Any:
    """The cluster, of two nodes."""
    while len(any_nodes.list_all_nodes()) < 2:
        add_node(any_nodes)
    return any_nodes
