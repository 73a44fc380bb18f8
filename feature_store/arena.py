"""Where the arrays of a key group live: in memory, or in mapped files that any process can open."""

import hashlib
import mmap
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.hot import BUCKETS_PER_CARD
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
"""`frontiers`: greatest arrival by Kafka partition, see `eviction`; records of the others: see `layout`."""
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


def layout_digest() -> str:
    """Names the arrays' layout: files that another version of the program mapped are not ours to read."""
    fields = [(name, str(dtype.descr), FIRST_SIZES[name]) for name, dtype in DTYPES.items()]
    return hashlib.sha256(repr((FORMAT_VERSION, fields)).encode()).hexdigest()[:12]


class Arena(ABC):
    """The growing arrays of one key group, by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}

    @abstractmethod
    def resize(self, name: str, size: int) -> None:
        """Make array `name` hold `size` records; records kept, new ones zero."""

    def clear(self) -> None:
        """Start from empty arrays."""
        for name, size in FIRST_SIZES.items():
            self.resize(name, 0)
            self.resize(name, size)
        self.arrays["index"][:] = EMPTY
        self.arrays["counters"][FREE_CARD:] = EMPTY  # no list of free records has any

    @abstractmethod
    def grow(self, name: str, least: int) -> None:
        """Resize array `name` to hold at least so many records, and more lest it must grow again soon."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the arrays take."""


class MemoryArena(Arena):
    """Arrays in this process's memory, for training sets and tests."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def resize(self, name: str, size: int) -> None:
        """See `Arena.resize`."""
        grown = np.zeros(size, dtype=DTYPES[name])
        old = self.arrays.get(name, grown[:0])
        kept = min(old.size, size)
        grown[:kept] = old[:kept]
        self.arrays[name] = grown

    def grow(self, name: str, least: int) -> None:
        """See `Arena.grow`; by half, because growing copies."""
        size = self.arrays[name].size
        self.resize(name, max(least, size + size // 2))

    @property
    def nbytes(self) -> int:
        """See `Arena.nbytes`."""
        return sum(array.nbytes for array in self.arrays.values())


class FileArena(Arena):
    """Arrays in shared mapped files: a working copy that outlives the process that wrote it.

    Nothing is synced to disk: whoever keeps one has to know whether it is still good.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._mapped: dict[str, os.stat_result] = {}
        self.is_new = not all((directory / name).exists() for name in DTYPES)
        """Whether there was nothing, or not all, to open: the arrays started empty."""
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
        """See `Arena.resize`."""
        self.arrays.pop(name, None)
        with (self._directory / name).open("ab") as file:
            file.truncate(size * DTYPES[name].itemsize)
        self._map(name)

    def grow(self, name: str, least: int) -> None:
        """See `Arena.grow`; fourfold: what is not written yet is a hole in the file."""
        self.resize(name, max(least, 4 * self.arrays[name].size))

    @property
    def nbytes(self) -> int:
        """See `Arena.nbytes`; without the holes."""
        return sum((self._directory / name).stat().st_blocks * 512 for name in DTYPES)

    def is_current(self) -> bool:
        """Whether no other process has resized or replaced a file since it was mapped here."""
        try:
            found = [((self._directory / name).stat(), self._mapped[name]) for name in DTYPES]
        except OSError:
            return False
        return all(now.st_size == then.st_size and os.path.samestat(now, then) for now, then in found)
