"""Traffic of `fraud demo --merchant-labels`: weeks of a small world in which merchants are compromised.

A label takes effect an hour or two after it arrives, so this demo cannot run in real time. It replays an
archive of transactions, with the archive's arrival times, at SPEED: a day of log time lasts four seconds.
Labels of the transactions are simulated during the replay.
"""

from collections.abc import Iterable
from pathlib import Path

import orjson
import pyarrow as pa

from feature_store.catalogue import DAY_MS
from loadtests.simulator import parquet
from loadtests.simulator.chargebacks import Chargebacks
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.scenarios import FraudMix
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World

FILE = "compromised-merchants.parquet"
"""Name of the archive in the demo's directory."""
CARDS = 2_000
SPEED = 6 * 3_600.0
"""Seconds of the log per second."""
START_MS, DAYS = 20_089 * DAY_MS, 30
"""The archive begins on 2025-01-01."""
TRAINING_DAYS = 90
"""Length of the history that trains the model, days; it ends where the archive begins."""
LABEL_DELAY_MS = 3 * DAY_MS
"""Training and job count a transaction as genuine once it has had no label for this long; labels arrive one
to three days after their transactions."""
ALERT_BUDGET = 0.02
MIX = FraudMix(
    share=0.02,
    stolen_card=0.15,
    compromised_merchant=0.7,
    unusual_amount=0.1,
    impossible_travel=0.05,
    siege_days=12.0,
)
"""Kinds of fraud: mostly at compromised merchants, each of which is used for up to twelve days."""


def write(path: Path, seed: int, cards: int, rate: float) -> None:
    """Write the archive.

    Args:
        rate: transactions per second of the replay.
    """
    stream = _stream(seed, cards, rate, START_MS, Disturbances())
    parquet.write(stream.blocks(until_ms=START_MS + DAYS * DAY_MS), path)


def chargebacks(seed: int) -> Chargebacks:
    """Create the source of labels for transactions of the archive, or of the history before it."""
    return Chargebacks(seed, delay_ms=2 * DAY_MS, spread=0.5, fraud_share=0.95)


def history(seed: int, cards: int, rate: float) -> tuple[pa.Table, pa.Table]:
    """Simulate the transactions before the archive, and those of their labels that arrive before it begins.

    Returns:
        Transactions; labels, in the chargeback contract's columns.
    """
    begin_ms = START_MS - TRAINING_DAYS * DAY_MS
    stream = _stream(seed, cards, rate, begin_ms, Disturbances.none())
    transactions = pa.concat_tables([batch.table for batch in stream.blocks(until_ms=START_MS)])
    reports = chargebacks(seed)
    reports.observe(transactions)
    return transactions, _labels(reports.due(START_MS)[2])


def _stream(seed: int, cards: int, rate: float, start_ms: int, disturbances: Disturbances) -> Stream:
    return Stream(World.create(seed, cards), rate / SPEED, start_ms, fraud=MIX, disturbances=disturbances)


def _labels(values: Iterable[bytes]) -> pa.Table:
    return pa.Table.from_pylist([orjson.loads(value) for value in values])
