"""Example answers of the routes of health, for the OpenAPI document."""

from typing import Any

AT = 1_763_873_700
ALIVE = {"status": "ok"}
READY: dict[str, Any] = {
    "ready": True,
    "reasons": [],
    "checks": [{"name": "broker", "ok": True, "code": "broker_unreachable", "detail": ""}],
}
NOT_READY: dict[str, Any] = {
    "ready": False,
    "reasons": ["key group 0 has written no progress for 31 s"],
    "checks": [
        {
            "name": "group_progress", "ok": False, "code": "group_silent",
            "detail": "key group 0 has written no progress for 31 s",
        }
    ],
}  # fmt: skip
METRICS = """\
# HELP fraud_lag_records Records that could have been processed and are not
# TYPE fraud_lag_records gauge
fraud_lag_records 12.0
"""
STATUS: dict[str, Any] = {
    "job_id": "card-fraud",
    "now": AT + 0.25,
    "verdict": "WARN",
    "reasons": [
        {
            "code": "falling_behind",
            "detail": "transactions-1: 2328 records wait, the oldest for 58 s (limit 10.0 s)",
            "since": AT - 58.0,
            "runbook": "docs/runbook.md#falling_behind",
        }
    ],
    "parts": [{"name": "broker", "state": "ok", "detail": ""}],
    "throughput_per_s": 498.2,
    "latency_ms": {"p50": 10.1, "p95": 14.2, "p99": 21.3},
    "inputs": [
        {
            "topic": "transactions", "partition": 1, "lag_records": 2328, "lag_seconds": 58.1, "held": 0,
            "position": 80_977, "stable_end": 83_305, "end": 83_305, "verdict": "WARN",
            "code": "falling_behind", "detail": "2328 records wait, the oldest for 58 s (limit 10.0 s)",
            "since": AT - 58.0, "runbook": "docs/runbook.md#falling_behind",
        }
    ],
    "watermark": {"timestamp": AT - 1.5, "age_s": 1.75, "idle": [{"topic": "transactions", "partition": 0}]},
    "profiles": {"change_age_s": 41.0, "heartbeat_age_s": 3.2},
    "dead_letters": {"too_late": 3},
    "recent": {
        "window_s": 300.0,
        "inputs": {
            "transactions": {"records": 149_424, "dead_letters": 3},
            "profiles": {"records": 212, "dead_letters": 0},
            "labels": {"records": 0, "dead_letters": 0},
            "rollouts": {"records": 0, "dead_letters": 0},
            "schemas": {"records": 0, "dead_letters": 0},
        },
        "transactions": 149_421, "scoring_failures": 0, "foreign_facts": 0, "retired": 0,
    },
    "state": {
        "cards": 50_000, "cards_without_profile": 120, "events": 4_100_000, "local_bytes": 210_000_000,
        "key_groups": 2, "table_lag": 0, "progress_age_s": {"0": 0.02, "1": 0.01},
    },
    "epoch": {"number": 318, "age_s": {"0": 7.4, "1": 7.4}, "checkpoint_age_s": 7.4},
    "rollout": {
        "champion": {
            "rollout_id": "card-fraud-6",
            "model": {"name": "card-fraud", "version": "6", "digest": "ab" * 32},
        },
        "open": None,
    },
    "feature_drift": None,
    "limits": {"commit_s": 10.0, "latency_s": 10.0, "held_s": 60.0, "heartbeat_s": 102.0, "epoch_s": 201.0},
    "versions": {"sidecar": "0.1.0", "python": "3.11.9", "job": "0.1.0+3f2a9c1e"},
    "takeover": {
        "query_id": "b4a54ef4-8810-453b-9d0a-080a51fee020",
        "release": "0.1.0+5f5faa5d",
        "key_groups": 2,
        "asked_by": "ines",
        "at": 1766404800.0,
    },
    "restarts": 0,
}  # fmt: skip
PROGRESS: dict[str, Any] = {
    "key_groups": 1,
    "groups": {
        "0": {
            "schema_version": 2, "job_id": "card-fraud", "query_id": "9d2f",
            "release": "0.1.0+3f2a9c1e", "key_group": 0, "key_groups": 1,
            "commit_id": 4711, "epoch": 318, "started_at": AT * 1000 - 5, "written_at": AT * 1000,
            "alerts_by_rule": {"score": 2}, "dead_letters_by_reason": {}, "rollout_id": "card-fraud-6",
        }
    },
}  # fmt: skip
"""Abbreviated: a real record has all fields of the contract job-progress.v2."""
