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
from service.metrics.families import add_histogram, empty, samples, state_set
from service.metrics.table import FAMILIES
from streaming_job.progress.histogram import Histogram

TrialCounts = tuple[list[str], Mapping[str, Any]]
"""([rollout, challenger], the challenger's counts)."""
MOST = 5
"""Maximum number of exported rollouts, and of exported challengers of each."""
GUARD_VERDICTS = ("pass", "breach", "insufficient")
ALERTED = ("both", "only_champion", "only_challenger")
COUNTS = ("transactions", "decided", "failures", "rows")


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
        state_set("fraud_rollout_phase", tuple(Phase), (([rollout], phase) for rollout, phase in phase_of)),
        samples("fraud_rollout_applied_seq", applied.items()),
    ]
    for name in COUNTS:
        values = ((key, float(counts.get(name, 0))) for key, counts in trial_counts)
        families.append(samples(f"fraud_trial_{name}", values))
    families.append(
        samples(
            "fraud_trial_verdicts",
            (([*key, who], float(counts.get(who, 0))) for key, counts in trial_counts for who in ALERTED),
        )
    )
    for unit in UNITS:
        values = (
            ([*key, who], float(counts.get(unit, {}).get(who, 0)))
            for key, counts in trial_counts
            for who in ALERTED
        )
        families.append(samples(f"fraud_trial_{unit}", values))
    return [*families, _times(trial_counts), _scores(trial_counts)]


def of_guards(findings: Iterable[tuple[str, str, str, str]]) -> list[Metric]:
    """Return the verdicts of the guards.

    Args:
        findings: (rollout_id, challenger, guard, one of GUARD_VERDICTS).
    """
    values = (([rollout, challenger, guard], verdict) for rollout, challenger, guard, verdict in findings)
    return [state_set("fraud_guard_verdict", GUARD_VERDICTS, islice(values, MOST * MOST * MOST))]


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
    return [samples("fraud_trial_labelled_cards", values)]


def _times(trial_counts: Sequence[TrialCounts]) -> Metric:
    fields = (("challenger", "time_ms"), ("champion", "champion_time_ms"))
    values = (
        ([*key, role], counts.get(name, 0) / 1e3) for key, counts in trial_counts for role, name in fields
    )
    return samples("fraud_trial_scoring_seconds", values)


def _scores(trial_counts: Sequence[TrialCounts]) -> Metric:
    family = empty("fraud_trial_score")
    for key, counts in trial_counts:
        for role, name in (("challenger", "scores"), ("champion", "champion_scores")):
            if counts.get(name):
                labels = dict(zip(FAMILIES[family.name].labels, (*key, role), strict=True))
                add_histogram(family, labels, Histogram.from_json(counts[name]))
    return family
