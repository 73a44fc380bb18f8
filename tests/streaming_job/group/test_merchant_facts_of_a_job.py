"""Merchant label features of a job equal those of a training set over the same log, whatever is killed."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from harness.job_world import LIMITS, PARTITIONER, World, load
from harness.labelled_world import MemoryGroups, labelled_world, merchant_rules
from harness.log_world import DAY, HOUR, SECOND, START
from harness.memory_job import FACTS, MemoryOpening, mortal
from harness.memory_log import Fate, MemoryLog, MemoryTransactions, as_written
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import THOROUGH, examples
from typer.testing import CliRunner

from feature_store.commands import app
from feature_store.merchants.catalogue import ALL_NAMES, MERCHANT_NAMES
from feature_store.training import merchant_payments, training_run
from loadtests.oracle import AcceptanceRules, MerchantLog, ProfileLog, Record
from streaming_job.contracts import Contract
from streaming_job.decode.labels import read
from streaming_job.decode.strict import Rejected
from streaming_job.group.loop import Pace
from streaming_job.log.records import Offsets

pytestmark = pytest.mark.unit

RECORDS = 60
SHAPES = [(1, 1), (3, 2), (4, 3)]
"""Partitions, key groups."""
WORLDS = st.tuples(st.integers(0, 11), st.sampled_from(SHAPES), st.sampled_from([0, DAY, 7 * DAY]))
"""Seed, shape, label delay."""


@cache
def case(seed: int, partitions: int) -> tuple[World, tuple[Record, ...]]:
    world = labelled_world(seed, RECORDS, partitions)
    return world, tuple(as_written(world))


@cache
def archive(seed: int, partitions: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Transactions, labels and profiles of a log, in the form of a model owner's files."""
    _, log = case(seed, partitions)
    txs = [record for record in log if record.topic == "transactions"]
    rows = [json.loads(record.value or b"") for record in txs]
    arrivals = pa.array([record.timestamp for record in txs])
    profile = {
        "card_id": "c0", "status": "active", "home_country": "FR", "currency": "EUR", "credit_limit": 1000.0,
        "risk_tier": 0, "opened_on": 20_000,
    }  # fmt: skip
    transactions = pa.Table.from_pylist(rows).append_column("arrival_time", arrivals)
    return transactions, reports(log), pa.Table.from_pylist([profile])


def training_set(directory: Path, seed: int, partitions: int, delay_ms: int) -> pa.Table:
    """Output of `fraud features` for the archive of a log."""
    paths = {name: directory / f"{name}.parquet" for name in ("transactions", "labels", "profiles", "output")}
    for name, table in zip(paths, archive(seed, partitions), strict=False):
        pq.write_table(table, paths[name], row_group_size=7)
    files = [text for name, path in paths.items() for text in (f"--{name}", str(path))]
    command = [*files, "--force", "--merchant-labels", "--label-delay-days", str(delay_ms / DAY)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return pq.read_table(paths["output"])


def accepted(made: pa.Table) -> dict[str, bytes]:
    """Features of each accepted transaction, by its id."""
    made = made.filter(pc.equal(made["outcome"].cast(pa.string()), "accepted"))
    features = np.column_stack([made[name].to_numpy() for name in ALL_NAMES])
    names = made["transaction_id"].to_pylist()
    return {name: row.tobytes() for name, row in zip(names, features, strict=True)}


def reports(log: tuple[Record, ...]) -> pa.Table:
    """Labels of an archive, without invalid records and refunds."""
    rows = []
    for record in log:
        if record.topic in ("labels", "chargebacks"):
            contract = Contract.LABEL if record.topic == "labels" else Contract.CHARGEBACK
            try:
                card_id, transaction_id, fraud, _ = read(record.key, record.value, contract)
            except Rejected:
                continue
            if fraud is not None:
                rows.append((transaction_id, card_id, fraud, record.timestamp))
    names = ("transaction_id", "card_id", "label", "reported_at")
    types = (pa.string(), pa.string(), pa.bool_(), pa.int64())
    return pa.table({name: pa.array([row[at] for row in rows], types[at]) for at, name in enumerate(names)})


def bits(features: dict[str, float | None]) -> bytes:
    """The bytes of features from JSON, in which null stands for NaN."""
    values = [features[name] for name in ALL_NAMES]
    return np.array([np.nan if value is None else value for value in values]).tobytes()


@cache
def undisturbed(seed: int, shape: tuple[int, int], delay_ms: int) -> MemoryGroups:
    """Run the job from beginning to end without disturbances."""
    world, log = case(seed, shape[0])
    fate = Fate(seed)
    groups = MemoryGroups(world.rules(shape[1], load, merchant_rules(delay_ms)), list(log), fate)
    with mortal(fate):
        groups.finish()
    return groups


CASES = [(0, (3, 2), DAY), (1, (4, 3), 7 * DAY), (2, (1, 1), 0), (3, (3, 2), 0), (5, (3, 2), DAY)]
"""The worlds of the tests; in a thorough run, the test of kills draws from WORLDS instead."""


@pytest.mark.parametrize(("seed", "shape", "delay_ms"), CASES)
def test_streamed_features_equal_those_of_the_command(seed, shape, delay_ms, tmp_path, monkeypatch):
    alerts = [json.loads(value) for value in undisturbed(seed, shape, delay_ms).alerts().values()]
    streamed = {alert["transaction_id"]: bits(alert["features"]) for alert in alerts}
    assert streamed == accepted(training_set(tmp_path, seed, shape[0], delay_ms))
    monkeypatch.setattr(training_run, "CHUNK", 8)
    assert streamed == accepted(training_set(tmp_path, seed, shape[0], delay_ms))


@pytest.mark.parametrize(("seed", "shape", "delay_ms"), CASES)
def test_models_are_trained_on_the_same_features(seed, shape, delay_ms):
    transactions, labels, profiles = archive(seed, shape[0])
    result = merchant_payments.build(
        transactions, merchant_payments.MerchantLabels.of(labels, delay_ms), profiles
    )
    alerts = [json.loads(value) for value in undisturbed(seed, shape, delay_ms).alerts().values()]
    streamed = sorted(bits(alert["features"]) for alert in alerts)
    assert streamed == sorted(row.tobytes() for row in result if not np.isnan(row).all())


def oracle_of(
    world: World, log: Sequence[Record], partitions: int, delay_ms: int
) -> tuple[MerchantLog, list[tuple[str, int, int, str]]]:
    """The oracle's merchants, and its dead letters of labels: topic, partition, offset, reason; sorted."""
    profiles = ProfileLog()
    profiles.read(world.profiles)
    rules = AcceptanceRules(LIMITS.lateness_ms, LIMITS.skew_ms, partitions, PARTITIONER.value)
    merchants = MerchantLog(rules, delay_ms, profiles)
    topics = ("transactions", "labels", "chargebacks")
    refused = merchants.read(*([record for record in log if record.topic == topic] for topic in topics))
    letters = ((letter.topic, letter.partition, letter.offset, str(letter.reason)) for letter in refused)
    return merchants, sorted(letters)


@pytest.mark.parametrize(("seed", "shape", "delay_ms"), CASES)
def test_the_oracle_computes_the_same_features(seed, shape, delay_ms):
    world, log = case(seed, shape[0])
    job = undisturbed(seed, shape, delay_ms)
    merchants, letters = oracle_of(world, log, shape[0], delay_ms)
    assert [letter for letter in job.dead_letters() if letter[0] != "transactions"] == letters
    for value in job.alerts().values():
        alert = json.loads(value)
        features = merchants.features(alert["merchant_id"], alert["arrival_time"])
        np.testing.assert_array_equal(
            [np.nan if alert["features"][name] is None else alert["features"][name] for name in features],
            list(features.values()),
        )


def test_the_worlds_contain_the_cases_that_matter():
    jobs = [undisturbed(*case) for case in CASES]
    features = [json.loads(value)["features"] for job in jobs for value in job.alerts().values()]
    for name in MERCHANT_NAMES:
        assert any(feature[name] for feature in features), name
    reasons = {reason for job in jobs for *_, reason in job.dead_letters()}
    assert {"unknown_transaction", "malformed_json", "empty_value"} <= reasons
    reports = [fact for job in jobs for fact in job.facts() if fact["kind"] == "report"]
    assert {fact["fraud"] for fact in reports} == {fact["spike"] for fact in reports} == {True, False}
    assert not any(memory_job.output.counts["late_facts"] for job in jobs for memory_job in job.jobs)


REACH = 36 * DAY
"""Time after a transaction's event time in which it can be labelled: 30 days, and 7 of lateness, less one."""


def test_a_label_later_than_the_state_reaches_is_too_old_if_it_tells_the_transactions_time():
    world = World(rollout=False)
    world.rollout("all", -DAY, threshold=0.0)
    world.profile("r", -DAY, "c", source={"snapshot": "last", "lsn": 1})
    for n in range(3):
        world.tx(n, transaction_id=f"t{n}", card_id="c")
    at = [tx["event_time"] for tx in map(json.loads, (record.value for record in world.transactions))]
    world.label(2, at[2] - START + REACH - 1)  # in time
    world.label(0, at[0] - START + REACH)  # a chargeback, whose contract has the event time
    world.label(1, at[1] - START + REACH, "early_warning", event_time=at[1])
    world.label(1, at[1] - START + REACH + 1, "early_warning")  # it does not tell when the card was used
    world.label(2, at[2] - START + REACH, transaction_id="nobody's", event_time=at[2] + 1)
    world.label(2, at[2] - START + REACH, transaction_id="nobody's")
    world.label(2, at[2] - START + REACH, "early_warning", event_time=at[2] // 1000)  # in seconds
    world.tx(REACH + DAY, card_id="c", transaction_id="last")
    fate = Fate(0)
    log = as_written(world)
    groups = MemoryGroups(world.rules(1, load, merchant_rules(0)), log, fate)
    with mortal(fate):
        groups.finish()
    letters = Counter(reason for _, _, _, reason in groups.dead_letters())
    assert letters == {"label_too_old": 3, "unknown_transaction": 3}
    assert sum(job.output.counts["labels"] for job in groups.jobs) == 1
    assert groups.dead_letters() == oracle_of(world, log, 1, 0)[1]


def test_an_idle_group_decides_a_new_transaction_before_the_label_that_follows_it_at_once(monkeypatch):
    world = World(rollout=False)
    world.rollout("all", -DAY, threshold=0.0)
    world.profile("r", -DAY, "c", source={"snapshot": "last", "lsn": 1})
    world.tx(0, card_id="c", transaction_id="t0")
    world.label(0, HOUR)
    world.tx(2 * HOUR, card_id="c", transaction_id="t1")
    world.label(1, 2 * HOUR + 5)
    log, written = as_written(world), [len(as_written(world)) - 2]
    ends = MemoryTransactions.ends

    def before_the_newest(transactions: MemoryTransactions) -> Offsets:
        found = ends(transactions)
        written[0] = len(log)
        transactions._log.grow(0)
        return found

    monkeypatch.setattr(MemoryLog, "grow", lambda log, _: log._write(written[0]))
    monkeypatch.setattr(MemoryTransactions, "ends", before_the_newest)
    fate = Fate(0)
    groups = MemoryGroups(world.rules(1, load, merchant_rules(0)), log, fate)
    with mortal(fate):
        groups.finish()
    assert groups.dead_letters() == []
    assert sum(job.output.counts["labels"] for job in groups.jobs) == 2


def test_of_two_labels_that_arrive_at_the_same_time_the_chargeback_counts():
    world = World(rollout=False)
    world.rollout("all", -DAY, threshold=0.0)
    world.profile("r", -DAY, "c", source={"snapshot": "last", "lsn": 1})
    world.tx(0, card_id="c", transaction_id="t0", merchant_id="m")
    world.label(0, HOUR, "chargeback")
    world.label(0, HOUR, "reversal")  # on the other topic
    world.tx(6 * HOUR, card_id="c", transaction_id="t1", merchant_id="m")
    log, fate = as_written(world), Fate(0)
    groups = MemoryGroups(world.rules(1, load, merchant_rules(0)), log, fate)
    with mortal(fate):
        groups.finish()
    _, newest = map(json.loads, groups.alerts().values())
    expected = oracle_of(world, log, 1, 0)[0].features("m", newest["arrival_time"])
    assert expected["merchant_unexplained_30d"] == 1
    assert all(newest["features"][name] == value for name, value in expected.items() if value == value)


@pytest.mark.parametrize(("seed", "shape", "delay_ms"), CASES)
def test_foreign_records_among_the_facts_change_nothing_but_their_count(seed, shape, delay_ms):
    world, log = case(seed, shape[0])
    fate = Fate(seed)
    groups = MemoryGroups(world.rules(shape[1], load, merchant_rules(delay_ms)), list(log), fate)
    garbage: list[tuple[bytes | None, bytes | None]] = [
        (None, None),
        (b"0", b"{"),
        (b"0", b'{"schema_version":1,"job_id":"card-fraud","key_group":0,"kind":"promise","until":"soon"}'),
        (None, b'{"schema_version":1,"job_id":"card-fraud","key_group":0,"kind":"promise","until":99}'),
    ]
    with mortal(fate):
        for number in range(12):
            groups.log.append(FACTS, [garbage[number % len(garbage)]])
            for group in range(shape[1]):
                groups.disturb(group, ["another process", 0, None][number % 3], 6, 40 + number)
        groups.finish()
    calm = undisturbed(seed, shape, delay_ms)
    assert groups.alerts() == calm.alerts()
    assert groups.reports() == calm.reports()
    assert [job.output.counts["foreign_facts"] for job in groups.jobs] == [12, *[0] * (shape[1] - 1)]


BEFORE = st.one_of(st.none(), st.just("another process"), st.just("another machine"), st.integers(0, 8))
EPOCHS = st.lists(
    st.tuples(st.integers(0, 3), BEFORE, st.integers(0, 12), st.none() | st.integers(0, 90)), max_size=14
)


@examples(20, thorough=2_000)
@given(st.sampled_from(CASES) if not THOROUGH else WORLDS, EPOCHS, st.integers(0, 2**32))
def test_kills_and_restored_checkpoints_change_nothing(world_of, epochs, chance):
    seed, shape, delay_ms = world_of
    world, log = case(seed, shape[0])
    fate = Fate(chance)
    groups = MemoryGroups(world.rules(shape[1], load, merchant_rules(delay_ms)), list(log), fate)
    with mortal(fate):
        for epoch in epochs:
            groups.disturb(*epoch)
        groups.finish()
    calm = undisturbed(seed, shape, delay_ms)
    assert groups.alerts() == calm.alerts()
    assert groups.dead_letters() == calm.dead_letters()
    assert groups.reports() == calm.reports()
    # which hours are over at the end depends on which group noticed first that its partitions were drained
    over = min(groups.hours_over(), calm.hours_over())
    assert counts(groups, over) == counts(calm, over)


def counts(groups: MemoryGroups, over: int) -> dict[tuple[int, int], int]:
    """Sum the counts of each merchant and hour before `over`."""
    summed: dict[tuple[int, int], int] = {}
    for fact in groups.facts():
        if fact["kind"] == "counts" and fact["hour"] < over:
            for merchant, count in zip(fact["merchants"], fact["counts"], strict=True):
                summed[merchant, fact["hour"]] = summed.get((merchant, fact["hour"]), 0) + count
    return summed


@pytest.mark.parametrize(("most", "partitions"), [(9, 1), (400, 1), (400, 2)])
def test_a_label_finds_what_a_hot_card_had_kept_when_the_label_arrived(most, partitions, monkeypatch):
    world = World(rollout=False, partitions=partitions)
    world.rollout("all", -DAY, threshold=0.0)
    world.profile("r", -DAY, "c", source={"snapshot": "last", "lsn": 1})
    others = [f"o{n}" for n in range(9) if world.partition_of(f"o{n}") != world.partition_of("c")]
    # transactions 512 and 768 have the card drop those before 256, and those before 512
    labels = {511: [100, 511], 600: [600, 255, 256], 767: [300, 200], 768: [511, 512]}
    sent: list[int] = []
    for number in range(800):
        sent.append(len(world.transactions))
        world.tx(number * SECOND, card_id="c", transaction_id=f"t{number}")
        if number % 100 == 0 and others:
            world.tx(number * SECOND, card_id=others[0], transaction_id=f"o{number}")
        for after, labelled in enumerate(labels.get(number, ())):
            world.label(sent[labelled], number * SECOND + after)
    world.tx(6 * HOUR, card_id="c")
    monkeypatch.setattr(MemoryOpening, "pace", Pace(most, 1 << 20, 0.0, 0.2, 10.0))
    log, fate = as_written(world), Fate(0)
    groups = MemoryGroups(world.rules(1, load, merchant_rules(0)), log, fate)
    with mortal(fate):
        groups.log._write(len(log))
        for number in range(20):
            groups.disturb(
                0, [None, "another machine", "another process", number][number % 4], 6, 30 * number
            )
        groups.finish()
    letters = oracle_of(world, log, partitions, 0)[1]
    assert len(letters) == 3
    assert groups.dead_letters() == letters
    assert len(groups.reports()) == 6
