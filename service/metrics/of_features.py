"""Drift of the champion's features as Prometheus metrics.

The catalogue of features bounds the number of label values.
"""

from prometheus_client.core import Metric

from service.health.feature_drift import feature_drift
from service.health.groups import Groups
from service.metrics.families import samples


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
