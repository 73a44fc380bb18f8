"""Offsets of the first transactions to which each rollout event applied, by partition; part of the state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
from numpy.typing import NDArray

from streaming_job.decide.distinct import distinct
from streaming_job.decide.plans_in_force import AcceptedEvent

MAX_EVENTS = 32
"""Number of the newest events that are reported."""


@dataclass
class AppliedEvents:
    """The newest rollout events of a key group, with the offsets from which they apply."""

    held_from: dict[int, dict[int, int]] = field(default_factory=dict)
    """Offset of an event -> partition of the transactions -> first offset to which the event applies."""
    _events: Sequence[AcceptedEvent] = ()
    _encoded: orjson.Fragment | None = None

    def follow(self, events: Sequence[AcceptedEvent]) -> None:
        """Replace the events by the newest MAX_EVENTS of those folded so far."""
        self._events = events[-MAX_EVENTS:]
        offsets = sorted({accepted.offset for accepted in self._events})
        # a state that was put together from several may know more events than its history has folded
        known = max(offsets, default=-1)
        offsets += sorted(offset for offset in self.held_from if offset > known)
        self.held_from = {offset: self.held_from.get(offset, {}) for offset in offsets}
        self._encoded = None

    def observe(self, batch: NDArray[np.void]) -> bool:
        """Record, for each event and partition, the first transaction to which the event applies.

        Args:
            batch: records of TRANSACTION, each partition in log order, shape (n,).

        Returns:
            Whether an event applies to a partition for the first time.
        """
        if not batch.size or not self._events:
            return False
        partitions, changed = distinct(batch["partition"]), False
        for accepted in self._events:
            held = self.held_from[accepted.offset]
            for partition in partitions:
                if partition in held:
                    continue
                rows = np.flatnonzero(
                    (batch["partition"] == partition) & (batch["arrival"] >= accepted.since)
                )
                if rows.size:
                    held[partition] = int(batch["offset"][rows[0]])
                    self._encoded, changed = None, True
        return changed

    def to_json(self) -> orjson.Fragment:
        """Return the field `applied` of the progress record, oldest event first."""
        if self._encoded is None:
            events = [
                {
                    "rollout_id": accepted.event.rollout_id,
                    "seq": accepted.event.seq,
                    "type": accepted.event.type.value,
                    "offset": accepted.offset,
                    "held_from": {
                        str(partition): first
                        for partition, first in sorted(self.held_from[accepted.offset].items())
                    },
                }
                for accepted in self._events
            ]
            self._encoded = orjson.Fragment(orjson.dumps(events))
        return self._encoded

    def encode(self) -> bytes:
        """Return `held_from` as bytes for the state."""
        by_offset = {
            str(offset): {str(partition): first for partition, first in held.items()}
            for offset, held in self.held_from.items()
        }
        return orjson.dumps(by_offset)

    @staticmethod
    def decode(blob: bytes) -> "AppliedEvents":
        """Decode what `encode` returned; call `follow` to set the events again."""
        by_offset: Mapping[str, Mapping[str, int]] = orjson.loads(blob)
        return AppliedEvents(
            {
                int(offset): {int(partition): first for partition, first in held.items()}
                for offset, held in by_offset.items()
            }
        )
