"""From a request and the history of rollouts, construct the events to write, or refuse the request. Pure."""

from dataclasses import replace
from itertools import count

from feature_store.printable import printable
from models.rollouts import authority, machine
from models.rollouts.events import CANARY, NO_DEMANDS, Challenger, Demands, Event, Type
from models.rollouts.machine import ConflictError
from models.rollouts.state import Line, Trial
from service.rollouts.errors import DeskError, ForbiddenError, RefusedError, StaleError, UnknownError
from service.rollouts.history import Entry, History
from service.rollouts.requests import ADMIN, GUARD, Actor, Proposal, Receipt, Refs, Step, Stop
from streaming_job.contracts import ContractError, Reason
from streaming_job.decode.strict import MAX_RECORD_BYTES

PROMOTED_KEY = "/promoted"
"""Suffix of the idempotency key of `promoted` if a proposal is promoted without a trial; the rest is
the request's key."""
BREACHED_KEY, ROLLED_BACK_KEY = "/breached", "/rolled_back"
"""Suffixes of the idempotency keys of a guard's events."""


def proposal(
    history: History, request: Proposal, refs: Refs, actor: Actor, now_ms: int, demands: Demands = NO_DEMANDS
) -> tuple[Event, ...] | Receipt:
    """Construct the events of a new rollout; return the earlier receipt if the request is repeated.

    Args:
        history: the rollout topic, read to its end.
        refs: references of the models that the proposal names.
        now_ms: wall clock, ms; only for `created_at` and the default rollout_id.
        demands: demands of this installation, which the proposal writes into the log.

    Raises:
        StaleError: another rollout is open, or the rollout_id is taken.
        ForbiddenError: the proposal would be promoted without a trial by a caller who is no admin.
        RefusedError: the idempotency key was used for another request, a field breaks the contract of rollout
            events, or the proposal would be promoted without a trial although its proposer is forbidden to
            promote it.
    """
    earlier = next(
        (
            entry
            for entry in history.all_accepted
            if entry.event.type is Type.PROPOSED and entry.event.idempotency_key == request.key
        ),
        None,
    )
    name = request.rollout_id or (earlier.event.rollout_id if earlier else _name(request, now_ms))
    champion = history.line.champions[-1].model if history.line.champions else None
    first = refs[request.challengers[0].model].name
    proposed = Event(
        Type.PROPOSED, name, 1, request.key, actor.name, request.reason, now_ms,
        champion=champion,
        challengers=tuple(
            Challenger(draft.name, draft.role, draft.share_bp, refs[draft.model], draft.policy)
            for draft in request.challengers
        ),
        guards=request.guards,
        demands=demands,
        line=request.line or first,
    )  # fmt: skip
    _require_contract(proposed)
    if earlier is not None:
        proposed = replace(proposed, champion=earlier.event.champion, demands=earlier.event.demands)
        first_answer = _repetition(history, earlier, proposed)
        if (Type.PROMOTED in first_answer.types) != request.at_once:
            raise _other_content(earlier.event)
        return first_answer
    drawn: tuple[Event, ...] = (proposed,)
    if request.at_once:
        promoted = Event(
            Type.PROMOTED, name, 2, request.key + PROMOTED_KEY, actor.name, request.reason, now_ms,
            challenger=request.challengers[0].name,
        )  # fmt: skip
        _require_contract(promoted)
        drawn = (proposed, promoted)
        require_authority(apply_events(history.line, (proposed,)), promoted, actor, demands)
    apply_events(history.line, drawn)
    return drawn


def _name(request: Proposal, now_ms: int) -> str:
    name, _, version = request.challengers[0].model.rpartition("/")
    return f"{name}-{version}-{now_ms}"


def step(
    history: History, request: Step, actor: Actor, now_ms: int, demands: Demands = NO_DEMANDS
) -> tuple[Event, ...] | Receipt:
    """Construct the event of a step; return the earlier receipt if the request is repeated.

    Args:
        history: the rollout topic, read to its end.
        now_ms: wall clock, ms; only for `created_at`.
        demands: demands of this installation, in addition to those in the log.

    Raises:
        UnknownError: there is no such rollout.
        StaleError: the rollout has another seq than the caller expects, its phase does not allow the step, or
            the withdrawal would leave no champion.
        ForbiddenError: the step needs an admin.
        RefusedError: the idempotency key was used for another request, there is no such challenger, the share
            is invalid, a field breaks the events' contract, or the step needs a second person.
    """
    trial = find_trial(history.line, request.rollout_id)
    event = Event(
        request.type, trial.rollout_id, trial.seq + 1, request.key, actor.name, request.reason, now_ms,
        from_the_beginning=request.from_the_beginning,
    )  # fmt: skip
    if request.type in (Type.CANARY_SET, Type.PROMOTED):
        event = replace(event, challenger=_challenger(trial, request).name)
    if request.type is Type.CANARY_SET:
        event = replace(event, share_bp=request.share_bp or _challenger(trial, request).share_bp)
        if not 1 <= event.share_bp <= 10_000:
            raise RefusedError("share_bp", f"{event.share_bp} basis points are no share; give 1 to 10000")
    if request.type in authority.GIVING:
        approved = replace(event, approved_by=actor.name)
        event = approved if authority.has_second_person(history.line, approved) else event
    _require_contract(event)
    for entry in history.accepted(trial.rollout_id):
        if entry.event.idempotency_key == request.key:
            return _repetition(history, entry, event)
    if request.expected_seq is not None and request.type is not Type.ROLLED_BACK:
        require_seq(trial, request.expected_seq)
    require_authority(history.line, event, actor, demands)
    apply_events(history.line, (event,))
    return (event,)


def require_authority(line: Line, event: Event, actor: Actor, demands: Demands) -> None:
    """Check that a step does not need an admin or a second person who is not there.

    Raises:
        ForbiddenError: the step needs an admin.
        RefusedError: the step needs a second person.
    """
    strict = line.demands.tightened_by(demands)
    assert strict.operator_max_share_bp is not None
    reasons = authority.needs_admin(line, event, strict.operator_max_share_bp)
    if reasons and actor.role != ADMIN:
        raise ForbiddenError(
            "insufficient_role",
            f"{event.type} needs the role admin, because {'; '.join(reasons)}; {actor.name} is {actor.role}",
        )
    try:
        machine.require_second_person(replace(line, demands=strict), event)
    except ConflictError as fault:
        raise RefusedError("four_eyes", str(fault)) from fault


def stop(history: History, request: Stop, now_ms: int) -> tuple[Event, ...] | Receipt:
    """Construct the events by which a guard ends a rollout: two for a breach, one for a deadline.

    Raises:
        StaleError: the rollout has ended, or has changed since the assessment.
    """
    trial = find_trial(history.line, request.rollout_id)
    require_seq(trial, request.seq)
    key = _free_key(trial, f"guard/{request.seq}")
    seq = trial.seq + 1
    drawn: tuple[Event, ...] = ()
    if request.guard:
        drawn = (
            Event(
                Type.BREACHED, trial.rollout_id, seq, key + BREACHED_KEY, GUARD, request.reason, now_ms,
                challenger=request.challenger, guard=request.guard, verdict=request.verdict,
            ),
        )  # fmt: skip
        seq += 1
    drawn += (
        Event(Type.ROLLED_BACK, trial.rollout_id, seq, key + ROLLED_BACK_KEY, GUARD, request.reason, now_ms),
    )
    apply_events(history.line, drawn)
    return drawn


def _free_key(trial: Trial, key: str) -> str:
    """Return a guard's key that no event of the rollout has, whatever keys callers gave to their requests."""
    names = (key if number == 1 else f"{key}-{number}" for number in count(1))
    taken = trial.keys.keys()
    return next(name for name in names if taken.isdisjoint((name + BREACHED_KEY, name + ROLLED_BACK_KEY)))


def find_trial(line: Line, rollout_id: str) -> Trial:
    """Return the rollout with this id.

    Raises:
        UnknownError: there is no such rollout.
    """
    trial = line.trials.get(rollout_id)
    if trial is None:
        raise UnknownError(
            Reason.UNKNOWN_ROLLOUT.value, f"there is no rollout {rollout_id}; see `fraud rollouts show`"
        )
    return trial


def require_seq(trial: Trial, expected: int) -> None:
    """Raise StaleError unless the rollout has the seq that the caller expects."""
    if trial.seq != expected:
        raise StaleError(
            "seq",
            f"{trial.rollout_id} stands at event {trial.seq} ({trial.phase}), not {expected}; read it again",
        )


def apply_events(line: Line, drawn: tuple[Event, ...]) -> Line:
    """Return the state of all rollouts (`Line`) after further events.

    Raises:
        StaleError, UnknownError: an event is refused; the error's `check` is the Reason's value.
    """
    for event in drawn:
        try:
            line = machine.apply(line, event)
        except ConflictError as fault:
            kind: type[DeskError] = UnknownError if fault.reason is Reason.UNKNOWN_ROLLOUT else StaleError
            raise kind(fault.reason.value, str(fault)) from fault
    return line


def receipt(line: Line, drawn: tuple[Event, ...], offsets: tuple[int, ...], *, repeated: bool) -> Receipt:
    """Create the receipt for events of one rollout; `line` has the rollout's current seq and phase."""
    trial = line.trials[drawn[0].rollout_id]
    types = tuple(event.type for event in drawn)
    return Receipt(trial.rollout_id, trial.seq, trial.phase, types, offsets, repeated)


def _repetition(history: History, entry: Entry, repeated: Event) -> Receipt:
    """Return a receipt for the events of the first request with this key, if the content is the same.

    The seq and `approved_by` are not compared: they depend on when the request is repeated.
    """
    before = entry.event
    if replace(repeated, seq=before.seq, approved_by=before.approved_by).content != before.content:
        raise _other_content(before)
    written = [
        accepted
        for accepted in history.accepted(before.rollout_id)
        if accepted is entry or accepted.event.idempotency_key == before.idempotency_key + PROMOTED_KEY
    ]
    drawn, offsets = tuple(item.event for item in written), tuple(item.offset for item in written)
    return receipt(history.line, drawn, offsets, repeated=True)


def _require_contract(event: Event) -> None:
    """Check that a person's event can be written, and does not look like one of the guards."""
    if event.actor == GUARD:
        raise RefusedError(
            "contract", f"events by {GUARD} are those of the guards; take another user or token"
        )
    names = (name for item in event.challengers for name in (item.name, item.model.name))
    for text in (event.rollout_id, event.actor, event.reason, event.idempotency_key, event.line, *names):
        if not text.isprintable():
            raise RefusedError(
                "contract",
                f"'{printable(text)}' has control characters or line ends, which deceive readers of a "
                "terminal; leave them out",
            )
    try:
        size = len(event.to_json())
    except ContractError as fault:
        raise RefusedError("contract", f"the request cannot be written as an event: {fault}") from fault
    if size > MAX_RECORD_BYTES:
        raise RefusedError(
            "contract",
            f"the event has {size} bytes, and the job accepts at most {MAX_RECORD_BYTES}: shorten the "
            "request, for example the histogram of a guard",
        )


def _other_content(before: Event) -> RefusedError:
    return RefusedError(
        "idempotency_key",
        f"the key {before.idempotency_key!r} was used for {before.type} of {before.rollout_id} with "
        "other content; give each request a key of its own",
    )


def _challenger(trial: Trial, request: Step) -> Challenger:
    if request.challenger:
        matches = [challenger for challenger in trial.challengers if challenger.name == request.challenger]
    elif len(trial.challengers) == 1:
        matches = list(trial.challengers)
    else:
        matches = [challenger for challenger in trial.challengers if challenger.role == CANARY]
    if len(matches) != 1:
        names = ", ".join(challenger.name for challenger in trial.challengers)
        raise RefusedError(
            "challenger",
            f"{trial.rollout_id} has the challengers {names}; name the one that is meant",
        )
    return matches[0]
