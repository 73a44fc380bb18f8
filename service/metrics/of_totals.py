"""Metrics of the job's totals since its first Kafka transaction."""

from collections.abc import Mapping

from prometheus_client.core import Metric

from service.health.recent import input_counts
from service.metrics.families import histogram, sample, samples, summary
from service.metrics.table import WORK
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.progress.totals import Totals

ALARMING = (
    Reason.RETIRED_TOPIC,
    Reason.INCOMPATIBLE_FEATURES,
    Reason.MODEL_UNAVAILABLE,
    Reason.MODEL_REFUSED,
    Reason.UNKNOWN_ROLLOUT,
    Reason.LAST_ROLLOUT,
    Reason.ROLLOUT_CONFLICT,
    Reason.SECOND_PERSON_MISSING,
)
"""Reasons of which one dead letter alerts: `increase` sees the first one only if 0 was exported before it."""


def of_totals(totals: Totals, topics: Topics) -> list[Metric]:
    """Return counters and histograms."""
    inputs = input_counts(totals, topics)
    histograms = totals.histograms
    others = {"fraud_commits": totals.commits, "fraud_state_rebuilds": totals.rebuilds}
    counts = (family.name for family in WORK if not family.labels and family.name not in others)
    return [
        *(sample(name, value) for name, value in others.items()),
        *(sample(name, totals.counts[name.removeprefix("fraud_")]) for name in counts),
        _by("fraud_dead_letters", {**dict.fromkeys(ALARMING, 0), **totals.dead_letters}),
        _by("fraud_input_records", {name: count.records for name, count in inputs.items()}),
        _by("fraud_input_dead_letters", {name: count.dead_letters for name, count in inputs.items()}),
        _by("fraud_alert_rules", totals.rules),
        _by("fraud_phase_seconds", {phase: ms / 1e3 for phase, ms in totals.phases_ms.items()}),
        summary("fraud_commit_interval_seconds", totals.commits, totals.elapsed_ms / 1e3),
        histogram("fraud_event_to_alert_seconds", histograms["latency_ms"], 1e-3),
        histogram("fraud_event_lateness_seconds", histograms["lateness_ms"], 1e-3),
        histogram("fraud_profile_age_seconds", histograms["profile_age_ms"], 1e-3),
        histogram("fraud_score", histograms["scores"]),
    ]


def _by(name: str, values: Mapping[str, float]) -> Metric:
    return samples(name, (([key], value) for key, value in sorted(values.items())))
