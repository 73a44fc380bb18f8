"""Hot cards as docs/decisions/005 defines them: windows of whole buckets, the newest events one by one.

A card is hot from the transaction on that finds 512 others of the last 37 days, until it is forgotten. Each
window is then the bucket of t and the 59 before it, 60 buckets a window, aligned to the epoch. A ring
remembers 128 buckets of each width: what a newer bucket took the place of is gone. Windows by arrival are
whole buckets of arrivals. The hash of merchant ids
is the one thing here that is shared with the kernels: estimates of distinct merchants depend on its bits.
"""

import math
from collections import Counter
from dataclasses import dataclass

from feature_store.hashing import hash_string
from loadtests.oracle.records import UNITS, Transaction

MOST_EVENTS = 512
BUCKETS = 60
RING = 128
BITS = 256
IDS = 1024
"""Ids that one of the two sets of remembered transactions takes."""
UNKNOWN = math.nan

Event = tuple[int, int, str, str, bool]
"""Event time (ms), amount (units), merchant, country, whether it was a spike."""


@dataclass
class Bucket:
    """What came in one stretch of time."""

    number: int
    """Event time divided by the width."""
    count: int = 0
    total: int = 0
    greatest: int = 0
    squares: float = 0.0
    """Of the amounts in currency units."""
    spikes: int = 0
    merchants: int = 0
    """Bits."""
    countries: int = 0
    """Bits."""


class HotCard:
    """What is remembered of a hot card.

    Args:
        windows: lengths by name, ms, shortest first; the last is that of 30 days.
        by_arrival: the same of those that are counted by arrival.
        events: the card's events of the last 37 days, by event time.
        known: their transactions and arrivals (ms) in the same order; None where they are forgotten.
    """

    def __init__(
        self,
        windows: dict[str, int],
        by_arrival: dict[str, int],
        events: list[Event],
        known: list[tuple[Transaction, int] | None],
    ) -> None:
        self._widths = {name: length // BUCKETS for name, length in windows.items()}
        self._rings: dict[str, dict[int, Bucket]] = {name: {} for name in windows}
        self._newer: list[Transaction] = []
        self._older: list[Transaction] = []
        self._by_id: dict[str, list[Transaction]] = {}
        self._arrival_widths = {name: length // BUCKETS for name, length in by_arrival.items()}
        self._arrived: dict[str, Counter[int]] = {name: Counter() for name in by_arrival}
        """By window: events by bucket of their arrival."""
        self._last_spike = -1
        self.kept: list[Event] = []
        """The newest events, by event time."""
        for event, found in zip(events, known, strict=True):
            self._enter(event)
            if found is not None:
                self._remember(*found)
        self.kept = list(events)

    def namesakes(self, transaction_id: str) -> list[Transaction]:
        """Those of the last transactions that have this id."""
        return self._by_id.get(transaction_id, [])

    def make_room(self) -> None:
        """Before an event is kept: half of the kept ones go when there are too many."""
        if len(self.kept) == MOST_EVENTS:
            del self.kept[: MOST_EVENTS // 2]

    def add(self, event: Event, tx: Transaction, arrival: int) -> None:
        """Take in an accepted transaction; `arrival` (ms) is not before any other's."""
        place = len(self.kept)
        while place and self.kept[place - 1][0] > event[0]:
            place -= 1
        self.kept.insert(place, event)
        self._enter(event)
        self._remember(tx, arrival)

    def _remember(self, tx: Transaction, arrival: int) -> None:
        if len(self._newer) == IDS:
            for gone in self._older:
                self._by_id[gone.transaction_id].remove(gone)
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
                continue  # its bucket is gone
            bucket.count += 1
            bucket.total += units
            bucket.greatest = max(bucket.greatest, units)
            bucket.squares += (units / UNITS) * (units / UNITS)
            bucket.spikes += spike
            bucket.merchants |= _merchant_bit(merchant)
            bucket.countries |= _country_bit(country)

    def features(self, tx: Transaction, arrival: int) -> dict[str, float]:
        """What a hot card's windows say of a transaction that is not yet added, and arrives then (ms)."""
        found: dict[str, float] = {}
        buckets: list[Bucket] = []
        for name, width in self._widths.items():
            newest, ring = tx.event_time // width, self._rings[name]
            buckets = [
                ring[number % RING]
                for number in range(newest - BUCKETS + 1, newest + 1)
                if number % RING in ring and ring[number % RING].number == number
            ]
            count = sum(bucket.count for bucket in buckets) + 1
            total = sum(bucket.total for bucket in buckets) + tx.units
            merchants = _merchant_bit(tx.merchant_id)
            countries = _country_bit(tx.country)
            for bucket in buckets:
                merchants |= bucket.merchants
                countries |= bucket.countries
            found[f"count_{name}"] = count
            found[f"sum_{name}"] = total / UNITS
            found[f"mean_{name}"] = total / count / UNITS
            found[f"max_{name}"] = max([tx.units, *(bucket.greatest for bucket in buckets)]) / UNITS
            found[f"merchants_{name}"] = _distinct(merchants)
            found[f"countries_{name}"] = countries.bit_count()
            found[f"spikes_{name}"] = sum(bucket.spikes for bucket in buckets)
        for name in ("1m", "5m", "1h"):
            del found[f"spikes_{name}"]
        merchants = countries = 0
        for bucket in buckets:
            merchants |= bucket.merchants
            countries |= bucket.countries
        found["new_merchant"] = not merchants & _merchant_bit(tx.merchant_id)
        found["new_country"] = not countries & _country_bit(tx.country)
        for name, width in self._arrival_widths.items():
            newest = arrival // width
            found[f"arrivals_{name}"] = 1 + sum(
                self._arrived[name][number] for number in range(newest - BUCKETS + 1, newest + 1)
            )
        return found | self._spike_age(tx) | _against_month(tx.units, buckets)

    def _spike_age(self, tx: Transaction) -> dict[str, float]:
        age = tx.event_time - self._last_spike
        month = self._widths["30d"] * BUCKETS
        return {"time_since_spike": age / 1000 if self._last_spike >= 0 and 0 <= age < month else UNKNOWN}


def _against_month(units: int, buckets: list[Bucket]) -> dict[str, float]:
    count = sum(bucket.count for bucket in buckets)
    found = dict.fromkeys(("std_30d", "ratio_mean_30d", "zscore_30d"), UNKNOWN)
    if count == 0:
        return found
    total = sum(bucket.total for bucket in buckets)
    squares = 0.0
    for bucket in buckets:
        squares += bucket.squares
    mean = total / count / UNITS
    deviations = squares - count * mean * mean
    if deviations < 1e-9 * squares:  # nothing but what rounding left
        deviations = 0.0
    std = math.sqrt(deviations * UNITS * UNITS / count)
    found["std_30d"] = std / UNITS
    if total:
        found["ratio_mean_30d"] = units / (total / count)
    if count >= 2 and std:
        found["zscore_30d"] = (units - total / count) / std
    return found


def _distinct(bits: int) -> float:
    """Linear counting (Whang, Vander-Zanden, Taylor 1990)."""
    zeros = max(BITS - bits.bit_count(), 1)
    return round(-BITS * math.log(zeros / BITS))


def _merchant_bit(merchant: str) -> int:
    return 1 << hash_string(merchant)[0] % BITS


def _country_bit(country: str) -> int:
    return 1 << ((ord(country[0]) - ord("A")) * 26 + ord(country[1]) - ord("A")) % BITS
