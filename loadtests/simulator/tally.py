"""Counts of the sent transactions by scenario and disturbance."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from loadtests.simulator.batch import EventBatch
from loadtests.simulator.disturbances import NAMES
from loadtests.simulator.scenarios import SCENARIOS


class Tally:
    """Counter of the transactions in the batches that pass through it."""

    def __init__(self) -> None:
        self._whole = 0
        self._scenarios: Counter[str] = Counter()
        self._disturbances: Counter[str] = Counter()
        self._last: EventBatch | None = None

    def watch(self, batches: Iterable[EventBatch]) -> Iterator[EventBatch]:
        """Yield the same batches; each counts as sent when the next one is requested."""
        for batch in batches:
            self._last = batch
            yield batch
            self._add(batch)
            self._last = None

    def _add(self, batch: EventBatch) -> None:
        self._whole += len(batch)
        for counter, names, codes in (
            (self._scenarios, SCENARIOS, batch.scenario),
            (self._disturbances, NAMES, batch.disturbance),
        ):
            counts = np.bincount(codes, minlength=len(names))
            counter.update(
                {name: int(count) for name, count in zip(names.tolist(), counts, strict=True) if count}
            )

    def finish(self, sent: int) -> None:
        """Count the part of the last batch that was sent before a stop.

        Args:
            sent: number of all sent transactions.
        """
        if self._last is not None:
            self._add(self._last.take(slice(0, sent - self._whole)))
            self._last = None

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
