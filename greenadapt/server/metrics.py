"""What a server counts, for Prometheus."""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Variable that names the folder where worker processes count, so that each can tell of all."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_PREFIX = "greenadapt"


class Metrics:
    """Requests, their time, and what the models computed; those of all workers where ``FOLDER`` is set."""

    def __init__(self) -> None:
        self._own = CollectorRegistry()
        self.requests = Counter(
            "requests", "Requests that were answered.", ("path", "status"), _PREFIX, registry=self._own
        )
        self.seconds = Histogram(
            "request_seconds", "Time of requests.", ("path",), _PREFIX, buckets=_SECONDS, registry=self._own
        )
        self.texts = Counter(
            "texts", "Texts, or documents of questions, that models read.", ("model",), _PREFIX, registry=self._own
        )
        self.waiting = Gauge(
            "waiting_texts",
            "Texts that wait for a model, or go through one.",
            (),
            _PREFIX,
            registry=self._own,
            multiprocess_mode="livesum",
        )

    def exposed(self) -> bytes:
        """All numbers, in Prometheus's text format."""
        if FOLDER not in os.environ:
            return generate_latest(self._own)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
