"""What a Ray cluster has, what of it is free, and which programs use it."""

from datetime import UTC, datetime
from typing import Any

from greenadapt.cluster import COMMAND, connected
from greenadapt.storage.files import Json


def cluster_rows(address: str) -> list[Json]:
    """A row for each node, then one for each program that works on the cluster at ``address`` besides this one.

    Nodes have ``address``, ``cores``, ``free_cores``, ``gpus``, ``free_gpus`` and ``memory_bytes``; what no task has
    asked for is free. Programs have their ``command``, ``address``, ``process`` and when they ``started``. Raises what
    ``connected`` raises.
    """
    with connected(address) as cluster:
        own = cluster.ray.get_runtime_context().get_job_id()
        [(free, programs)] = cluster.run(_used, [own], cores=0)
        return [
            {
                "kind": "node",
                "address": node.address,
                "cores": node.cores,
                "free_cores": free.get(node.id, {}).get("CPU", 0.0),
                "gpus": node.gpus,
                "free_gpus": free.get(node.id, {}).get("GPU", 0.0),
                "memory_bytes": node.memory,
            }
            for node in cluster.nodes
        ] + programs


def _used(own: str) -> tuple[dict[str, dict[str, float]], list[Json]]:
    """What is free by the id of a node, and a row for each program but that of the job ``own``.

    What Ray documents for this (``ray.util.state``) needs its dashboard, which many clusters do without. It runs in the
    cluster, since a program that is connected through ``ray://`` has no access to these tables.
    """
    from ray._private import state, worker

    tables: Any = state
    gcs: Any = worker.global_worker
    jobs = [job for job in gcs.gcs_client.get_all_job_info().values() if not job.is_dead and job.job_id.hex() != own]
    programs = [
        {
            "kind": "program",
            "command": job.config.metadata.get(COMMAND) or job.entrypoint,
            "address": job.driver_address.ip_address,
            "process": job.driver_pid,
            "started": datetime.fromtimestamp(job.start_time / 1000, UTC).isoformat(timespec="seconds"),
        }
        for job in sorted(jobs, key=lambda job: job.start_time)
    ]
    return tables.available_resources_per_node(), programs
