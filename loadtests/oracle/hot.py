"""Hot cards (docs/decisions/005): windows of whole buckets; only the newest events are kept one by one.

A card becomes hot with a transaction that has 512 others in the 37 days before it, and stays hot until it is
forgotten. A window by event time then has 60 buckets, aligned to 1970-01-01: the bucket of the transaction's
event time and the 59 before it. Each such window has its own ring of 128 buckets; a newer bucket overwrites
the one in its slot. A window by arrival likewise has 60 buckets of arrivals. Only the hash of merchant ids is
shared with the kernels, because estimates of distinct merchants depend on the bits of the hash.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from feature_store.kernels.hashing import hash_string
from loadtests.oracle.records import UNITS, Transaction

MOST_EVENTS = 512
BUCKETS = 60
RING = 128
BITS = 256
IDS = 1024
"""Capacity of each of the two lists of remembered transactions, the newer and the older."""
UNKNOWN = math.nan

Event = tuple[int, int, str, str, bool]
"""Event time (ms), amount (1/10,000 of the currency unit), merchant, country, whether it was a spike."""


class Window(NamedTuple):
    """Aggregates of a card's transactions in (t - length, t], where t is the event time of the current one.

    The current transaction is included.
    """

    transactions: int
    total: int
    """Sum of the amounts, 1/10,000 of the currency unit."""
    greatest: int
    """Greatest amount, 1/10,000 of the currency unit."""
    merchants: float
    """Number of distinct merchants; of a hot card an estimate."""
    countries: int
    """Number of distinct countries."""


@dataclass
class Bucket:
    """Aggregates of one time interval."""

    number: int
    """Event time divided by the width."""
    count: int = 0
    total: int = 0
    greatest: int = 0
    squares: float = 0.0
    """Sum of the squared amounts, currency units."""
    spikes: int = 0
    merchants: int = 0
    """Bit set of merchant hashes."""
    countries: int = 0
    """Bit set of countries."""


class HotCard:
    """The bucketed history of a hot card.

    Args:
        windows: window lengths by name, ms, shortest first; the last is 30 days.
        by_arrival: lengths by name of the windows that are counted by arrival, ms.
        events: the card's events of the last 37 days, sorted by event time.
        transactions: the events' transactions and arrivals (ms), in the same order; None where the
            transaction id is no longer remembered.
    """

    def __init__(
        self,
        windows: dict[str, int],
        by_arrival: dict[str, int],
        events: list[Event],
        transactions: list[tuple[Transaction, int] | None],
    ) -> None:
        self._widths = {name: length // BUCKETS for name, length in windows.items()}
        self._rings: dict[str, dict[int, Bucket]] = {name: {} for name in windows}
        self._newer: list[Transaction] = []
        self._older: list[Transaction] = []
        self._by_id: dict[str, list[Transaction]] = {}
        self._arrival_widths = {name: length // BUCKETS for name, length in by_arrival.items()}
        self._arrived: dict[str, Counter[int]] = {name: Counter() for name in by_arrival}
        """Number of events by window and arrival bucket."""
        self._last_spike = -1
        self.kept: list[Event] = []
        """The newest events, sorted by event time."""
        for event, remembered in zip(events, transactions, strict=True):
            self._enter(event)
            if remembered is not None:
                self._remember(*remembered)
        self.kept = list(events)

    def namesakes(self, transaction_id: str) -> list[Transaction]:
        """Return the remembered transactions with this id."""
        return self._by_id.get(transaction_id, [])

    def make_room(self) -> None:
        """Drop the older half of the kept events if their list is full; call before `add`."""
        if len(self.kept) == MOST_EVENTS:
            del self.kept[: MOST_EVENTS // 2]

    def add(self, event: Event, tx: Transaction, arrival: int) -> None:
        """Add an accepted transaction; `arrival` (ms) must not be less than any earlier one."""
        index = len(self.kept)
        while index and self.kept[index - 1][0] > event[0]:
            index -= 1
        self.kept.insert(index, event)
        self._enter(event)
        self._remember(tx, arrival)

    def _remember(self, tx: Transaction, arrival: int) -> None:
        if len(self._newer) == IDS:
            for forgotten in self._older:
                self._by_id[forgotten.transaction_id].remove(forgotten)
            self._older, self._newer = self._newer, []
        self._newer.append(tx)
        self._by_id.setdefault(tx.transaction_id, []).append(tx)
        for name, width in self._arrival_widths.items():
            self._arrived[name][arrival // width] += 1

    def _enter(self, event: Event) -> None:
        time, units, merchant, country, spike = event
        if spike:
            self._last_spike = max(self._last_spike, time)
        for name, width in self._widths.items():
            number, ring = time // width, self._rings[name]
            bucket = ring.get(number % RING)
            if bucket is None or bucket.number < number:
                bucket = ring[number % RING] = Bucket(number)
            if bucket.number > number:
                continue  # a newer bucket has the slot
            bucket.count += 1
            bucket.total += units
            bucket.greatest = max(bucket.greatest, units)
            bucket.squares += (units / UNITS) * (units / UNITS)
            bucket.spikes += spike
            bucket.merchants |= _merchant_bit(merchant)
            bucket.countries |= _country_bit(country)

    def _buckets(self, name: str, time: int) -> list[Bucket]:
        """Return the buckets of a window at an event time (ms)."""
        newest, ring = time // self._widths[name], self._rings[name]
        return [
            ring[number % RING]
            for number in range(newest - BUCKETS + 1, newest + 1)
            if number % RING in ring and ring[number % RING].number == number
        ]

    def windows(self, tx: Transaction) -> dict[str, Window]:
        """Return the windows, by name, of a transaction that is not yet added."""
        windows = {}
        for name in self._widths:
            buckets = self._buckets(name, tx.event_time)
            merchants, countries = _seen(buckets)
            windows[name] = Window(
                sum(bucket.count for bucket in buckets) + 1,
                sum(bucket.total for bucket in buckets) + tx.units,
                max([tx.units, *(bucket.greatest for bucket in buckets)]),
                _distinct(merchants | _merchant_bit(tx.merchant_id)),
                (countries | _country_bit(tx.country)).bit_count(),
            )
        return windows

    def features(self, tx: Transaction, arrival: int) -> dict[str, float]:
        """Compute the other features, of a transaction that is not yet added; `arrival` in ms."""
        values: dict[str, float] = {
            f"spikes_{name}": sum(bucket.spikes for bucket in self._buckets(name, tx.event_time))
            for name in ("1h", "24h", "7d", "30d")
        }
        buckets = self._buckets("30d", tx.event_time)
        merchants, countries = _seen(buckets)
        values["new_merchant"] = not merchants & _merchant_bit(tx.merchant_id)
        values["new_country"] = not countries & _country_bit(tx.country)
        for name, width in self._arrival_widths.items():
            newest = arrival // width
            values[f"arrivals_{name}"] = 1 + sum(
                self._arrived[name][number] for number in range(newest - BUCKETS + 1, newest + 1)
            )
        return values | self._spike_age(tx) | _against_month(tx.units, buckets)

    def _spike_age(self, tx: Transaction) -> dict[str, float]:
        age = tx.event_time - self._last_spike
        month = self._widths["30d"] * BUCKETS
        return {"time_since_spike": age / 1000 if self._last_spike >= 0 and 0 <= age < month else UNKNOWN}


def _seen(buckets: list[Bucket]) -> tuple[int, int]:
    """Return the bits of all merchants, and those of all countries."""
    merchants = countries = 0
    for bucket in buckets:
        merchants |= bucket.merchants
        countries |= bucket.countries
    return merchants, countries


def _against_month(units: int, buckets: list[Bucket]) -> dict[str, float]:
    count = sum(bucket.count for bucket in buckets)
    values = dict.fromkeys(("std_30d", "ratio_mean_30d", "zscore_30d"), UNKNOWN)
    if count == 0:
        return values
    total = sum(bucket.total for bucket in buckets)
    squares = 0.0
    for bucket in buckets:
        squares += bucket.squares
    mean = total / count / UNITS
    deviations = squares - count * mean * mean
    if deviations < 1e-9 * squares:  # a rounding error
        deviations = 0.0
    std = math.sqrt(deviations * UNITS * UNITS / count)
    values["std_30d"] = std / UNITS
    if total:
        values["ratio_mean_30d"] = units / (total / count)
    if count >= 2 and std:
        values["zscore_30d"] = (units - total / count) / std
    return values


def _distinct(bits: int) -> float:
    """Estimate the number of distinct values by linear counting (Whang, Vander-Zanden, Taylor 1990)."""
    zeros = max(BITS - bits.bit_count(), 1)
    return round(-BITS * math.log(zeros / BITS))


def _merchant_bit(merchant: str) -> int:
    return 1 << hash_string(merchant)[0] % BITS


def _country_bit(country: str) -> int:
    return 1 << ((ord(country[0]) - ord("A")) * 26 + ord(country[1]) - ord("A")) % BITS
