"""Metrics of quality: the outcomes of alerts, from labels, and the drift of the features of the champion.

The catalogue of features bounds the number of label values.
"""

from collections.abc import Sequence

from prometheus_client.core import Metric

from service.health.feature_drift import feature_drift
from service.health.groups import Groups
from service.metrics.families import samples
from service.quality.counts import OUTCOMES, Quality

MOST = 50
"""Maximum number of exported rules, model versions and rollouts together: it bounds the label values."""


def of_quality(qualities: Sequence[Quality]) -> list[Metric]:
    """Return the outcomes as gauges, because labels may be reversed and old alerts expire.

    Args:
        qualities: outcomes by rule, model version and rollout; those with the newest alerts are exported,
            and among these, if there are too many, those with the most alerts.
    """
    by_age = sorted(qualities, key=lambda q: (-q.newest, -(q.fraud + q.genuine + q.open), q.by, q.name))
    values = (
        ([q.by, q.name, outcome], float(getattr(q, outcome))) for q in by_age[:MOST] for outcome in OUTCOMES
    )
    return [samples("fraud_alert_outcomes", values)]


def of_features(groups: Groups) -> list[Metric]:
    """Return stability indices and their sample sizes; without feature counts, both families are empty."""
    drift = feature_drift(groups)
    indices = drift.psi if drift else {}
    counted = drift.counted if drift else {}
    return [
        samples(
            "fraud_feature_psi",
            (([name, window], value) for window, index in indices.items() for name, value in index.items()),
        ),
        samples(
            "fraud_feature_psi_transactions",
            (([window], float(number)) for window, number in counted.items()),
        ),
    ]
