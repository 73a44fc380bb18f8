"""Envelope of every persisted piece of state: magic, format version, checksum, compressed columns."""

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.errors import FraudError
from feature_store.layout import FORMAT_VERSION
from feature_store.state.columns import compress, decompress, pack, unpack

_MAGIC = b"CFKG"
# magic; format version; checksum of all the other bytes; compressed size of the directory (the descriptions
# of the columns), bytes; its decompressed size, bytes
_HEADER = struct.Struct("<4sBxxxIII")
_CHECKSUM = slice(8, 12)


class StateDamagedError(FraudError):
    """A piece of the state is truncated, altered or missing, or in another format than the release's.

    If the message names a format, run the release that wrote it. Otherwise restore the whole checkpoint, or
    let an empty one take over ([operations](operations.md#changing-a-running-job)).
    """


def encode(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Encode arrays as one blob, which `decode` reads.

    Args:
        arrays: one-dimensional arrays by name; each field of a structured array becomes a column
            "name.field".
    """
    directory: dict[str, object] = {}
    parts: list[bytes] = []
    for name, array in arrays.items():
        for column, values in _columns(name, array):
            directory[column], planes = pack(values)
            parts += planes
    raw_directory = orjson.dumps(directory)
    packed_directory = compress(raw_directory)
    header = bytearray(_HEADER.pack(_MAGIC, FORMAT_VERSION, 0, len(packed_directory), len(raw_directory)))
    body = b"".join([packed_directory, *parts])
    header[_CHECKSUM] = zlib.crc32(body, zlib.crc32(header)).to_bytes(4, "little")
    return bytes(header) + body


def _columns(name: str, array: NDArray[Any]) -> list[tuple[str, NDArray[Any]]]:
    if array.dtype.names is None:
        return [(name, array)]
    return [(f"{name}.{field}", array[field].reshape(-1)) for field in array.dtype.names]


def records(arrays: Mapping[str, NDArray[Any]], name: str, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Build a structured array from the columns of `decode`; fields that were not written are zero."""
    assert dtype.names is not None
    fields = [field for field in dtype.names if f"{name}.{field}" in arrays]
    items = [int(np.prod(dtype[field].shape)) for field in fields]
    out = np.zeros(arrays[f"{name}.{fields[0]}"].size // items[0], dtype=dtype)
    for field in fields:
        out[field] = arrays[f"{name}.{field}"].reshape(out[field].shape)
    return out


def decode(blob: bytes, piece_name: str) -> dict[str, NDArray[Any]]:
    """Decode a blob into arrays; structured arrays are returned as their columns (see `records`).

    Raises:
        StateDamagedError: the blob is truncated, altered, or of a format that this program does not know.
    """
    if len(blob) < _HEADER.size:
        raise StateDamagedError(
            f"state piece {piece_name} is cut short ({len(blob)} bytes); restore the checkpoint"
        )
    magic, version, checksum, directory_bytes, raw_bytes = _HEADER.unpack_from(blob)
    if magic != _MAGIC:
        raise StateDamagedError(
            f"state piece {piece_name} is not a piece of this job's state; check the checkpoint"
        )
    if version != FORMAT_VERSION:
        raise StateDamagedError(
            f"state piece {piece_name} has format {version}, this release reads only {FORMAT_VERSION}; "
            "run the release that wrote it"
        )
    rest = memoryview(blob)[_HEADER.size :]
    header = bytearray(blob[: _HEADER.size])
    header[_CHECKSUM] = bytes(4)
    if zlib.crc32(rest, zlib.crc32(header)) != checksum:
        raise StateDamagedError(
            f"state piece {piece_name} fails its checksum; restore the checkpoint or replay the log"
        )
    return _read_columns(rest[:directory_bytes], rest[directory_bytes:], raw_bytes)


def _read_columns(packed_directory: memoryview, body: memoryview, raw_bytes: int) -> dict[str, NDArray[Any]]:
    directory = orjson.loads(decompress(packed_directory, raw_bytes))
    arrays: dict[str, NDArray[Any]] = {}
    at = 0
    for name, description in directory.items():
        end = at + sum(description[-1])
        arrays[name] = unpack(description, body[at:end])
        at = end
    return arrays
