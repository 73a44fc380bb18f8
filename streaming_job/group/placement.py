"""The placement of key groups in Spark's state partitions: group g in partition g."""

from functools import lru_cache

_SEED = 42  # of Spark's hash partitioning
_MASK = 0xFFFFFFFF


def spark_hash(value: int) -> int:
    """Return Spark's hash of an int column (Murmur3_x86_32 with seed 42), as a signed 32-bit number."""
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
    """Return, for each key group g, a grouping value that Spark's hash puts in partition g.

    With values 0..G-1 some partitions would hold two groups and others none.
    """
    values: dict[int, int] = {}
    candidate = 0
    while len(values) < groups:
        values.setdefault(spark_hash(candidate) % groups, candidate)
        candidate += 1
    return tuple(values[group] for group in range(groups))
