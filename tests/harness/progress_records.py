"""Progress records for the tests, each checked against its contract."""

from typing import Any

import orjson

from streaming_job.contracts import Contract, validate
from streaming_job.progress.totals import HISTOGRAMS, Totals

SINCE = 1_700_000_000_000


def progress(commit_id: int = 1, key_group: int = 0, key_groups: int = 1, **changes: Any) -> dict[str, Any]:
    """A record of one commit: 100 transactions, 3 alerts, 2 dead letters, 100 offsets a partition.

    The commit took 150 ms. The group reads partition `key_group` of the transactions and partition 0 of the
    profiles.
    """
    since = SINCE + (commit_id - 1) * 1_000
    times = {"max_event_time": SINCE + commit_id, "event_time": SINCE + commit_id, "watermark": SINCE - 1_000}
    no_times = dict.fromkeys(times)
    record: dict[str, Any] = {
        "schema_version": 2,
        "job_id": "card-fraud",
        "query_id": "q1",
        "release": "0.1.0+0123abcd",
        "key_group": key_group,
        "key_groups": key_groups,
        "commit_id": commit_id,
        "epoch": commit_id // 10,
        "started_at": since,
        "written_at": since + 150,
        "counts": {
            "records": 105,
            "transactions": 100,
            "duplicates": 1,
            "late": 4,
            "alerts": 3,
            "dead_letters": 2,
            "profile_changes": 2,
            "rollouts": 0,
            "late_table_changes": 0,
            "missing_profile": 7,
            "scoring_failures": 0,
        },
        "dead_letters_by_reason": {"malformed_json": 1, "too_late": 1},
        "dead_letters_by_topic": {"transactions": 2},
        "alerts_by_rule": {"score": 2, "velocity_5m": 2},
        "digests": dict.fromkeys(("alerts", "suppressed", "shadow_alerts"), "ab" * 32),
        "trials": {},
        "applied": [],
        "settings": {},
        "partitions": [
            {
                "topic": topic,
                "partition": partition,
                "start_offset": commit_id * 100 - 100,
                "end_offset": commit_id * 100,
                "active_at": since + 150,
                **(times if topic == "transactions" else no_times),
            }
            for topic, partition in (("transactions", key_group), ("profiles", 0))
        ],
        "lateness_ms": {"le": [0, 1_000], "counts": [60, 38, 2], "sum": 9_000},
        "latency_ms": {"le": [100, 200], "counts": [10, 80, 10], "sum": 15_000},
        "profile_age_ms": {"le": [1_000], "counts": [20, 30], "sum": 90_000},
        "scores": {"le": [0.5, 1.0], "counts": [97, 3, 0], "sum": 7.5},
        "phases_ms": {"decide": 80.0, "transaction": 20.0},
        "state": {
            "cards": 50,
            "cards_without_profile": 7,
            "events": 400,
            "local_bytes": 30_000,
            "rebuilds": 1,
        },
        "rollout_id": "card-fraud-1",
        "rollouts_set_aside": {},
        "model": {"name": "card-fraud", "version": "1", "digest": "cd" * 32},
        "table_lag": {},
        **changes,
    }
    partition_of = {
        **{name: record[name] for name in ("counts", "alerts_by_rule")},
        **{name: record[name] for name in ("dead_letters_by_reason", "dead_letters_by_topic")},
        **{name: record[name] for name in ("phases_ms", *HISTOGRAMS)},
        "trials": {},
        "since": SINCE,
        "commits": 1,
        "elapsed_ms": 150,
        "rebuilds": 1,
    }
    totals = Totals.of_groups([Totals.from_json(partition_of)] * commit_id)  # all commits are alike
    record["totals"] = orjson.loads(orjson.dumps(totals.to_json(), option=orjson.OPT_SERIALIZE_NUMPY))
    validate(Contract.JOB_PROGRESS, record)
    return record
