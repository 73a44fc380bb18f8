"""The changes of a key group's state on their way from its loop to Spark's state store.

The loop and Spark's task are two threads of one process. The loop stages changes as it goes, and a `Cut` at
the end of each epoch; the task takes what is staged, up to the next cut, and writes it into the state store.
What the loop stages after a cut belongs to the next epoch, and waits for the next task.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from feature_store.state.journal import PieceSink
from streaming_job.log.records import Offsets


@dataclass(frozen=True)
class Cut:
    """The border between two turns of the loop where an epoch's changes end; all before it is committed."""

    token: str
    """Token of the state at the border, which the changes before it store."""
    positions: Offsets
    """P."""
    summary: dict[str, int]
    """Counts of the epoch: commits, transactions, alerts, dead_letters."""
    is_last: bool = False
    """Whether the loop ends with it."""


@dataclass(frozen=True)
class Change:
    """A change of one piece."""

    name: str
    blob: bytes | None
    """None: the piece is removed."""

    def apply(self, store: PieceSink) -> None:
        """Write the change into a store."""
        if self.blob is None:
            store.remove(self.name)
        else:
            store.put(self.name, self.blob)


class Staging:
    """Staged changes, a `PieceSink`. The calls of the loop's thread stand first, then those of the task's."""

    def __init__(self, most_bytes: int, alone_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without changes.

        Args:
            most_bytes: bytes of the changes of an epoch after which it should end; twice as many untaken ones
                leave no room.
            alone_s: seconds without a task after which the loop should end.
            clock: seconds.
        """
        self._most_bytes, self._alone_s, self._clock = most_bytes, alone_s, clock
        self._changed = threading.Condition()
        self._staged: deque[Change | Cut] = deque()
        self._untaken_bytes = self._epoch_bytes = 0
        self._fault: BaseException | None = None
        self._wanted: bool | None = None
        self.is_done = False
        """Whether the loop has done all that its job is to do, and waits for the others."""
        self._seen = clock()
        """Time at which a task was last here."""

    def put(self, name: str, blob: bytes) -> None:
        """See `PieceSink.put`."""
        self._stage(Change(name, blob), len(blob))

    def remove(self, name: str) -> None:
        """See `PieceSink.remove`."""
        self._stage(Change(name, None), 0)

    def cut(self, cut: Cut) -> None:
        """End the epoch's changes; answers the request for a cut."""
        with self._changed:
            self._wanted, self._epoch_bytes = None, 0
        self._stage(cut, 0)

    def fail(self, fault: BaseException) -> None:
        """Have the task raise a fault after which the loop has ended."""
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    @property
    def wanted_cut(self) -> bool | None:
        """Whether the cut that the task waits for is the last one; None: it waits for none."""
        return self._wanted

    @property
    def is_full(self) -> bool:
        """Whether the loop has to wait, because too much is untaken."""
        return self._untaken_bytes > 2 * self._most_bytes

    @property
    def is_abandoned(self) -> bool:
        """Whether no task has come for so long that none will come any more."""
        return self._clock() - self._seen > self._alone_s

    def wait(self, seconds: float) -> None:
        """Wait until the task takes changes or wants a cut, or for `seconds`."""
        with self._changed:
            if self.is_full and self._wanted is None:
                self._changed.wait(seconds)

    def _stage(self, item: Change | Cut, size: int) -> None:
        with self._changed:
            self._staged.append(item)
            self._untaken_bytes += size
            self._epoch_bytes += size
            self._changed.notify_all()

    def want_cut(self, *, last: bool) -> None:
        """Ask the loop for a cut, and to end after it if it is the last one."""
        with self._changed:
            self._wanted = last
            self._changed.notify_all()

    @property
    def wants_end(self) -> bool:
        """Whether so much was staged since the last cut that the epoch should end."""
        return self._epoch_bytes > self._most_bytes

    def take(self, wait_s: float) -> tuple[list[Change], Cut | None]:
        """Return the changes staged since the last call, up to the next cut, and that cut if there is one.

        Args:
            wait_s: how long to wait while nothing is staged.

        Raises:
            BaseException: the fault of the loop, after all that it had staged has been taken.
        """
        with self._changed:
            self._seen = self._clock()
            if not self._staged and self._fault is None:
                self._changed.wait(wait_s)
            if self._fault is not None and not self._staged:
                raise self._fault
            changes: list[Change] = []
            cut = None
            while self._staged and cut is None:
                item = self._staged.popleft()
                if isinstance(item, Cut):
                    cut = item
                else:
                    changes.append(item)
                    self._untaken_bytes -= len(item.blob or b"")
            self._seen = self._clock()
            self._changed.notify_all()
            return changes, cut
