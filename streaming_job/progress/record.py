"""The progress record: what one micro-batch did, written in the transaction of its alerts."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_job.progress.outcome import LATENCY_MS, LATENESS_MS, PROFILE_AGE_MS, SCORES, Alert, Outcome

_READ = ("transactions", "duplicates", "profile_changes", "rollouts")
"""Counts that, with the dead letters, add up to the records read."""
_TOLD = ("late", "late_table_changes", "missing_profile", "scoring_failures", "split_cards")


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


def _as_json(counts: NDArray[np.int64], bounds: tuple[float, ...], total: float) -> dict[str, Any]:
    return {"le": list(bounds), "counts": counts.tolist(), "sum": total}


def _latencies(outcome: Outcome, now: int) -> dict[str, Any]:
    counts = np.zeros(len(LATENCY_MS) + 1, dtype=np.int64)
    for arrived, edges in outcome.arrivals:
        latency = now - (edges[:-1] + edges[1:]) / 2
        np.add.at(counts, np.searchsorted(LATENCY_MS, latency), arrived)
    return _as_json(counts, LATENCY_MS, int(counts.sum()) * now - outcome.sums["arrivals"])


def total_sizes(sizes: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    """State sizes of some key groups together.

    Args:
        sizes: by key group.
    """
    return {name: sum(each[name] for each in sizes.values()) for name in ("cards", "events", "local_bytes")}


def record(batch: Batch, outcome: Outcome, now: int) -> dict[str, Any]:
    """What job-progress.v1 says of this batch alone; the account adds what goes beyond it.

    Args:
        batch: the batch.
        outcome: of all its key groups.
        now: wall clock just before the commit, ms.
    """
    by_reason: dict[str, int] = {}
    for letter in outcome.dead_letters:
        by_reason[letter.reason.value] = by_reason.get(letter.reason.value, 0) + 1
    rollout = outcome.rollout or {}
    sums = outcome.sums
    return {
        "schema_version": 1,
        "job_id": batch.job_id,
        "query_id": batch.query_id,
        "batch_id": batch.batch_id,
        "started_at": batch.started_at,
        "written_at": now,
        "counts": {
            # what offsets say would count the markers of transactions, too
            "records": sum(outcome.counts[name] for name in _READ) + len(outcome.dead_letters),
            **{name: outcome.counts[name] for name in (*_READ, *_TOLD)},
            "alerts": len(outcome.alerts),
            "dead_letters": len(outcome.dead_letters),
        },
        "dead_letters_by_reason": by_reason,
        "alerts_by_rule": dict(outcome.rules),
        "alerts_digest": alerts_digest(outcome.alerts),
        "lateness_ms": _as_json(outcome.lateness, LATENESS_MS, sums["lateness_ms"]),
        "latency_ms": _latencies(outcome, now),
        "profile_age_ms": _as_json(outcome.profile_ages, PROFILE_AGE_MS, sums["profile_age_ms"]),
        "scores": _as_json(outcome.scores, SCORES, sums["scores"]),
        "phases_ms": {name: round(float(ms), 3) for name, ms in outcome.phases.items()},
        "state": {**total_sizes(outcome.sizes), "rebuilds": outcome.counts["rebuilds"]},
        "rollout_id": rollout.get("rollout_id"),
        "model": _model(rollout.get("model")),
    }


def _model(ref: Any) -> dict[str, str] | None:
    return None if ref is None else {"name": ref.name, "version": ref.version, "digest": ref.digest}
