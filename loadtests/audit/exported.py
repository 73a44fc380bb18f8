"""Prometheus metrics of a continuous audit, on their own port."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from loadtests.audit.findings import KINDS
from streaming_job.metric_families import counter, gauge

_TOPIC = ("topic",)
# fmt: off
FAMILIES = (
    counter("fraud_audit_checked", "transactions of the sample that were recomputed"),
    counter("fraud_audit_missing", "expected records (alerts, shadow alerts, suppressed alerts, dead "
            "letters) that are missing on the topic", _TOPIC),
    counter("fraud_audit_duplicated", "records that are on the topic more than once", _TOPIC),
    counter("fraud_audit_unexpected", "records on the topic that were not expected", _TOPIC),
    counter("fraud_audit_different", "records with different content; each also counts as missing and as "
            "unexpected", _TOPIC),
    gauge("fraud_audit_timestamp_seconds", "end of the audited range: all records that had arrived by then "
          "were audited"),
    gauge("fraud_audit_lag_seconds", "age of the newest audited point of the log: normally a few seconds "
          "more than `--behind`; if it grows, the audit is too slow, or a key group hangs"),
)
# fmt: on


class AuditMetrics:
    """Metrics of a continuous audit. Each topic's counters start at 0, so `increase` counts a first finding.

    Args:
        lag_s: returns how long ago the audit read the job's progress up to which all is audited, seconds
            (before the first audit: the time since the start); called at every scrape.
    """

    def __init__(self, topics: Iterable[str], lag_s: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        arguments = {family.name: (family.name, family.meaning, family.labels) for family in FAMILIES}
        self._checked = Counter(*arguments["fraud_audit_checked"], registry=self.registry)
        self._findings = {
            kind: Counter(*arguments[f"fraud_audit_{kind}"], registry=self.registry) for kind in KINDS
        }
        for topic in topics:
            for findings in self._findings.values():
                findings.labels(topic)
        self._until = Gauge(*arguments["fraud_audit_timestamp_seconds"], registry=self.registry)
        lag = Gauge(*arguments["fraud_audit_lag_seconds"], registry=self.registry)
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
