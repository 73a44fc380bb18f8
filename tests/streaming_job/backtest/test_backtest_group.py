"""A backtest decides as the job decides later with the same candidate, transaction by transaction.

the world's log      t0 ------------- since ------------- end
live job             its rollouts       | its rollouts         -> alerts, archived
backtest             recalled           | candidate            -> alerts
the job, later       its rollouts       | candidate promoted   -> from `since` on the same bytes
"""

from random import Random

import pytest
from harness.job_world import World, model_ref, subset_ref
from harness.log_world import DAY, START, TOPICS
from harness.memory_archive import MemoryArchive, archived
from harness.random_world import random_world
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.catalogue import IDENTITIES
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import installation
from streaming_job.backtest.candidate import ROLLOUT, promoted
from streaming_job.backtest.group import BacktestGroup
from streaming_job.backtest.labels import Labels
from streaming_job.backtest.run import read_alerts, record_schemas
from streaming_job.backtest.tally import Tally
from streaming_job.backtest.window import Window
from streaming_job.progress.outcome import Outcome

pytestmark = pytest.mark.unit

POLICIES = st.builds(
    Policy,
    threshold=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    max_count_5m=st.sampled_from([1, 3, 50]),
    missing_profile=st.sampled_from(["score", "review"]),
    escalate_after=st.sampled_from([None, 2]),
    cooldown_s=st.sampled_from([0, 60, 3600]),
)
FOR_EVER = 10**15
SENT, SUPPRESSED = "fraud_alerts", "suppressed_alerts"


def alerts_from(since: int, outcomes: list[Outcome], topic: str) -> list[bytes]:
    """Alerts of the transactions that arrived at `since` or later, by partition and offset."""
    alerts = [alert for outcome in outcomes for alert in outcome.records[topic]]
    alerts.sort(key=lambda alert: (alert.partition, alert.offset))
    return [alert.value for alert in alerts if arrival_of(alert.value) >= since]


def arrival_of(value: bytes) -> int:
    return int(value.partition(b'"arrival_time":')[2].partition(b",")[0])


def backtest(
    world: World,
    live: list[Outcome],
    window: Window,
    candidate: tuple[ModelRef, Policy],
    chance: Random,
    groups: int,
) -> tuple[list[Outcome], Tally]:
    """What a backtest decides of a world whose live job has written `live`."""
    log = MemoryArchive(archived(world, live), chance, world.partitions)
    log.profiles_before = world.losses.profiles_before
    before = read_alerts(log, TOPICS, window, 0).before()
    tally = Tally(window, Labels(TOPICS).by_hash())
    outcomes: list[Outcome] = []
    for number in range(groups):
        rollouts = promoted(*candidate, window.since, TOPICS, IDENTITIES)
        group = BacktestGroup(
            number, world.rules(groups), rollouts, window.since, before, tally,
            schemas=record_schemas(log, TOPICS),
        )  # fmt: skip
        group.fold_profiles(log, FOR_EVER)
        for partition in world.key_groups(groups).own(number):
            outcomes += map(group.take, log.records(TOPICS.transactions, partition, keys=False))
    return outcomes, tally


@examples(40, 3_000)
@given(
    seed=st.integers(0, 10_000),
    at=st.integers(0, 130),
    policy=POLICIES,
    model=st.sampled_from([model_ref("1"), model_ref("2"), subset_ref()]),
    groups=st.integers(1, 3),
    is_compacted=st.booleans(),
)
def test_a_backtest_decides_as_the_job_does_later(
    seed: int, at: int, policy: Policy, model: ModelRef, groups: int, is_compacted: bool
) -> None:
    chance, world = Random(seed), random_world(seed, partitions=3)
    if is_compacted:  # before the archive began
        world.compact(chance.randrange(2 * DAY))
    since = world.transactions[at].timestamp if at else START
    # what the live job rolls out afterwards makes no difference
    world.rollouts = [record for record in world.rollouts if record.timestamp <= since]
    live = world.run(groups=chance.randint(1, 3))

    outcomes, tally = backtest(world, live, Window(since, FOR_EVER), (model, policy), chance, groups)

    for event in installation(model, policy, ROLLOUT, "test", since):
        world.event(event, since - START)
    later = world.run(groups=chance.randint(1, 3))
    for topic in (SENT, SUPPRESSED):
        assert alerts_from(since, outcomes, topic) == alerts_from(since, later, topic)
    assert len(tally.alerts) == len(alerts_from(since, later, SENT))
    assert tally.suppressed == len(alerts_from(since, later, SUPPRESSED))
    counted = sum(tally.transactions.values()) + tally.duplicates + tally.refused.total()
    assert counted == sum(record.timestamp >= since for record in world.transactions)


def test_the_window_ends_before_the_archive() -> None:
    world = random_world(7)
    times = [record.timestamp for record in world.transactions]
    since, until = times[40], times[100]
    live = world.run()
    everything = Policy(0.0, 1)
    whole, _ = backtest(world, live, Window(since, FOR_EVER), (model_ref(), everything), Random(1), 1)
    _, tally = backtest(world, live, Window(since, until), (model_ref(), everything), Random(1), 1)
    expected = [arrival_of(value) for value in alerts_from(since, whole, SENT)]
    assert sorted(alert.arrival for alert in tally.alerts) == sorted(t for t in expected if t < until)
    counted = sum(tally.transactions.values()) + tally.duplicates + tally.refused.total()
    assert counted == sum(since <= time < until for time in times)
