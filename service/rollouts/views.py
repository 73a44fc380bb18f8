"""Views of rollouts for the API and the command line. Pure."""

from dataclasses import asdict
from typing import Any

from models.registry import ModelRef
from models.rollouts import machine
from models.rollouts.events import Challenger, Type
from models.rollouts.state import Trial
from service.health.groups import Groups
from service.rollouts.history import Entry, History
from streaming_job.progress.last_record import positions

PENDING, APPLIED, REFUSED = "pending", "applied", "refused"
"""States of an event in the job."""


def model(ref: ModelRef) -> dict[str, Any]:
    """Return a model's name, version, digest and number of features."""
    return {"name": ref.name, "version": ref.version, "digest": ref.digest, "features": len(ref.features)}


def in_force(history: History) -> dict[str, Any] | None:
    """Return the champion; None before the first promotion."""
    if not history.line.champions:
        return None
    champion = history.line.champions[-1]
    return {
        "rollout_id": champion.rollout_id,
        "seq": champion.seq,
        "model": model(champion.model),
        "policy": asdict(champion.policy),
        "policy_digest": champion.policy.digest(),
    }


def overview(history: History, groups: Groups, topic: str) -> dict[str, Any]:
    """Return all rollouts, newest first, the champion, and what is demanded of those who steer rollouts."""
    return {
        "champion": in_force(history),
        "demands": asdict(history.line.demands),
        "open": history.line.open,
        "rollouts": [
            summary(history, trial, groups, topic) for trial in reversed(list(history.line.trials.values()))
        ],
    }


def summary(history: History, trial: Trial, groups: Groups, topic: str) -> dict[str, Any]:
    """Return the summary of a rollout."""
    entries = history.accepted(trial.rollout_id)
    states = [state_of(entry, groups, topic)["state"] for entry in entries]
    return {
        "rollout_id": trial.rollout_id,
        "phase": trial.phase.value,
        "seq": trial.seq,
        "state": APPLIED if states and states[-1] == APPLIED else PENDING,
        "opened_by": trial.opened_by,
        "opened_at": entries[0].timestamp if entries else None,
        "changed_at": entries[-1].timestamp if entries else None,
        "canary": trial.canary or None,
        "share_bp": trial.share_bp,
        "challengers": [_challenger(challenger) for challenger in trial.challengers],
    }


def rollout(history: History, trial: Trial, groups: Groups, topic: str) -> dict[str, Any]:
    """Return a rollout with its events, their states, and the offsets from which they are in force."""
    return {
        **summary(history, trial, groups, topic),
        "line": trial.line,
        "guards": trial.guards,
        "demands": asdict(trial.demands),
        "before_pause": trial.before_pause.value if trial.before_pause else None,
        # only guards write `breached`
        "allowed": [
            kind.value
            for kind in machine.allowed(history.line, trial.rollout_id)
            if kind is not Type.BREACHED
        ],
        "is_deciding": bool(history.line.champions)
        and history.line.champions[-1].rollout_id == trial.rollout_id,
        "events": [
            {**_event(entry), **state_of(entry, groups, topic)}
            for entry in history.of(trial.rollout_id)
            if not entry.repeats
        ],
    }


def state_of(entry: Entry, groups: Groups, topic: str) -> dict[str, Any]:
    """Return the state of an event in the job.

    Returns:
        `state`: refused; applied once every key group has read the event; else pending. `refused`: why the
        event was refused. `groups`: number of key groups that have read the event (`applied`), and of all
        (`of`). `held_from`: partition of the transactions topic -> offset of the first transaction for which
        the event was in force; empty if the newest progress records do not name the event (not yet, or no
        longer).
    """
    folded, held_from = 0, dict[str, int]()
    for record in groups.values():
        folded += positions(record).get((topic, 0), 0) > entry.offset
        for applied in record["applied"]:
            is_this = applied["offset"] == entry.offset and applied["type"] == entry.event.type.value
            held_from.update(applied["held_from"] if is_this else {})
    number = max((int(record["key_groups"]) for record in groups.values()), default=0)
    state = REFUSED if entry.refused else APPLIED if number and folded == number else PENDING
    return {
        "state": state,
        "refused": entry.refused or None,
        "groups": {"applied": folded, "of": number},
        "held_from": dict(sorted(held_from.items(), key=lambda item: int(item[0]))),
    }


def _event(entry: Entry) -> dict[str, Any]:
    event = entry.event
    common: dict[str, Any] = {
        "seq": event.seq,
        "type": event.type.value,
        "actor": event.actor,
        "approved_by": event.approved_by,
        "reason": event.reason,
        "created_at": event.created_at,
        "idempotency_key": event.idempotency_key,
        "offset": entry.offset,
        "timestamp": entry.timestamp,
    }
    optional = {
        "challenger": event.challenger,
        "share_bp": event.share_bp,
        "guard": event.guard,
        "verdict": event.verdict,
    }
    return common | {name: value for name, value in optional.items() if value}


def _challenger(challenger: Challenger) -> dict[str, Any]:
    return {
        "name": challenger.name,
        "role": challenger.role,
        "share_bp": challenger.share_bp,
        "model": model(challenger.model),
        "policy": asdict(challenger.policy),
        "policy_digest": challenger.policy.digest(),
    }
