"""A Ray cluster of several nodes on this machine, for benchmarks."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ADDRESS = "127.0.0.2"
"""A loopback address that Ray does not replace by the machine's address in the network."""


@contextmanager
def started(nodes: int, cores: int, store: int) -> Iterator[Any]:
    """A cluster of ``nodes`` nodes of ``cores`` cores and ``store`` bytes of shared memory each."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": cores, "object_store_memory": store, "node_ip_address": ADDRESS}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(**node)
        yield cluster
    finally:
        cluster.shutdown()
