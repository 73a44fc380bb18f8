"""Storage of a key group's arrays: in memory, or in mapped files that any process can open."""

import hashlib
import mmap
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import FraudError
from feature_store.kernels.hot import BUCKETS_PER_CARD
from feature_store.layout import (
    ALERT_HOURS,
    BUCKET,
    CARD,
    COUNTERS,
    EMPTY,
    EVENT,
    FORMAT_VERSION,
    FREE_CARD,
    HOT,
    HOT_IDS,
    PROFILE,
)

DTYPES: dict[str, np.dtype[Any]] = {
    "counters": np.dtype(np.int64),
    "index": np.dtype(np.int32),
    "cards": CARD,
    "events": EVENT,
    "profiles": PROFILE,
    "alert_hours": ALERT_HOURS,
    "hots": HOT,
    "buckets": BUCKET,
    "latest": EVENT,
    "frontiers": np.dtype(np.int64),
}
"""dtype of each array. `index`: see `kernels.cards`; `frontiers`: greatest arrival by Kafka partition, see
`kernels.eviction`; for the others, see `layout`."""
FIRST_SIZES = {
    "counters": COUNTERS,
    "index": 2048,
    "cards": 1024,
    "events": 8192,
    "profiles": 1024,
    "alert_hours": 64,
    "hots": 1,
    "buckets": BUCKETS_PER_CARD,
    "latest": HOT_IDS,
    "frontiers": 64,
}


class ArenaReplacedError(FraudError):
    """A file of a key group's working copy was deleted or replaced while the group used it.

    Keep cleaners of temporary files away from the work directory. The job opens the group again, and makes a
    new copy from the state store.
    """


def layout_digest() -> str:
    """Compute a digest of the arrays' layout; files written with another layout have another digest."""
    fields = [(name, str(dtype.descr), FIRST_SIZES[name]) for name, dtype in DTYPES.items()]
    return hashlib.sha256(repr((FORMAT_VERSION, fields)).encode()).hexdigest()[:12]


class Arena(ABC):
    """The growing arrays of one key group, by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}

    @abstractmethod
    def resize(self, name: str, size: int) -> None:
        """Resize array `name` to `size` records: keep those that fit, drop the others, fill up with zeros."""

    def clear(self) -> None:
        """Reset all arrays to empty ones."""
        for name, size in FIRST_SIZES.items():
            self.resize(name, 0)
            self.resize(name, size)
        self.arrays["index"][:] = EMPTY
        self.arrays["counters"][FREE_CARD:] = EMPTY  # all free lists are empty

    @abstractmethod
    def grow(self, name: str, least: int) -> None:
        """Resize array `name` to at least `least` records, with spare room for further growth."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""


class MemoryArena(Arena):
    """Arrays in this process's memory: for training sets, views of one card, warm-up and tests."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def resize(self, name: str, size: int) -> None:
        """See `Arena.resize`."""
        grown = np.zeros(size, dtype=DTYPES[name])
        old = self.arrays.get(name, grown[:0])
        copied = min(old.size, size)
        grown[:copied] = old[:copied]
        self.arrays[name] = grown

    def grow(self, name: str, least: int) -> None:
        """See `Arena.grow`; grows by half, because growing copies."""
        size = self.arrays[name].size
        self.resize(name, max(least, size + size // 2))

    @property
    def nbytes(self) -> int:
        """See `Arena.nbytes`."""
        return sum(array.nbytes for array in self.arrays.values())


class FileArena(Arena):
    """Arrays in shared mapped files: a working copy that outlives the process that wrote it.

    Nothing is synced to disk: the caller must know whether the files are still valid. A deleted
    file keeps its contents while it is mapped; it cannot be resized.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._mapped: dict[str, os.stat_result] = {}
        self.is_new = not all((directory / name).exists() for name in DTYPES)
        """Whether a file was missing, so that the arrays started empty."""
        if not self.is_new:
            for name in DTYPES:
                self._map(name)
        else:
            self.clear()

    def _map(self, name: str) -> None:
        descriptor = os.open(self._directory / name, os.O_RDWR)
        try:
            self._mapped[name] = os.fstat(descriptor)
            size = self._mapped[name].st_size
            mapped = mmap.mmap(descriptor, size) if size else b""
        finally:
            os.close(descriptor)
        self.arrays[name] = np.frombuffer(mapped, dtype=DTYPES[name])

    def resize(self, name: str, size: int) -> None:
        """See `Arena.resize`.

        Raises:
            ArenaReplacedError: the file was deleted or replaced since it was mapped here; a new one would
                lack the records.
        """
        try:
            file = (self._directory / name).open("ab")
        except FileNotFoundError as fault:
            raise self._replaced(fault.filename) from fault
        with file:
            # looked at while the old file is still mapped: then a new one cannot have its inode
            if name in self._mapped and not os.path.samestat(os.fstat(file.fileno()), self._mapped[name]):
                raise self._replaced(file.name)
            self.arrays.pop(name, None)
            file.truncate(size * DTYPES[name].itemsize)
        self._map(name)

    def _replaced(self, file: str) -> ArenaReplacedError:
        return ArenaReplacedError(
            f"{file} was deleted or replaced while it was in use; the working copy is rebuilt from the "
            "state store"
        )

    def grow(self, name: str, least: int) -> None:
        """See `Arena.grow`; grows fourfold: records not yet written to take no disk space."""
        self.resize(name, max(least, 4 * self.arrays[name].size))

    @property
    def nbytes(self) -> int:
        """See `Arena.nbytes`; records that were never written to do not count.

        Raises:
            ArenaReplacedError: a file was deleted.
        """
        try:
            return sum((self._directory / name).stat().st_blocks * 512 for name in DTYPES)
        except FileNotFoundError as fault:
            raise self._replaced(fault.filename) from fault

    def is_current(self) -> bool:
        """Return whether no other process has resized or replaced a file since it was mapped here."""
        try:
            stats = [((self._directory / name).stat(), self._mapped[name]) for name in DTYPES]
        except OSError:
            return False
        return all(now.st_size == then.st_size and os.path.samestat(now, then) for now, then in stats)
