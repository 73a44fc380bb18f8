"""From which transaction on each rollout event held: a fact of each partition, kept in the state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from streaming_job.decide.rollout_history import Step

KEPT = 32
"""The newest events that are told of."""


@dataclass
class AppliedEvents:
    """The newest rollout events of a key group, and where they began to hold."""

    held_from: dict[int, dict[int, int]] = field(default_factory=dict)
    """Offset of an event -> partition of the transactions -> first of its offsets for which it held."""
    _steps: Sequence[Step] = ()
    _encoded: orjson.Fragment | None = None

    def follow(self, steps: Sequence[Step]) -> None:
        """Take in all events folded so far."""
        self._steps = steps[-KEPT:]
        known = {step.offset for step in self._steps}
        self.held_from = {offset: self.held_from.get(offset, {}) for offset in sorted(known)}
        self._encoded = None

    def see(self, batch: NDArray[np.void]) -> bool:
        """Take in transactions; returns whether an event has begun to hold.

        Args:
            batch: records of TRANSACTION, each partition in its order, shape (n,).
        """
        partitions: Any = None
        moved = False
        for step in self._steps:
            held = self.held_from[step.offset]
            if partitions is None:
                partitions = np.unique(batch["partition"]).tolist()
            for partition in partitions:
                if partition in held:
                    continue
                rows = np.flatnonzero((batch["partition"] == partition) & (batch["arrival"] >= step.since))
                if rows.size:
                    held[partition] = int(batch["offset"][rows[0]])
                    self._encoded, moved = None, True
        return moved

    def to_json(self) -> orjson.Fragment:
        """The contract's `applied`, oldest first."""
        if self._encoded is None:
            told = [
                {
                    "rollout_id": step.event.rollout_id,
                    "seq": step.event.seq,
                    "type": step.event.type.value,
                    "offset": step.offset,
                    "held_from": {
                        str(place): at for place, at in sorted(self.held_from[step.offset].items())
                    },
                }
                for step in self._steps
            ]
            self._encoded = orjson.Fragment(orjson.dumps(told))
        return self._encoded

    def encode(self) -> bytes:
        """What the state keeps."""
        kept = {
            str(offset): {str(place): at for place, at in held.items()}
            for offset, held in self.held_from.items()
        }
        return orjson.dumps(kept)

    @staticmethod
    def decode(blob: bytes) -> "AppliedEvents":
        """Inverse of `encode`; `follow` gives the events back."""
        kept: Mapping[str, Mapping[str, int]] = orjson.loads(blob)
        return AppliedEvents(
            {int(offset): {int(place): at for place, at in held.items()} for offset, held in kept.items()}
        )
