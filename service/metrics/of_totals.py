"""Metrics of the job's totals since its first Kafka transaction."""

from collections.abc import Mapping

from prometheus_client.core import Metric

from service.health.recent import input_counts
from service.metrics.families import histogram, sample, samples, summary
from streaming_job.contracts.topics import Topics
from streaming_job.progress.totals import Totals

COUNTS = (
    "records", "transactions", "duplicates", "late", "alerts", "profile_changes", "ignored_profile_changes",
    "rollouts", "late_table_changes", "missing_profile", "scoring_failures", "shadow_alerts", "labels",
    "late_facts", "foreign_facts", "suppressed",
)  # fmt: skip
"""Names in a progress record's `counts`. Two are left out: `dead_letters`, exported by reason, and
`conflicting_repetition`, not exported."""


def of_totals(totals: Totals, topics: Topics) -> list[Metric]:
    """Return counters and histograms."""
    inputs = input_counts(totals, topics)
    histograms = totals.histograms
    return [
        sample("fraud_commits", totals.commits),
        *(sample(f"fraud_{name}", totals.counts[name]) for name in COUNTS),
        _by("fraud_dead_letters", totals.dead_letters),
        _by("fraud_input_records", {name: count.records for name, count in inputs.items()}),
        _by("fraud_input_dead_letters", {name: count.dead_letters for name, count in inputs.items()}),
        _by("fraud_alert_rules", totals.rules),
        _by("fraud_phase_seconds", {phase: ms / 1e3 for phase, ms in totals.phases_ms.items()}),
        sample("fraud_state_rebuilds", totals.rebuilds),
        summary("fraud_commit_interval_seconds", totals.commits, totals.elapsed_ms / 1e3),
        histogram("fraud_event_to_alert_seconds", histograms["latency_ms"], 1e-3),
        histogram("fraud_event_lateness_seconds", histograms["lateness_ms"], 1e-3),
        histogram("fraud_profile_age_seconds", histograms["profile_age_ms"], 1e-3),
        histogram("fraud_score", histograms["scores"]),
    ]


def _by(name: str, values: Mapping[str, float]) -> Metric:
    return samples(name, (([key], value) for key, value in sorted(values.items())))
