"""Identifiers as Arrow strings, vectorised."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_HEX = np.array([f"{i:02x}".encode() for i in range(256)], dtype="S2").view(np.uint8).reshape(256, 2)


def _strings(matrix: npt.NDArray[np.uint8]) -> pa.StringArray:
    """Convert rows of equal width, uint8[n, width], to an Arrow string array."""
    n, width = matrix.shape
    offsets = np.arange(0, (n + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix)))


def numbered(prefix: str, numbers: npt.NDArray[np.int64], width: int) -> pa.StringArray:
    """Return `prefix` followed by each number, zero-padded to `width` digits."""
    start = len(prefix)
    matrix = np.empty((len(numbers), start + width), dtype=np.uint8)
    matrix[:, :start] = np.frombuffer(prefix.encode(), np.uint8)
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    matrix[:, start:] = numbers[:, None] // powers % 10 + ord("0")
    return _strings(matrix)


def hexadecimal(numbers: npt.NDArray[np.uint64]) -> pa.StringArray:
    """Return each number as 16 lower-case hex digits."""
    digits = _HEX[numbers.astype(">u8").view(np.uint8)]
    return _strings(digits.reshape(len(numbers), 16))
