"""What progress tells of rollouts: who decides, and how the newest ones do. Pure.

Progress of a release without rollouts in phases has neither `applied` nor `trials`; they may be absent.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from service.health.groups import Groups

PHASES = {
    "proposed": "proposed",
    "shadow_started": "shadow",
    "canary_set": "canary",
    "paused": "paused",
    "breached": "breached",
    "rolled_back": "rolled_back",
    "promoted": "promoted",
    "withdrawn": "withdrawn",
}
"""Phase after an event, by type; `resumed` goes back to the one before the pause."""
FINAL = frozenset({"promoted", "rolled_back", "withdrawn"})
NAMES = ("transactions", "decided", "failures", "both", "only_champion", "only_challenger", "rows")
UNITS = ("card_hours", "cards")
TIMES = ("time_ms", "champion_time_ms")


def champions(groups: Groups) -> dict[str, Any] | None:
    """Rollout and model that decided last, by the newest record; None before any did."""
    told = [record for record in groups.values() if record.get("model")]
    if not told:
        return None
    newest = max(told, key=lambda record: record["written_at"])
    return {"rollout_id": newest["rollout_id"], "model": dict(newest["model"])}


def phases(groups: Groups) -> dict[str, str]:
    """Phase by rollout, in the order of the events that the key groups have applied."""
    found: dict[str, str] = {}
    before: dict[str, str] = {}
    for event in _events(groups):
        rollout, kind = event["rollout_id"], event["type"]
        if kind == "paused":
            before[rollout] = found.get(rollout, "paused")
        if kind == "resumed":
            found[rollout] = before.get(rollout, "shadow")
        elif kind in PHASES:
            found[rollout] = PHASES[kind]
    return found


def trials(groups: Groups) -> dict[str, dict[str, dict[str, Any]]]:
    """COUNTS of each rollout and challenger, summed over the key groups from their totals."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for record in groups.values():
        for rollout, trial in record["totals"].get("trials", {}).items():
            for name, counts in trial["challengers"].items():
                known = found.setdefault(rollout, {}).get(name)
                found[rollout][name] = dict(counts) if known is None else _sum(known, counts)
    return found


def open_rollout(groups: Groups) -> dict[str, Any] | None:
    """The rollout that is not over, with what its challengers came to; None without one."""
    phase_of = phases(groups)
    rollout = next((name for name in reversed(phase_of) if phase_of[name] not in FINAL), None)
    if rollout is None:
        return None
    events = [event for event in _events(groups) if event["rollout_id"] == rollout]
    seq = max(event["seq"] for event in events)
    held_from: dict[str, int] = {}
    applied = []
    for group, record in sorted(groups.items()):
        mine = [e for e in record.get("applied", []) if e["rollout_id"] == rollout and e["seq"] == seq]
        applied += [group] if mine else []
        for event in mine:
            held_from |= event.get("held_from", {})
    return {
        "rollout_id": rollout,
        "phase": phase_of[rollout],
        "seq": seq,
        "applied_by": applied,
        "held_from": held_from,
        "challengers": trials(groups).get(rollout, {}),
    }


def _events(groups: Groups) -> Iterator[Mapping[str, Any]]:
    """Events that any key group has applied, each once, in the order of the topic."""
    met = {}
    for record in groups.values():
        for event in record.get("applied", []):
            met[event["offset"], event["rollout_id"], event["seq"]] = event
    return (met[place] for place in sorted(met))


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    total: dict[str, Any] = {**one}
    for name in (*NAMES, *TIMES):
        total[name] = one.get(name, 0) + other.get(name, 0)
    for name in UNITS:
        total[name] = dict(Counter(one.get(name, {})) + Counter(other.get(name, {})))
    for name in ("scores", "champion_scores"):
        first, second = one.get(name), other.get(name)
        if first and second and first["le"] == second["le"]:
            counts = [a + b for a, b in zip(first["counts"], second["counts"], strict=True)]
            total[name] = {"le": first["le"], "counts": counts, "sum": first["sum"] + second["sum"]}
    return total
