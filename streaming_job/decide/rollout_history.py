"""Which rollout decides a transaction: the newest that had arrived when the transaction did."""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import FraudError
from models.rollouts import Rollout
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.record import DeadLetter


class NoRolloutError(FraudError):
    """There is no champion to decide."""


@dataclass(frozen=True)
class RolloutRecord:
    """A record of the rollout topic."""

    arrival: int
    """Kafka timestamp, ms."""
    offset: int
    value: bytes | None
    key: bytes | None = None


@lru_cache(maxsize=1024)
def _accepted(text: str) -> Rollout:
    """A rollout of the history, which every opening of a key group restores; checked once."""
    return Rollout.from_json(text.encode())


@dataclass
class RolloutHistory:
    """All rollouts so far, in offset order."""

    records: list[tuple[int, int, str]] = field(default_factory=list)
    """(arrival ms, offset, JSON text) of each."""
    _parsed: list[Rollout] = field(default_factory=list)

    def fold(self, records: list[RolloutRecord], topics: Topics) -> list[DeadLetter]:
        """Add records in offset order; returns those that are no rollouts."""
        refused = []
        for record in sorted(records, key=lambda record: record.offset):
            value = record.value or b""
            try:
                text = value.decode("utf-8")
                rollout = Rollout.from_json(value)
                float(rollout.policy.max_count_5m)  # decisions compare doubles
                self._parsed.append(rollout)
                self.records.append((record.arrival, record.offset, text))
            except (FraudError, ValueError, RecursionError, OverflowError) as fault:
                reason = Reason.INVALID_VALUE if value else Reason.EMPTY_VALUE
                refused.append(
                    DeadLetter(
                        topics.model_rollouts, 0, record.offset, record.arrival, record.key, record.value,
                        reason, str(fault),
                    )
                )  # fmt: skip
        return refused

    @staticmethod
    def restore(records: list[list[object]]) -> "RolloutHistory":
        """From `records` as JSON gives them back."""
        history = RolloutHistory()
        for arrival, offset, text in records:
            history.records.append((int(str(arrival)), int(str(offset)), str(text)))
            history._parsed.append(_accepted(str(text)))
        return history

    def in_force(self, arrivals: NDArray[np.int64]) -> tuple[list[Rollout], NDArray[np.int64]]:
        """The rollouts, and for each arrival the number of the one that decides, shape (n,).

        A transaction that arrived before the first rollout is decided by the first.

        Raises:
            NoRolloutError: there is none.
        """
        if not self._parsed:
            raise NoRolloutError(
                "no model has been rolled out; run `fraud models promote`, then start the job"
            )
        # a rollout hides the ones before it even if broker clocks make it look older than they are
        starts = np.maximum.accumulate(np.array([arrival for arrival, _, _ in self.records], dtype=np.int64))
        return self._parsed, np.maximum(np.searchsorted(starts, arrivals, side="right") - 1, 0)
