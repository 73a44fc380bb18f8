"""Calibration of a machine: events that one process decodes and scores per second, without Spark or Kafka."""

import pyarrow as pa

from feature_store.training import training_set
from loadtests.bench.log_records import ONE_PARTITION, log_records
from loadtests.bench.measure import Figure, per_item
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from models.pipeline import outcomes
from models.train import train
from models.trees import compile_trees
from streaming_job.decode import transactions
from streaming_job.decode.transactions import TimeLimits

CALIBRATION = "calibration"
EVENTS = 100_000
CARDS = 20_000
RATE = 5_000.0
START_MS = 1_780_000_000_000
LIMITS = TimeLimits(lateness_ms=7 * 86_400_000, skew_ms=300_000)


def calibrate(rounds: int) -> Figure:
    """Measure how many events per second one core decodes from JSON and scores with 100 trees."""
    world = World.create(seed=1, cards=CARDS, merchants=1_000)
    stream = Stream(world, RATE, START_MS, disturbances=Disturbances.none())
    batches = list(stream.blocks(events=EVENTS))
    records = log_records(batches)
    history = pa.concat_tables([batch.table for batch in batches])
    features = training_set.build(history)
    trees = compile_trees(train(features, outcomes(history, None), iterations=100))

    def call() -> None:
        decoded = transactions.decode(records, LIMITS, ONE_PARTITION)
        assert decoded.records.size == len(records)
        trees.score(features)

    call()  # compiles
    seconds = per_item("", "", rounds, len(records), lambda: call, scale=1.0)
    rates = tuple(1 / round_s for round_s in seconds.rounds)
    return Figure(
        CALIBRATION, 1 / seconds.value, "events/s", rates,
        f"{len(records):,} records decoded and scored with 100 trees, one thread",
    )  # fmt: skip
