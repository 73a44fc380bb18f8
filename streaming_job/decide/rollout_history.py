"""Which rollout decides a transaction: the newest usable one that had arrived when the transaction did.

Usable is a rollout whose features the release computes, whose model was found good when it was folded, and
that is not withdrawn. All this follows from the records in the order of their offsets, from verdicts that the
state keeps, and from the release's catalogue: it is the same after a restart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import IDENTITIES, lacking
from feature_store.errors import FraudError
from models import rollouts
from models.rollouts import Event, Rollout, Withdrawal
from streaming_job.contracts import ContractError, Reason
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decode.strict import MAX_RECORD_BYTES

GOOD, UNJUDGED = "good", ""
"""Verdicts beside the reasons; unjudged: a withdrawal, or features were lacking and nobody asked further."""


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


Judge = Callable[[Rollout, int, bool], Verdict]
"""(rollout, its offset, whether another one is in force) -> what is to be said of its model."""


_TOO_LARGE = Verdict(
    Reason.RECORD_TOO_LARGE.value, f"at most {MAX_RECORD_BYTES} bytes are taken: the state keeps all of it"
)


def _letter(record: RolloutRecord, topics: Topics, found: Verdict) -> DeadLetter:
    return DeadLetter(
        topics.model_rollouts, 0, record.offset, record.arrival, record.key, record.value,
        Reason(found.word), found.detail,
    )  # fmt: skip


@lru_cache(maxsize=16_384)
def _accepted(text: str) -> Event:
    """An event of the history, which every opening of a key group restores; checked once."""
    return rollouts.read(text.encode())


@dataclass
class RolloutHistory:
    """All rollouts and withdrawals so far, in offset order."""

    computed: Sequence[str] = IDENTITIES
    """Features that the release computes, name:version."""
    records: list[tuple[int, int, str, str]] = field(default_factory=list)
    """(arrival ms, offset, JSON text, verdict on the model) of each."""
    set_aside: dict[int, str] = field(default_factory=dict)
    """By offset of the rollouts that cannot decide: the Reason's value."""
    _named: set[str] = field(default_factory=set)
    """Ids of all rollouts."""
    _steps: list[tuple[int, Event]] = field(default_factory=list)
    """(arrival ms, usable rollout or valid withdrawal)."""
    _alive: list[Rollout] = field(default_factory=list)
    """Usable ones; the last is in force."""
    _reigns: list[tuple[int, Rollout]] = field(default_factory=list)
    """(arrival ms from which it decides, rollout), ascending."""

    @property
    def newest(self) -> Rollout | None:
        """The one in force."""
        return self._alive[-1] if self._alive else None

    def fold(self, records: Sequence[RolloutRecord], topics: Topics, judge: Judge) -> list[DeadLetter]:
        """Add records in offset order; returns those that change nothing.

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
                rollouts.read(value)
                found = self._take(record.arrival, record.offset, value.decode(), UNJUDGED, judge)
            except ContractError as fault:
                reason = Reason.INVALID_VALUE if value else Reason.EMPTY_VALUE
                found = Verdict(reason.value, str(fault))
            if found.word != GOOD:
                refused.append(_letter(record, topics, found))
        return refused

    @staticmethod
    def restore(
        records: Sequence[Sequence[object]], judge: Judge, computed: Sequence[str] = IDENTITIES
    ) -> "RolloutHistory":
        """From `records` as JSON gives them back; rollouts whose features were lacking may be usable now.

        Raises:
            ModelError: as `judge` does.
        """
        history = RolloutHistory(computed)
        for arrival, offset, text, word in records:
            history._take(int(str(arrival)), int(str(offset)), str(text), str(word), judge)
        return history

    def _take(self, arrival: int, offset: int, text: str, word: str, judge: Judge) -> Verdict:
        event = _accepted(text)
        if isinstance(event, Withdrawal):
            found = self._withdrawal(event)
        elif missing := lacking(event.model.features, self.computed):
            found = Verdict(
                Reason.INCOMPATIBLE_FEATURES.value,
                f"this release does not compute {', '.join(missing)}; roll out a model without them, or run "
                "a release that computes them",
            )
        else:
            found = Verdict(word) if word != UNJUDGED else judge(event, offset, bool(self._alive))
            word = found.word
        if isinstance(event, Rollout):
            self._named.add(event.rollout_id)
            if found.word != GOOD:
                self.set_aside[offset] = found.word
        self.records.append((arrival, offset, text, word))
        if found.word == GOOD:
            self._steps.append((arrival, event))
            self._derive()
        return found

    def _withdrawal(self, event: Withdrawal) -> Verdict:
        if event.withdraws not in self._named:
            return Verdict(Reason.UNKNOWN_ROLLOUT.value, f"there is no rollout {event.withdraws} before this")
        if self._alive and all(rollout.rollout_id == event.withdraws for rollout in self._alive):
            return Verdict(
                Reason.LAST_ROLLOUT.value,
                f"nothing could decide without {event.withdraws}; promote another model first",
            )
        return Verdict()

    def _derive(self) -> None:
        """Who reigned from when on, and who is alive: by all steps, in their order."""
        never = {
            before
            for number, (_, event) in enumerate(self._steps)
            if isinstance(event, Withdrawal) and event.from_the_beginning
            for before, (_, rollout) in enumerate(self._steps[:number])
            if rollout.rollout_id == event.withdraws
        }
        self._alive, self._reigns, latest = [], [], 0
        for number, (arrival, event) in enumerate(self._steps):
            # an event hides the ones before it even if broker clocks make it look older than they are
            latest = max(latest, arrival)
            if isinstance(event, Withdrawal):
                left = [rollout for rollout in self._alive if rollout.rollout_id != event.withdraws]
                self._alive = left or self._alive
            elif number not in never:
                self._alive.append(event)
            if self._alive and (not self._reigns or self._reigns[-1][1] is not self._alive[-1]):
                self._reigns.append((latest, self._alive[-1]))

    def in_force(self, arrivals: NDArray[np.int64]) -> tuple[list[Rollout], NDArray[np.int64]]:
        """The rollouts that have reigned, and for each arrival the number of its own, shape (n,).

        One that reigned, was hidden and came back, when the one after it was withdrawn, is there twice. A
        transaction that arrived before the first one is decided by the first.

        Raises:
            NoRolloutError: there is none.
        """
        if not self._reigns:
            aside = f"; {len(self.set_aside)} were set aside, see the dead letters" if self.set_aside else ""
            raise NoRolloutError(
                f"no model has been rolled out that can decide{aside}; run `fraud models promote`, then "
                "start the job"
            )
        starts = np.array([arrival for arrival, _ in self._reigns], dtype=np.int64)
        numbers = np.maximum(np.searchsorted(starts, arrivals, side="right") - 1, 0)
        return [rollout for _, rollout in self._reigns], numbers
