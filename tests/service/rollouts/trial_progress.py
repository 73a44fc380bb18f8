"""Progress records with counts of a trial."""

from typing import Any

HISTOGRAM = {"le": [step / 20 for step in range(1, 21)], "counts": [100] * 20 + [0], "sum": 1_000.0}
COUNTS: dict[str, Any] = {
    "transactions": 2_000,
    "decided": 0,
    "failures": 0,
    "both": 30,
    "only_champion": 3,
    "only_challenger": 3,
    "card_hours": {"both": 20, "only_champion": 2, "only_challenger": 2},
    "cards": {"both": 18, "only_champion": 2, "only_challenger": 2},
    "rows": 2_000,
    "time_ms": 10.0,
    "champion_time_ms": 10.0,
    "scores": HISTOGRAM,
    "champion_scores": HISTOGRAM,
}
"""Counts of a challenger that resembles the champion; the default guards find them insufficient."""


def trial_progress(
    rollout_id: str, challengers: dict[str, Any], *, written_at: int, folded: int = 1_000, **changes: Any
) -> dict[str, Any]:
    """The fields of a progress record that desk, guards and API read.

    Args:
        challengers: name -> COUNTS.
        written_at: ms.
        folded: offset in the rollout topic before which the job has read all events.
        changes: of other fields.
    """
    return {
        "key_group": 0,
        "key_groups": 1,
        "commit_id": 7,
        "written_at": written_at,
        "features": ["amount:1"],
        "rollouts_set_aside": {},
        "partitions": [{"topic": "model-rollouts", "partition": 0, "end_offset": folded}],
        "applied": [],
        "totals": {"trials": {rollout_id: {"seq": 2, "challengers": challengers}}},
        **changes,
    }
