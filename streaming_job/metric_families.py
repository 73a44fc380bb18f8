"""Families of Prometheus metrics, and the server of a process that answers no other requests."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from feature_store.errors import FraudError
from feature_store.spark_surroundings import LOOPBACK


class MetricsPortError(FraudError):
    """The port of the metrics is taken."""


class Type(StrEnum):
    """Types of metric families, as Prometheus names them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    STATE_SET = "stateset"
    INFO = "info"


@dataclass(frozen=True)
class Family:
    """A metric family."""

    type: Type
    name: str
    """Name without the suffix of its type."""
    meaning: str
    """Help text."""
    labels: tuple[str, ...] = ()
    """Labels, except `le` of a histogram, and that of a state set, which has the family's name."""

    def exposed(self) -> str:
        """Return the name of its samples, without the suffixes of a histogram's or a summary's."""
        return self.name + {Type.COUNTER: "_total", Type.INFO: "_info"}.get(self.type, "")

    def exposed_labels(self) -> tuple[str, ...]:
        """Return all labels of its samples."""
        match self.type:
            case Type.HISTOGRAM:
                return (*self.labels, "le")
            case Type.STATE_SET:
                return (*self.labels, self.name)
            case _:
                return self.labels


counter = partial(Family, Type.COUNTER)
gauge = partial(Family, Type.GAUGE)
histogram = partial(Family, Type.HISTOGRAM)
summary = partial(Family, Type.SUMMARY)
state_set = partial(Family, Type.STATE_SET)
info = partial(Family, Type.INFO)


def serve(registry: CollectorRegistry, port: int, host: str = LOOPBACK) -> tuple[int, Callable[[], None]]:
    """Serve /metrics; return the port and a function that stops the server.

    Args:
        port: port to listen on; 0: any free port.

    Raises:
        MetricsPortError: the port is taken, or the address is none of this machine.
    """
    server: WSGIServer
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as fault:
        raise MetricsPortError(
            f"port {port} of {host} cannot be used for the metrics ({fault}); give others with "
            "--metrics-port and --metrics-host"
        ) from fault

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop
