"""Conversion of Arrow binary columns to the arrays that kernels take, and back."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_job.decode.grammar import Bytes


def buffers(column: pa.BinaryArray) -> tuple[Bytes, NDArray[np.int32]]:
    """Return the bytes of all rows, and the offsets of the rows in them.

    Args:
        column: n rows (32-bit offsets); the bytes between the offsets of a null row are undefined.

    Returns:
        data, and offsets of shape (n + 1,): row i is data[offsets[i]:offsets[i + 1]].
    """
    if not len(column):
        return _constant(b"", np.uint8), _constant(bytes(4), np.int32)
    _, offset_buffer, data_buffer = column.buffers()
    offsets = _constant(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    return _constant(data_buffer or b"", np.uint8), offsets


def _constant(buffer: object, dtype: type[np.generic]) -> NDArray[Any]:
    """Return a buffer as a read-only array: kernels would be compiled again for writable arrays."""
    array: NDArray[Any] = np.frombuffer(buffer, dtype=dtype)  # type: ignore[call-overload]
    array.setflags(write=False)
    return array


def present(column: pa.BinaryArray) -> NDArray[np.bool_]:
    """Return which rows are not null, shape (n,)."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)  # far quicker for a few rows
    valid: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def column(data: Bytes, offsets: NDArray[np.int32]) -> pa.BinaryArray:
    """Return a column without nulls that shares the arrays' memory; inverse of `buffers`."""
    return pa.Array.from_buffers(
        pa.binary(), offsets.size - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
