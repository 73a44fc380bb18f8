"""Policies in rollout events, and which of two lets more through: written independently of the job's code."""

from typing import Any

from loadtests.oracle.fields import require, text, whole
from models.policy import Policy

OPTIONAL_COUNTS = ("max_count_1m", "max_count_1h", "escalate_after")
ACTIONS = ["ignore", "review", "decline"]
"""What a policy does about blocked and closed cards, from the weakest to the strongest."""


def read(row: Any) -> Policy:
    """Decode a policy, whose values `Policy` checks; raises ValueError, TypeError, KeyError or ModelError."""
    require(isinstance(row, dict))
    threshold = row["threshold"]
    require(isinstance(threshold, int | float) and not isinstance(threshold, bool))
    fields: dict[str, Any] = {
        "threshold": float(threshold),
        "max_count_5m": whole(row["max_count_5m"], 1),
    }
    for name in OPTIONAL_COUNTS:
        if row.get(name) is not None:
            fields[name] = whole(row[name], 1)
    if "cooldown_s" in row:
        fields["cooldown_s"] = whole(row["cooldown_s"], 0)
    for name in ("missing_profile", "blocked", "closed"):
        if name in row:
            fields[name] = text(row[name])
    return Policy(**fields)


def lets_more_through(policy: Policy, than: Policy) -> bool:
    """Return whether a policy may decide no alert, or no decline, where another one does."""

    def is_laxer(limit: int | None, before: int | None) -> bool:
        return before is not None and (limit is None or limit > before)

    return (
        policy.threshold > than.threshold
        or is_laxer(policy.max_count_1m, than.max_count_1m)
        or is_laxer(policy.max_count_5m, than.max_count_5m)
        or is_laxer(policy.max_count_1h, than.max_count_1h)
        or is_laxer(policy.escalate_after, than.escalate_after)
        or policy.cooldown_s > than.cooldown_s
        or ACTIONS.index(policy.blocked) < ACTIONS.index(than.blocked)
        or ACTIONS.index(policy.closed) < ACTIONS.index(than.closed)
        or (policy.missing_profile == "score" and than.missing_profile == "review")
    )
