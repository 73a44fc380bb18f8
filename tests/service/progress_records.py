"""Progress records for the tests, each checked against its contract."""

from typing import Any

from streaming_job.contracts import Contract, validate
from streaming_job.progress.totals import Totals

SINCE = 1_700_000_000_000


def progress(batch_id: int = 0, query_id: str = "q1", **changes: Any) -> dict[str, Any]:
    """One batch: 100 transactions, 3 alerts, 2 dead letters, 150 ms; offsets grow by 100 a batch."""
    record: dict[str, Any] = {
        "schema_version": 1,
        "job_id": "card-fraud",
        "query_id": query_id,
        "batch_id": batch_id,
        "started_at": 1_700_000_000_000 + batch_id * 1_000,
        "written_at": 1_700_000_000_150 + batch_id * 1_000,
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
        "alerts_by_rule": {"score": 2, "velocity_5m": 2},
        "alerts_digest": "ab" * 32,
        "partitions": [
            {
                "topic": "transactions",
                "partition": 0,
                "start_offset": batch_id * 100,
                "end_offset": batch_id * 100 + 100,
                "max_event_time": 1_700_000_000_000 + batch_id,
                "event_time": 1_700_000_000_000 + batch_id,
                "watermark": 1_699_999_999_000 + batch_id,
                "active_at": 1_700_000_000_150 + batch_id * 1_000,
            }
        ],
        "lateness_ms": {"le": [0, 1_000], "counts": [60, 38, 2], "sum": 9_000},
        "latency_ms": {"le": [100, 200], "counts": [10, 80, 10], "sum": 15_000},
        "profile_age_ms": {"le": [1_000], "counts": [20, 30], "sum": 90_000},
        "scores": {"le": [0.5, 1.0], "counts": [97, 3, 0], "sum": 7.5},
        "phases_ms": {"keyed_stage": 80.0, "sink": 20.0},
        "state": {"cards": 50, "events": 400, "local_bytes": 30_000, "rebuilds": 1},
        "rollout_id": "card-fraud-1",
        "model": {"name": "card-fraud", "version": "1", "digest": "cd" * 32},
        **changes,
    }
    totals = Totals()
    for _ in range(batch_id + 1):  # all batches were alike
        totals = totals.plus(record)
    totals.since = SINCE
    record["totals"] = totals.to_json()
    validate(Contract.JOB_PROGRESS, record)
    return record
