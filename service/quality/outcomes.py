"""Alerts and the labels of their transactions, counted by rule, by model version and by rollout.

Alerts and labels come from different topics, weeks apart, in any order, and some twice after a reconnection.
Within the limits MOST_ALERTS and MOST_LABELS, the counts depend on the records alone, not on their order.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.precision.labelled_cards import Label, LabelPosition

RULE, MODEL, ROLLOUT = "rule", "model", "rollout"
FRAUD, GENUINE, OPEN = "fraud", "genuine", "open"
OUTCOMES = (FRAUD, GENUINE, OPEN)
MOST_ALERTS = 50_000
"""Number of newest alerts that are counted."""
MOST_LABELS = 100_000
"""Number of newest labels that are kept; most belong to no alert."""

Transaction = tuple[str, str]
"""Card id and transaction id."""
Group = tuple[str, str]
"""RULE, MODEL or ROLLOUT, and a name."""


@dataclass(frozen=True)
class Quality:
    """Outcomes of the alerts of one rule, model version or rollout."""

    by: str
    name: str
    fraud: int
    genuine: int
    open: int
    """Alerts without a label so far."""

    @property
    def precision(self) -> float | None:
        """Share of frauds among the alerts with a label; None without labels."""
        labelled = self.fraud + self.genuine
        return self.fraud / labelled if labelled else None


class Outcomes:
    """Outcomes of the newest alerts; thread-safe."""

    def __init__(self, most_alerts: int = MOST_ALERTS, most_labels: int = MOST_LABELS) -> None:
        """Start without alerts and labels.

        Args:
            most_alerts: number of newest alerts to count.
            most_labels: number of newest labels to keep.
        """
        self._most_alerts, self._most_labels = most_alerts, most_labels
        self._alerts: dict[Transaction, tuple[Group, ...]] = {}
        self._labels: dict[Transaction, Label] = {}
        """The transaction's last label."""
        self._groups: dict[tuple[Group, ...], tuple[Group, ...]] = {}
        """Interned: many alerts have the same groups."""
        self._counts: Counter[tuple[Group, str]] = Counter()
        self._lock = threading.Lock()

    def alert(self, alert: Mapping[str, Any]) -> None:
        """Count an alert of contract alert.v1; a repetition changes nothing."""
        key = alert["card_id"], alert["transaction_id"]
        model = f"{alert['model']['name']} {alert['model']['version']}"
        groups = (*((RULE, rule) for rule in alert["rules"]), (MODEL, model), (ROLLOUT, alert["rollout_id"]))
        with self._lock:
            if key in self._alerts:
                return
            self._alerts[key] = self._groups.setdefault(groups, groups)
            self._count(key, 1)
            if len(self._alerts) > self._most_alerts:
                oldest = next(iter(self._alerts))
                self._count(oldest, -1)
                del self._alerts[oldest]

    def label(self, card_id: str, transaction_id: str, position: LabelPosition, fraud: bool) -> None:
        """Record a label; a transaction's last label counts.

        Args:
            card_id: of the transaction.
            transaction_id: of the transaction.
            position: of the label.
            fraud: whether it says fraud.
        """
        key = card_id, transaction_id
        with self._lock:
            previous = self._labels.get(key)
            if previous is not None and previous[0] > position:
                return
            self._set(key, (position, fraud))
            if len(self._labels) > self._most_labels:
                self._set(next(iter(self._labels)), None)

    def qualities(self) -> list[Quality]:
        """Return the outcomes of each rule, model version and rollout that the alerts name, sorted."""
        with self._lock:
            counts = {key: number for key, number in self._counts.items() if number}
        groups = sorted({group for group, _ in counts})
        return [
            Quality(*group, *(counts.get((group, outcome), 0) for outcome in OUTCOMES)) for group in groups
        ]

    def _count(self, key: Transaction, by: int) -> None:
        outcome = _outcome(self._labels.get(key))
        for group in self._alerts[key]:
            self._counts[group, outcome] += by

    def _set(self, key: Transaction, label: Label | None) -> None:
        """Replace a transaction's label, or remove it."""
        is_alert = key in self._alerts
        if is_alert:
            self._count(key, -1)
        self._labels.pop(key, None)
        if label is not None:
            self._labels[key] = label
        if is_alert:
            self._count(key, 1)


def _outcome(label: Label | None) -> str:
    return OPEN if label is None else FRAUD if label[1] else GENUINE
