"""A Ray cluster of several nodes, all of them on this machine."""

import socket
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from typing import Any

ADDRESS = "127.0.0.2"
"""A loopback address that Ray does not replace by the machine's address in the network."""

_NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "node_ip_address": ADDRESS}

_NOTICES_DEATH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_failure_threshold": 3,
}
"""Within a second, not within twenty."""


@contextmanager
def started_cluster() -> Iterator[Any]:
    """Start two nodes of one core each; ``address`` of the result is that of the head."""
    from ray.cluster_utils import Cluster

    head = {**_NODE, "include_dashboard": False, "_system_config": _NOTICES_DEATH}
    with chdir("/"):  # not in the folder of a test, which ends before the node
        cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        add_node(cluster)
        yield cluster
    finally:
        cluster.shutdown()


def add_node(cluster: Any) -> None:
    """Start one more node of one core."""
    with chdir("/"):
        cluster.add_node(**_NODE)


def free_port() -> int:
    """A port of ``ADDRESS`` that nothing listens on."""
    with socket.create_server((ADDRESS, 0)) as server:
        return int(server.getsockname()[1])
