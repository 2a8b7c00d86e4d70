"""The cluster of these tests; it ends with them, since its processes are never quite idle."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.small_cluster import started_cluster


@pytest.fixture(scope="package")
def nodes() -> Iterator[Any]:
    """A Ray cluster of two nodes on this machine."""
    with started_cluster() as cluster:
        yield cluster
