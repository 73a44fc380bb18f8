"""Who decides a transaction, and who is scored beside it: by the rollout events that had arrived when it did.

Events are folded in the order of their offsets by `models.rollouts.machine`. What a release once said of an
event, accepted or refused and why, is kept with it in the state, so that a restart, another release, or a
registry that has changed folds the same history. The exception is what a release cannot compute: a champion
whose features are not in its catalogue is passed over as long as it does not have them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import IDENTITIES, lacking
from feature_store.errors import FraudError
from models.registry import ModelRef
from models.rollouts import events, machine
from models.rollouts.events import Event, Type
from models.rollouts.machine import ConflictError, Decides, Line, Plan
from streaming_job.contracts import ContractError, Reason
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decode.strict import MAX_RECORD_BYTES

GOOD, UNJUDGED = "good", ""
"""Verdicts beside the reasons; unjudged: nothing has been said yet, or it follows from the log alone."""


class NoRolloutError(FraudError):
    """There is no champion to decide."""


@dataclass(frozen=True)
class RolloutRecord:
    """A record of the rollout topic."""

    arrival: int
    """Kafka timestamp, ms."""
    offset: int
    value: bytes | None
    key: bytes | None = None


@dataclass(frozen=True)
class Verdict:
    """What came of looking at a record."""

    word: str = GOOD
    """GOOD, UNJUDGED, or a Reason's value."""
    detail: str = ""
    """For a person."""


@dataclass(frozen=True)
class Step:
    """An accepted event, and what holds after it."""

    since: int
    """Arrival from which it holds, ms: its own, or that of one before it that looks younger."""
    offset: int
    event: Event
    champions: tuple[Decides, ...]
    """The stack (`machine.Line`); what the release cannot compute is in it, too."""
    plan: Plan | None
    """As the log has it."""


Judge = Callable[[Event, int, bool], Verdict]
"""(a proposal, its offset, whether another champion is in force) -> what is to be said of its models."""


_TOO_LARGE = Verdict(
    Reason.RECORD_TOO_LARGE.value, f"at most {MAX_RECORD_BYTES} bytes are taken: the state keeps all of it"
)


def _letter(record: RolloutRecord, topics: Topics, found: Verdict) -> DeadLetter:
    return DeadLetter(
        topics.model_rollouts, 0, record.offset, record.arrival, record.key, record.value,
        Reason(found.word), found.detail,
    )  # fmt: skip


@lru_cache(maxsize=16_384)
def _accepted(text: str) -> tuple[Event, ...]:
    """Events of the history, which every opening of a key group restores; checked once."""
    return events.read(text.encode())


@dataclass
class RolloutHistory:
    """All rollout events so far, in offset order."""

    computed: Sequence[str] = IDENTITIES
    """Features that the release computes, name:version."""
    records: list[tuple[int, int, str, str]] = field(default_factory=list)
    """(arrival ms, offset, JSON text, verdict) of each; what the state keeps."""
    set_aside: dict[int, str] = field(default_factory=dict)
    """By offset of the proposals whose models cannot decide: the Reason's value."""
    steps: list[Step] = field(default_factory=list)
    """Accepted events that changed something, in offset order."""
    line: Line = field(default_factory=Line)
    """All rollouts as the log has them."""
    _named: set[str] = field(default_factory=set)
    """rollout_ids of all proposals, refused ones, too."""
    _reigns: list[tuple[int, Plan]] = field(default_factory=list)
    """(arrival ms from which it holds, plan), ascending."""

    @property
    def newest(self) -> Plan | None:
        """The plan in force."""
        return self._reigns[-1][1] if self._reigns else None

    def fold(self, records: Sequence[RolloutRecord], topics: Topics, judge: Judge) -> list[DeadLetter]:
        """Add records in offset order; returns those that are refused.

        Raises:
            ModelError: as `judge` does.
        """
        refused = []
        for record in sorted(records, key=lambda record: record.offset):
            value = record.value or b""
            if len(value) > MAX_RECORD_BYTES:
                refused.append(_letter(record, topics, _TOO_LARGE))
                continue
            try:
                events.read(value)
                found = self._take(record.arrival, record.offset, value.decode(), UNJUDGED, judge)
            except ContractError as fault:
                reason = Reason.INVALID_VALUE if value else Reason.EMPTY_VALUE
                found = Verdict(reason.value, str(fault))
            if found.word != GOOD:
                refused.append(_letter(record, topics, found))
        self._derive()
        return refused

    @staticmethod
    def restore(
        records: Sequence[Sequence[object]], judge: Judge, computed: Sequence[str] = IDENTITIES
    ) -> "RolloutHistory":
        """From `records` as JSON gives them back.

        Raises:
            ModelError: as `judge` does.
        """
        history = RolloutHistory(computed)
        for arrival, offset, text, word in records:
            history._take(int(str(arrival)), int(str(offset)), str(text), str(word), judge)
        history._derive()
        return history

    def _take(self, arrival: int, offset: int, text: str, word: str, judge: Judge) -> Verdict:
        told = _accepted(text)
        first = told[0]
        if first.schema_version == 1:
            found, word = self._judged_v1(first, offset, word, judge)
        else:
            found = Verdict(word) if word != UNJUDGED else self._judged(first, offset, judge)
            word = found.word
        if first.type is Type.PROPOSED:
            self._named.add(first.rollout_id)
            if found.word not in (GOOD, Reason.ROLLOUT_CONFLICT):
                self.set_aside[offset] = found.word
        self.records.append((arrival, offset, text, word))
        if found.word == GOOD:
            self._move(arrival, offset, told)
        return found

    def _judged(self, event: Event, offset: int, judge: Judge) -> Verdict:
        """Judged once; what is said stays said."""
        line = self.line
        if machine.is_repetition(line, event):
            return Verdict()
        try:
            machine.require_allowed(line, event)
        except ConflictError as conflict:
            return Verdict(conflict.reason.value, str(conflict))
        if event.type is Type.WITHDRAWN and not self._decides_without(event.rollout_id):
            return _last(event.rollout_id)
        return self._of_models(event, offset, judge) if event.type is Type.PROPOSED else Verdict()

    def _judged_v1(self, event: Event, offset: int, word: str, judge: Judge) -> tuple[Verdict, str]:
        """Judged at every restore, but for the model; returns also the word that is kept.

        A model whose features were lacking is usable as soon as a release computes them.
        """
        if event.type is Type.PROPOSED:
            found = self._lacking(event)
            if found is None:
                found = Verdict(word) if word != UNJUDGED else judge(event, offset, bool(self._usable()))
                word = found.word
            return found, word
        if event.rollout_id not in self._named:
            return _unknown(event.rollout_id), word
        if self._usable() and not self._decides_without(event.rollout_id):
            return _last(event.rollout_id), word
        return Verdict(), word

    def _of_models(self, event: Event, offset: int, judge: Judge) -> Verdict:
        return self._lacking(event) or judge(event, offset, bool(self._usable()))

    def _lacking(self, event: Event) -> Verdict | None:
        missing = {
            name: None for one in event.challengers for name in lacking(one.model.features, self.computed)
        }
        if not missing:
            return None
        return Verdict(
            Reason.INCOMPATIBLE_FEATURES.value,
            f"this release does not compute {', '.join(missing)}; roll out a model without them, or run "
            "a release that computes them",
        )

    def _move(self, arrival: int, offset: int, told: Sequence[Event]) -> None:
        before = self.line
        for event in told:
            known = event.rollout_id in self.line.trials
            if (known or event.type is Type.PROPOSED) and not machine.is_repetition(self.line, event):
                self.line = machine.apply_accepted(self.line, event)
        if self.line is not before:
            # an event hides the ones before it even if broker clocks make it look older than they are
            since = max(arrival, self.steps[-1].since if self.steps else 0)
            plan = machine.plan(self.line)
            self.steps.append(Step(since, offset, told[-1], self.line.champions, plan))

    def _can_compute(self, model: ModelRef) -> bool:
        return not lacking(model.features, self.computed)

    def _usable(self) -> list[Decides]:
        return [one for one in self.line.champions if self._can_compute(one.model)]

    def _decides_without(self, rollout_id: str) -> bool:
        return any(one.rollout_id != rollout_id for one in self._usable())

    def _derive(self) -> None:
        """Who reigned from when on: by all steps, in their order."""
        self._reigns = []
        for since, plan in self._plans():
            if not self._reigns or self._reigns[-1][1] != plan:
                self._reigns.append((since, plan))

    def _plans(self) -> Iterator[tuple[int, Plan]]:
        never = self._passed_over()
        for step in self.steps:
            champion = next(
                (
                    one
                    for one in reversed(step.champions)
                    if (one.rollout_id, one.seq) not in never and self._can_compute(one.model)
                ),
                None,
            )
            if champion is not None and step.plan is not None:
                able = tuple(one for one in step.plan.challengers if self._can_compute(one.model))
                seq = champion.seq if step.plan.trial is None else step.plan.seq
                yield step.since, replace(step.plan, champion=champion, challengers=able, seq=seq)

    def _passed_over(self) -> set[tuple[str, int]]:
        """(rollout_id, seq) of the promotions that were withdrawn from the beginning."""
        promoted: dict[str, set[int]] = {}
        never: set[tuple[str, int]] = set()
        for step in self.steps:
            for one in step.champions[-1:]:
                promoted.setdefault(one.rollout_id, set()).add(one.seq)
            if step.event.type is Type.WITHDRAWN and step.event.from_the_beginning:
                name = step.event.rollout_id
                never |= {(name, seq) for seq in promoted.get(name, ())}
        return never

    def in_force(self, arrivals: NDArray[np.int64]) -> tuple[list[Plan], NDArray[np.int64]]:
        """The plans that have reigned, and for each arrival the number of its own, shape (n,).

        One that reigned, was hidden and came back, when the one after it was withdrawn, is there twice. A
        transaction that arrived before the first one is decided by the first.

        Raises:
            NoRolloutError: there is none.
        """
        if not self._reigns:
            aside = f"; {len(self.set_aside)} were set aside, see the dead letters" if self.set_aside else ""
            raise NoRolloutError(
                f"no model has been rolled out that can decide{aside}; run `fraud rollouts promote`, then "
                "start the job"
            )
        starts = np.array([since for since, _ in self._reigns], dtype=np.int64)
        numbers = np.maximum(np.searchsorted(starts, arrivals, side="right") - 1, 0)
        return [plan for _, plan in self._reigns], numbers


def _unknown(rollout_id: str) -> Verdict:
    return Verdict(Reason.UNKNOWN_ROLLOUT.value, f"there is no rollout {rollout_id} before this")


def _last(rollout_id: str) -> Verdict:
    return Verdict(
        Reason.LAST_ROLLOUT.value,
        f"nothing could decide without {rollout_id}; promote another model first",
    )
