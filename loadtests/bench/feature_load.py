"""Synthetic transactions for the feature engine's benchmarks, as record arrays for the kernels."""

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS
from feature_store.layout import TRANSACTION
from feature_store.state.group_state import GroupState
from loadtests.simulator.randomness import mix

START_MS = 1_750_000_000_000
MERCHANTS = 100_000
REGULAR = 20
"""Number of regular merchants of a card."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ODD_TOO = np.uint64(0xC2B2AE3D27D4EB4F)


class FeatureLoad:
    """Transactions of cards that pay at random times, mostly at one of their 20 regular merchants.

    Ids are hashed, so that they are as incompressible on disk as real ones.

    Args:
        per_day: transactions of a card per day.
        resolution_ms: resolution of event times; card networks use whole seconds, the data contract has ms.
    """

    def __init__(self, cards: int, *, per_day: float = 2.0, resolution_ms: int = 1) -> None:
        self._resolution = resolution_ms
        self._cards = cards
        self._ms = DAY_MS / (per_day * cards)
        self._now = float(START_MS)
        self._rng = np.random.default_rng(1)

    def next(self, events: int) -> NDArray[np.void]:
        """Return the next transactions in order of arrival, shape (events,)."""
        rng = self._rng
        records = np.zeros(events, dtype=TRANSACTION)
        card = rng.integers(0, self._cards, events)
        records["lo"] = (card + 1).astype(np.uint64) * _ODD
        records["hi"] = (card + 1).astype(np.uint64) * _ODD_TOO
        times = self._now + np.sort(rng.random(events)) * (events * self._ms)
        self._now += events * self._ms
        records["arrival"] = times.astype(np.int64)
        records["time"] = records["arrival"] // self._resolution * self._resolution
        # whole cents, in units of 1/10,000; most amounts small, some large
        records["amount"] = np.rint(rng.lognormal(3.2, 1.0, events) * 100) * 100
        records["transaction"] = rng.integers(1, 1 << 63, events).astype(np.uint64)
        regular = (card * REGULAR + (rng.random(events) ** 2 * REGULAR).astype(np.int64)) * 7
        merchant = np.where(rng.random(events) < 0.8, regular, rng.integers(0, MERCHANTS, events)) % MERCHANTS
        records["merchant"] = mix((merchant + 1).astype(np.uint64) * _ODD)
        # nine of ten transactions are in the card's home country
        home = card % 10
        records["country"] = np.where(rng.random(events) < 0.9, home, rng.integers(0, 30, events))
        return records

    def warm(self, state: GroupState, days: float, batch: int) -> None:
        """Apply the next transactions to a state, as many as the cards make in `days` days at two a day."""
        remaining = int(self._cards * 2 * days)
        while remaining > 0:
            records = self.next(min(batch, remaining))
            state.apply(records, state.card_numbers(records))
            remaining -= records.size
