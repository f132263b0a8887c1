"""The latest readings for Prometheus, on one address of this machine."""

from __future__ import annotations

import re
from typing import Any

from perfmodel.errors import UsageError, not_installed
from perfmodel.measure.monitor.sources import Sample

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:]+\]|[^:\[\]]*):)?(?P<port>\d{1,5})")


class Exporter:
    """Serves the latest value of each metric; the label ``of`` says what it belongs to.

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
        except ImportError:
            raise not_installed("--prometheus needs prometheus-client", "monitor") from None
        self._client = prometheus_client
        self._registry = prometheus_client.CollectorRegistry()
        self._gauges: dict[str, Any] = {}
        host = (match["host"] or "127.0.0.1").strip("[]")
        try:
            self._server, self._thread = prometheus_client.start_http_server(
                int(match["port"]), addr=host, registry=self._registry
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

    def show(self, samples: list[Sample]) -> None:
        """Set the values that the next request sees."""
        for metric, of, value in samples:
            name = f"perfmodel_{metric}"
            if name not in self._gauges:
                self._gauges[name] = self._client.Gauge(name, metric.replace("_", " "), ["of"], registry=self._registry)
            self._gauges[name].labels(of=of).set(value)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
