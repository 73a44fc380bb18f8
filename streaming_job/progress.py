"""The progress record: what one micro-batch did, written in the transaction of its alerts."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from streaming_job.outcome import LATENCY_MS, LATENESS_MS, SCORES, Alert, Outcome

_READ = ("transactions", "duplicates", "profile_changes", "rollouts")
"""Counts that, with the dead letters, add up to the records read."""


@dataclass(frozen=True)
class OffsetRange:
    """What a batch read of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    """First offset not read."""


@dataclass(frozen=True)
class Batch:
    """Which batch a record is about."""

    job_id: str
    query_id: str
    batch_id: int
    started_at: int
    """Wall clock, ms."""
    ranges: tuple[OffsetRange, ...]


def alerts_digest(alerts: list[Alert]) -> str:
    """SHA-256 over the values of alerts in the order written."""
    digest = hashlib.sha256()
    for alert in alerts:
        digest.update(alert.value)
    return digest.hexdigest()


def _as_json(counts: NDArray[np.int64], bounds: tuple[float, ...]) -> dict[str, Any]:
    return {"le": list(bounds), "counts": counts.tolist()}


def _latencies(outcome: Outcome, now: int) -> NDArray[np.int64]:
    counts = np.zeros(len(LATENCY_MS) + 1, dtype=np.int64)
    for arrived, edges in outcome.arrivals:
        latency = now - (edges[:-1] + edges[1:]) / 2
        for bucket, count in zip(np.searchsorted(LATENCY_MS, latency), arrived, strict=True):
            counts[bucket] += count
    return counts


def record(batch: Batch, outcome: Outcome, transactions_topic: str, now: int) -> bytes:
    """A record of contract job-progress.v1.

    Args:
        batch: the batch.
        outcome: of all its key groups.
        transactions_topic: the topic that `outcome.max_event_times` is about.
        now: wall clock just before the commit, ms.
    """
    by_reason: dict[str, int] = {}
    for letter in outcome.dead_letters:
        by_reason[letter.reason.value] = by_reason.get(letter.reason.value, 0) + 1
    rollout = outcome.rollout or {}
    return orjson.dumps(
        {
            "schema_version": 1,
            "job_id": batch.job_id,
            "query_id": batch.query_id,
            "batch_id": batch.batch_id,
            "started_at": batch.started_at,
            "written_at": now,
            "counts": {
                # what offsets say would count the markers of transactions, too
                "records": sum(outcome.counts[name] for name in _READ) + len(outcome.dead_letters),
                **{name: outcome.counts[name] for name in (*_READ, "late", "late_table_changes")},
                "missing_profile": outcome.counts["missing_profile"],
                "scoring_failures": outcome.counts["scoring_failures"],
                "alerts": len(outcome.alerts),
                "dead_letters": len(outcome.dead_letters),
            },
            "dead_letters_by_reason": by_reason,
            "alerts_by_rule": dict(outcome.rules),
            "alerts_digest": alerts_digest(outcome.alerts),
            "partitions": [
                {
                    "topic": part.topic,
                    "partition": part.partition,
                    "start_offset": part.start,
                    "end_offset": part.end,
                    "max_event_time": outcome.max_event_times.get(part.partition)
                    if part.topic == transactions_topic
                    else None,
                }
                for part in batch.ranges
            ],
            "lateness_ms": _as_json(outcome.lateness, LATENESS_MS),
            "latency_ms": _as_json(_latencies(outcome, now), LATENCY_MS),
            "scores": _as_json(outcome.scores, SCORES),
            "phases_ms": {name: round(float(ms), 3) for name, ms in outcome.phases.items()},
            "state": {name: outcome.state[name] for name in ("cards", "events", "local_bytes", "rebuilds")},
            "rollout_id": rollout.get("rollout_id"),
            "model": _model(rollout.get("model")),
        }
    )


def _model(ref: Any) -> dict[str, str] | None:
    return None if ref is None else {"name": ref.name, "version": ref.version, "digest": ref.digest}
