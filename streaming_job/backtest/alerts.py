"""The alerts that a backtest compares: those of the candidate, and those that were live. Pure."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

Place = tuple[int, int]
"""Partition and offset of a transaction."""


class Alert(NamedTuple):
    """What a report needs of an alert (contract alert.v1)."""

    alert_id: str
    partition: int
    offset: int
    arrival: int
    """Arrival of the transaction, ms."""
    decision: str
    rules: tuple[str, ...]
    score: float | None
    card_id: str
    transaction_id: str
    merchant_id: str
    amount: float
    currency: str
    country: str
    reasons: tuple[str, ...]
    """Features, strongest first."""

    @property
    def place(self) -> Place:
        """Partition and offset of the transaction."""
        return self.partition, self.offset


def alert_of(record: dict[str, Any]) -> Alert:
    """Return the alert of a parsed record."""
    source = record["source"]
    same = {name: record[name] for name in _SAME}
    return Alert(
        **same,
        partition=source["partition"],
        offset=source["offset"],
        arrival=record["arrival_time"],
        rules=tuple(record["rules"]),
        reasons=tuple(reason["feature"] for reason in record["reasons"]),
    )


_SAME = (
    "alert_id", "decision", "score", "card_id", "transaction_id", "merchant_id", "amount", "currency",
    "country",
)  # fmt: skip
"""The fields that have the same name and form in a record."""


@dataclass
class LiveAlerts:
    """The archived alerts of the live job: those of the window, and the places of those before it."""

    topic: str
    """The topic of the transactions that they are about."""
    since: int
    """Beginning of the window, ms."""
    until: int
    """End of the window, ms."""
    sent: list[Alert] = field(default_factory=list)
    """Alerts of the window that were sent."""
    suppressed: int = 0
    """Number of alerts of the window that a cooldown suppressed."""
    rollouts: dict[str, int] = field(default_factory=dict)
    """rollout_id -> number of alerts of the window that were sent."""
    has_moved: bool = False
    """Whether the job has decided another topic before: the cards' older history is in that one."""
    _before: dict[bool, dict[int, list[int]]] = field(default_factory=lambda: {False: {}, True: {}})
    """Whether suppressed -> partition -> offsets of transactions before the window."""

    def add(self, values: list[bytes], *, suppressed: bool) -> None:
        """Add records of the topic of alerts, or of suppressed alerts.

        Alerts about another topic are left out: those of a job that a takeover has moved.
        """
        for value in values:
            record = orjson.loads(value)
            source, arrival = record["source"], record["arrival_time"]
            if source["topic"] != self.topic:
                self.has_moved = True
                continue
            if arrival < self.since:
                self._before[suppressed].setdefault(source["partition"], []).append(source["offset"])
            elif arrival < self.until and suppressed:
                self.suppressed += 1
            elif arrival < self.until:
                self.sent.append(alert_of(record))
                name = record["rollout_id"]
                self.rollouts[name] = self.rollouts.get(name, 0) + 1

    def before(self) -> "Before":
        """Return the alerts before the window, for the state at its beginning."""
        sent, suppressed = (
            {partition: np.array(sorted(offsets)) for partition, offsets in self._before[kind].items()}
            for kind in (False, True)
        )
        return Before(sent, suppressed)


@dataclass(frozen=True)
class Before:
    """The transactions before the window that became alerts; by partition, offsets ascending."""

    sent: dict[int, NDArray[np.int64]]
    suppressed: dict[int, NDArray[np.int64]]

    def masks(self, batch: NDArray[np.void]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which transactions became alerts, and which of these were suppressed, shape (n,) each.

        Args:
            batch: records of TRANSACTION of one partition, shape (n,), n > 0.
        """
        partition = int(batch["partition"][0])
        sent, suppressed = (
            np.isin(batch["offset"], offsets[partition], assume_unique=True)
            if partition in offsets
            else np.zeros(batch.size, np.bool_)
            for offsets in (self.sent, self.suppressed)
        )
        return sent | suppressed, suppressed
