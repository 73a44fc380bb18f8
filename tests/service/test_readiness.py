"""Lag by the broker's account, and when that makes the sidecar ready."""

from typing import Any

import pytest

from service.lag import Lag, PartitionLag
from service.readiness import reasons_against

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("start", "end", "committed", "records"),
    [
        (0, 10, None, 10),  # nothing committed: everything waits
        (4, 10, None, 6),
        (0, 10, 7, 3),
        (0, 10, 10, 0),
        (8, 10, 5, 2),  # retention took what was not processed
        (0, 10, 12, 0),  # the ends were read before the commit
    ],
)
def test_lag_is_what_the_broker_holds_and_the_job_has_not_read(
    start: int, end: int, committed: int | None, records: int
) -> None:
    assert PartitionLag("transactions", 0, start, end, committed).records == records


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
    assert lag.seconds(50.0) == 0.0  # clocks disagree


BUSY = Lag(0.0, (PartitionLag("transactions", 0, 0, 10, 5),))
IDLE = Lag(0.0, (PartitionLag("transactions", 0, 0, 10, 10),))


def reasons(**changes: Any) -> list[str]:
    given: dict[str, Any] = {
        "now_s": 1_000.0,
        "broker_fault": None,
        "waiting_for": None,
        "lag": BUSY,
        "last": {"written_at": 990_000},
        "max_age_s": 60.0,
    }
    return reasons_against(**{**given, **changes})


def test_a_job_that_commits_is_ready() -> None:
    assert reasons() == []


def test_an_idle_job_is_ready_however_old_its_last_batch() -> None:
    assert reasons(lag=IDLE, last={"written_at": 0}) == []
    assert reasons(lag=IDLE, last=None) == []


def test_a_job_that_stands_still_with_work_waiting_is_not() -> None:
    assert reasons(last={"written_at": 900_000}) == [
        "the last batch was committed 100 s ago and 5 records wait"
    ]
    assert reasons(last=None) == ["the job has not committed a batch yet and 5 records wait"]


def test_what_cannot_be_known_is_said() -> None:
    assert reasons(broker_fault="no broker", waiting_for="no topic") == ["no broker", "no topic"]
    assert reasons(broker_fault="no broker", lag=None) == ["no broker"]
    assert reasons(lag=Lag(0.0, (), missing=("transactions",))) == ["topic transactions does not exist"]
