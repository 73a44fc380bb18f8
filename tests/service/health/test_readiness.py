"""Lag by the broker's offsets, and readiness."""

from typing import Any

import pytest

from service.health.job_watch import JobWatch
from service.health.lag import Lag, PartitionLag
from service.health.readiness import NAMES, Check, checks, reasons_of
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("start", "end", "committed", "records"),
    [
        (0, 10, None, 10),  # no offset committed: all records wait
        (4, 10, None, 6),
        (0, 10, 7, 3),
        (0, 10, 10, 0),
        (8, 10, 5, 2),  # retention deleted unprocessed records
        (0, 10, 12, 0),  # the ends were read before the commit
    ],
)
def test_lag_counts_records_on_the_broker_that_the_job_has_not_read(
    start: int, end: int, committed: int | None, records: int
) -> None:
    assert PartitionLag("transactions", 0, start, end, committed).records == records


@pytest.mark.parametrize(
    ("end", "committed", "held_from", "records", "held"),
    [
        (10, 4, 7, 3, 3),  # three can be read, three are in an open transaction or after one
        (10, 7, 7, 0, 3),
        (10, 8, 7, 0, 2),  # the last stable offset was read before the commit
        (10, 4, 12, 6, 0),  # the last stable offset was read after the end
        (10, None, 0, 0, 10),
    ],
)
def test_records_after_an_open_transaction_are_no_lag_of_the_job(
    end: int, committed: int | None, held_from: int, records: int, held: int
) -> None:
    lag = PartitionLag("transactions", 0, 0, end, committed, held_from=held_from)
    assert (lag.records, lag.held) == (records, held)


def test_lag_in_seconds_is_the_age_of_the_oldest_waiting_record() -> None:
    lag = Lag(
        100.0,
        (
            PartitionLag("transactions", 0, 0, 10, 10),
            PartitionLag("transactions", 1, 0, 10, 5, waiting_since_ms=60_000),
            PartitionLag("profiles", 0, 0, 10, 5, waiting_since_ms=90_000),
        ),
    )
    assert lag.records == 10
    assert lag.seconds(100.0) == 40.0
    assert Lag(100.0, ()).seconds(100.0) == 0.0
    assert lag.seconds(50.0) == 0.0  # not negative if clocks differ


NOW = 1_000.0


def lag(*records: int, topic: str = "tx", since_s: float = 0.0) -> Lag:
    """A lag of `records[n]` records in partition n, all waiting since the same time."""
    return Lag(
        NOW,
        tuple(
            PartitionLag(topic, number, 0, 10, 10 - waiting, int(since_s * 1000) if waiting else None)
            for number, waiting in enumerate(records)
        ),
    )


def group(number: int, *, written_s: float = NOW, taken_s: float = NOW, **changes: Any) -> dict[str, Any]:
    """Progress of one of two groups; each has the partition of its number."""
    entry = {"topic": "tx", "partition": number, "end_offset": 0, "active_at": int(taken_s * 1000)}
    table = {**entry, "topic": "table", "partition": 0, "active_at": int(NOW * 1000)}
    written = {"key_groups": 2, "written_at": int(written_s * 1000), "table_lag": {}}
    return {**written, "partitions": [entry, table], **changes}


def reasons(**changes: Any) -> list[str]:
    return reasons_of(looked_at(**changes))


def looked_at(**changes: Any) -> tuple[Check, ...]:
    given: dict[str, Any] = {
        "now_s": NOW,
        "broker_fault": None,
        "waiting_for": None,
        "lag": lag(5, 0),
        "groups": {0: group(0), 1: group(1)},
        "transactions_topic": "tx",
        "max_age_s": 60.0,
        "max_silence_s": 30.0,
    }
    return checks(**{**given, **changes})


def test_a_job_that_commits_is_ready() -> None:
    assert reasons() == []


def test_an_idle_job_is_ready_however_old_its_last_transaction() -> None:
    idle = {number: group(number, taken_s=0.0) for number in (0, 1)}
    assert reasons(lag=lag(0, 0), groups=idle) == []


def test_a_job_that_was_never_started_is_not_ready_even_without_waiting_records() -> None:
    assert reasons(lag=lag(0, 0), groups={}) == ["the job has not written progress yet; 0 records wait"]


def test_readiness_does_not_flap_when_a_record_arrives_after_idleness() -> None:
    """A record arrives an hour after the last one; the job stays ready until the record waits too long."""
    idle = {number: group(number, taken_s=NOW - 3_600) for number in (0, 1)}
    for waits_s in (0.0, 0.5, 5.0, 59.0):
        assert reasons(lag=lag(1, 0, since_s=NOW - waits_s), groups=idle) == []
    assert reasons(lag=lag(1, 0, since_s=NOW - 61), groups=idle) != []


def test_a_producers_open_transaction_that_holds_records_back_is_named() -> None:
    def held(since_s: float) -> Lag:
        return Lag(NOW, (PartitionLag("tx", 1, 0, 10, 7, int(since_s * 1000), held_from=7),))

    long_idle = {number: group(number, taken_s=0.0) for number in (0, 1)}
    assert reasons(lag=held(NOW - 2), groups=long_idle) == []
    assert reasons(lag=held(NOW - 90), groups=long_idle) == [
        "tx-1: 3 records have been waiting for 90 s for a producer to end its transaction"
    ]


def test_a_group_that_leaves_transactions_waiting_is_named() -> None:
    stalled = {0: group(0), 1: group(1, taken_s=900.0)}
    assert reasons(lag=lag(5, 3), groups=stalled) == [
        "key group 1 has taken no transactions for 100 s and 3 wait"
    ]
    assert reasons(lag=lag(5, 0), groups=stalled) == []
    assert reasons(lag=lag(3, 3, topic="table"), groups=stalled) == []
    # after 100 s without records, five transactions have just arrived
    assert reasons(lag=lag(0, 5, since_s=NOW - 1), groups=stalled) == []


def test_a_silent_group_is_named_even_without_waiting_records() -> None:
    silent = {0: group(0), 1: group(1, written_s=960.0)}
    assert reasons(lag=lag(0, 0), groups=silent) == ["key group 1 has written no progress for 40 s"]
    assert reasons(lag=lag(0, 0), groups={1: group(1)}) == ["key group 0 has not written progress yet"]


def test_a_group_that_loads_its_tables_says_how_far_it_is() -> None:
    loading = {0: group(0), 1: group(1, taken_s=0.0, table_lag={"profiles": 70_000})}
    assert reasons(lag=lag(0, 9), groups=loading) == [
        "key group 1 is loading its tables: 70000 records of profiles are left"
    ]


def test_unknown_values_are_reported_as_unknown() -> None:
    assert reasons(broker_fault="no broker", waiting_for="no topic") == ["no broker", "no topic"]
    assert reasons(broker_fault="no broker", lag=None) == ["no broker"]
    assert reasons(lag=Lag(0.0, (), missing=("tx",))) == ["topic tx does not exist"]
    assert reasons(groups={}) == ["the job has not written progress yet; 5 records wait"]


def test_each_check_is_listed_by_name_with_its_finding() -> None:
    def checks(**changes: Any) -> dict[str, Any]:
        return {check.name: check.to_json()["ok"] for check in looked_at(**changes)}

    assert checks() == dict.fromkeys(NAMES, True)
    silent = checks(groups={0: group(0), 1: group(1, written_s=960.0)})
    assert silent == {**dict.fromkeys(NAMES, True), "group_progress": False}
    nothing = checks(broker_fault="no broker", lag=None)
    assert nothing == {**dict.fromkeys(NAMES), "broker": False, "progress": True}
    unread = checks(waiting_for="not read to its end")
    assert (unread["progress"], unread["topics"], unread["job"]) == (False, True, None)
    none = [check for check in looked_at(groups={}) if check.name == "job"]
    assert [check.to_json() for check in none] == [
        {
            "name": "job",
            "ok": False,
            "code": "no_progress",
            "detail": "the job has not written progress yet; 5 records wait",
        }
    ]


def test_a_sidecar_that_watches_a_topic_that_the_job_has_left_is_not_ready() -> None:
    moved = {number: group(number, layout={"topic": "elsewhere"}) for number in range(2)}
    assert reasons(groups=moved, lag=lag(0, 0)) == [
        "the job decides elsewhere, this sidecar watches tx: correct FRAUD_TOPICS__TRANSACTIONS"
    ]


def test_progress_is_incomplete_while_look_ups_of_its_new_partitions_fail() -> None:
    watch = JobWatch(ServiceSettings(bootstrap_servers="127.0.0.1:1"), lambda: 0.0)
    watch.progress._behind, watch._lag_watch._fault = set(), None
    assert watch.view().progress_is_complete
    watch.progress.trouble = "new partitions cannot be looked up"
    assert not watch.view().progress_is_complete
    assert (watch.progress.trouble,) in [check.reasons for check in watch.checks()]
    watch._lag_watch._fault = "no broker"  # says it already
    assert watch.view().progress_is_complete
