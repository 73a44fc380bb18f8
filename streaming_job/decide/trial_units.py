"""The units that compare champion and challenger: which models alerted on a card, or a card-hour, so far.

Transactions are not independent samples: a burst on one card is one event for both models. So guards count
card-hours and cards. Whether a unit counts as `both` or for one model only is known only after its last
transaction. Until then the unit is state: its flags are in the checkpoint, and deciding again from P to Q
changes them in the same way.

Each partition has its own units: partitions are read at different speeds, so the units must depend on the
order within one partition only. Memory is bounded by the number of alerts: a card is kept if a model alerted
on it since the trial began; a card-hour, if its clock hour is the newest in which the partition has an alert
of any model, or the hour before.
The units of a partition are dropped at its first transaction of another trial, or of none.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.catalogue import HOUR_MS
from feature_store.state.codec import decode, encode
from streaming_job.progress.trials import PAIRED

HOURS_KEPT = 2
"""Number of clock hours of a partition, up to the newest with an alert, whose alerts still count for
card-hours, because arrivals of different cards may be out of order. An alert of an older hour counts for its
card, but for no card-hour."""
CHAMPION = 1
"""Flag of a unit: the champion alerted. The flag of challenger i is CHAMPION << (i + 1)."""
_BOTH, _ONLY_CHAMPION, _ONLY_CHALLENGER = PAIRED
_KINDS = (None, _ONLY_CHAMPION, _ONLY_CHALLENGER, _BOTH)

Card = tuple[int, int]
"""(lo, hi): the two halves of the card's hash."""
Change = tuple[Counter[str], Counter[str]]
"""Changes of one challenger's counts: of card-hours and of cards, each by kind (PAIRED)."""


@dataclass
class PartitionUnits:
    """The units of one partition's running trial."""

    rollout_id: str
    newest: int = 0
    """Clock hour of the newest arrival on which a model alerted."""
    hours: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(lo, hi, clock hour) -> flags."""
    cards: dict[Card, int] = field(default_factory=dict)
    """(lo, hi) -> flags."""

    def add(self, card: Card, arrival: int, flags: int, changes: Sequence[Change]) -> None:
        """Add a transaction on which at least one model alerted.

        Args:
            card: (lo, hi).
            arrival: ms.
            changes: changes of each challenger's counts; updated in place.
        """
        hour = arrival // HOUR_MS
        if hour > self.newest:
            self.newest = hour
            oldest = hour - HOURS_KEPT
            self.hours = {unit: flag for unit, flag in self.hours.items() if unit[2] > oldest}
        before = self.cards.get(card, 0)
        self.cards[card] = before | flags
        _count(before, before | flags, changes, 1)
        if hour > self.newest - HOURS_KEPT:
            unit = (*card, hour)
            before = self.hours.get(unit, 0)
            self.hours[unit] = before | flags
            _count(before, before | flags, changes, 0)


def _count(before: int, after: int, changes: Sequence[Change], which: int) -> None:
    if before == after:
        return
    for number, change in enumerate(changes):
        was, now = (_KINDS[flags & 1 | (flags >> number + 1 & 1) << 1] for flags in (before, after))
        if was != now:
            if was is not None:
                change[which][was] -= 1
            if now is not None:
                change[which][now] += 1


class TrialUnits:
    """The units of all partitions of a key group."""

    def __init__(self) -> None:
        self._partitions: dict[int, PartitionUnits] = {}

    def __bool__(self) -> bool:
        """Whether a partition has a running trial."""
        return bool(self._partitions)

    def of(self, partition: int, rollout_id: str | None) -> PartitionUnits | None:
        """Return the units of a partition's trial; drop those of any other trial.

        Args:
            partition: partition of the transactions.
            rollout_id: rollout that is on trial for the partition's next transactions; None if there is none:
                then `of` returns None.
        """
        current = self._partitions.get(partition)
        if current is not None and current.rollout_id == rollout_id:
            return current
        self._partitions.pop(partition, None)
        if rollout_id is None:
            return None
        units = self._partitions[partition] = PartitionUnits(rollout_id)
        return units

    def take(self, others: "TrialUnits", partitions: Collection[int]) -> None:
        """Add the units of some partitions of another key group."""
        for number in others._partitions.keys() & set(partitions):
            self._partitions[number] = others._partitions[number]

    def encode(self) -> bytes:
        """Encode as bytes."""
        partitions = sorted(self._partitions.items())
        head = [
            [number, units.rollout_id, units.newest, len(units.cards), len(units.hours)]
            for number, units in partitions
        ]
        cards = [(*card, flags) for _, units in partitions for card, flags in units.cards.items()]
        hours = [(*unit, flags) for _, units in partitions for unit, flags in units.hours.items()]
        return encode(
            {
                "head": np.frombuffer(orjson.dumps(head), dtype=np.uint8),
                **_columns("cards", cards, 3),
                **_columns("hours", hours, 4),
            }
        )

    @staticmethod
    def decode(blob: bytes) -> "TrialUnits":
        """Inverse of `encode`."""
        raw = decode(blob, "trial units")
        all_cards, all_hours = _rows(raw, "cards", 3), _rows(raw, "hours", 4)
        trial_units = TrialUnits()
        for number, rollout_id, newest, n_cards, n_hours in orjson.loads(raw["head"].tobytes()):
            units = PartitionUnits(rollout_id, newest)
            for _ in range(n_cards):
                lo, hi, flags = next(all_cards)
                units.cards[lo, hi] = flags
            for _ in range(n_hours):
                lo, hi, hour, flags = next(all_hours)
                units.hours[lo, hi, hour] = flags
            trial_units._partitions[number] = units
        return trial_units


def _columns(name: str, rows: Sequence[tuple[int, ...]], width: int) -> dict[str, NDArray[np.uint64]]:
    table = np.array(rows, dtype=np.uint64).reshape(len(rows), width)
    return {f"{name}.{column}": np.ascontiguousarray(table[:, column]) for column in range(width)}


def _rows(raw: dict[str, NDArray[Any]], name: str, width: int) -> Iterator[tuple[int, ...]]:
    columns = [raw[f"{name}.{column}"].astype(np.uint64).tolist() for column in range(width)]
    return zip(*columns, strict=True)
