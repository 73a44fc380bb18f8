"""What travels from the source stage to the keyed stage: a few packets per task instead of rows.

A packet lives only inside one micro-batch, between processes of one job, so it is pickled.
"""

import pickle
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.layout import PROFILE, TRANSACTION
from streaming_job.contracts import Reason

_SEED = 42  # of Spark's hash partitioning
_MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be decided."""

    topic: str
    partition: int
    offset: int
    arrival: int
    """Kafka timestamp, ms."""
    key: bytes | None
    value: bytes | None
    reason: Reason
    detail: str
    is_whole: bool = True
    """Whether key and value are here; if not they are None, and to be had from the log (`originals`)."""


@dataclass(frozen=True)
class RolloutRecord:
    """A record of the rollout topic."""

    arrival: int
    offset: int
    value: bytes | None
    key: bytes | None = None


@dataclass
class Packet:
    """Decoded records of one key group that were read together, in order."""

    transactions: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, dtype=TRANSACTION))
    quotes: pa.BinaryArray = field(default_factory=lambda: pa.array([], type=pa.binary()))
    """What an alert quotes of each transaction (`transactions.quote`), row by row."""
    changes: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, dtype=PROFILE))
    rollouts: list[RolloutRecord] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    snapshot_end: int | None = None
    """Arrival of the profile record that ends Debezium's snapshot, ms, if it is among the records."""

    def pack(self) -> bytes:
        """The packet as bytes."""
        return pickle.dumps(self, protocol=5)

    @staticmethod
    def unpack(blob: bytes) -> "Packet":
        """Inverse of `pack`."""
        packet = pickle.loads(blob)
        assert isinstance(packet, Packet)
        return packet


def group_of(hi: NDArray[np.uint64], groups: int) -> NDArray[np.int64]:
    """Key group of each card, by the high half of its hash, shape (n,)."""
    return (hi % np.uint64(groups)).astype(np.int64)


def _spark_hash(value: int) -> int:
    """Spark's hash of an int column (Murmur3_x86_32 with seed 42), as a signed 32-bit number."""
    k = value * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    h = _SEED ^ (k * 0x1B873593 & _MASK)
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


@lru_cache(maxsize=8)
def grouping_values(groups: int) -> tuple[int, ...]:
    """For each key group the grouping value that Spark's hash puts in the partition of the same number.

    With values 0..G-1 some partitions would hold two groups and others none.
    """
    values: dict[int, int] = {}
    candidate = 0
    while len(values) < groups:
        values.setdefault(_spark_hash(candidate) % groups, candidate)
        candidate += 1
    return tuple(values[group] for group in range(groups))
