"""What labels say of the alerts, as Prometheus metrics."""

from collections.abc import Sequence

from prometheus_client.core import Metric

from service.metrics.families import gauges
from service.quality.outcomes import OUTCOMES, Quality

MOST = 50
"""Upper bound of the exported rules, model versions and rollouts: it bounds the metric's label values."""


def of_quality(found: Sequence[Quality]) -> list[Metric]:
    """Gauges, because labels may be taken back, and old alerts go.

    Args:
        found: by rule, model version and rollout; what is beyond MOST with the fewest alerts is left out.
    """
    largest = sorted(found, key=lambda one: (-(one.fraud + one.genuine + one.open), one.by, one.name))[:MOST]
    values = (
        ([one.by, one.name, outcome], float(getattr(one, outcome))) for one in largest for outcome in OUTCOMES
    )
    return [
        gauges(
            "fraud_alert_outcomes",
            "Newest alerts, by what labels say of their transactions",
            ["by", "name", "outcome"],
            values,
        )
    ]
