"""The envelope of every persisted piece of state: magic, format version, checksum, compressed arrays."""

import struct
import zlib
from collections.abc import Mapping

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.errors import FraudError
from feature_store.layout import FORMAT_VERSION

_MAGIC = b"CFKG"
# magic, format version, checksum of all the other bytes, directory bytes, raw bytes
_HEADER = struct.Struct("<4sBxxxIII")
_CHECKSUM = slice(8, 12)
# level 1: a third of the size of the raw arrays at a cost that a batch does not notice
_CODEC = pa.Codec("zstd", compression_level=1)


_REMEDY = "restore the checkpoint, or replay the log into an empty one"


class StateDamagedError(FraudError):
    """A persisted piece of state cannot be trusted."""


def encode(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """Arrays as one blob; `decode` gives them back.

    Args:
        arrays: one-dimensional arrays of plain dtypes, by name; structured ones are viewed as bytes.
    """
    parts = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    directory = orjson.dumps({name: [_dtype(part), part.nbytes] for name, part in parts.items()})
    body = b"".join(part.tobytes() for part in parts.values())
    packed = _CODEC.compress(body, asbytes=True) if body else b""
    header = bytearray(_HEADER.pack(_MAGIC, FORMAT_VERSION, 0, len(directory), len(body)))
    checksum = zlib.crc32(packed, zlib.crc32(directory, zlib.crc32(header)))
    header[_CHECKSUM] = checksum.to_bytes(4, "little")
    return bytes(header) + directory + packed


def _dtype(array: NDArray[np.generic]) -> str:
    return f"V{array.dtype.itemsize}" if array.dtype.fields else array.dtype.str


def decode(blob: bytes, what: str) -> dict[str, NDArray[np.generic]]:
    """Inverse of `encode`; structured arrays come back as void records, to be viewed as their dtype.

    Args:
        blob: what `encode` made.
        what: name of the piece, for the error.

    Raises:
        StateDamagedError: the blob is cut short, altered, or of a format that is newer than this program.
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
    rest = memoryview(blob)[_HEADER.size :]
    header = bytearray(blob[: _HEADER.size])
    header[_CHECKSUM] = bytes(4)
    if zlib.crc32(rest, zlib.crc32(header)) != checksum:
        raise StateDamagedError(
            f"state piece {what} fails its checksum; restore the checkpoint or replay the log"
        )
    directory = orjson.loads(rest[:directory_bytes])
    packed = rest[directory_bytes:]
    body = _CODEC.decompress(packed, decompressed_size=raw_bytes, asbytes=True) if raw_bytes else b""
    arrays: dict[str, NDArray[np.generic]] = {}
    at = 0
    for name, (dtype, size) in directory.items():
        arrays[name] = np.frombuffer(
            body, dtype=np.dtype(dtype), count=size // np.dtype(dtype).itemsize, offset=at
        )
        at += size
    return arrays
