"""Counts of alerts by their outcome. Pure.

An alert counts for each of its rules, for its model version and for its rollout: these are its groups. Few
combinations of groups occur, so the store counts combinations (`Kind`), and a reader of the counts adds them
up by group.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from service.labels.records import Group, Kind

FRAUD, GENUINE, OPEN = "fraud", "genuine", "open"
OUTCOMES = (FRAUD, GENUINE, OPEN)


class Count(NamedTuple):
    """Number of a day's alerts of one kind and outcome."""

    day: int
    """Of the transactions' arrival (UTC), days since 1970-01-01."""
    kind: Kind
    outcome: str
    alerts: int


@dataclass(frozen=True)
class Quality:
    """Outcomes of the alerts of one rule, model version or rollout."""

    by: str
    name: str
    fraud: int
    genuine: int
    open: int
    """Alerts without a label so far."""
    newest: int
    """Day of the newest alert counted."""

    @property
    def precision(self) -> float | None:
        """Share of frauds among the alerts with a label; None without labels."""
        labelled = self.fraud + self.genuine
        return self.fraud / labelled if labelled else None

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the API."""
        outcomes = {outcome: getattr(self, outcome) for outcome in OUTCOMES}
        return {"by": self.by, "name": self.name, **outcomes, "precision": self.precision}


def qualities(counts: Iterable[Count]) -> list[Quality]:
    """Return the outcomes of each group over all days, sorted by group."""
    newest: dict[Group, int] = {}
    numbers = Counter[tuple[Group, str]]()
    for count in counts:
        for group in count.kind:
            newest[group] = max(newest.get(group, count.day), count.day)
            numbers[group, count.outcome] += count.alerts
    return [
        Quality(
            *group,
            fraud=numbers[group, FRAUD],
            genuine=numbers[group, GENUINE],
            open=numbers[group, OPEN],
            newest=newest[group],
        )
        for group in sorted(newest)
    ]


def by_day(counts: Iterable[Count]) -> list[Quality]:
    """Return the outcomes of each group on each day, sorted by day, the newest first, then by group."""
    days: dict[int, list[Count]] = {}
    for count in counts:
        days.setdefault(count.day, []).append(count)
    return [quality for day in sorted(days, reverse=True) for quality in qualities(days[day])]
