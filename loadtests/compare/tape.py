"""The input of a comparison: made once, and the same bytes and times for every engine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World

MESS = Disturbances(late=0, out_of_order=0.01, future=0, malformed=0, duplicated=0.005)
"""What every engine has to cope with; what becomes a dead letter is left out: only ours writes those."""


@dataclass(frozen=True)
class Load:
    """How much of what."""

    prime: int
    """Transactions before anything is measured: they fill state and wake compilers."""
    backlog: int
    """Transactions that are there at once."""
    rate: float
    """Transactions a second, afterwards."""
    warm_up_s: float
    """At that rate, before what is measured."""
    for_s: float

    @property
    def live_s(self) -> float:
        """Seconds at the rate."""
        return self.warm_up_s + self.for_s


@dataclass(frozen=True)
class Tape:
    """Transactions in order of arrival; sequences of equal length."""

    arrivals: npt.NDArray[np.int64]
    """Kafka timestamps, ms since 1970-01-01 UTC: part of the input, whenever it is sent."""
    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    live_from: int
    """The first transaction that is sent at its time."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def live_start_ms(self) -> int:
        """Arrival of the first transaction that is sent at its time."""
        return int(self.arrivals[self.live_from])


def record(world: World, load: Load, start_ms: int) -> Tape:
    """Simulate the input.

    Event time runs at the same rate throughout, so that cards look in the backlog as they look live.

    Args:
        world: whose cards.
        load: how much.
        start_ms: arrival of the first transaction, ms since 1970-01-01 UTC.
    """
    at_once = load.prime + load.backlog
    events = at_once + round(load.rate * load.live_s)
    arrivals: list[npt.NDArray[np.int64]] = []
    keys: list[bytes] = []
    values: list[bytes | None] = []
    for batch in Stream(world, load.rate, start_ms, disturbances=MESS).blocks(events=events):
        more_keys, more_values = batch.encode()
        arrivals.append(batch.arrival)
        keys += more_keys
        values += more_values
    return Tape(np.concatenate(arrivals), keys, values, at_once)
