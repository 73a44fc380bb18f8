"""Benchmark figures from progress records and from processes; keys of raw records. No job runs."""

import json
import os
from typing import Any

import pytest

from loadtests.bench import throughput
from loadtests.bench.job_usage import JobUsage
from loadtests.bench.rig import BenchError, MeasuredCommit
from loadtests.bench.throughput import Backlog
from loadtests.faults.record_producer import NO_CARD, card_of

pytestmark = pytest.mark.unit


def commit(group: int, written_at: int, decided: int, repeated: int = 0) -> MeasuredCommit:
    return MeasuredCommit(group, written_at, decided, repeated, {"decode": 1.0, "take": 2.0})


def test_the_rate_of_a_backlog_is_measured_from_the_end_of_the_first_commit():
    """The backlog begins after 100 transactions; each group's first commit of the backlog is not measured.

    Transactions decided (+ repeated) by each commit; a commit without transactions (-) does not count:

    ms       0     5,000   10,000  10,100  11,000  12,100   20,000
    group 0  100           10              300              -
    group 1        -               20              400+100
    """
    commits = [
        commit(0, 0, 100),
        commit(1, 5_000, 0),
        commit(0, 10_000, 10),
        commit(1, 10_100, 20),
        commit(0, 11_000, 300),
        commit(1, 12_100, 400, repeated=100),
        commit(0, 20_000, 0),
    ]
    figures = {figure.name: figure for figure in throughput.figures(commits, Backlog(100, 830))}
    assert figures["throughput"].value == pytest.approx(800 / 2.1)
    assert figures["throughput"].rounds == (0, 300)
    assert figures["events of a commit"].value == 400
    assert figures["phase decode"].value == pytest.approx(1000 * 2 / 800)


def test_a_backlog_of_one_commit_has_no_rate():
    with pytest.raises(BenchError, match="give more --events"):
        list(throughput.figures([commit(0, 0, 100), commit(0, 1, 10)], Backlog(100, 10)))


def test_commit_is_the_measured_part_of_a_progress_record():
    counts = {"transactions": 5, "duplicates": 2}
    record: dict[str, Any] = {"key_group": 1, "written_at": 7, "counts": counts, "phases_ms": {"take": 0.5}}
    assert MeasuredCommit.of(record) == MeasuredCommit(1, 7, 5, 2, {"take": 0.5})


def test_the_processor_time_of_a_process_counts_from_the_first_sample():
    usage = JobUsage(os.getpid())
    usage.sample()
    before = os.times()
    while os.times().user - before.user < 0.2:
        pass
    usage.sample()
    usage.measure_memory()
    assert 0 < usage.cores() < 4
    assert usage.peak_memory > 2**20


@pytest.mark.parametrize(
    ("value", "card"),
    [
        (json.dumps({"card_id": "größe"}).encode(), "größe".encode()),
        (b'{"card_id": 7}', NO_CARD),
        (b'{"card_id": ""}', NO_CARD),
        (b'{"card_id": "c"', NO_CARD),
        (b"[1]", NO_CARD),
        (b"\xff", NO_CARD),
        (b"", NO_CARD),
        (None, NO_CARD),
    ],
)
def test_raw_records_have_the_key_of_their_card(value, card):
    assert card_of(value) == card
