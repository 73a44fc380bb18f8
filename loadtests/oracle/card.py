"""A card's whole past, kept as it is: nothing is folded or bucketed; what no answer needs can be dropped."""

import math
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
"""Those that are counted by arrival, too."""
REMEMBER_MS = 37 * DAY_MS
"""What looks at single transactions looks back this long: 30 days, the longest window, and 7 of lateness."""
REPEAT_MS = 7 * DAY_MS + HOUR_MS
"""A transaction id is known this long: what repeats an older one is too late, but for clocks' errors."""
FORGET_AFTER_MS = 90 * DAY_MS
"""A card without an accepted transaction for longer than this starts afresh."""
STRANGER_MARGIN_MS = DAY_MS
"""One with a single transaction and no profile does so after the allowed lateness and this."""


class Profile(NamedTuple):
    """One version of a card's row in the bank's table."""

    status: str
    home_country: str
    credit_limit: float
    risk_tier: int
    opened_on: int
    """Days since 1970-01-01."""
    partition: int
    """Of the profile topic."""
    offset: int
    """Of the profile topic."""
    known_from: int
    """Kafka timestamp, ms; 0 for what counts as known from the beginning."""


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
        """With more in reach it is hot: its windows are counted in buckets. Infinity: exact for ever."""
        self.times: list[int] = []
        """Event times, ms."""
        self.units: list[int] = []
        """Amounts, 1/10,000 of the currency unit."""
        self.merchants: list[str] = []
        self.countries: list[str] = []
        self.spikes: list[bool] = []
        """Which were spikes when they were accepted."""
        self.transactions: list[Transaction] = []
        self.mean = 0.0
        """Of the amounts in the order of acceptance, currency units."""
        self.squares = 0.0
        """Sum of the squared deviations from `mean`."""
        self.robust_mean = 0.0
        """Of the amounts in the order of acceptance, currency units; 0 before the first amount above 0."""
        self.arrivals: list[int] = []
        """Arrival times, ms; one that went back counts as the greatest before it."""
        self.ids: dict[str, list[Transaction]] = {}
        """Accepted transactions by their ids."""
        self.arrival = -1
        """Greatest arrival time accepted, ms."""
        self.hot: HotCard | None = None
        """What counts once there are too many transactions to look at each."""
        self.alerts: list[int] = []
        """Arrival times of this card's alerts in the order of decision, the suppressed included; ms."""
        self.last_written: int | None = None
        """Arrival time of the last one that was not suppressed, ms."""
        self.dropped = 0
        """Transactions that are counted and no longer kept."""
        self.dropped_alerts = 0
        """Alerts that are counted and no longer kept."""

    @property
    def count(self) -> int:
        """Transactions accepted so far."""
        return self.dropped + len(self.times)

    def drop_before(self, event_time: int) -> None:
        """Forget the transactions that happened before a time (ms) that no later question reaches.

        The newest one stays, and so do the alerts of a day before it.
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
        """Whether a transaction that arrives then finds the card forgotten.

        Args:
            arrival: of the transaction, ms.
            lateness_ms: allowed lateness.
            had_profile: whether the log held any version of the card's profile at a time, ms.
        """
        silent, early = arrival - self.arrival, lateness_ms + STRANGER_MARGIN_MS
        if self.count == 1 and silent > early and not had_profile(self.arrival + early):
            return True
        return silent > FORGET_AFTER_MS

    def is_late(self, event_time: int) -> bool:
        """Whether a transaction with a greater event time was accepted before."""
        return bool(self.times) and self.times[-1] > event_time

    def namesakes(self, tx: Transaction) -> list[Transaction]:
        """The transactions of the same id that were accepted before and are not yet forgotten."""
        if self.hot is not None:
            return self.hot.namesakes(tx.transaction_id)
        known_from = max(self.arrival, tx.arrival) - REPEAT_MS
        return [other for other in self.ids.get(tx.transaction_id, []) if other.event_time >= known_from]

    def has(self, tx: Transaction) -> bool:
        """Whether a transaction is a repetition: id and content are those of one accepted before."""
        return any(content(other) == content(tx) for other in self.namesakes(tx))

    def arrived_since(self, tx: Transaction) -> list[int]:
        """Arrivals of what can have come lately, whatever its event time; ms, in no order."""
        first = bisect_left(self.times, max(self.arrival, tx.arrival) - REPEAT_MS)
        return self.arrivals[first:]

    def heat_up(self, tx: Transaction) -> None:
        """Make the card hot if this transaction, not yet accepted, is one too many to look at each."""
        if self.hot is None and len(self.times) >= self.most_events:
            first = bisect_right(self.times, max(self.arrival, tx.arrival) - REMEMBER_MS)
            if len(self.times) - first >= self.most_events:
                events = zip(self.times, self.units, self.merchants, self.countries, self.spikes, strict=True)
                known_from = max(self.arrival, tx.arrival) - REPEAT_MS
                known = [
                    (transaction, arrival) if transaction.event_time >= known_from else None
                    for transaction, arrival in zip(
                        self.transactions[first:], self.arrivals[first:], strict=True
                    )
                ]
                self.hot = HotCard(WINDOWS, ARRIVAL_WINDOWS, list(events)[first:], known)
        if self.hot is not None:
            self.hot.make_room()

    def suspicious_count(self, arrival: int) -> dict[str, int]:
        """Alerts by clock hour of arrival: this hour's and the 23 hours' before it; and all of them."""
        hour = arrival // HOUR_MS
        day = sum(hour - 24 < alerted // HOUR_MS <= hour for alerted in self.alerts)
        return {"day": day, "total": self.dropped_alerts + len(self.alerts)}

    def accept(self, tx: Transaction) -> int:
        """Insert a transaction at its place; returns the place."""
        place = bisect_right(self.times, tx.event_time)
        self.times.insert(place, tx.event_time)
        self.units.insert(place, tx.units)
        self.merchants.insert(place, tx.merchant_id)
        self.countries.insert(place, tx.country)
        amount = tx.units / UNITS
        spike = self.robust_mean > 0 and amount / self.robust_mean > 2.5
        self.spikes.insert(place, spike)
        self.transactions.insert(place, tx)
        self.arrival = max(self.arrival, tx.arrival)
        self.arrivals.insert(place, self.arrival)
        if self.hot is not None:
            self.hot.add((tx.event_time, tx.units, tx.merchant_id, tx.country, spike), tx, self.arrival)
        # the textbook's running mean (Welford 1962): the exact sums differ in the last bits, and one card in
        # a million would then fall on the other side of a cut of a tree
        off = amount - self.mean
        self.mean += off / self.count
        self.squares += off * (amount - self.mean)
        self.robust_mean = _moved(self.robust_mean, amount, self.count)
        self.ids.setdefault(tx.transaction_id, []).append(tx)
        return place


def _moved(mean: float, amount: float, number: int) -> float:
    """The robust mean after the `number`-th amount: an outlier pulls no harder than three times the mean."""
    if mean == 0:
        return amount
    return mean + (min(amount, 3 * mean) - mean) / min(number, 64)


class Window(NamedTuple):
    """The card's transactions in (t - length, t], the one at t last: parallel lists by event time."""

    units: list[int]
    merchants: list[str]
    countries: list[str]


class Others(NamedTuple):
    """The card's other transactions in (t - 30 d, t]: parallel lists by event time."""

    times: list[int]
    units: list[int]
    merchants: list[str]
    countries: list[str]
    spikes: list[bool]


class View:
    """What a feature may look at: a transaction at its place in its card's past, and the profile then.

    Making a view accepts the transaction: it counts in its own windows. Transactions with a later event
    time lie behind it; no window holds them.
    """

    __slots__ = (
        "arrival", "arrivals", "card", "conflicting", "deviation", "late", "mean", "month", "overruled",
        "place", "profile", "robust_mean", "tx",
    )  # fmt: skip

    def __init__(self, tx: Transaction, card: Card, profile: Profile | None) -> None:
        self.tx = tx
        self.card = card
        self.profile = profile
        self.robust_mean = card.robust_mean
        """Of the card before this transaction."""
        self.mean = card.mean
        """Of the card's amounts before this transaction, currency units."""
        self.deviation = math.sqrt(card.squares / max(card.count, 1))
        """Population standard deviation of the card's amounts before this transaction, currency units."""
        self.late = card.is_late(tx.event_time)
        self.conflicting = bool(card.namesakes(tx))
        """Whether another transaction, of other content, has its id."""
        self.arrival = max(card.arrival, tx.arrival)
        """Of the transaction, ms; never before that of the one before it."""
        self.arrivals = card.arrived_since(tx)
        """Of the others that can have come lately, ms."""
        card.heat_up(tx)
        self.overruled = {} if card.hot is None else card.hot.features(tx, self.arrival)
        """Features of a hot card that are not those of its single transactions."""
        self.month = self._others()
        """The others of the last 30 days, without this one; of a hot card those that are kept."""
        self.place = card.accept(tx)
        """Of this transaction in the card's lists."""

    def _others(self) -> Others:
        card, time = self.card, self.tx.event_time
        if card.hot is not None:
            near = [event for event in card.hot.kept if time - MONTH_MS < event[0] <= time]
            times, units, merchants, countries, spikes = (
                map(list, zip(*near, strict=True)) if near else [[]] * 5
            )
            return Others(times, units, merchants, countries, spikes)
        start, end = bisect_right(card.times, time - MONTH_MS), bisect_right(card.times, time)
        return Others(
            card.times[start:end],
            card.units[start:end],
            card.merchants[start:end],
            card.countries[start:end],
            card.spikes[start:end],
        )

    def window(self, length_ms: int) -> Window:
        """The window of this length that ends with this transaction."""
        card, end = self.card, self.place + 1
        start = bisect_right(card.times, self.tx.event_time - length_ms, 0, self.place)
        return Window(card.units[start:end], card.merchants[start:end], card.countries[start:end])
