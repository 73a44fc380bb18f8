"""Files of a model from the registry, read within limits: archives of arrays, never pickles."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from zipfile import ZipFile

import numpy as np

from models.errors import ModelError

MOST_BYTES = 256 << 20
"""Of a model, as its files and as they unpack: each worker process copies and holds it before it decides."""


@contextmanager
def opened(file: Path | BinaryIO) -> Iterator[ZipFile]:
    """A zip archive to read from.

    Raises:
        ModelError: it unpacks to more than MOST_BYTES.
    """
    with ZipFile(file) as archive:
        _at_most(sum(entry.file_size for entry in archive.infolist()), "unpack to")
        yield archive


def array(archive: ZipFile, name: str) -> np.ndarray:
    """A .npy file of an archive.

    Raises:
        ValueError: it is none, or holds objects.
    """
    return np.asarray(np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False))


def arrays(archive: ZipFile) -> dict[str, np.ndarray]:
    """All arrays of an archive that numpy.savez wrote, by name."""
    return {name.removesuffix(".npy"): array(archive, name) for name in archive.namelist()}


def check_size(directory: Path) -> None:
    """Raise ModelError if a directory's files have more than MOST_BYTES."""
    _at_most(sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()), "have")


def _at_most(size: int, what: str) -> None:
    if size > MOST_BYTES:
        raise ModelError(
            f"the model's files {what} {size / 2**20:,.1f} MiB, more than {MOST_BYTES >> 20}; "
            "train a smaller one"
        )
