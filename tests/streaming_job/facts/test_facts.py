"""Parts of merchant facts: records, pieces, clocks, pending labels, and facts that come after a promise."""

import json
from collections import Counter

import numpy as np
import pytest
from harness.group_batches import as_records
from harness.job_world import World
from harness.labelled_world import merchant_rules
from harness.log_world import HOUR, MINUTE, START, TOPICS
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.kernels.hashing import hash_string
from feature_store.layout import TRANSACTION
from feature_store.merchants.facts import REPORT, added_up, spans
from feature_store.merchants.hours import HOUR_COUNT
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces
from loadtests.oracle import Record
from streaming_job.contracts import Contract, validate
from streaming_job.facts import tiers as tiers_module
from streaming_job.facts.clock import (
    BEGUN,
    IDLE,
    SLACK_MS,
    LogClock,
    hour_of,
    hour_to_come,
    promise_of,
)
from streaming_job.facts.group_facts import GroupFacts
from streaming_job.facts.record import Author, FactError, read
from streaming_job.facts.tiers import Tiers
from streaming_job.progress.outcome import Outcome

pytestmark = pytest.mark.unit

AUTHOR = Author("card-fraud", 1)


def records(values, key=b"1"):
    facts = [Record(TOPICS.merchant_facts, 0, n, START, key, value) for n, value in enumerate(values)]
    (result,) = as_records(facts)
    return result


def decoded(values, key=b"1"):
    return read(records(values, key), "card-fraud", 2)


COUNTS = np.array([(5, 490_000, 3), (7, 490_000, 1), (5, 490_001, 2)], dtype=HOUR_COUNT)
(REPORTED,) = np.array([(5, 2**47, START, START + HOUR, True, False)], dtype=REPORT)
SOURCE = {"topic": "labels", "partition": 0, "offset": 3}
WRITTEN = [*AUTHOR.counts(COUNTS), AUTHOR.report(REPORTED, SOURCE), AUTHOR.promise(17), AUTHOR.promise(12)]


def test_records_keep_their_contract_and_are_read_back():
    for value in WRITTEN:
        validate(Contract.MERCHANT_FACT, json.loads(value))
    facts = decoded([*WRITTEN, Author("another job", 0).promise(99)])
    assert facts.counts.tolist() == COUNTS.tolist()
    assert facts.reports.tolist() == [REPORTED.item()]
    assert facts.promises == {1: 17}
    assert facts.foreign == ()


def altered(value, **changes):
    return json.dumps(json.loads(value) | changes).encode()


GARBAGE = [
    None,
    b"",
    b"{",
    b"\xff\x00" * 9,
    b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b"17",
    b"[]",
    b"{}",
    b'{"job_id":"card-fraud"}',
    b'{"job_id":"card-fraud","kind":"x"}',
    b'{"job_id":5,"kind":"promise","until":9}',
    altered(WRITTEN[-1], kind="x"),
    altered(WRITTEN[-1], schema_version="1"),
    altered(WRITTEN[-1], schema_version=0),
    altered(WRITTEN[-1], key_group=0),  # the key names another group
    altered(WRITTEN[-1], key_group=7),
    altered(WRITTEN[-1], key_group=True),
    *(altered(WRITTEN[-1], until=until) for until in (2**63, 1.5, "9", None, True)),
    *(altered(WRITTEN[0], merchants=them) for them in ([1], [1, -1], [1, 2**64], [1, 2.0], [1, "2"], 5)),
    *(altered(WRITTEN[0], counts=numbers) for numbers in ([1], [1, 2**31], [1, 0], [1, -1], [True, 1])),
    altered(WRITTEN[0], counts={"a": 1, "b": 2}),
    *(altered(WRITTEN[0], hour=hour) for hour in (2**40, 1.0, None)),
    *(altered(WRITTEN[2], fraud=fraud) for fraud in (0, 1, None, "true")),
    *(altered(WRITTEN[2], arrival=arrival) for arrival in (-(2**63) - 1, True, "5")),
    *(altered(WRITTEN[2], merchant=merchant) for merchant in (-1, 2**64, None)),
]  # fmt: skip


@pytest.mark.parametrize("value", GARBAGE, ids=lambda value: repr(value)[:60])
def test_a_foreign_record_is_skipped_and_reported(value):
    facts = decoded([WRITTEN[0], value, *WRITTEN[1:]])
    assert facts.foreign == ((0, 1),)
    assert facts.counts.tolist() == COUNTS.tolist()
    assert facts.reports.tolist() == [REPORTED.item()]
    assert facts.promises == {1: 17}


@pytest.mark.parametrize("key", [None, b"", b"x", b"0", b"01"])
def test_a_fact_whose_key_is_not_its_group_is_foreign(key):
    facts = decoded([WRITTEN[-1]], key)
    assert (facts.foreign, facts.promises) == (((0, 0),), {})


JSON = st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists)
ALTERED = JSON.map(lambda value: json.dumps({**json.loads(WRITTEN[2]), "transaction": value}).encode())


@given(st.binary(max_size=60) | ALTERED)
def test_no_bytes_stop_the_reader(value):
    facts = decoded([value, WRITTEN[-1]])
    assert facts.promises == {1: 12}
    assert len(facts.foreign) + facts.reports.size == 1


def test_a_fact_of_a_newer_release_stops_the_job_because_its_promises_need_it():
    with pytest.raises(FactError, match="merchant-facts-0@1 is a merchant fact of version 2; run"):
        decoded([WRITTEN[0], altered(WRITTEN[-1], schema_version=2, kind="new")])
    # without the key that a group writes it is a line by hand
    assert decoded([altered(WRITTEN[-1], schema_version=2)], None).foreign == ((0, 0),)


def test_group_0_counts_foreign_records_from_q_on_and_the_others_do_not(caplog):
    state = GroupState(MemoryArena(), keeps_ids=True)
    groups = [
        GroupFacts(n, merchant_rules(0), TOPICS, World(partitions=2).key_groups(2), state, MemoryPieces(), {})
        for n in range(2)
    ]
    batch = records([None, WRITTEN[-1], b"{", b"x"])
    q = {(TOPICS.merchant_facts, 0): 2}
    assert [group.fold(batch, q) for group in groups] == [2, 0]
    assert [group.table.promise(1) for group in groups] == [12, 12]
    (line,) = caplog.messages
    assert "2 records of merchant-facts, from merchant-facts-0@2 on, are no merchant facts" in line
    assert groups[0].fold(batch, {(TOPICS.merchant_facts, 0): 4}) == 0


@examples(60)
@given(st.lists(st.one_of(st.integers(0, 20), st.just("replace")), max_size=20))
def test_pieces_hold_all_rows_in_order_and_stay_few(steps):
    store, extra, held = MemoryPieces(), {}, []
    for step in steps:
        rows = np.zeros(step if step != "replace" else len(held) // 2, dtype=HOUR_COUNT)
        rows["hour"] = np.arange(rows.size) + len(held)
        extra = json.loads(json.dumps(extra))  # as the state keeps it
        tiers = Tiers("x", HOUR_COUNT, extra, "hour")
        assert tiers.load(store)["hour"].tolist() == held
        if step == "replace":
            tiers.replace(store, rows)
            held = []
        else:
            tiers.add(store, rows)
        held += rows["hour"].tolist()
        assert tiers.load(store)["hour"].tolist() == held
        assert len(store) == len(extra["x"]) <= max(1, len(held)).bit_length()


@examples(60)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=9), max_size=20))
def test_condensed_pieces_say_the_same_in_no_more_rows_than_there_are_merchants_and_hours(steps):
    store, extra = MemoryPieces(), {}
    tiers = Tiers("x", HOUR_COUNT, extra, "hour", added_up)
    for step in steps:
        tiers.add(store, np.array([(*pair, 1) for pair in step], dtype=HOUR_COUNT))
    held = Counter()
    for *pair, count in tiers.load(store).tolist():
        held[tuple(pair)] += count
    assert held == Counter(pair for step in steps for pair in step)
    # a piece has at least twice the rows of the next one, and names no merchant twice in an hour
    assert all(rows <= 3 * 2 for _, rows in extra["x"])
    assert len(extra["x"]) <= 3


@examples(60)
@given(st.lists(st.integers(0, 9), max_size=30))
def test_old_rows_are_dropped_with_their_piece_and_pieces_have_a_limit(steps):
    store, extra, added, oldest = MemoryPieces(), {}, [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers_module, "MOST_ROWS", 16)
        for step in steps:
            extra = json.loads(json.dumps(extra))  # as the state keeps it
            tiers = Tiers("x", HOUR_COUNT, extra, "hour")
            tiers.load(store)
            rows = np.zeros(step, dtype=HOUR_COUNT)
            rows["hour"] = np.arange(step) + len(added)
            tiers.add(store, rows)
            added += rows["hour"].tolist()
            oldest = max(oldest, len(added) - 20)
            tiers.drop_before(store, oldest)
            held = tiers.load(store)["hour"].tolist()
            assert held == added[len(added) - len(held) :]
            assert len(held) <= 20 + 16
            assert set(added[oldest:]) <= set(held)
            assert all(rows <= 16 for _, rows in extra["x"])
            assert len(store) == len(extra["x"])


def test_only_pieces_that_exist_take_memory():
    store, extra = MemoryPieces(), {}
    tiers = Tiers("x", HOUR_COUNT, extra, "hour")
    for hour in range(500):
        tiers.add(store, np.array([(1, hour, 1)], dtype=HOUR_COUNT))
        if hour % 100 == 50:
            tiers.replace(store, np.array([(1, hour, 1)], dtype=HOUR_COUNT))
        if hour % 100 == 99:
            tiers.drop_before(store, hour - 60)
        numbers = {number for number, _ in extra["x"]}
        assert tiers._newest.keys() == numbers
        assert tiers._mergeable.keys() <= numbers


REPORTS = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 2), st.just(9), st.integers(0, 4), st.booleans(), st.just(False)
    ),
    max_size=14,
)


@examples(200)
@given(REPORTS)
def test_spans_follow_the_last_report_in_effect(said):
    reports = np.array(said, dtype=REPORT)
    result = spans(reports)
    for merchant in range(2):
        for time in range(6):
            known = result[
                (result["merchant"] == merchant)
                & (result["known_from"] <= time)
                & (time < result["known_until"])
            ]
            frauds = 0
            for transaction in range(3):
                last = [r for r in said if r[:2] == (merchant, transaction) and r[3] <= time]
                last.sort(key=lambda report: report[3])
                frauds += bool(last) and last[-1][4]
            assert len(known) == frauds


def test_the_clock_is_that_of_the_slowest_partition():
    clock = LogClock([0, 1])
    assert (clock.time(), clock.time([0]), clock.time([0, 1])) == (BEGUN, BEGUN, IDLE)
    (seen,) = as_records([Record("t", 0, 0, 50, None, b""), Record("t", 0, 1, 40, None, b"")])
    clock.advance(seen)
    assert (clock.time(), clock.time([1])) == (BEGUN, 50)
    # a partition in which a transaction waits counts, even if it has been read to its end
    clock.set_waiting({1: 30})
    assert (clock.time(), clock.time([1])) == (30, 30)


def test_a_promise_covers_the_hours_that_are_over():
    time = 100 * HOUR + SLACK_MS
    assert (hour_to_come(time - 1), hour_to_come(time)) == (99, 100)
    assert promise_of(100) == 102 * HOUR
    assert hour_of(promise_of(100)) == 100


class Facts:
    """One key group's facts, after transactions at whole hours."""

    def __init__(self, hours):
        self.world = World()
        state = GroupState(MemoryArena(), keeps_ids=True)
        self.group = GroupFacts(
            0, merchant_rules(0), TOPICS, self.world.key_groups(), state, MemoryPieces(), {}
        )
        self.outcome = Outcome()
        self.state = state
        for number, hour in enumerate(hours):
            self.world.tx(hour * HOUR - START, transaction_id=f"t{number}")
            self.decide(number, hour)

    def decide(self, number, hour, silent=False):
        batch = np.zeros(1, dtype=TRANSACTION)
        batch["lo"], batch["hi"] = hash_string("c")
        batch["merchant"], batch["transaction"] = hash_string("m")[0], hash_string(f"t{number}")[0]
        batch["time"] = batch["arrival"] = hour * HOUR
        batch["amount"] = 10_000
        self.state.apply(batch, self.state.card_numbers(batch))
        self.outcome.is_silent = silent
        self.group.count(batch, self.outcome)

    def label(self, number, hour):
        self.world.label(number, hour * HOUR - START, "early_warning")
        for as_record in as_records(self.world.labels[-1:]):
            self.group.fold(as_record, {})

    def written(self):
        facts = [json.loads(fact.value) for fact in self.outcome.records["merchant_facts"]]
        self.outcome = Outcome()
        return facts


NOW = START // HOUR


def test_an_hour_is_written_once_when_it_is_over():
    facts = Facts([NOW, NOW, NOW + 1])
    facts.group.settle((NOW + 1) * HOUR + SLACK_MS - 1, 0, facts.outcome)
    assert [fact["kind"] for fact in facts.written()] == ["promise"]
    facts.group.settle((NOW + 1) * HOUR + SLACK_MS, 0, facts.outcome)
    counts, promise = facts.written()
    assert (counts["hour"], counts["counts"], promise["until"]) == (NOW, [2], (NOW + 3) * HOUR)
    facts.group.settle((NOW + 1) * HOUR + 30 * MINUTE, 0, facts.outcome)
    assert facts.written() == []


def test_a_label_takes_effect_an_hour_after_its_hour():
    facts = Facts([NOW])
    facts.label(0, NOW + 5)
    facts.group.settle((NOW + 5) * HOUR, 0, facts.outcome)  # transactions of this arrival may follow
    assert "report" not in [fact["kind"] for fact in facts.written()]
    facts.group.settle((NOW + 5) * HOUR + 1, 0, facts.outcome)
    (report,) = facts.written()
    assert (report["arrival"], report["effective_at"]) == (NOW * HOUR, (NOW + 7) * HOUR)


def test_a_fact_after_a_promise_takes_effect_later_than_it():
    facts = Facts([NOW])
    facts.group.settle(IDLE, promise_of(NOW + 9), facts.outcome)
    assert facts.written()[-1]["until"] == (NOW + 11) * HOUR
    facts.label(0, NOW + 1)
    facts.group.settle(IDLE, promise_of(NOW + 9), facts.outcome)
    assert facts.outcome.counts["late_facts"] == 1
    (report,) = facts.written()
    assert report["effective_at"] == (NOW + 11) * HOUR
    # the count of hour NOW + 1 is promised and may have been used: the addition goes to NOW + 9, the first
    # hour after those that the promise covers
    facts.decide(1, NOW + 1)
    assert facts.outcome.counts["late_facts"] == 1
    (counts,) = facts.written()
    assert (counts["hour"], counts["counts"]) == (NOW + 9, [1])


def test_silently_repeated_decisions_write_no_fact_again():
    facts = Facts([])
    facts.group.table.fold(decoded([Author("card-fraud", 0).promise(promise_of(NOW + 2))], b"0"))
    facts.decide(0, NOW + 1, silent=True)
    facts.decide(1, NOW + 2, silent=True)
    facts.group.settle((NOW + 4) * HOUR, 0, facts.outcome)
    assert [(fact["hour"], fact["counts"]) for fact in facts.written() if fact["kind"] == "counts"] == [
        (NOW + 2, [1])
    ]


def test_open_hours_of_an_older_checkpoint_are_dropped_if_they_were_written_since():
    store, extra = MemoryPieces(), {}
    world, state = World(), GroupState(MemoryArena(), keeps_ids=True)

    def opened():
        return GroupFacts(0, merchant_rules(0), TOPICS, world.key_groups(), state, store, extra)

    before, batch = opened(), np.zeros(2, dtype=TRANSACTION)
    batch["merchant"], batch["arrival"] = hash_string("m")[0], [NOW * HOUR, (NOW + 1) * HOUR]
    before.count(batch, Outcome())
    before.persist(store)
    after, outcome = opened(), Outcome()
    after.table.fold(decoded([Author("card-fraud", 0).promise(promise_of(NOW + 1))], b"0"))
    after.settle((NOW + 3) * HOUR, 0, outcome)
    facts = [json.loads(fact.value) for fact in outcome.records["merchant_facts"]]
    assert [fact["hour"] for fact in facts if fact["kind"] == "counts"] == [NOW + 1]
