"""Audit of breached rollouts: verdicts must follow from their counts, and these from the progress records."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from loadtests.audit.trial_audit import TrialCounts, challenger_counts
from models.errors import GuardError
from models.guards.verdict import recomputed


class Breached(NamedTuple):
    """An accepted `breached` event."""

    rollout_id: str
    challenger: str
    evidence: Mapping[str, Any]


Totals = Callable[[int, int], TrialCounts | None]
"""(key group, commit_id) -> trial totals in the commit's progress record; None if that is not audited."""


def problems(breaches: Iterable[Breached], totals: Totals) -> Iterator[str]:
    """Yield what is wrong with the evidence of breached rollouts.

    Counts are checked only if the progress records of all commits that the evidence names are audited; the
    verdict is always recomputed.

    Args:
        breaches: accepted `breached` events, in log order.
        totals: returns the running trial totals of a commit.
    """
    for breach in breaches:
        name = f"the breach of {breach.rollout_id} by {breach.challenger}"
        try:
            result = recomputed(breach.evidence)
            counted = challenger_counts(breach.evidence["counts"])
            commits = {int(group): int(commit) for group, commit in breach.evidence["commits"].items()}
        except (GuardError, ValueError, KeyError, TypeError, AttributeError) as fault:
            yield f"{name} has no evidence that can be read: {fault}"
            continue
        if not result.agrees_with(breach.evidence):
            yield f"{name}: the verdict does not follow from its counts, which give {result.outcome.value}"
        records = [record for commit in commits.items() if (record := totals(*commit)) is not None]
        if not records or len(records) < len(commits):
            continue
        summed: Counter[str] = Counter()
        for record in records:
            summed.update(record.get((breach.rollout_id, breach.challenger), Counter()))
        if summed != counted:
            yield f"{name}: its counts are not the sum of the progress records that it names"
