"""Oracle and kernels agree on hot cards (see docs/features.md) and on quiet ones.

They share only the names of features, the hash of merchant ids and the centroids of countries.
"""

import json
import random

import numpy as np
import pyarrow as pa
import pytest
from oracle_world import DAY, HOUR, MINUTE, SECOND, World

from feature_store.catalogue import NAMES
from feature_store.training import training_set
from loadtests.oracle import Kind

pytestmark = pytest.mark.unit


def kernel_features(world: World) -> np.ndarray:
    """Features by the kernels, float64[n, features]; NaN in rows without a decision."""
    rows = [{**json.loads(record.value), "arrival_time": record.timestamp} for record in world.transactions]
    return training_set.build(pa.Table.from_pylist(rows))


def oracle_features(world: World) -> np.ndarray:
    nothing = dict.fromkeys(NAMES)
    rows = [outcome.alert["features"] if outcome.alert else nothing for outcome in world.outcomes()]
    return np.array([[row[name] for name in NAMES] for row in rows], dtype=float)


def assert_agree(world: World) -> None:
    theirs, ours = kernel_features(world), oracle_features(world)
    for column, name in enumerate(NAMES):
        np.testing.assert_allclose(ours[:, column], theirs[:, column], rtol=1e-9, atol=1e-9, err_msg=name)


def burst(world: World, rng: random.Random, begin: int, length: int, events: int) -> None:
    """Add transactions of one card, arriving within `length` ms; some late, some with an earlier one's id."""
    for step in range(events):
        arrival = begin + length * step // events
        late = rng.random() < 0.05
        world.tx(
            arrival - rng.randrange(length) if late else arrival,
            round(rng.lognormvariate(3, 1), 2),
            arrival=arrival,
            merchant_id=f"m{rng.randrange(300)}",
            country=rng.choice(("FR", "DE", "US")),
            **({"transaction_id": f"t{rng.randrange(step)}"} if step and rng.random() < 0.02 else {}),
        )


@pytest.mark.parametrize("length", [20 * SECOND, 10 * MINUTE, 3 * HOUR, 20 * DAY])
def test_oracle_and_kernels_agree_on_a_hot_card(length):
    world = World(threshold=0.0)
    rng = random.Random(length)
    burst(world, rng, 0, length, 1_100)
    burst(world, rng, length + DAY, length, 600)
    assert_agree(world)


def test_windows_are_exact_up_to_511_other_transactions():
    world = World(threshold=0.0)
    for step in range(520):
        world.tx(step * SECOND // 5, 1.0)
    counts = world.feature("count_1m")
    assert counts[300:512] == [300] * 212
    # beyond 511 others, the window is whole buckets of a second: that of the transaction and the 59 before it
    assert counts[512:] == [298, 299, 300, 296, 297, 298, 299, 300]
    assert_agree(world)


def test_hot_card_recognises_repetitions_among_the_last_thousand():
    world = World(threshold=0.0)
    for step in range(2_100):
        world.tx(step)
    world.tx(2_090, arrival=2_100, transaction_id="t2090")
    world.tx(10, arrival=2_100, transaction_id="t10")
    world.tx(2_100, transaction_id="t2091")
    kinds = [outcome.kind for outcome in world.outcomes()]
    assert kinds[-3:] == [Kind.DUPLICATE, Kind.ALERT, Kind.ALERT]
    assert [alert["conflicting_repetition"] for alert in world.alerts()[-2:]] == [False, True]
    assert_agree(world)


def test_a_forgotten_card_is_exact_again():
    world = World(threshold=0.0)
    for step in range(600):
        world.tx(step)
    world.tx(91 * DAY, 7.0)
    world.tx(92 * DAY - 1, 1.0)  # whole buckets would miss the other: they begin after it
    assert world.feature("sum_24h")[-2:] == [7, 8]
    assert_agree(world)


def test_oracle_and_kernels_agree_on_quiet_cards():
    world = World(threshold=0.0)
    burst(world, random.Random(7), 0, 60 * DAY, 400)
    assert_agree(world)
