"""The job's features of each transaction equal those of a training set, bit for bit."""

import json

import numpy as np
import pyarrow as pa
import pytest
from harness.job_world import World, dead_letters, place
from harness.log_world import DAY, HOUR, MINUTE

from feature_store.catalogue import NAMES
from feature_store.training import training_set

pytestmark = pytest.mark.unit


def world(seed: int) -> World:
    """Three weeks of a few cards, one of them hot; every decision is an alert.

    Some transactions are late, too late, dated in the future, or repeated.
    """
    rng = np.random.default_rng(seed)
    result = World(rollout=False, partitions=3)
    result.rollout("all", -HOUR, threshold=0.0)
    for card in range(5):
        result.profile("r", 0, card=f"c{card}", risk_tier=card % 4, credit_limit=500.0 * card)
    result.profile("u", DAY, card="c1", credit_limit=77.0)
    result.profile("c", 2 * DAY, card="c7", home_country="DE")
    arrivals = np.sort(rng.integers(0, 21 * DAY, 1_500))
    lateness = rng.choice([0, 0, 0, MINUTE, 3 * DAY, 8 * DAY, -4 * MINUTE, -6 * MINUTE], arrivals.size)
    for arrival, late in zip(arrivals.tolist(), lateness.tolist(), strict=True):
        result.tx(
            arrival - late,
            float(np.round(rng.gamma(2, 40), 2)),
            arrival=arrival,
            card_id=f"c{0 if rng.random() < 0.6 else rng.integers(12)}",
            transaction_id=f"t{rng.integers(5_000)}",
            merchant_id=f"m{rng.integers(30)}",
            country=str(rng.choice(["FR", "DE", "ZZ"])),
        )
        if rng.random() < 0.03:
            last = result.transactions[-1]
            result.raw_tx(last.value, arrival, key=last.key, partition=last.partition)
    return result


def history(made: World) -> pa.Table:
    """The archive of a world's transactions."""
    rows = [json.loads(record.value or b"") for record in made.transactions]
    arrivals = pa.array([record.timestamp for record in made.transactions])
    return pa.Table.from_pylist(rows).append_column("arrival_time", arrivals)


def profiles(made: World) -> pa.Table:
    """The archive of a world's profiles; rows of the snapshot have no time."""
    rows = []
    for record in made.profiles:
        change = json.loads(record.value or b"")
        rows.append({**change["after"], "arrival_time": None if change["op"] == "r" else record.timestamp})
    return pa.Table.from_pylist(rows)


def bits(features: dict[str, float | None]) -> bytes:
    """The bytes of features from JSON, in which null stands for NaN."""
    values = [features[name] for name in NAMES]
    return np.array([np.nan if value is None else value for value in values]).tobytes()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rebuilt", [False, True], ids=["working copy", "rebuilt each batch"])
def test_streamed_features_equal_those_of_the_training_set(seed: int, rebuilt: bool) -> None:
    result = world(seed)
    cuts = np.random.default_rng(seed).choice(len(result.transactions) - 1, 12, replace=False) + 1
    trained = training_set.build(history(result), profiles(result))
    outcomes = result.run(cuts.tolist(), groups=3, rebuild_each_batch=rebuilt)
    alerts = [json.loads(alert.value) for outcome in outcomes for alert in outcome.records["fraud_alerts"]]
    rows = {(record.partition, record.offset): row for row, record in enumerate(result.transactions)}
    streamed = {rows[place(alert)]: bits(alert["features"]) for alert in alerts}
    decided = np.flatnonzero(~np.isnan(trained).all(axis=1)).tolist()
    assert sorted(streamed) == decided
    assert all(streamed[row] == trained[row].tobytes() for row in decided)
    # the random world has all the cases that it is meant to have
    assert len(alerts) == len(streamed) < len(result.transactions) - len(dead_letters(outcomes))
    assert {reason for *_, reason in dead_letters(outcomes)} == {"too_late", "future_event_time"}
    assert max(alert["features"]["count_all"] for alert in alerts) > 512
    assert {alert["features"]["limit_use_24h"] is None for alert in alerts} == {True, False}
