"""The latest readings for Prometheus, on one address of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from perfmodel.errors import UsageError, not_installed
from perfmodel.measure.monitor.sources import Sample

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:]+\]|[^:\[\]]*):)?(?P<port>\d{1,5})")
#: metrics that only grow: counters, which are named with ``_total`` (https://prometheus.io/docs/practices/naming)
COUNTERS = frozenset({"gpu_uncorrected_memory_errors"})


class Exporter:
    """Serves the latest value of each metric; the label ``of`` says what it belongs to.

    What has ended, as a process of a GPU, is no longer served.

    Raises
    ------
    UsageError
        On construction, when the address is none or taken.
    UnavailableError
        On construction, when prometheus-client is not installed.
    """

    def __init__(self, address: str) -> None:
        match = _ADDRESS.fullmatch(address.strip())
        if match is None or int(match["port"]) > 65535:
            raise UsageError(f"{address!r} is no address.", place="--prometheus", remedy="Write 127.0.0.1:9400.")
        try:
            import prometheus_client
            import prometheus_client.core
        except ImportError:
            raise not_installed("--prometheus needs prometheus-client", "monitor") from None
        self._families = prometheus_client.core
        self._samples: Sequence[Sample] = ()
        registry = prometheus_client.CollectorRegistry()
        registry.register(self)
        host = (match["host"] or "127.0.0.1").strip("[]")
        try:
            self._server, self._thread = prometheus_client.start_http_server(
                int(match["port"]), addr=host, registry=registry
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"cannot serve there: {reason}.", place=f"--prometheus {address}", remedy="Choose another port."
            ) from None

    @property
    def port(self) -> int:
        """The port that is served, which the system chooses for port 0."""
        return int(self._server.server_port)

    def show(self, samples: Sequence[Sample]) -> None:
        """Set the values that the next request sees."""
        self._samples = tuple(samples)

    def collect(self) -> Iterable[Any]:
        """Return the metrics with their values, as a request of Prometheus asks for them."""
        metrics: dict[str, Any] = {}
        for metric, of, value in self._samples:
            if metric not in metrics:
                families = self._families
                kind = families.CounterMetricFamily if metric in COUNTERS else families.GaugeMetricFamily
                metrics[metric] = kind(f"perfmodel_{metric}", metric.replace("_", " "), labels=["of"])
            metrics[metric].add_metric([of], value)
        return metrics.values()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
