"""Zip archives of arrays in a model's files, read without pickle and with a size limit."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from zipfile import ZipFile

import numpy as np

from models.errors import ModelError

MOST_BYTES = 256 << 20
"""Size limit of a model, packed and unpacked: each worker process copies the model and keeps it in memory."""


@contextmanager
def opened(file: Path | BinaryIO) -> Iterator[ZipFile]:
    """Open a zip archive for reading.

    Raises:
        ModelError: the archive unpacks to more than MOST_BYTES.
    """
    with ZipFile(file) as archive:
        require_size(sum(entry.file_size for entry in archive.infolist()), "unpack to")
        yield archive


def array(archive: ZipFile, name: str) -> np.ndarray:
    """Read a .npy file of an archive.

    Raises:
        ValueError: the file is not in .npy format, or holds objects.
    """
    return np.asarray(np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False))


def arrays(archive: ZipFile) -> dict[str, np.ndarray]:
    """Read all arrays of an archive that numpy.savez wrote, by name."""
    return {name.removesuffix(".npy"): array(archive, name) for name in archive.namelist()}


def check_size(directory: Path) -> None:
    """Raise ModelError if a directory's files have more than MOST_BYTES."""
    require_size(sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()), "have")


def require_size(size: int, verb: str) -> None:
    """Raise ModelError, with `verb` in its text, if `size` (bytes) is more than MOST_BYTES."""
    if size > MOST_BYTES:
        raise ModelError(
            f"the model's files {verb} {size / 2**20:,.1f} MiB, more than {MOST_BYTES >> 20}; "
            "train a smaller model"
        )
