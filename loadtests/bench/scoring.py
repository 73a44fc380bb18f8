"""Benchmarks on one core, without Spark or Kafka: scoring, and the calibration of a machine."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from feature_store.catalogue import DAY_MS
from feature_store.training import merchant_payments, training_set
from loadtests.bench.log_records import ONE_PARTITION, log_records
from loadtests.bench.measure import Figure, per_item
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from models.algorithms import QUICK, Learner
from models.pipeline import outcomes
from models.trees import compile_trees
from streaming_job.decode import transactions
from streaming_job.decode.transactions import TimeLimits

ROWS = 100_000
CARDS = 2_000
RATE, START_MS = 0.05, 1_750_000_000_000
"""Transactions per second, and the time of the first. At this rate ROWS transactions span three weeks, far
longer than the label delay of a day, so that labels take effect."""
CALIBRATION = "calibration"
CALIBRATED_CARDS, CALIBRATED_RATE, CALIBRATED_FROM_MS = 20_000, 5_000.0, 1_780_000_000_000
LIMITS = TimeLimits(lateness_ms=7 * DAY_MS, skew_ms=300_000)


def measure(rounds: int) -> Iterator[Figure]:
    """Measure scoring ROWS transactions on all features, merchant label features included."""
    stream = Stream(World.create(1, CARDS), RATE, START_MS, disturbances=Disturbances.none())
    history = pa.concat_tables([batch.table for batch in stream.blocks(events=ROWS)])
    x = merchant_payments.build(history, merchant_payments.MerchantLabels.of(None, DAY_MS))
    y = outcomes(history, None)
    for name, learner in (("default learner", Learner()), ("quick learner", QUICK)):
        trees = compile_trees(learner.fit(x, y))
        trees.score(x[:1])  # the first call also prepares the masks of leaves
        yield per_item(
            f"{ROWS:,} rows scored, {name}", "s", rounds, 1, partial(partial, trees.score, x),
            scale=1.0,
            detail=f"{x.shape[1]} features, {learner.iterations} trees of {learner.leaves} leaves",
        )  # fmt: skip


def calibrate(rounds: int) -> Figure:
    """Measure how many events per second one core decodes from JSON and scores with 100 trees."""
    world = World.create(seed=1, cards=CALIBRATED_CARDS, merchants=1_000)
    stream = Stream(world, CALIBRATED_RATE, CALIBRATED_FROM_MS, disturbances=Disturbances.none())
    batches = list(stream.blocks(events=ROWS))
    records = log_records(batches)
    history = pa.concat_tables([batch.table for batch in batches])
    features = training_set.build(history)
    trees = compile_trees(QUICK.fit(features, outcomes(history, None)))

    def call() -> None:
        decoded = transactions.decode(records, LIMITS, ONE_PARTITION)
        assert decoded.records.size == len(records)
        trees.score(features)

    call()  # compiles
    seconds = per_item("", "", rounds, len(records), lambda: call, scale=1.0)
    rates = tuple(1 / round_s for round_s in seconds.rounds)
    return Figure(
        CALIBRATION, 1 / seconds.value, "events/s",
        f"{len(records):,} records decoded and scored with 100 trees, one thread", rounds=rates,
    )  # fmt: skip
