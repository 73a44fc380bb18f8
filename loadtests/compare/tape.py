"""The input of a comparison: generated once, with the same bytes and times for every engine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.timeline import Records
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World

DISTURBANCES = Disturbances(late=0, out_of_order=0.01, future=0, malformed=0, duplicated=0.005)
"""Disturbances that every engine handles; none makes dead letters, which only this project writes."""


@dataclass(frozen=True)
class LoadProfile:
    """Sizes and rates of the input."""

    prime: int
    """Transactions sent before the measurements to fill the state and to warm up compilers."""
    backlog: int
    """Transactions of the backlog, sent at once."""
    rate: float
    """Transactions per second after the backlog."""
    warm_up_s: float
    """Time at that rate before the measurement, seconds."""
    for_s: float
    """Time at that rate after the warm-up, in which latency is measured, seconds."""
    kill_s: float
    """Time at that rate after the measurement, in whose middle the engine is killed, seconds."""

    @property
    def live_s(self) -> float:
        """Time at `rate`, warm-up included, up to the end of the measurement, seconds."""
        return self.warm_up_s + self.for_s


@dataclass(frozen=True)
class Tape:
    """Transactions in order of arrival; sequences of equal length."""

    arrivals: npt.NDArray[np.int64]
    """Kafka timestamps, ms since 1970-01-01 UTC; the same for every engine, whenever the input is sent."""
    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    live_from: int
    """Index of the first transaction that is sent at its own time; those before it are sent at once."""
    kill_from: int
    """Index of the first transaction after the measurement."""

    def __len__(self) -> int:
        return len(self.keys)

    def records(self, topic: str, start: int, end: int) -> Records:
        """Return the transactions from `start` to before `end` as records of a topic."""
        return Records(topic, self.arrivals, self.keys, self.values).cut(start, end)

    @property
    def live_start_ms(self) -> int:
        """Arrival of the first transaction that is sent at its time."""
        return int(self.arrivals[self.live_from])


def record(world: World, load: LoadProfile, start_ms: int) -> Tape:
    """Simulate the input.

    There are `load.rate` transactions per second of event time throughout, so that cards behave in the
    backlog as they do after it.

    Args:
        start_ms: arrival of the first transaction, ms since 1970-01-01 UTC.
    """
    at_once = load.prime + load.backlog
    kill_from = at_once + round(load.rate * load.live_s)
    events = kill_from + round(load.rate * load.kill_s)
    arrivals: list[npt.NDArray[np.int64]] = []
    keys: list[bytes] = []
    values: list[bytes | None] = []
    for batch in Stream(world, load.rate, start_ms, disturbances=DISTURBANCES).blocks(events=events):
        more_keys, more_values = batch.encode()
        arrivals.append(batch.arrival)
        keys += more_keys
        values += more_values
    return Tape(np.concatenate(arrivals), keys, values, at_once, kill_from)
