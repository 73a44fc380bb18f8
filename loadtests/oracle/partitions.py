"""Partition of a card, as the partitioners of the producers define it.

murmur2: Java's client (Utils.murmur2 and toPositive of org.apache.kafka), librdkafka's murmur2_random.
crc32: librdkafka's default, consistent_random.
"""

import zlib
from functools import lru_cache

_M = 0x5BD1E995
_SEED = 0x9747B28C
_32 = 0xFFFFFFFF


@lru_cache(1 << 20)
def partition_of(card_id: str, partitions: int, partitioner: str) -> int:
    """Return the partition of the records whose key is the card's id.

    Args:
        partitioner: "murmur2" or "crc32".
    """
    return partition_of_key(card_id.encode(), partitions, partitioner)


def partition_of_key(key: bytes, partitions: int, partitioner: str) -> int:
    """Return the partition of the records with a key; see `partition_of`."""
    if partitioner == "murmur2":
        return (murmur2(key) & 0x7FFFFFFF) % partitions
    assert partitioner == "crc32"
    return zlib.crc32(key) % partitions


def murmur2(data: bytes) -> int:
    """Return Java's 32-bit murmur2 as an unsigned number."""
    h = _SEED ^ len(data)
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little")
        k = k * _M & _32
        k ^= k >> 24
        k = k * _M & _32
        h = h * _M & _32
        h ^= k
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = h * _M & _32
    h ^= h >> 13
    h = h * _M & _32
    h ^= h >> 15
    return h
