"""Progress records of one key group: they keep their contract, continue from each other, and are cheap."""

import hashlib
from typing import Any

import numpy as np
import orjson
import pytest

from models.registry import ModelRef
from streaming_job.contracts import Contract, Reason, validate
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import LATENCY_MS, LATENESS_MS, Outcome, OutputRecord, PartitionTimes
from streaming_job.progress.totals import HISTOGRAMS
from streaming_job.progress.writer import GroupProgress

pytestmark = pytest.mark.unit

NOW = 1_780_000_000_000
MODEL = ModelRef("card-fraud", "1", "models:/card-fraud/1", "d" * 64, ("amount:1",))
SIZES = {"cards": 5, "cards_without_profile": 2, "events": 50, "local_bytes": 500}


def group(last: dict[str, Any] | None = None, commit_id: int = 0) -> GroupProgress:
    return GroupProgress("job", "query", 1, 2, last, commit_id)


def test_group_0_describes_the_job_and_the_others_do_not() -> None:
    described = [
        GroupProgress("job", "query", number, 2, None, computed=["amount:1"], fixed={"label_delay_ms": 5})
        for number in (0, 1)
    ]
    records = [record(progress, outcome()) for progress in described]
    assert [(kept.get("features"), kept.get("label_delay_ms")) for kept in records] == [
        (["amount:1"], 5),
        (None, None),
    ]


def ends(transactions: int = 0) -> Offsets:
    return {("tx", 1): transactions, ("profiles", 0): 7}


def outcome(transactions: int = 10, **changes: Any) -> Outcome:
    """An outcome: transactions that arrived 1, 2, 3 ... ms ago, one alert and one dead letter."""
    result = Outcome(
        arrivals=NOW - 1 - np.arange(transactions),
        partitions={1: PartitionTimes(NOW - 20, NOW - 1, np.bincount([2], minlength=len(LATENESS_MS) + 1))},
        rollout={"number": 3, "rollout_id": "r3", "model": MODEL},
        sizes=SIZES,
    )
    result.records["fraud_alerts"].append(OutputRecord(b"card", b'{"alert": 1}', 1, 4))
    letter = DeadLetter("tx", 1, 5, NOW, b"card", None, Reason.WRONG_PARTITION, "why")
    result.records["dead_letters"].append(letter)
    result.counts.update(transactions=transactions, duplicates=2, profile_changes=1, late_table_changes=1)
    result.counts["conflicting_repetition"] = 3
    result.rules["score"] = 1
    result.phases["decide"] = 1.25
    for name, value in changes.items():
        setattr(result, name, value)
    return result


def record(progress: GroupProgress, made: Outcome, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "epoch": 4,
        "started_at": NOW - 100,
        "now": NOW,
        "starts": ends(),
        "ends": ends(13),
        "transactions_topic": "tx",
        "table_lag": {},
    }
    fields: dict[str, Any] = orjson.loads(progress.record(made, **{**given, **changes}))
    validate(Contract.JOB_PROGRESS, fields)
    return fields


def test_a_record_has_the_outcome_of_the_log_between_its_offsets() -> None:
    fields = record(group(), outcome())
    names = ("job_id", "query_id", "key_group", "key_groups", "commit_id", "epoch")
    assert [fields[name] for name in names] == ["job", "query", 1, 2, 1, 4]
    assert fields["counts"] == {
        "records": 14, "transactions": 10, "duplicates": 2, "profile_changes": 1, "rollouts": 0, "late": 0,
        "conflicting_repetition": 3,
        "late_table_changes": 1, "ignored_profile_changes": 0,
        "missing_profile": 0, "scoring_failures": 0, "alerts": 1, "suppressed": 0,
        "shadow_alerts": 0, "dead_letters": 1,
    }  # fmt: skip
    assert fields["dead_letters_by_reason"] == {"wrong_partition": 1}
    assert fields["dead_letters_by_topic"] == {"tx": 1}
    assert fields["digests"]["alerts"] == hashlib.sha256(b'{"alert": 1}').hexdigest()
    assert fields["state"] == {**SIZES, "rebuilds": 0}
    assert fields["model"] == {"name": "card-fraud", "version": "1", "digest": "d" * 64}
    partitions = [
        (p["topic"], p["start_offset"], p["end_offset"], p["event_time"]) for p in fields["partitions"]
    ]
    assert partitions == [("profiles", 7, 7, None), ("tx", 0, 13, NOW - 20)]


def test_latencies_are_exact() -> None:
    fields = record(group(), outcome(arrivals=NOW - np.array([5, 6, 20, 21, 4_000_000])))
    expected = dict.fromkeys((*LATENCY_MS, None), 0) | {5.0: 1, 10.0: 1, 20.0: 1, 50.0: 1, None: 1}
    assert fields["latency_ms"]["counts"] == list(expected.values())
    assert fields["latency_ms"]["sum"] == 5 + 6 + 20 + 21 + 4_000_000


def test_totals_and_numbers_continue_from_the_last_record_in_any_process() -> None:
    stays, last = group(), None
    for commit_id in range(1, 5):
        started = NOW - 100 + commit_id
        fields = record(stays, outcome(commit_id), started_at=started)
        again = record(group(last), outcome(commit_id), started_at=started)
        assert again == fields
        assert fields["commit_id"] == fields["totals"]["commits"] == commit_id
        last = fields
    assert last is not None
    totals = last["totals"]
    assert totals["counts"]["transactions"] == 1 + 2 + 3 + 4
    assert totals["dead_letters_by_reason"] == {"wrong_partition": 4}
    assert totals["dead_letters_by_topic"] == {"tx": 4}
    assert totals["alerts_by_rule"] == {"score": 4}
    assert totals["elapsed_ms"] == 99 + 98 + 97 + 96
    assert totals["phases_ms"] == {"decide": 5.0}
    assert totals["since"] == NOW - 99
    assert sum(totals["latency_ms"]["counts"]) == 10
    assert set(HISTOGRAMS) < set(totals)


def test_an_idle_group_repeats_its_last_record() -> None:
    progress = group()
    record(progress, outcome())
    idle = record(progress, Outcome(), starts=ends(13), now=NOW + 10_000, table_lag={"profiles": 3})
    assert (idle["rollout_id"], idle["model"]["version"], idle["state"]) == (
        "r3",
        "1",
        {**SIZES, "rebuilds": 0},
    )
    assert idle["counts"]["records"] == 0
    assert idle["table_lag"] == {"profiles": 3}
    assert [part["active_at"] for part in idle["partitions"]] == [None, NOW]


def test_a_new_job_has_nothing_to_repeat() -> None:
    fields = record(group(), Outcome(), ends=ends())
    assert (fields["rollout_id"], fields["model"], fields["state"]["cards"]) == (None, None, 0)


def test_numbers_continue_from_the_offsets_if_they_are_ahead_of_the_topic() -> None:
    assert group(None, 41).commit_id == 41
    last = record(group(None, 41), outcome())
    assert last["commit_id"] == 42
    assert last["totals"]["commits"] == 1
    assert group(last, 7).commit_id == 42


@pytest.mark.parametrize(
    ("started", "now", "carries"),
    [(NOW + 1, NOW + 9_999, False), (NOW + 9_999, NOW + 10_000, True), (NOW - 60_000, NOW, True)],
)
def test_the_first_record_of_each_ten_seconds_carries_feature_counts(
    started: int, now: int, carries: bool
) -> None:
    counts = {
        "model": {"name": "m", "version": "1", "digest": "d" * 64}, "sampled": 8, "hour": 3,
        "features": ("amount",), "trained": np.array([[4, 5, 0]]), "counts": np.array([[1, 2, 3]]),
        "recent": np.array([[0, 2, 3]]),
    }  # fmt: skip
    fields = record(group(), outcome(feature_counts=lambda: counts), started_at=started, now=now)
    assert ("feature_counts" in fields) == carries
    if carries:
        assert fields["feature_counts"]["counts"] == [[1, 2, 3]]
