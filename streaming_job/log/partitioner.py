"""The producers' partitioner, computed by the job: the partition of a card, and its key group.

Key group g follows the partitions p of `transactions` with p mod G == g. So the job computes the
partition of each card in a table, to keep only the cards of the group, and the partition in which each
transaction should be, to refuse transactions in a wrong one.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.jit import njit
from feature_store.layout import PLACE

U32 = np.uint32
MASK = np.uint64(0xFFFFFFFF)
MURMUR2_SEED = np.uint64(0x9747B28C)
MURMUR2_M = np.uint64(0x5BD1E995)


class Partitioner(StrEnum):
    """The partitioner with which producers choose the partition of a key."""

    MURMUR2 = "murmur2"
    """Java's default; librdkafka's murmur2 and murmur2_random."""
    CRC32 = "crc32"
    """librdkafka's default consistent_random, and consistent."""


def _crc32_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ U32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_CRC32 = _crc32_table()


@njit(cache=True, inline="always")
def _times_m(x: np.uint64) -> np.uint64:
    """Return the 32-bit product, computed in 64 bits: numba widens 32-bit integers."""
    return (x * MURMUR2_M) & MASK


@njit(cache=True)
def murmur2(data: NDArray[np.uint8], start: int, end: int) -> np.int64:
    """Return Kafka's murmur2 of data[start:end] without its sign (Java's `toPositive`)."""
    h = MURMUR2_SEED ^ np.uint64(end - start)
    at = start
    while end - at >= 4:
        k = np.uint64(data[at]) | np.uint64(data[at + 1]) << np.uint64(8)
        k |= np.uint64(data[at + 2]) << np.uint64(16) | np.uint64(data[at + 3]) << np.uint64(24)
        k = _times_m(k)
        k = _times_m(k ^ (k >> np.uint64(24)))
        h = _times_m(h) ^ k
        at += 4
    rest = end - at
    if rest > 2:
        h ^= np.uint64(data[at + 2]) << np.uint64(16)
    if rest > 1:
        h ^= np.uint64(data[at + 1]) << np.uint64(8)
    if rest > 0:
        h = _times_m(h ^ np.uint64(data[at]))
    h = _times_m(h ^ (h >> np.uint64(13)))
    h ^= h >> np.uint64(15)
    return np.int64(h & np.uint64(0x7FFFFFFF))


@njit(cache=True)
def crc32(data: NDArray[np.uint8], start: int, end: int) -> np.int64:
    """Return the CRC-32 of data[start:end], as zlib computes it."""
    crc = np.uint64(0xFFFFFFFF)
    for i in range(start, end):
        crc = np.uint64(_CRC32[(crc ^ np.uint64(data[i])) & np.uint64(0xFF)]) ^ (crc >> np.uint64(8))
    return np.int64(crc ^ MASK)


@njit(cache=True, nogil=True)
def _partitions(data, ends, is_murmur2, partitions, chosen):  # type: ignore[no-untyped-def]
    for row in range(chosen.size):
        if is_murmur2:
            key_hash = murmur2(data, ends[row], ends[row + 1])
        else:
            key_hash = crc32(data, ends[row], ends[row + 1])
        chosen[row] = key_hash % partitions


@njit(cache=True, nogil=True)
def _places(data, ends, is_murmur2, partitions, places):  # type: ignore[no-untyped-def]
    for row in range(places.size):
        place = places[row]
        by_murmur2 = murmur2(data, ends[row], ends[row + 1])
        by_crc32 = crc32(data, ends[row], ends[row + 1])
        place.home = (by_murmur2 if is_murmur2 else by_crc32) % partitions
        place.murmur2 = by_murmur2
        place.crc32 = by_crc32


@dataclass(frozen=True)
class Layout:
    """Where the transactions of all cards are: it may change only by a takeover of a drained job."""

    topic: str
    partitioner: Partitioner
    partitions: int

    def key_groups(self, groups: int) -> "KeyGroups":
        """Return the mapping of cards to some number of key groups."""
        return KeyGroups(self.partitioner, self.partitions, groups)

    def to_json(self) -> dict[str, Any]:
        """Return the field `layout` of progress records."""
        return asdict(self)

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Layout":
        """Parse what `to_json` returned.

        Raises:
            KeyError, ValueError: it is none.
        """
        return Layout(str(fields["topic"]), Partitioner(fields["partitioner"]), int(fields["partitions"]))

    def __str__(self) -> str:
        return f"{self.topic} ({self.partitions} partitions by {self.partitioner})"


@dataclass(frozen=True)
class KeyGroups:
    """The mapping of cards to partitions of `transactions` and to key groups.

    >>> cards = KeyGroups(Partitioner.MURMUR2, partitions=12, groups=2)
    >>> cards.partition_of("card-1"), cards.group_of("card-1"), cards.own(1)
    (11, 1, [1, 3, 5, 7, 9, 11])
    """

    partitioner: Partitioner
    partitions: int
    """Number of partitions of `transactions`."""
    groups: int
    """Number of key groups, at most the number of partitions."""

    def partitions_of(self, keys: pa.BinaryArray) -> NDArray[np.int32]:
        """Return the partition of each key.

        Args:
            keys: n card ids, in UTF-8 (a StringArray is accepted). A null counts as an empty key; producers
                may choose any partition for either.

        Returns:
            Shape (n,).
        """
        chosen = np.empty(len(keys), dtype=np.int32)
        _partitions(*_content(keys), self.partitioner == Partitioner.MURMUR2, self.partitions, chosen)
        return chosen

    def places_of(self, keys: pa.BinaryArray) -> NDArray[np.void]:
        """Return the place of each key (PLACE), shape (n,); see `partitions_of`."""
        places = np.empty(len(keys), dtype=PLACE)
        _places(*_content(keys), self.partitioner == Partitioner.MURMUR2, self.partitions, places)
        return places

    def homes_of(self, places: NDArray[np.void]) -> NDArray[np.int32]:
        """Return the partition of each card, by the hashes in a record of PLACE or CARD, shape (n,)."""
        return (places[self.partitioner.value] % np.uint32(self.partitions)).astype(np.int32)

    def partition_of(self, card_id: str) -> int:
        """Return the partition of a card."""
        data = np.frombuffer(card_id.encode(), dtype=np.uint8)
        key_hash = murmur2 if self.partitioner == Partitioner.MURMUR2 else crc32
        return int(key_hash(data, 0, data.size)) % self.partitions

    def group_of(self, card_id: str) -> int:
        """Return the key group of a card."""
        return self.partition_of(card_id) % self.groups

    def own(self, group: int) -> list[int]:
        """Return the partitions of `transactions` that a key group follows, ascending."""
        return list(range(group, self.partitions, self.groups))


def _content(keys: pa.BinaryArray) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the bytes of keys, and where each begins and ends in them, shape (n + 1,)."""
    _, ends, data = keys.buffers()
    if ends is None:  # an empty Arrow array may have no buffers
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int32)
    offsets = np.frombuffer(ends, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return np.frombuffer(data if data is not None else b"", dtype=np.uint8), offsets
