"""Audit of breached rollouts: each verdict follows from the counts and guards in its evidence."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from models.errors import GuardError
from models.guards.verdict import recomputed


class Breached(NamedTuple):
    """An accepted `breached` event."""

    rollout_id: str
    challenger: str
    evidence: Mapping[str, Any]


def problems(breaches: Iterable[Breached]) -> Iterator[str]:
    """Yield what is wrong with the evidence of breached rollouts.

    Args:
        breaches: accepted events, in log order.
    """
    for breach in breaches:
        name = f"the breach of {breach.rollout_id} by {breach.challenger}"
        try:
            result = recomputed(breach.evidence).to_json()
        except GuardError as fault:
            yield f"{name} has no evidence that can be read: {fault}"
            continue
        if result != breach.evidence:
            yield f"{name}: the verdict does not follow from its counts, which give {result['verdict']}"
