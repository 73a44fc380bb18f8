"""Tape of pre-encoded transactions: files that a separate process writes and the sender maps into memory.

Encoding in the sending process would hold the GIL for milliseconds and delay the sender. The writer pauses
while `AHEAD_BYTES` are unsent; the sender deletes segments that it has sent.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deploy.local.child import Child
from deploy.local.launch import tail
from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.plan import LoadTestPlan, Share

AHEAD_BYTES = 512 << 20
SEGMENT_ROWS = 32_768
END = "end"
"""Name of the file that marks the end of the tape; it contains the number of transactions."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Encoded transactions in order of intended times, memory-mapped."""

    topic: str
    at: npt.NDArray[np.float64]
    """Intended times, ms from the start, to the microsecond."""
    keys: pa.BinaryArray
    values: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.at)

    def columns(self, start: int, end: int) -> tuple[list[bytes | None], list[bytes]]:
        """Return the values and the keys of the transactions from `start` to before `end`."""
        values, keys = (column.slice(start, end - start) for column in (self.values, self.keys))
        return values.to_pylist(), keys.to_pylist()

    @classmethod
    def of(cls, topic: str, table: pa.Table) -> "Segment":
        """Create a segment from the rows of a table (`transactions.SCHEMA`)."""
        due, keys, values = (table.column(name).combine_chunks() for name in table.column_names)
        return cls(topic, due.to_numpy() / 1_000, keys, values)


class Tape:
    """The directory of segments of one lane, a worker's share of a run, and the process that fills it."""

    def __init__(self, directory: Path, topic: str) -> None:
        self.directory, self.topic = directory, topic
        self._writer: Child | None = None
        self._log = directory.with_suffix(".log")

    def start(self, plan: LoadTestPlan, share: Share, base_ms: int) -> None:
        """Empty the directory and start the writer."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        task = {"plan": plan.to_json(), "share": asdict(share), "base_ms": base_ms}
        command = [sys.executable, "-m", "loadtests.locust_run.tape_writer", str(self.directory)]
        self._writer = Child("the tape's writer", [*command, json.dumps(task)], self._log, own_session=False)

    def is_ready(self) -> bool:
        """Return whether the tape is complete, or written as far ahead as allowed."""
        if (self.directory / END).exists():
            return True
        self._check()
        return size(self.directory) >= AHEAD_BYTES

    def events(self) -> int | None:
        """Return the number of transactions on the whole tape; None while it is being written."""
        try:
            return int((self.directory / END).read_text())
        except FileNotFoundError:
            return None

    def segments(self, wait: Callable[[], bool]) -> Iterator[Segment]:
        """Yield the segments; each is deleted when the next is requested.

        Args:
            wait: called while the next segment does not exist yet; if it returns False, the iteration ends.

        Raises:
            LoadTestError: the writer ended early.
        """
        number = 0
        while True:
            path = self.directory / name(number)
            while not path.exists():
                if (self.directory / END).exists() and not path.exists():
                    return
                self._check()
                if not wait():
                    return
            with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
                yield Segment.of(self.topic, reader.read_all())
            path.unlink(missing_ok=True)
            number += 1

    def _check(self) -> None:
        if self._writer is not None and self._writer.ended_with:
            raise LoadTestError(f"transactions were not encoded; {self._log} ends with:\n{tail(self._log)}")

    def stop(self) -> None:
        """Stop the writer and delete the remaining segments."""
        if self._writer is not None:
            self._writer.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def name(number: int) -> str:
    """Return the file name of a segment."""
    return f"segment-{number:06d}.arrow"


def size(directory: Path) -> int:
    """Return the total size of the existing segments, bytes."""
    total = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                total += entry.stat().st_size if entry.name.endswith(".arrow") else 0
            except FileNotFoundError:  # sent and deleted meanwhile
                continue
    return total
