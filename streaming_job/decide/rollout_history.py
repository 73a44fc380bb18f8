"""The rollout history: which champion decides a transaction, and which challengers score it, too.

The plan of a transaction follows from the rollout events that had arrived before it. (Exceptions: a later
withdrawal "from the beginning", and transactions before the first plan.) Events are folded in the order of
their offsets by `models.rollouts.machine`. The verdict on an event (accepted, or refused with a reason) is
kept with it in the state, so a restart, another release or a changed registry does not change the history.
There is one exception: champions and challengers that need features that a release does not compute are
passed over until a release computes them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import IDENTITIES, lacking
from feature_store.errors import FraudError
from feature_store.merchants.catalogue import are_merchants
from models.registry import ModelRef
from models.rollouts import machine, reading
from models.rollouts.events import Event, Type
from models.rollouts.machine import ConflictError
from models.rollouts.state import Decides, Line, Plan
from streaming_job.contracts import ContractError, Reason
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decide.plans_in_force import AcceptedEvent, plans_in_force
from streaming_job.decode.strict import MAX_RECORD_BYTES
from streaming_job.log.records import Records

GOOD, UNJUDGED = "good", ""
"""Verdict codes that are no reasons. UNJUDGED: not judged yet."""


class NoRolloutError(FraudError):
    """No usable model has been rolled out.

    Look for refused rollouts among the dead letters; run `fraud rollouts propose --promote`.
    """


@dataclass(frozen=True)
class RolloutRecord:
    """A record of the rollout topic."""

    arrival: int
    """Kafka timestamp, ms."""
    offset: int
    value: bytes | None
    key: bytes | None = None

    @staticmethod
    def of(records: Records) -> "list[RolloutRecord]":
        """Return the records of a partition of the rollout topic; those of an archive may lack the keys."""
        columns = (
            records.arrivals.tolist(), records.offsets.tolist(), records.values.to_pylist(),
            records.keys.to_pylist(),
        )  # fmt: skip
        return [RolloutRecord(*row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class EventVerdict:
    """The verdict on a rollout event."""

    code: str = GOOD
    """GOOD, UNJUDGED, or a Reason's value."""
    detail: str = ""
    """For a person."""


Judge = Callable[[Event, int, bool], EventVerdict]
"""Function (proposal, its offset, whether another champion is in force) -> verdict on its models."""


_TOO_LARGE = EventVerdict(
    Reason.RECORD_TOO_LARGE.value, f"the limit is {MAX_RECORD_BYTES} bytes: the state keeps the whole record"
)


def _letter(record: RolloutRecord, topics: Topics, verdict: EventVerdict) -> DeadLetter:
    return DeadLetter(
        topics.model_rollouts, 0, record.offset, record.arrival, record.key, record.value,
        Reason(verdict.code), verdict.detail,
    )  # fmt: skip


@lru_cache(maxsize=16_384)
def _event(value: bytes) -> Event:
    """Read a record's value; cached, because every opening of a key group restores the history."""
    return reading.read(value)


@dataclass
class RolloutHistory:
    """The rollout events read so far, in offset order."""

    computed: Sequence[str] = IDENTITIES
    """Features that the release computes, name:version."""
    records: list[tuple[int, int, str, str]] = field(default_factory=list)
    """(arrival ms, offset, JSON text, verdict code) of each readable record, as stored in the state."""
    set_aside: dict[int, str] = field(default_factory=dict)
    """Offset of a proposal whose models cannot decide -> value of the Reason."""
    events: list[AcceptedEvent] = field(default_factory=list)
    """Accepted events that changed something, in offset order."""
    line: Line = field(default_factory=Line)
    """The rollouts that follow from the accepted events."""
    _in_force: list[tuple[int, Plan]] = field(default_factory=list)
    """(arrival in ms from which the plan is in force, plan), ascending."""

    @property
    def newest(self) -> Plan | None:
        """The plan now in force; None if no plan can decide."""
        return self._in_force[-1][1] if self._in_force else None

    def fold(self, records: Sequence[RolloutRecord], topics: Topics, judge: Judge) -> list[DeadLetter]:
        """Fold records in offset order, and return the refused ones as dead letters."""
        refused = []
        for record in sorted(records, key=lambda record: record.offset):
            value = record.value or b""
            if len(value) > MAX_RECORD_BYTES:
                refused.append(_letter(record, topics, _TOO_LARGE))
                continue
            try:
                verdict = self._add(record.arrival, record.offset, value, UNJUDGED, judge)
            except ContractError as fault:
                reason = Reason.INVALID_VALUE if value else Reason.EMPTY_VALUE
                verdict = EventVerdict(reason.value, str(fault))
            if verdict.code != GOOD:
                refused.append(_letter(record, topics, verdict))
        self._in_force = plans_in_force(self.events, self._can_compute)
        return refused

    @staticmethod
    def judged(
        records: Sequence[RolloutRecord], reasons: Mapping[int, str], topics: Topics, computed: Sequence[str]
    ) -> "RolloutHistory":
        """Return the history of a job from its rollout topic.

        Args:
            reasons: offset -> reason, for each proposal that the job refused or set aside.
            computed: features that its release computes, name:version.
        """
        history = RolloutHistory(computed)
        history.fold(records, topics, lambda _, offset, __: EventVerdict(reasons.get(offset, GOOD)))
        return history

    @staticmethod
    def restore(
        records: Sequence[Sequence[object]], judge: Judge, computed: Sequence[str] = IDENTITIES
    ) -> "RolloutHistory":
        """Restore a history from its `records`, as parsed from JSON."""
        history = RolloutHistory(computed)
        for arrival, offset, text, code in records:
            history._add(int(str(arrival)), int(str(offset)), str(text).encode(), str(code), judge)
        history._in_force = plans_in_force(history.events, history._can_compute)
        return history

    def _add(self, arrival: int, offset: int, value: bytes, code: str, judge: Judge) -> EventVerdict:
        event = _event(value)
        verdict = EventVerdict(code) if code != UNJUDGED else self._judged(event, offset, judge)
        if event.type is Type.PROPOSED and verdict.code not in (GOOD, Reason.ROLLOUT_CONFLICT):
            self.set_aside[offset] = verdict.code
        self.records.append((arrival, offset, value.decode(), verdict.code))
        if verdict.code == GOOD and not machine.is_repetition(self.line, event):
            self._move(arrival, offset, event)
        return verdict

    def _judged(self, event: Event, offset: int, judge: Judge) -> EventVerdict:
        """Judge an event; the verdict is kept and final."""
        line = self.line
        if machine.is_repetition(line, event):
            return EventVerdict()
        try:
            machine.require_allowed(line, event)
        except ConflictError as conflict:
            return EventVerdict(conflict.reason.value, str(conflict))
        if event.type is Type.WITHDRAWN and not self._decides_without(event.rollout_id):
            return EventVerdict(
                Reason.LAST_ROLLOUT.value,
                f"nothing could decide without {event.rollout_id}; promote another model first",
            )
        return self._of_models(event, offset, judge) if event.type is Type.PROPOSED else EventVerdict()

    def _of_models(self, event: Event, offset: int, judge: Judge) -> EventVerdict:
        return self._lacking(event) or judge(event, offset, bool(self._usable()))

    def _lacking(self, event: Event) -> EventVerdict | None:
        missing = {
            name: None
            for challenger in event.challengers
            for name in lacking(challenger.model.features, self.computed)
        }
        if not missing:
            return None
        who, instead = "this release", "a release that computes them"
        if are_merchants([*missing]):
            who, instead = "a job without merchant facts", "a job with FRAUD_MERCHANT_FACTS=true"
        return EventVerdict(
            Reason.INCOMPATIBLE_FEATURES.value,
            f"{who} does not compute {', '.join(missing)}; roll out a model without them, or run {instead}",
        )

    def _move(self, arrival: int, offset: int, event: Event) -> None:
        self.line = machine.apply_accepted(self.line, event)
        # an event replaces earlier ones even if the brokers' clocks gave it an earlier arrival
        since = max(arrival, self.events[-1].since if self.events else 0)
        self.events.append(AcceptedEvent(since, offset, event, self.line.champions, machine.plan(self.line)))

    def _can_compute(self, model: ModelRef) -> bool:
        return not lacking(model.features, self.computed)

    def _usable(self) -> list[Decides]:
        return [champion for champion in self.line.champions if self._can_compute(champion.model)]

    def _decides_without(self, rollout_id: str) -> bool:
        return any(champion.rollout_id != rollout_id for champion in self._usable())

    def in_force(self, arrivals: NDArray[np.int64]) -> tuple[list[Plan], NDArray[np.int64]]:
        """Return all plans that are or were in force, and for each arrival the index of its plan, shape (n,).

        A plan that comes back into force when its successor is withdrawn is listed twice. Transactions that
        arrived before the first plan are decided by the first plan.

        Raises:
            NoRolloutError: no plan can decide.
        """
        if not self._in_force:
            aside = f"; see the dead letters of {len(self.set_aside)} proposal(s)" if self.set_aside else ""
            raise NoRolloutError(
                f"no model has been rolled out that can decide{aside}; run `fraud rollouts propose "
                "--promote`, then start the job"
            )
        starts = np.array([since for since, _ in self._in_force], dtype=np.int64)
        numbers = np.maximum(np.searchsorted(starts, arrivals, side="right") - 1, 0)
        return [plan for _, plan in self._in_force], numbers
