"""The input of a feature: a transaction with its card's history, cut to the windows of the features."""

import math
from bisect import bisect_right
from typing import NamedTuple

from loadtests.oracle.card import MONTH_MS, WINDOWS, Card, Profile
from loadtests.oracle.hot import Window
from loadtests.oracle.records import Transaction


class Others(NamedTuple):
    """The card's other transactions in (t - 30 d, t], as parallel lists sorted by event time."""

    times: list[int]
    units: list[int]
    merchants: list[str]
    countries: list[str]
    spikes: list[bool]


class View:
    """The input of a feature: a transaction, its card's history, and the profile in force.

    The constructor adds the transaction to the card, so the transaction counts in its own windows. No
    `Window` contains a transaction with a later event time; windows by arrival can.
    """

    __slots__ = (
        "_hot_windows", "arrival", "arrivals", "card", "conflicting", "deviation", "hot_features", "index",
        "late", "mean", "month", "profile", "robust_mean", "tx",
    )  # fmt: skip

    def __init__(self, tx: Transaction, card: Card, profile: Profile | None) -> None:
        self.tx = tx
        self.card = card
        self.profile = profile
        self.robust_mean = card.robust_mean
        """Robust mean of the card's amounts before this transaction, currency units."""
        self.mean = card.mean
        """Mean of the card's amounts before this transaction, currency units."""
        self.deviation = math.sqrt(card.squares / max(card.count, 1))
        """Population standard deviation of the card's amounts before this transaction, currency units."""
        self.late = card.is_late(tx.event_time)
        self.conflicting = bool(card.namesakes(tx))
        """Whether an accepted transaction has the same id and different content."""
        self.arrival = max(card.arrival, tx.arrival)
        """Arrival of the transaction or of an earlier one of the card, whichever is later, ms."""
        self.arrivals = card.arrived_since(tx)
        """Arrivals of the card's other transactions that an arrival window can contain, ms."""
        card.become_hot(tx)
        self.hot_features = {} if card.hot is None else card.hot.features(tx, self.arrival)
        """Features that a hot card (see `hot.py`) computes from its buckets; empty for other cards."""
        self._hot_windows = {} if card.hot is None else card.hot.windows(tx)
        self.month = self._others()
        """The other transactions of the last 30 days; of a hot card only the newest ones."""
        self.index = card.accept(tx)
        """Index of this transaction in the card's lists."""

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

    def window(self, name: str) -> Window:
        """Return the window of this name that ends with this transaction."""
        if self._hot_windows:
            return self._hot_windows[name]
        card, end = self.card, self.index + 1
        start = bisect_right(card.times, self.tx.event_time - WINDOWS[name], 0, self.index)
        units = card.units[start:end]
        merchants, countries = set(card.merchants[start:end]), set(card.countries[start:end])
        return Window(len(units), sum(units), max(units), len(merchants), len(countries))
