"""Metrics of rollouts, their challengers and guards.

The number of label values is bounded: progress records keep the newest events, and the counts of the newest
three trials, with up to four challengers each; at most MOST rollouts, and MOST challengers of each, are
exported.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from prometheus_client.core import Metric

from models.guards.counts import Labelled
from models.rollouts.state import Phase
from service.health.groups import Groups
from service.health.rollout_progress import UNITS, phases, trials
from service.metrics.families import add_histogram, counters, gauges, state_set
from streaming_job.progress.histogram import Histogram

TrialCounts = tuple[list[str], Mapping[str, Any]]
"""([rollout, challenger], the challenger's counts)."""
MOST = 5
"""Maximum number of exported rollouts, and of exported challengers of each."""
LABELS = ["rollout_id", "challenger"]
GUARD_VERDICTS = ("pass", "breach", "insufficient")
ALERTED = ("both", "only_champion", "only_challenger")
COUNTS = {
    "transactions": "Transactions that the challenger was asked to score",
    "decided": "Transactions that the challenger decided",
    "failures": "Transactions for which the challenger returned no score",
    "rows": "Rows given to the challenger's model: one for each of fraud_trial_transactions",
}


def of_rollouts(groups: Groups) -> list[Metric]:
    """Return phases, applied events and challengers' counts; without rollouts, the families are empty."""
    phase_of = list(phases(groups).items())[-MOST:]
    applied = {
        (str(group), event["rollout_id"]): float(event["seq"])
        for group, record in groups.items()
        for event in sorted(record["applied"], key=lambda event: event["offset"])
        if event["rollout_id"] in dict(phase_of)
    }
    trial_counts = [
        ([rollout, name], counts)
        for rollout, challengers in list(trials(groups).items())[-MOST:]
        for name, counts in list(challengers.items())[:MOST]
    ]
    families = [
        state_set(
            "fraud_rollout_phase",
            "Phase of the rollout",
            ["rollout_id"],
            tuple(Phase),
            (([rollout], phase) for rollout, phase in phase_of),
        ),
        gauges(
            "fraud_rollout_applied_seq",
            "Number of the rollout's last event that the key group has applied",
            ["key_group", "rollout_id"],
            ((list(key), seq) for key, seq in applied.items()),
        ),
    ]
    for name, meaning in COUNTS.items():
        values = ((key, float(counts.get(name, 0))) for key, counts in trial_counts)
        families.append(counters(f"fraud_trial_{name}", meaning, LABELS, values))
    families.append(
        counters(
            "fraud_trial_verdicts",
            "Transactions in which champion, challenger or both would alert",
            [*LABELS, "alerted"],
            (([*key, who], float(counts.get(who, 0))) for key, counts in trial_counts for who in ALERTED),
        )
    )
    for unit in UNITS:
        values = (
            ([*key, who], float(counts.get(unit, {}).get(who, 0)))
            for key, counts in trial_counts
            for who in ALERTED
        )
        meaning = f"{unit.replace('_', '-').capitalize()} in which champion, challenger or both alerted"
        families.append(gauges(f"fraud_trial_{unit}", meaning, [*LABELS, "alerted"], values))
    return [*families, _times(trial_counts), _scores(trial_counts)]


def of_guards(findings: Iterable[tuple[str, str, str, str]]) -> list[Metric]:
    """Return the verdicts of the guards.

    Args:
        findings: (rollout_id, challenger, guard, one of GUARD_VERDICTS).
    """
    values = (([rollout, challenger, guard], verdict) for rollout, challenger, guard, verdict in findings)
    return [
        state_set(
            "fraud_guard_verdict",
            "Verdict of the guard on the challenger so far",
            [*LABELS, "guard"],
            GUARD_VERDICTS,
            islice(values, MOST * MOST * MOST),
        )
    ]


def of_labelled(cards: Iterable[tuple[str, str, str, Labelled]]) -> list[Metric]:
    """Return the labelled cards of a trial as gauges, because labels may be reversed.

    Args:
        cards: (rollout_id, name of the challenger, role `challenger` or `champion`, counts).
    """
    values = (
        ([rollout, challenger, role, outcome], float(number))
        for rollout, challenger, role, counts in islice(cards, 2 * MOST)
        for outcome, number in counts.to_json().items()
    )
    return [
        gauges(
            "fraud_trial_labelled_cards",
            "Cards on which the model alerted in the trial, by the label of their first labelled alert",
            [*LABELS, "role", "outcome"],
            values,
        )
    ]


def _times(trial_counts: Sequence[TrialCounts]) -> Metric:
    fields = (("challenger", "time_ms"), ("champion", "champion_time_ms"))
    values = (
        ([*key, role], counts.get(name, 0) / 1e3) for key, counts in trial_counts for role, name in fields
    )
    return counters("fraud_trial_scoring_seconds", "Time that scoring took", [*LABELS, "role"], values)


def _scores(trial_counts: Sequence[TrialCounts]) -> Metric:
    meaning = "Scores of challenger and champion for the same transactions"
    family = Metric("fraud_trial_score", meaning, "histogram")
    for key, counts in trial_counts:
        for role, name in (("challenger", "scores"), ("champion", "champion_scores")):
            if counts.get(name):
                labels = {**dict(zip(LABELS, key, strict=True)), "role": role}
                add_histogram(family, labels, Histogram.from_json(counts[name]))
    return family
