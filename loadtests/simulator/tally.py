"""Counts of the sent transactions by scenario and disturbance."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator

import numpy as np

from loadtests.rig.send import AHEAD
from loadtests.simulator.batch import EventBatch
from loadtests.simulator.disturbances import NAMES
from loadtests.simulator.scenarios import SCENARIOS

NEWEST = AHEAD + 2
"""Batches that may be under way: those made ahead, the one being sent, and the one requested."""


class Tally:
    """Counter of the transactions in the batches that pass through it."""

    def __init__(self) -> None:
        self._scenarios: Counter[str] = Counter()
        self._disturbances: Counter[str] = Counter()
        self._newest: deque[EventBatch] = deque()
        """The batches that may not have been sent; those before them have been."""
        self._added = 0

    def watch(self, batches: Iterable[EventBatch]) -> Iterator[EventBatch]:
        """Yield the same batches; a batch counts as sent when the NEWEST-th one after it is requested."""
        for batch in batches:
            self._newest.append(batch)
            yield batch
            if len(self._newest) > NEWEST:
                self._add(self._newest.popleft())

    def _add(self, batch: EventBatch) -> None:
        self._added += len(batch)
        for counter, names, codes in (
            (self._scenarios, SCENARIOS, batch.scenario),
            (self._disturbances, NAMES, batch.disturbance),
        ):
            counts = np.bincount(codes, minlength=len(names))
            counter.update(
                {name: int(count) for name, count in zip(names.tolist(), counts, strict=True) if count}
            )

    def finish(self, sent: int) -> None:
        """Count the newest batches as far as they were sent before a stop.

        Args:
            sent: number of all sent transactions.
        """
        while self._newest:
            self._add(self._newest.popleft().take(slice(0, max(0, sent - self._added))))

    def lines(self) -> list[str]:
        """Return a text line on fraud and one on disturbances."""
        frauds = {name: count for name, count in self._scenarios.items() if name}
        faults = {name: count for name, count in self._disturbances.items() if name}
        return [f"fraud {_listed(frauds)}", f"disturbed {_listed(faults)}"]


def _listed(counts: dict[str, int]) -> str:
    parts = ", ".join(
        f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1])
    )
    return f"{sum(counts.values()):,}" + (f": {parts}" if parts else "")
