"""One card's accepted transactions, unaggregated; old ones that no result needs can be dropped."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import NamedTuple

from loadtests.oracle.hot import MOST_EVENTS, HotCard
from loadtests.oracle.records import UNITS, Transaction, content

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MONTH_MS = 30 * DAY_MS
WINDOWS = {
    "1m": 60_000, "5m": 300_000, "1h": HOUR_MS, "24h": DAY_MS, "7d": 7 * DAY_MS, "30d": MONTH_MS
}  # fmt: skip
ARRIVAL_WINDOWS = {name: WINDOWS[name] for name in ("1m", "5m", "1h")}
"""Windows that are also counted by arrival."""
REMEMBER_MS = 37 * DAY_MS
"""How far back single transactions are read: the longest window (30 days) plus 7 days of lateness."""
REPEAT_MS = 7 * DAY_MS + HOUR_MS
"""How long a transaction id is remembered: 7 days, after which a repetition is TOO_LATE, and an hour for
clock errors."""
FORGET_AFTER_MS = 90 * DAY_MS
"""A card without an accepted transaction for longer than this starts with an empty history."""
STRANGER_MARGIN_MS = DAY_MS
"""A card with one transaction and no profile is forgotten after the allowed lateness plus this."""


class Profile(NamedTuple):
    """One version of a card's row in the bank's table."""

    status: str
    home_country: str
    credit_limit: float
    risk_tier: int
    opened_on: int
    """Days since 1970-01-01."""
    partition: int
    """Partition of the profile topic."""
    offset: int
    """Offset in the profile topic."""
    known_from: int
    """Kafka timestamp, ms; 0 for a version that counts as known from the beginning."""


class Card:
    """The accepted transactions of one card: parallel lists sorted by (event time, order of acceptance)."""

    __slots__ = (
        "alerts",
        "arrival",
        "arrivals",
        "countries",
        "dropped",
        "dropped_alerts",
        "hot",
        "ids",
        "last_written",
        "mean",
        "merchants",
        "most_events",
        "robust_mean",
        "spikes",
        "squares",
        "times",
        "transactions",
        "units",
    )

    def __init__(self, most_events: float = MOST_EVENTS) -> None:
        self.most_events = most_events
        """A card with this many transactions in REMEMBER_MS becomes hot (see `hot.py`); inf: never."""
        self.times: list[int] = []
        """Event times, ms."""
        self.units: list[int] = []
        """Amounts, 1/10,000 of the currency unit."""
        self.merchants: list[str] = []
        self.countries: list[str] = []
        self.spikes: list[bool] = []
        """Whether each transaction was a spike when it was accepted."""
        self.transactions: list[Transaction] = []
        self.mean = 0.0
        """Mean of the amounts in the order of acceptance, currency units."""
        self.squares = 0.0
        """Sum of the squared deviations from `mean`."""
        self.robust_mean = 0.0
        """Robust mean of the amounts in order of acceptance, currency units; 0 until an amount is above 0."""
        self.arrivals: list[int] = []
        """Arrival times, ms; one below the greatest arrival accepted before is replaced by it."""
        self.ids: dict[str, list[Transaction]] = {}
        """Accepted transactions by their ids."""
        self.arrival = -1
        """Greatest arrival time accepted, ms."""
        self.hot: HotCard | None = None
        """The bucketed form of the card once it is hot, else None."""
        self.alerts: list[int] = []
        """Arrival times of the card's alerts in the order of decision, suppressed ones included; ms."""
        self.last_written: int | None = None
        """Arrival time of the last alert that was not suppressed, ms."""
        self.dropped = 0
        """Number of transactions that were dropped."""
        self.dropped_alerts = 0
        """Number of alerts that were dropped."""

    @property
    def count(self) -> int:
        """Number of transactions accepted so far."""
        return self.dropped + len(self.times)

    def drop_before(self, event_time: int) -> None:
        """Drop transactions from before an event time (ms), and alerts from more than a day before it.

        The newest transaction stays. The caller ensures that no later result needs what is dropped.
        """
        end = min(bisect_left(self.times, event_time), len(self.times) - 1)
        if end > 0:
            for tx in self.transactions[:end]:
                namesakes = [other for other in self.ids.pop(tx.transaction_id, []) if other is not tx]
                if namesakes:
                    self.ids[tx.transaction_id] = namesakes
            for column in (
                self.times, self.units, self.merchants, self.countries, self.spikes, self.transactions,
                self.arrivals,
            ):  # fmt: skip
                del column[:end]
            self.dropped += end
        old = sum(arrival < event_time - DAY_MS for arrival in self.alerts)
        self.alerts = [arrival for arrival in self.alerts if arrival >= event_time - DAY_MS]
        self.dropped_alerts += old

    def is_forgotten(self, arrival: int, lateness_ms: int, had_profile: Callable[[int], bool]) -> bool:
        """Return whether the card is forgotten when a transaction arrives.

        Args:
            arrival: arrival of the transaction, ms.
            had_profile: whether the log held any version of the card's profile at a time, ms.
        """
        silent, early = arrival - self.arrival, lateness_ms + STRANGER_MARGIN_MS
        if self.count == 1 and silent > early and not had_profile(self.arrival + early):
            return True
        return silent > FORGET_AFTER_MS

    def is_late(self, event_time: int) -> bool:
        """Return whether a transaction with a greater event time was accepted before."""
        return bool(self.times) and self.times[-1] > event_time

    def namesakes(self, tx: Transaction) -> list[Transaction]:
        """Return the accepted transactions with the same id that are still remembered."""
        if self.hot is not None:
            return self.hot.namesakes(tx.transaction_id)
        known_from = max(self.arrival, tx.arrival) - REPEAT_MS
        return [other for other in self.ids.get(tx.transaction_id, []) if other.event_time >= known_from]

    def has(self, tx: Transaction) -> bool:
        """Return whether a transaction repeats an accepted one: same id, same content."""
        return any(content(other) == content(tx) for other in self.namesakes(tx))

    def arrived_since(self, tx: Transaction) -> list[int]:
        """Return the arrivals (ms, unsorted) of all transactions that an arrival window can contain."""
        first = bisect_left(self.times, max(self.arrival, tx.arrival) - REPEAT_MS)
        return self.arrivals[first:]

    def become_hot(self, tx: Transaction) -> None:
        """Make the card hot if it has `most_events` in the REMEMBER_MS before `tx`.

        If a hot card's list of single events is full, drop its older half. `tx` must not be accepted yet.
        """
        if self.hot is None and len(self.times) >= self.most_events:
            first = bisect_right(self.times, max(self.arrival, tx.arrival) - REMEMBER_MS)
            if len(self.times) - first >= self.most_events:
                events = zip(self.times, self.units, self.merchants, self.countries, self.spikes, strict=True)
                known_from = max(self.arrival, tx.arrival) - REPEAT_MS
                remembered = [
                    (transaction, arrival) if transaction.event_time >= known_from else None
                    for transaction, arrival in zip(
                        self.transactions[first:], self.arrivals[first:], strict=True
                    )
                ]
                self.hot = HotCard(WINDOWS, ARRIVAL_WINDOWS, list(events)[first:], remembered)
        if self.hot is not None:
            self.hot.make_room()

    def suspicious_count(self, arrival: int) -> dict[str, int]:
        """Count the alerts in the clock hour of `arrival` and the 23 before it ("day"), and all ("total")."""
        hour = arrival // HOUR_MS
        day = sum(hour - 24 < alerted // HOUR_MS <= hour for alerted in self.alerts)
        return {"day": day, "total": self.dropped_alerts + len(self.alerts)}

    def accept(self, tx: Transaction) -> int:
        """Insert a transaction by event time; returns its index."""
        index = bisect_right(self.times, tx.event_time)
        self.times.insert(index, tx.event_time)
        self.units.insert(index, tx.units)
        self.merchants.insert(index, tx.merchant_id)
        self.countries.insert(index, tx.country)
        amount = tx.units / UNITS
        spike = self.robust_mean > 0 and amount / self.robust_mean > 2.5
        self.spikes.insert(index, spike)
        self.transactions.insert(index, tx)
        self.arrival = max(self.arrival, tx.arrival)
        self.arrivals.insert(index, self.arrival)
        if self.hot is not None:
            self.hot.add((tx.event_time, tx.units, tx.merchant_id, tx.country, spike), tx, self.arrival)
        # the textbook's running mean (Welford 1962), which the job uses, too: exact sums would differ from
        # the job's mean in the last bits, and put one card in a million on the other side of a tree's split
        deviation = amount - self.mean
        self.mean += deviation / self.count
        self.squares += deviation * (amount - self.mean)
        self.robust_mean = _next_robust_mean(self.robust_mean, amount, self.count)
        self.ids.setdefault(tx.transaction_id, []).append(tx)
        return index


def _next_robust_mean(mean: float, amount: float, number: int) -> float:
    """Return the robust mean after the `number`-th amount; each amount is capped at three times the mean."""
    if mean == 0:
        return amount
    return mean + (min(amount, 3 * mean) - mean) / min(number, 64)
