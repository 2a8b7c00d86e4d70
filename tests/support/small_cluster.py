"""A Ray cluster of several nodes, all of them on this machine."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ADDRESS = "127.0.0.2"
"""A loopback address that Ray does not replace by the machine's address in the network."""


@contextmanager
def started_cluster(nodes: int = 4) -> Iterator[Any]:
    """``nodes`` nodes of one core each; ``address`` of what it yields is that of their head."""
    from ray.cluster_utils import Cluster

    own = {"num_cpus": 1, "object_store_memory": 80 << 20, "node_ip_address": ADDRESS}
    cluster = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(**own)
        yield cluster
    finally:
        cluster.shutdown()


def free_port() -> int:
    """A port of ``ADDRESS`` that nothing listens on."""
    with socket.create_server((ADDRESS, 0)) as server:
        return int(server.getsockname()[1])
