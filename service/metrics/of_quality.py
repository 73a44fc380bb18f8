"""Metrics of the alerts' outcomes, from labels."""

from collections.abc import Sequence

from prometheus_client.core import Metric

from service.metrics.families import gauges
from service.quality.outcomes import OUTCOMES, Quality

MOST = 50
"""Maximum number of exported rules, model versions and rollouts together: it bounds the label values."""


def of_quality(qualities: Sequence[Quality]) -> list[Metric]:
    """Return the outcomes as gauges, because labels may be reversed and old alerts expire.

    Args:
        qualities: outcomes by rule, model version and rollout; those with the most alerts are exported.
    """
    largest = sorted(qualities, key=lambda q: (-(q.fraud + q.genuine + q.open), q.by, q.name))[:MOST]
    values = (([q.by, q.name, outcome], float(getattr(q, outcome))) for q in largest for outcome in OUTCOMES)
    return [
        gauges(
            "fraud_alert_outcomes",
            "Newest alerts, by their outcome according to labels",
            ["by", "name", "outcome"],
            values,
        )
    ]
