"""Drawing events up: from a request and the history to what would be written, or a refusal. Pure."""

from dataclasses import replace

from models.rollouts import machine
from models.rollouts.events import CANARY, Challenger, Event, Type
from models.rollouts.machine import ConflictError, Line, Trial
from service.rollouts.errors import DeskError, RefusedError, StaleError, UnknownError
from service.rollouts.history import Entry, History
from service.rollouts.requests import GUARD, Actor, Proposal, Receipt, Refs, Step, Stop
from streaming_job.contracts import Reason

PROMOTED_KEY = "/promoted"
"""What the second event of a promotion at once adds to the key of the request."""


def proposal(
    history: History, asked: Proposal, refs: Refs, actor: Actor, now_ms: int, *, four_eyes: bool = False
) -> tuple[Event, ...] | Receipt:
    """The events of a new rollout.

    Args:
        history: the topic to its end.
        asked: what is wanted.
        refs: of the models that it names.
        actor: who asks.
        now_ms: wall clock, for the record and for a name.
        four_eyes: whether the proposer may not promote.

    Raises:
        StaleError: another rollout is open, or the name is taken.
        RefusedError: the key stood for another request; the proposer may not promote.
    """
    if asked.at_once and four_eyes:
        raise RefusedError(
            "four_eyes",
            "a proposer may not promote here; propose the rollout, and let another person promote it",
        )
    earlier = next(
        (
            entry
            for entry in history.entries
            if entry.event.type is Type.PROPOSED
            and entry.event.idempotency_key == asked.key
            and not (entry.refused or entry.repeats)
        ),
        None,
    )
    name = asked.rollout_id or (earlier.event.rollout_id if earlier else _name(asked, now_ms))
    champion = history.line.champions[-1].model if history.line.champions else None
    first = refs[asked.challengers[0].model].name
    proposed = Event(
        Type.PROPOSED, name, 1, asked.key, actor.name, asked.reason, now_ms,
        champion=champion,
        challengers=tuple(
            Challenger(one.name, one.role, one.share_bp, refs[one.model], one.policy)
            for one in asked.challengers
        ),
        guards=asked.guards,
        line=asked.line or first,
    )  # fmt: skip
    if earlier is not None:
        proposed = replace(proposed, champion=earlier.event.champion)
        return _repetition(history, earlier, proposed)
    drawn: tuple[Event, ...] = (proposed,)
    if asked.at_once:
        promoted = Event(
            Type.PROMOTED, name, 2, asked.key + PROMOTED_KEY, actor.name, asked.reason, now_ms,
            challenger=asked.challengers[0].name,
        )  # fmt: skip
        drawn = (proposed, promoted)
    after(history.line, drawn)
    return drawn


def _name(asked: Proposal, now_ms: int) -> str:
    name, _, version = asked.challengers[0].model.rpartition("/")
    return f"{name}-{version}-{now_ms}"


def step(
    history: History, asked: Step, actor: Actor, now_ms: int, *, four_eyes: bool = False
) -> tuple[Event, ...] | Receipt:
    """The event that a step would write.

    Args:
        history: the topic to its end.
        asked: what is wanted.
        actor: who asks.
        now_ms: wall clock, for the record only.
        four_eyes: whether the proposer may not promote.

    Raises:
        UnknownError: no such rollout.
        StaleError: the rollout stands elsewhere than the caller believes, or its phase does not allow it.
        RefusedError: the key stood for another request; no such challenger; the proposer may not promote.
    """
    trial = known(history.line, asked.rollout_id)
    event = Event(
        asked.type, trial.rollout_id, trial.seq + 1, asked.key, actor.name, asked.reason, now_ms,
        approved_by=actor.name if four_eyes and asked.type is Type.PROMOTED else None,
        from_the_beginning=asked.from_the_beginning,
    )  # fmt: skip
    if asked.type in (Type.CANARY_SET, Type.PROMOTED):
        event = replace(event, challenger=_challenger(trial, asked).name)
    if asked.type is Type.CANARY_SET:
        event = replace(event, share_bp=asked.share_bp or _challenger(trial, asked).share_bp)
        if not 1 <= event.share_bp <= 10_000:
            raise RefusedError("share_bp", f"{event.share_bp} basis points are no share; give 1 to 10000")
    for entry in history.accepted(trial.rollout_id):
        if entry.event.idempotency_key == asked.key:
            return _repetition(history, entry, event)
    if asked.expected_seq is not None and asked.type is not Type.ROLLED_BACK:
        require_seq(trial, asked.expected_seq)
    if four_eyes and asked.type is Type.PROMOTED and actor.name == trial.opened_by:
        raise RefusedError(
            "four_eyes",
            f"{trial.rollout_id} was proposed by {trial.opened_by}, who may not promote it; ask another",
        )
    after(history.line, (event,))
    return (event,)


def stop(history: History, asked: Stop, now_ms: int) -> tuple[Event, ...] | Receipt:
    """The events with which a guard ends a rollout: of a breach two, of a deadline one.

    Raises:
        UnknownError: no such rollout.
        StaleError: somebody was faster.
    """
    trial = known(history.line, asked.rollout_id)
    key = f"guard/{asked.seq}"
    seq = trial.seq + 1
    drawn: tuple[Event, ...] = ()
    if asked.guard:
        require_seq(trial, asked.seq)
        drawn = (
            Event(
                Type.BREACHED, trial.rollout_id, seq, f"{key}/breached", GUARD, asked.reason, now_ms,
                challenger=asked.challenger, guard=asked.guard, verdict=asked.verdict,
            ),
        )  # fmt: skip
        seq += 1
    drawn += (
        Event(Type.ROLLED_BACK, trial.rollout_id, seq, f"{key}/rolled_back", GUARD, asked.reason, now_ms),
    )
    after(history.line, drawn)
    return drawn


def known(line: Line, rollout_id: str) -> Trial:
    """A rollout.

    Raises:
        UnknownError: there is none of the name.
    """
    found = line.trials.get(rollout_id)
    if found is None:
        raise UnknownError(
            Reason.UNKNOWN_ROLLOUT.value, f"there is no rollout {rollout_id}; see `fraud rollouts list`"
        )
    return found


def require_seq(trial: Trial, expected: int) -> None:
    """See that the rollout stands where the caller believes.

    Raises:
        StaleError: it does not.
    """
    if trial.seq != expected:
        raise StaleError(
            "seq",
            f"{trial.rollout_id} stands at event {trial.seq} ({trial.phase}), not {expected}; look again",
        )


def after(line: Line, drawn: tuple[Event, ...]) -> Line:
    """The line after events.

    Raises:
        StaleError, UnknownError: the machine refuses one; the check is the Reason's value.
    """
    for event in drawn:
        try:
            line = machine.apply(line, event)
        except ConflictError as fault:
            kind: type[DeskError] = UnknownError if fault.reason is Reason.UNKNOWN_ROLLOUT else StaleError
            raise kind(fault.reason.value, str(fault)) from fault
    return line


def receipt(line: Line, drawn: tuple[Event, ...], offsets: tuple[int, ...], *, repeated: bool) -> Receipt:
    """The answer about events of one rollout."""
    trial = line.trials[drawn[0].rollout_id]
    types = tuple(event.type for event in drawn)
    return Receipt(trial.rollout_id, trial.seq, trial.phase, types, offsets, repeated)


def _repetition(history: History, entry: Entry, asked_again: Event) -> Receipt:
    """The answer of the first time; a step's seq was drawn anew, so it says nothing."""
    before = entry.event
    if replace(asked_again, seq=before.seq).content != before.content:
        raise RefusedError(
            "idempotency_key",
            f"the key {before.idempotency_key!r} stood for {before.type} of {before.rollout_id} with other "
            "content; give each request a key of its own",
        )
    later = [
        one
        for one in history.accepted(before.rollout_id)
        if one is entry or one.event.idempotency_key == before.idempotency_key + PROMOTED_KEY
    ]
    drawn, offsets = tuple(one.event for one in later), tuple(one.offset for one in later)
    return receipt(history.line, drawn, offsets, repeated=True)


def _challenger(trial: Trial, asked: Step) -> Challenger:
    if asked.challenger:
        found = [one for one in trial.challengers if one.name == asked.challenger]
    elif len(trial.challengers) == 1:
        found = list(trial.challengers)
    else:
        found = [one for one in trial.challengers if one.role == CANARY]
    if len(found) != 1:
        names = ", ".join(one.name for one in trial.challengers)
        raise RefusedError(
            "challenger",
            f"{trial.rollout_id} has the challengers {names}; name the one that is meant",
        )
    return found[0]
