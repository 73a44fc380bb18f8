"""A lane's encoded transactions: simulated at the intended times of a rate profile, or read from a file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from loadtests.locust_run import identity
from loadtests.locust_run.plan import LoadTestPlan, Share
from loadtests.locust_run.rate_profile import RateProfile, profile
from loadtests.simulator import encode
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.replay import Replay
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World

SCHEMA = pa.schema([("due_us", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
"""Schema of encoded transactions: microseconds from the start to the intended time, card_id, JSON."""


def rates(plan: LoadTestPlan) -> RateProfile:
    """Return the rate profile of a simulated run."""
    return profile(plan.shape, plan.rate, plan.for_s, warm_up_s=plan.warm_up_s, factor=plan.factor)


def events_of(plan: LoadTestPlan, share: Share) -> int:
    """Return the number of a lane's transactions; a replayed run may end before all of them are due."""
    total = Replay(Path(plan.replay)).rows if plan.replay else rates(plan).events
    return max(0, -(-(total - share.lane) // share.lanes))


def encoded(plan: LoadTestPlan, share: Share, base_ms: int) -> Iterator[pa.Table]:
    """Yield a lane's transactions in order of intended times, in tables of a few thousand rows (`SCHEMA`).

    Args:
        base_ms: the time at which encoding begins, ms since 1970-01-01 UTC. The event time of a simulated
            transaction is `base_ms` plus its intended time; that of a replayed one is earlier by its delay in
            the file (arrival minus event time, divided by `plan.speed`). Sending starts some seconds after
            `base_ms`, which adds to the delay of every record.
    """
    return _replayed(plan, share, base_ms) if plan.replay else _simulated(plan, share, base_ms)


def _simulated(plan: LoadTestPlan, share: Share, base_ms: int) -> Iterator[pa.Table]:
    world, due_of, events = World.create(plan.seed, plan.cards), rates(plan), events_of(plan, share)
    # another start time gives another stream, so lanes do not send the same transactions
    stream = Stream(world, plan.rate / share.lanes, base_ms + share.lane, disturbances=Disturbances.none())
    done = 0
    for batch in stream.blocks(events=events):
        numbers = np.arange(done, done + len(batch), dtype=np.int64)
        done += len(batch)
        due_us = due_of.due_us(numbers * share.lanes + share.lane)
        at = base_ms + due_us // 1_000
        table = replace(batch, arrival=at, event_time=at).table
        yield _piece(table, share, numbers, due_us, trusted=True)


def _replayed(plan: LoadTestPlan, share: Share, base_ms: int) -> Iterator[pa.Table]:
    source = Replay(Path(plan.replay))
    total = done = 0
    for batch in source.batches():
        rows = np.arange((share.lane - total) % share.lanes, len(batch), share.lanes)
        total += len(batch)
        due_us = ((batch.arrival[rows] - source.first_ms) * 1_000 / plan.speed).astype(np.int64)
        within = due_us < (plan.warm_up_s + plan.for_s) * 1e6
        rows, due_us = rows[within], due_us[within]
        if not len(rows):
            if not within.all():
                return
            continue
        table = batch.table.take(pa.array(rows))
        elapsed = table.column("event_time").combine_chunks().to_numpy() - source.first_ms
        table = _with(table, "event_time", pa.array(base_ms + (elapsed / plan.speed).astype(np.int64)))
        numbers = np.arange(done, done + len(rows), dtype=np.int64)
        done += len(rows)
        yield _piece(table, share, numbers, due_us, trusted=False)


def _piece(
    table: pa.Table, share: Share, numbers: np.ndarray, due_us: np.ndarray, *, trusted: bool
) -> pa.Table:
    table = _with(table, "transaction_id", identity.encode(share, numbers, due_us))
    keys = table.column("card_id").combine_chunks().cast(pa.binary())
    values = pa.array(encode.encode(table, trusted=trusted), pa.binary())
    return pa.table([pa.array(due_us), keys, values], schema=SCHEMA)


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)
