"""Hashes of identifiers, computed over whole Arrow string columns.

MurmurHash3 x64 128 (Austin Appleby, public domain reference): needs only 64-bit multiplications, is well
distributed, and gives the same values on every machine. State on disk depends on these values.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.jit import njit

U64 = np.uint64


@njit(cache=True, inline="always")
def _rotate(x: np.uint64, bits: int) -> np.uint64:
    return (x << U64(bits)) | (x >> U64(64 - bits))


@njit(cache=True, inline="always")
def _mix(x: np.uint64) -> np.uint64:
    x ^= x >> U64(33)
    x *= U64(0xFF51AFD7ED558CCD)
    x ^= x >> U64(33)
    x *= U64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> U64(33))


@njit(cache=True)
def _word(data: NDArray[np.uint8], start: int, length: int) -> np.uint64:
    word = U64(0)
    for i in range(length):
        word |= U64(data[start + i]) << U64(8 * i)
    return word


@njit(cache=True)
def hash_bytes(data: NDArray[np.uint8], start: int, end: int) -> tuple[np.uint64, np.uint64]:
    """Compute the low and high 64 bits of the hash of data[start:end]."""
    c1 = U64(0x87C37B91114253D5)
    c2 = U64(0x4CF5AD432745937F)
    h1 = U64(0)
    h2 = U64(0)
    at = start
    while end - at >= 16:
        h1 ^= _rotate(_word(data, at, 8) * c1, 31) * c2
        h1 = (_rotate(h1, 27) + h2) * U64(5) + U64(0x52DCE729)
        h2 ^= _rotate(_word(data, at + 8, 8) * c2, 33) * c1
        h2 = (_rotate(h2, 31) + h1) * U64(5) + U64(0x38495AB5)
        at += 16
    rest = end - at
    if rest > 8:
        h2 ^= _rotate(_word(data, at + 8, rest - 8) * c2, 33) * c1
    if rest > 0:
        h1 ^= _rotate(_word(data, at, min(rest, 8)) * c1, 31) * c2
    length = U64(end - start)
    h1 ^= length
    h2 ^= length
    h1 += h2
    h2 += h1
    h1 = _mix(h1)
    h2 = _mix(h2)
    h1 += h2
    h2 += h1
    return h1, h2


@njit(cache=True, nogil=True)
def _hash_strings(
    data: NDArray[np.uint8], offsets: NDArray[np.int32], lo: NDArray[np.uint64], hi: NDArray[np.uint64]
) -> None:
    for row in range(lo.size):
        lo[row], hi[row] = hash_bytes(data, offsets[row], offsets[row + 1])


def hash_strings(column: pa.StringArray) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Compute the low and high 64 bits of the hash of each string's UTF-8 bytes.

    Args:
        column: strings without nulls (32-bit offsets), n rows.

    Returns:
        Two uint64 arrays of shape (n,).
    """
    lo = np.empty(len(column), dtype=np.uint64)
    hi = np.empty(len(column), dtype=np.uint64)
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32) if offset_buffer else np.zeros(1, dtype=np.int32)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, dtype=np.uint8)
    _hash_strings(data, offsets[column.offset : column.offset + len(column) + 1], lo, hi)
    return lo, hi


def hash_string(text: str) -> tuple[int, int]:
    """Compute the low and high 64 bits of the hash of one string."""
    lo, hi = hash_strings(pa.array([text], type=pa.string()))
    return int(lo[0]), int(hi[0])
