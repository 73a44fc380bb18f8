"""Alerts on the frauds at compromised merchants, before and after the merchants' first labels take effect."""

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feature_store.catalogue import HOUR_MS
from feature_store.merchants.catalogue import NEVER, takes_effect
from feature_store.utc import moment_of
from loadtests.simulator.scenarios import COMPROMISED, SCENARIOS
from loadtests.simulator.timeline import Records
from streaming_job.contracts.topics import Topics

SETTLED_MS = 6 * HOUR_MS
"""Delay in log time before a line with counts is printed: parallel key groups may lag behind each other."""


@dataclass
class Shares:
    """Frauds before and after a merchant's labels take effect, and how many of them were alerted."""

    before: int = 0
    alerted_before: int = 0
    after: int = 0
    alerted_after: int = 0

    def add(self, *, after: bool, alerted: bool) -> None:
        """Count a fraud."""
        if after:
            self.after += 1
            self.alerted_after += alerted
        else:
            self.before += 1
            self.alerted_before += alerted

    def __str__(self) -> str:
        return (
            f"{_share(self.alerted_before, self.before)} before labels, "
            f"{_share(self.alerted_after, self.after)} after"
        )


class MerchantWatch:
    """Observer of the fed labels and of the alerts, which follows one merchant in detail.

    Args:
        archive: file of `compromise.write`; its column `scenario` identifies the frauds.
    """

    def __init__(self, archive: Path, print_line: Callable[[str], None]) -> None:
        names = ["transaction_id", "merchant_id", "arrival_time", "scenario"]
        table = pq.read_table(archive, columns=names)
        table = table.filter(pc.equal(table["scenario"], str(SCENARIOS[COMPROMISED])))
        # records that repeat a transaction have the same id: the first arrival counts
        self._arrivals: dict[str, int] = {}
        self._merchants: dict[str, str] = {}
        for row in table.to_pylist():
            self._arrivals.setdefault(row["transaction_id"], row["arrival_time"])
            self._merchants[row["transaction_id"]] = row["merchant_id"]
        self._print_line = print_line
        self._alerted: set[str] = set()
        self._effect: dict[str, int] = {}
        """Merchant -> arrival from which its first fraud label is in effect, ms."""
        self.followed = Counter(self._merchants.values()).most_common(1)[0][0]
        """The merchant with the most frauds."""
        mine = [self._arrivals[name] for name, of in self._merchants.items() if of == self.followed]
        self._counts, self._ends = [0], [0]
        """For each fed batch: number of transactions fed up to its end, and its last arrival, ms."""
        self._now = 0
        self._lock = threading.Lock()
        self._events: list[tuple[int, Callable[[], str]]] = [
            (
                min(mine),
                lambda: f"{self.followed} is compromised: {len(mine)} frauds with usual amounts begin",
            ),
            (
                max(mine) + SETTLED_MS,
                lambda: f"frauds at {self.followed} are over; alerted: {self.shares(self.followed)}",
            ),
        ]

    def feed(self, records: Iterable[Records], topics: Topics) -> Iterator[Records]:
        """Yield the records unchanged, and observe them."""
        for piece in records:
            if piece.topic == topics.transactions and len(piece):
                with self._lock:
                    self._counts.append(self._counts[-1] + len(piece))
                    self._ends.append(int(piece.at[-1]))
            elif piece.topic == topics.chargebacks:
                for at, value in zip(piece.at.tolist(), piece.values, strict=True):
                    self._see_label(at, orjson.loads(value or b"{}"))
            yield piece

    def advance(self, decided: int) -> None:
        """Print the events up to the log time that the job has reached.

        Args:
            decided: number of transactions that the job has decided.
        """
        with self._lock:
            self._now = self._ends[bisect_right(self._counts, decided) - 1]
            due = [event for event in self._events if event[0] <= self._now]
            self._events = [event for event in self._events if event[0] > self._now]
        for at, text in sorted(due, key=lambda event: event[0]):
            self._print_line(f"  merchants: {_clock(at)} {text()}")

    def see_alert(self, alert: Mapping[str, Any]) -> None:
        """Observe an alert."""
        if alert["transaction_id"] in self._arrivals:
            self._alerted.add(alert["transaction_id"])

    def shares(self, merchant: str | None = None) -> Shares:
        """Count the frauds that have been decided so far, at one merchant or, by default, at all of them."""
        found = Shares()
        for name, arrival in self._arrivals.items():
            at = self._merchants[name]
            if arrival <= self._now and merchant in (None, at):
                found.add(after=arrival >= self._effect.get(at, NEVER), alerted=name in self._alerted)
        return found

    def report(self) -> dict[str, Any]:
        """Return the counts for the demo's report."""
        return {
            "all": vars(self.shares()),
            "followed": {
                "merchant_id": self.followed,
                "label_in_effect_at": self._effect.get(self.followed),
                **vars(self.shares(self.followed)),
            },
        }

    def _see_label(self, at: int, label: Mapping[str, Any]) -> None:
        merchant = self._merchants.get(label["transaction_id"])
        if merchant is None or label["label"] != "fraud" or merchant in self._effect:
            return
        effect = int(takes_effect(np.array([at]))[0])
        self._effect[merchant] = effect
        if merchant != self.followed:
            return
        with self._lock:
            first = f"first label of a fraud at {merchant}, in effect from {_clock(effect)} on"
            self._events.append((at, lambda: first))
            alerted = f"frauds at {merchant}, alerted"
            self._events.append((effect + SETTLED_MS, lambda: f"{alerted}: {self.shares(merchant)}"))


def _clock(at: int) -> str:
    return f"{moment_of(at):%Y-%m-%d %H:%M}"


def _share(alerted: int, frauds: int) -> str:
    return f"{alerted} of {frauds}" + (f" ({alerted / frauds:.0%})" if frauds else "")
