"""Benchmark of scoring with compiled trees, on one core, without Spark or Kafka."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from feature_store.catalogue import DAY_MS
from feature_store.training import merchant_payments
from loadtests.bench.measure import Figure, per_item
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from models.algorithms import QUICK, Learner
from models.pipeline import outcomes
from models.trees import compile_trees

ROWS = 100_000
CARDS = 2_000
RATE, START_MS = 0.05, 1_750_000_000_000
"""Transactions per second, and the time of the first. At this rate ROWS transactions span three weeks, far
longer than the label delay of a day, so that labels take effect."""


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
