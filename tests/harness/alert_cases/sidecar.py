"""Cases of the alerts about the sidecar itself."""

from harness.alert_cases.input import counts
from harness.promtool import Case, Gone, Series, Slope


def requests(**per_minute: float) -> Series:
    """Counters of answers: 500 from /v1/status, 503 from /readyz, 404 from unmatched routes."""
    kinds = {"failed": ("/v1/status", "500"), "unready": ("/readyz", "503"), "unknown": ("unmatched", "404")}
    name = "fraud_sidecar_http_requests_total"
    series = {
        kind: f'{name}{{method="GET",route="{route}",status="{status}"}}'
        for kind, (route, status) in kinds.items()
    }
    return {series[kind]: Slope(slope) for kind, slope in per_minute.items()}


AUDIT = 'up{job="card-fraud-audit",instance="audit:8001"}'
OTHER = 'up{job="node",instance="node:9100"}'
CASES = (
    Case("FraudSidecarDown", {"up": 1, OTHER: 0}, {"up": 0}, fires_after=1, quiet_after=0),
    Case(
        "FraudSidecarDown",
        {"up": 1, AUDIT: 1},
        {AUDIT: 0},
        fires_after=1,
        quiet_after=0,
        labels={"job": "card-fraud-audit", "instance": "audit:8001"},
    ),
    Case(
        "FraudSidecarAbsent",
        {"up": 1, OTHER: 1},
        {"up": Gone()},
        fires_after=10,  # Prometheus shows the last sample for 5 minutes, then the rule waits for 5 minutes
        quiet_after=0,
        labels={"instance": ""},
        almost=[{"up": 0}],
        quiet_without=False,
    ),
    Case(
        "FraudBrokerUnreachable",
        {"fraud_sidecar_broker_up": 1},
        {"fraud_sidecar_broker_up": 0},
        fires_after=1,
        quiet_after=0,
    ),
    Case(
        "FraudProgressIncomplete",
        {"fraud_sidecar_progress_complete": 1},
        {"fraud_sidecar_progress_complete": 0},
        fires_after=2,
        quiet_after=0,
    ),
    Case(
        "FraudProgressUnreadable",
        counts(sidecar_progress_unreadable=0),
        counts(sidecar_progress_unreadable=3),
        fires_after=0,
        quiet_after=14,
        after=30,
    ),
    Case(
        "FraudSidecarErrors",
        requests(failed=0.5, unready=1, unknown=1),
        requests(failed=12),
        fires_after=6,
        quiet_after=3,
        labels={"route": "/v1/status"},
        almost=[requests(unready=60, unknown=60), requests(failed=2.9)],
    ),
)
