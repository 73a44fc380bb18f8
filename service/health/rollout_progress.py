"""Rollouts in the job's progress records: champion, phases, and counts of the challengers. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from models.rollouts import machine
from models.rollouts.events import Type
from models.rollouts.state import FINAL, Phase
from service.health.groups import Groups
from streaming_job.progress.trials import MAX_TRIALS, TrialCounts, Trials

TYPES = frozenset(Type)
BACKWARD = frozenset({Type.BREACHED, Type.ROLLED_BACK, Type.WITHDRAWN})
"""Types of the events that end a trial or a rollout without promotion, or undo a promotion; an applied event
of another type shows that the job uses the rollout."""


def champions(groups: Groups) -> dict[str, Any] | None:
    """Return the champion's rollout and model, from the newest record with a model; None without one."""
    records = [record for record in groups.values() if record.get("model")]
    if not records:
        return None
    newest = max(records, key=lambda record: record["written_at"])
    return {"rollout_id": newest["rollout_id"], "model": dict(newest["model"])}


def unusable(record: Mapping[str, Any]) -> dict[int, str]:
    """Return offset -> reason of each proposal that a group cannot use, except those older than one it uses.

    Args:
        record: the group's newest progress record, which lists all proposals that were ever set aside.
    """
    used = [event["offset"] for event in record["applied"] if event["type"] not in BACKWARD]
    set_aside = {int(offset): reason for offset, reason in record["rollouts_set_aside"].items()}
    return {offset: reason for offset, reason in sorted(set_aside.items()) if offset > max(used, default=-1)}


def phases(groups: Groups) -> dict[str, str]:
    """Return rollout_id -> phase by the events that any key group has applied, ordered by first event."""
    states: dict[str, tuple[Phase, Phase | None]] = {}
    for event in _events(groups):
        if event["type"] in TYPES:  # a newer release may have more
            before = states.get(event["rollout_id"], (None, None))
            states[event["rollout_id"]] = machine.after(Type(event["type"]), *before)
    return {rollout: phase.value for rollout, (phase, _) in states.items()}


def trials(groups: Groups) -> dict[str, TrialCounts]:
    """Return rollout_id -> its challengers' counts, summed over the key groups' totals.

    A rollout that one group has dropped from its totals already is left out: its sum would be too small.
    """
    of_groups = [Trials.from_json(record["totals"]["trials"]).by_rollout for record in groups.values()]
    total = Trials()
    for of_group in of_groups:
        total.add(Trials(of_group))
    return {name: counts for name, counts in total.by_rollout.items() if not _is_dropped(name, of_groups)}


def _is_dropped(rollout: str, of_groups: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a group that is full of later rollouts has dropped this one."""
    full = [list(of_group) for of_group in of_groups if len(of_group) >= MAX_TRIALS]
    orders = [list(of_group) for of_group in of_groups if rollout in of_group]
    return any(
        rollout not in kept and kept[0] in order[order.index(rollout) :] for kept in full for order in orders
    )


def open_rollout(groups: Groups) -> dict[str, Any] | None:
    """Return the open rollout with its challengers' counts; None without one."""
    phase_of = phases(groups)
    rollout = next((name for name in reversed(phase_of) if phase_of[name] not in FINAL), None)
    if rollout is None:
        return None
    events = [event for event in _events(groups) if event["rollout_id"] == rollout]
    seq = max(event["seq"] for event in events)
    held_from: dict[str, int] = {}
    applied = []
    for group, record in sorted(groups.items()):
        newest = [e for e in record["applied"] if e["rollout_id"] == rollout and e["seq"] == seq]
        applied += [group] if newest else []
        for event in newest:
            held_from |= event.get("held_from", {})
    return {
        "rollout_id": rollout,
        "phase": phase_of[rollout],
        "seq": seq,
        "applied_by": applied,
        "held_from": held_from,
        "challengers": trials(groups).get(rollout, TrialCounts()).to_json()["challengers"],
    }


def _events(groups: Groups) -> Iterator[Mapping[str, Any]]:
    """Return the events that any key group has applied, each once, in the order of their offsets."""
    by_key = {}
    for record in groups.values():
        for event in record["applied"]:
            by_key[event["offset"], event["rollout_id"], event["seq"]] = event
    return (by_key[key] for key in sorted(by_key))
