"""Compression of number columns: subtract the minimum, divide by the greatest common divisor, compress bytes.

So amounts in 1/10,000 that are all whole cents, or times in ms that are all whole seconds, take only the
bytes that their numbers of cents or seconds need. Floats are treated as the integers of the same bits. The
bytes of a column are compressed one plane at a time (all lowest bytes, then all second lowest ...): a plane
is either noise or nearly constant, so one table of byte frequencies fits all of it.
"""

from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

# level 1: only byte frequencies are left to exploit, and higher levels encode them no better; the contexts
# are reused, because creating one takes four times as long as compressing a plane of 1 KiB
_COMPRESSOR, _DECOMPRESSOR = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
_SAMPLE = 64


def compress(raw: bytes | memoryview) -> bytes:
    """Compress bytes into a zstd frame."""
    return _COMPRESSOR.compress(raw)


def decompress(frame: memoryview, size: int) -> bytes:
    """Decompress a frame of `compress` into `size` bytes."""
    return _DECOMPRESSOR.decompress(frame, max_output_size=size)


Description = list[object]
"""[dtype, number of values, minimum, divisor, [compressed size of each plane, bytes]], as JSON."""


def pack(values: NDArray[Any]) -> tuple[Description, list[bytes]]:
    """Pack a column into planes of compressed bytes, the lowest first.

    Args:
        values: one-dimensional, of a plain dtype of at most 8 bytes.
    """
    words = _words(values)
    least, unit, planes = 0, 1, []
    if words.size:
        # unsigned differences are correct for signed numbers, too, whatever their range
        signed = values.dtype.kind == "i"
        least = int((words.view(np.int64) if signed else words).min())
        words = words - np.uint64(least % (1 << 64))
        unit = _unit(words)
        if unit > 1:
            words = words // np.uint64(unit)
        width = (int(words.max()).bit_length() + 7) // 8
        by_plane = words.view(np.uint8).reshape(-1, 8)[:, :width].T.copy()
        planes = [compress(plane.data) for plane in by_plane]
    return [values.dtype.str, values.size, least, unit, [len(plane) for plane in planes]], planes


def _words(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Convert values to 64-bit patterns: integers by value, floats by their bits."""
    if values.dtype.kind == "f":
        values = values.view(f"u{values.dtype.itemsize}")
    if values.dtype.kind == "i":
        return values.astype(np.int64).view(np.uint64)
    return values.astype(np.uint64)


def _unit(words: NDArray[np.uint64]) -> int:
    """Compute the greatest common divisor (1 if all are 0); for most columns a sample shows that it is 1."""
    unit = int(np.gcd.reduce(words[:_SAMPLE]))
    if unit == 1:
        return 1
    if unit and np.array_equal(words // np.uint64(unit) * np.uint64(unit), words):
        return unit
    return max(int(np.gcd.reduce(words)), 1)


def unpack(description: Description, packed: memoryview) -> NDArray[Any]:
    """Unpack a column; inverse of `pack`."""
    name, size, least, unit, planes = description
    assert isinstance(size, int)
    assert isinstance(least, int)
    assert isinstance(unit, int)
    assert isinstance(planes, list)
    words = np.zeros(size, dtype=np.uint64)
    by_byte = words.view(np.uint8).reshape(-1, 8)
    at = 0
    for byte_number, length in enumerate(planes):
        plane = decompress(packed[at : at + length], size)
        by_byte[:, byte_number] = np.frombuffer(plane, dtype=np.uint8)
        at += length
    if unit > 1:
        words *= np.uint64(unit)
    words += np.uint64(least % (1 << 64))
    dtype = np.dtype(str(name))
    if dtype.kind == "f":
        return words.astype(f"u{dtype.itemsize}").view(dtype)
    return words.astype(dtype)
