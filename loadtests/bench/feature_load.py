"""Transactions for the feature engine's benchmarks, made directly as the records that the kernels take."""

import numpy as np
from numpy.typing import NDArray

from feature_store.group_state import GroupState
from feature_store.layout import TRANSACTION

DAY_MS = 86_400_000
START_MS = 1_750_000_000_000
MERCHANTS = 100_000
REGULAR = 20
"""Merchants that a card keeps going back to."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ODD_TOO = np.uint64(0xC2B2AE3D27D4EB4F)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Well mixed 64 bits of each number (Steele, Lea, Flood 2014, splitmix64)."""
    mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class FeatureLoad:
    """Cards that make two transactions a day, at any time of the day, most at one of their 20 merchants.

    Hashes are as good as random, as those of ids are: what they take on disk is part of what is measured.

    Args:
        cards: how many.
        per_day: transactions of a card.
        seed: of everything.
        resolution_ms: of event times; card networks stamp whole seconds, the contract has milliseconds.
    """

    def __init__(self, cards: int, *, per_day: float = 2.0, seed: int = 1, resolution_ms: int = 1) -> None:
        self._resolution = resolution_ms
        self._cards = cards
        self._ms = DAY_MS / (per_day * cards)
        self._now = float(START_MS)
        self._rng = np.random.default_rng(seed)

    def next(self, events: int) -> NDArray[np.void]:
        """The next transactions in order of arrival, shape (events,)."""
        rng = self._rng
        records = np.zeros(events, dtype=TRANSACTION)
        card = rng.integers(0, self._cards, events)
        records["lo"] = (card + 1).astype(np.uint64) * _ODD
        records["hi"] = (card + 1).astype(np.uint64) * _ODD_TOO
        times = self._now + np.sort(rng.random(events)) * (events * self._ms)
        self._now += events * self._ms
        records["arrival"] = times.astype(np.int64)
        records["time"] = records["arrival"] // self._resolution * self._resolution
        # whole cents; most small, some large
        records["amount"] = np.rint(rng.lognormal(3.2, 1.0, events) * 100) * 100
        records["transaction"] = rng.integers(1, 1 << 63, events).astype(np.uint64)
        regular = (card * REGULAR + (rng.random(events) ** 2 * REGULAR).astype(np.int64)) * 7
        merchant = np.where(rng.random(events) < 0.8, regular, rng.integers(0, MERCHANTS, events)) % MERCHANTS
        records["merchant"] = _mixed((merchant + 1).astype(np.uint64) * _ODD)
        # at home nine times of ten
        home = card % 10
        records["country"] = np.where(rng.random(events) < 0.9, home, rng.integers(0, 30, events))
        return records

    def warm(self, state: GroupState, days: float, batch: int) -> None:
        """Let a state live through so many days."""
        left = int(self._cards * 2 * days)
        while left > 0:
            records = self.next(min(batch, left))
            state.apply(records, state.card_numbers(records))
            left -= records.size
