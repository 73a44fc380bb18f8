"""The envelope of every persisted piece of state: magic, format version, checksum, compressed columns."""

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.columns import compress, decompress, pack, unpack
from feature_store.errors import FraudError
from feature_store.layout import FORMAT_VERSION, OLDEST_FORMAT

_MAGIC = b"CFKG"
# magic, format version, checksum of all the other bytes, directory bytes, raw bytes of the directory
_HEADER = struct.Struct("<4sBxxxIII")
_CHECKSUM = slice(8, 12)


class StateDamagedError(FraudError):
    """A persisted piece of state cannot be trusted."""


def encode(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as one blob; `decode` gives them back.

    Args:
        arrays: one-dimensional arrays by name; of structured ones each field becomes a column "name.field".
    """
    directory: dict[str, object] = {}
    parts: list[bytes] = []
    for name, array in arrays.items():
        for column, values in _columns(name, array):
            directory[column], planes = pack(values)
            parts += planes
    told = orjson.dumps(directory)
    short = compress(told)
    header = bytearray(_HEADER.pack(_MAGIC, FORMAT_VERSION, 0, len(short), len(told)))
    body = b"".join([short, *parts])
    header[_CHECKSUM] = zlib.crc32(body, zlib.crc32(header)).to_bytes(4, "little")
    return bytes(header) + body


def _columns(name: str, array: NDArray[Any]) -> list[tuple[str, NDArray[Any]]]:
    if array.dtype.names is None:
        return [(name, array)]
    return [(f"{name}.{field}", array[field].reshape(-1)) for field in array.dtype.names]


def records(arrays: Mapping[str, NDArray[Any]], name: str, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """A structured array out of the columns that `decode` gave; fields that were not written are zero."""
    assert dtype.names is not None
    found = [field for field in dtype.names if f"{name}.{field}" in arrays]
    each = [int(np.prod(dtype[field].shape)) for field in found]
    out = np.zeros(arrays[f"{name}.{found[0]}"].size // each[0], dtype=dtype)
    for field in found:
        out[field] = arrays[f"{name}.{field}"].reshape(out[field].shape)
    return out


def decode(blob: bytes, what: str) -> dict[str, NDArray[Any]]:
    """Inverse of `encode`, but that structured arrays come back as their columns (see `records`).

    Args:
        blob: what `encode` made.
        what: name of the piece, for the error.

    Raises:
        StateDamagedError: the blob is cut short, altered, or of a format that this program does not know.
    """
    if len(blob) < _HEADER.size:
        raise StateDamagedError(
            f"state piece {what} is cut short ({len(blob)} bytes); restore the checkpoint"
        )
    magic, version, checksum, directory_bytes, raw_bytes = _HEADER.unpack_from(blob)
    if magic != _MAGIC:
        raise StateDamagedError(
            f"state piece {what} is not a piece of this job's state; check the checkpoint"
        )
    if version > FORMAT_VERSION:
        raise StateDamagedError(
            f"state piece {what} has format {version}, this program knows up to {FORMAT_VERSION}; "
            "run the newer program"
        )
    if version < OLDEST_FORMAT:
        raise StateDamagedError(
            f"state piece {what} has format {version}, which no release has written; restore the checkpoint"
        )
    rest = memoryview(blob)[_HEADER.size :]
    header = bytearray(blob[: _HEADER.size])
    header[_CHECKSUM] = bytes(4)
    if zlib.crc32(rest, zlib.crc32(header)) != checksum:
        raise StateDamagedError(
            f"state piece {what} fails its checksum; restore the checkpoint or replay the log"
        )
    return _read_columns(rest[:directory_bytes], rest[directory_bytes:], raw_bytes)


def _read_columns(short: memoryview, body: memoryview, told_bytes: int) -> dict[str, NDArray[Any]]:
    directory = orjson.loads(decompress(short, told_bytes))
    arrays: dict[str, NDArray[Any]] = {}
    at = 0
    for name, description in directory.items():
        end = at + sum(description[-1])
        arrays[name] = unpack(description, body[at:end])
        at = end
    return arrays
