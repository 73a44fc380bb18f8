"""Rollouts as the API and the command line show them: pure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from models.registry import ModelRef
from models.rollouts import machine
from models.rollouts.events import Challenger
from models.rollouts.machine import Trial
from service.rollouts.history import Entry, History

Groups = Mapping[int, Mapping[str, Any]]
PENDING, APPLIED, REFUSED = "pending", "applied", "refused"
"""What became of an event in the job."""


def model(ref: ModelRef) -> dict[str, Any]:
    """A model, without the list of its features."""
    return {"name": ref.name, "version": ref.version, "digest": ref.digest, "features": len(ref.features)}


def in_force(history: History) -> dict[str, Any] | None:
    """Who decides; None before the first promotion."""
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


def everything(history: History, groups: Groups, topic: str) -> dict[str, Any]:
    """All rollouts, newest first, and who decides."""
    return {
        "champion": in_force(history),
        "open": history.line.open,
        "rollouts": [
            summary(history, trial, groups, topic) for trial in reversed(list(history.line.trials.values()))
        ],
    }


def summary(history: History, trial: Trial, groups: Groups, topic: str) -> dict[str, Any]:
    """A rollout in short."""
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
        "challengers": [_challenger(one) for one in trial.challengers],
    }


def rollout(history: History, trial: Trial, groups: Groups, topic: str) -> dict[str, Any]:
    """A rollout with its events, each pending or applied, and from which offsets on it held."""
    return {
        **summary(history, trial, groups, topic),
        "line": trial.line,
        "guards": trial.guards,
        "before_pause": trial.before_pause.value if trial.before_pause else None,
        "allowed": [kind.value for kind in machine.allowed(history.line, trial.rollout_id)],
        "is_deciding": bool(history.line.champions)
        and history.line.champions[-1].rollout_id == trial.rollout_id,
        "events": [
            {**_event(entry), **state_of(entry, groups, topic)}
            for entry in history.of(trial.rollout_id)
            if not entry.repeats
        ],
    }


def state_of(entry: Entry, groups: Groups, topic: str) -> dict[str, Any]:
    """What became of an event in the job.

    Returns:
        `state`: applied once every key group has folded it; `groups`: how many have, of how many;
        `held_from`: partition of the transactions -> offset of the first for which it held, as far as the
        groups still tell it; `refused`: why it changed nothing.
    """
    folded, held_from = 0, dict[str, int]()
    for record in groups.values():
        ends = {(part["topic"], part["partition"]): part["end_offset"] for part in record["partitions"]}
        folded += ends.get((topic, 0), 0) > entry.offset
        for told in record.get("applied", ()):
            is_this = told["offset"] == entry.offset and told["type"] == entry.event.type.value
            held_from.update(told["held_from"] if is_this else {})
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
    told: dict[str, Any] = {
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
    own = {
        "challenger": event.challenger,
        "share_bp": event.share_bp,
        "guard": event.guard,
        "verdict": event.verdict,
    }
    return told | {name: value for name, value in own.items() if value}


def _challenger(one: Challenger) -> dict[str, Any]:
    return {
        "name": one.name,
        "role": one.role,
        "share_bp": one.share_bp,
        "model": model(one.model),
        "policy": asdict(one.policy),
        "policy_digest": one.policy.digest(),
    }
