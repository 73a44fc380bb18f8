"""Metrics of rollouts, their challengers and guards.

The number of label values is bounded: progress records keep the newest events, and the counts of the newest
three trials, with up to four challengers each; at most MOST rollouts, and MOST challengers of each, are
exported.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from prometheus_client.core import Metric

from models.guards.counts import Labelled
from models.rollouts.state import Phase
from service.health.groups import Groups
from service.health.rollout_progress import phases, trials
from service.metrics.families import add_histogram, empty, samples, state_set
from service.metrics.table import FAMILIES
from streaming_job.progress.trials import PAIRED, ChallengerCounts

Challengers = Sequence[tuple[list[str], ChallengerCounts]]
"""([rollout, challenger], the challenger's counts)."""
MOST = 5
"""Maximum number of exported rollouts, and of exported challengers of each."""
GUARD_VERDICTS = ("pass", "breach", "insufficient")
COUNTS = ("transactions", "decided", "failures", "rows")


def of_rollouts(groups: Groups) -> list[Metric]:
    """Return phases, applied events and challengers' counts; without rollouts, the families are empty."""
    phase_of = list(phases(groups).items())[-MOST:]
    exported = dict(phase_of)
    applied = {
        (str(group), rollout): 0.0 for group, rollout in _not_reached(groups) if rollout in exported
    } | {
        (str(group), event["rollout_id"]): float(event["seq"])
        for group, record in groups.items()
        for event in sorted(record["applied"], key=lambda event: event["offset"])
        if event["rollout_id"] in exported
    }
    challengers = [
        ([rollout, name], counts)
        for rollout, trial in list(trials(groups).items())[-MOST:]
        for name, counts in list(trial.challengers.items())[:MOST]
    ]
    families = [
        state_set("fraud_rollout_phase", tuple(Phase), (([rollout], phase) for rollout, phase in phase_of)),
        samples("fraud_rollout_applied_seq", applied.items()),
    ]
    for name in COUNTS:
        values = ((key, float(counts.numbers[name])) for key, counts in challengers)
        families.append(samples(f"fraud_trial_{name}", values))
    for unit, field in (("verdicts", "numbers"), ("card_hours", "card_hours"), ("cards", "cards")):
        values = (
            ([*key, who], float(getattr(counts, field)[who])) for key, counts in challengers for who in PAIRED
        )
        families.append(samples(f"fraud_trial_{unit}", values))
    return [*families, _times(challengers), _scores(challengers)]


def _not_reached(groups: Groups) -> Iterator[tuple[int, str]]:
    """Yield (key group, rollout_id) of rollouts that begin behind all events that the group has applied."""
    begin: dict[str, int] = {}
    for record in groups.values():
        for event in record["applied"]:
            begin[event["rollout_id"]] = min(event["offset"], begin.get(event["rollout_id"], event["offset"]))
    for group, record in groups.items():
        newest = max((event["offset"] for event in record["applied"]), default=-1)
        yield from ((group, rollout) for rollout, offset in begin.items() if newest < offset)


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


def _times(challengers: Challengers) -> Metric:
    values = (
        ([*key, role], ms / 1e3)
        for key, counts in challengers
        for role, ms in (("challenger", counts.time_ms), ("champion", counts.champion_time_ms))
    )
    return samples("fraud_trial_scoring_seconds", values)


def _scores(challengers: Challengers) -> Metric:
    family = empty("fraud_trial_score")
    for key, counts in challengers:
        for role, scores in (("challenger", counts.scores), ("champion", counts.champion_scores)):
            labels = dict(zip(FAMILIES[family.name].labels, (*key, role), strict=True))
            add_histogram(family, labels, scores)
    return family
