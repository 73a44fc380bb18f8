"""Metrics of the job's totals since its first Kafka transaction."""

from prometheus_client.core import Metric, SummaryMetricFamily

from service.health.recent import input_counts
from service.metrics.families import counter, counters_by, histogram
from streaming_job.contracts.topics import Topics
from streaming_job.progress.totals import Totals

COUNTS = {
    "records": "Records read from the input topics",
    "transactions": "Transactions decided",
    "duplicates": "Transactions left out because they had already been decided",
    "late": "Transactions decided after a transaction of the same card with a later event time",
    "alerts": "Fraud alerts written",
    "profile_changes": "Valid profile changes read",
    "ignored_profile_changes": "Profile changes not applied, because their card has a newer one",
    "rollouts": "Rollout events applied",
    "late_table_changes": "Profile changes read after a transaction that should have used them was decided",
    "missing_profile": "Transactions decided without a profile of their card",
    "scoring_failures": "Transactions without a score from the model: the other rules decided alone",
    "shadow_alerts": "Verdicts of challengers that differ from the champion's",
    "labels": "Labels whose transaction was found in the card's history",
    "late_facts": "Merchant facts that may take effect late: written after a promise that should cover them",
    "foreign_facts": "Records on the topic of merchant facts that no job wrote, and that are skipped",
    "suppressed": "Alerts suppressed because the card had one within the cooldown",
}
"""Name in a progress record's `counts` -> help text. Two of these counts are left out:
`dead_letters`, exported by reason, and `conflicting_repetition`, not exported."""


def of_totals(totals: Totals, topics: Topics) -> list[Metric]:
    """Return counters and histograms."""
    inputs = input_counts(totals, topics)
    families: list[Metric] = [counter("fraud_commits", "Kafka transactions committed", totals.commits)]
    for name, meaning in COUNTS.items():
        families.append(counter(f"fraud_{name}", meaning, totals.counts[name]))
    return [
        *families,
        counters_by("fraud_dead_letters", "Dead letters written", "reason", totals.dead_letters),
        counters_by(
            "fraud_input_records",
            "Records processed, by input",
            "input",
            {name: count.records for name, count in inputs.items()},
        ),
        counters_by(
            "fraud_input_dead_letters",
            "Dead letters written, by input",
            "input",
            {name: count.dead_letters for name, count in inputs.items()},
        ),
        counters_by("fraud_alert_rules", "Alerts in which the rule fired", "rule", totals.rules),
        counters_by(
            "fraud_phase_seconds",
            "Time spent in a phase of the work",
            "phase",
            {phase: ms / 1e3 for phase, ms in totals.phases_ms.items()},
        ),
        counter("fraud_state_rebuilds", "Working copies rebuilt from the checkpoint", totals.rebuilds),
        SummaryMetricFamily(
            "fraud_commit_interval_seconds",
            "Time between two commits of a key group",
            count_value=totals.commits,
            sum_value=totals.elapsed_ms / 1e3,
        ),
        histogram(
            "fraud_event_to_alert_seconds",
            "Time from a transaction's arrival to the commit of its decision, with or without an alert",
            totals.histograms["latency_ms"],
            1e-3,
        ),
        histogram(
            "fraud_event_lateness_seconds",
            "Time from a transaction's event time to its arrival",
            totals.histograms["lateness_ms"],
            1e-3,
        ),
        histogram(
            "fraud_profile_age_seconds",
            "Age of the profiles with which transactions were decided",
            totals.histograms["profile_age_ms"],
            1e-3,
        ),
        histogram("fraud_score", "Scores of the model that decided", totals.histograms["scores"]),
    ]
