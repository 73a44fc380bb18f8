"""Prometheus metrics of a continuous audit, on their own port."""

from collections.abc import Callable, Iterable
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from loadtests.audit.findings import KINDS

LOOPBACK = "127.0.0.1"


class AuditMetrics:
    """Metrics of a continuous audit. Each topic's counters start at 0, so `increase` counts a first finding.

    Args:
        lag_s: returns how long ago the audit read the job's progress up to which all is audited, seconds
            (before the first audit: the time since the start); called at every scrape.
    """

    def __init__(self, topics: Iterable[str], lag_s: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self._checked = Counter(
            "fraud_audit_checked", "Transactions of the sample decided again.", registry=self.registry
        )
        meanings = {
            "missing": "Records that had to be on the topic and are not.",
            "duplicated": "Records that are on the topic more than once.",
            "unexpected": "Records on the topic that were not expected.",
            "different": "Records with other content; each is missing and unexpected as well.",
        }
        self._findings = {
            kind: Counter(f"fraud_audit_{kind}", meanings[kind], ["topic"], registry=self.registry)
            for kind in KINDS
        }
        for topic in topics:
            for counter in self._findings.values():
                counter.labels(topic)
        self._until = Gauge(
            "fraud_audit_timestamp_seconds", "Arrival up to which all was audited.", registry=self.registry
        )
        lag = Gauge(
            "fraud_audit_lag_seconds",
            "Time since the newest audited progress of the job was read.",
            registry=self.registry,
        )
        lag.set_function(lag_s)
        self._exported = 0

    def count(self, topic: str, kind: str) -> None:
        """Count a finding, as `Findings.add` does."""
        for name in ("missing", "unexpected", "different") if kind == "different" else (kind,):
            self._findings[name].labels(topic).inc()

    def advance(self, checked: int, until_s: float) -> None:
        """Export the progress of the audit.

        Args:
            checked: transactions judged since the start.
            until_s: arrivals up to this time were audited, seconds since 1970-01-01 UTC; 0: keep the
            exported time.
        """
        self._checked.inc(checked - self._exported)
        self._exported = checked
        if until_s:
            self._until.set(until_s)

    def serve(self, port: int) -> tuple[int, Callable[[], None]]:
        """Serve /metrics on the loopback interface; return the port and a function that stops the server.

        Args:
            port: port to listen on; 0: any free port.
        """
        server: WSGIServer
        server, thread = start_http_server(port, LOOPBACK, self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return server.server_port, stop
