"""The plan in force at an arrival: which models score and decide, from all events of the rollout topic.

The state of rollouts is not stored: for each new record it is computed again from all accepted events.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from typing import Any

from feature_store.catalogue import IDENTITIES
from loadtests.oracle import decode
from loadtests.oracle.records import ExpectedOutcome, Record
from loadtests.oracle.rollout_events import BrokenError, Event, read
from loadtests.oracle.rollouts import Plan, Scorer, State
from loadtests.oracle.tables import dead_letter
from models.errors import ModelError, ModelMissingError, ModelUnavailableError
from streaming_job.contracts import Reason


class RolloutLog:
    """All accepted rollout events, in log order.

    Args:
        load: loads a model, or raises; default: every model is usable.
        unavailable: offsets of the proposals that the job refused because a model was unavailable:
            the oracle cannot find out afterwards whether it was.
        computed: features that the job computes, as name:version.
    """

    def __init__(
        self,
        load: Callable[[Scorer], object] = lambda _: None,
        unavailable: Collection[int] = (),
        computed: Collection[str] = IDENTITIES,
    ) -> None:
        self._load, self._unavailable, self._computed = load, unavailable, set(computed)
        self._events: list[Event] = []
        self._times: list[int] = []
        """Time from which each event is in force, ms, monotone."""
        self._plans: list[Plan | None] = [None]
        """Plan in force after the first n events, by n."""

    def __len__(self) -> int:
        """Return the number of accepted events."""
        return len(self._events)

    def breaches(self) -> list[tuple[str, str, Any]]:
        """Return (rollout_id, challenger, verdict) of the accepted `breached` events, in log order."""
        return [
            (event.rollout_id, event.challenger, event.evidence[1])
            for event in self._events
            if event.type == "breached"
        ]

    def read(self, records: Iterable[Record]) -> list[ExpectedOutcome]:
        """Fold the rollout topic in the order of offsets; returns the dead letters."""
        refused = []
        for record in records:
            reason = self._accept(record)
            if reason is not None:
                refused.append(dead_letter(record, reason))
        void = self._void()
        plans = [State(self._events[:n], void).plan() for n in range(len(self._events) + 1)]
        # without a champion after an event (none promoted yet, or none left because of withdrawals with
        # from_the_beginning), the previous plan stays in force; without a previous plan, the next one applies
        newest_first = (filter(None, (*reversed(plans[: n + 1]), *plans[n + 1 :])) for n in range(len(plans)))
        self._plans = [next(candidates, None) for candidates in newest_first]
        return refused

    def _accept(self, record: Record) -> Reason | None:
        if (reason := decode.unfit(record)) is not None:
            return reason
        try:
            event = read(record.value or b"")
        except BrokenError:
            return Reason.INVALID_VALUE
        state = State(self._events)
        if state.repeats(event):
            return None
        reason = state.fault(event) or self._unusable(record.offset, event)
        if reason is None:
            self._events.append(event)
            self._times.append(max([record.timestamp, *self._times[-1:]]))
        return reason

    def _unusable(self, offset: int, event: Event) -> Reason | None:
        """Return why a proposal's models cannot be used; None if they can."""
        if any(not set(candidate.model.features) <= self._computed for candidate in event.candidates):
            return Reason.INCOMPATIBLE_FEATURES
        if event.candidates and offset in self._unavailable:
            return Reason.MODEL_UNAVAILABLE
        try:
            for candidate in event.candidates:
                self._load(
                    Scorer(event.rollout_id, event.seq, candidate.model, candidate.policy, candidate.name)
                )
        except (ModelMissingError, ModelUnavailableError):
            return Reason.MODEL_UNAVAILABLE
        except ModelError:
            return Reason.MODEL_REFUSED
        return None

    def _void(self) -> set[int]:
        """Return the indices of the promotions that a later withdrawal takes back from the beginning."""
        return {
            number
            for number, event in enumerate(self._events)
            for later in self._events[number:]
            if event.type == "promoted"
            and (later.type, later.rollout_id, later.from_the_beginning)
            == ("withdrawn", event.rollout_id, True)
        }

    def plan(self, arrival: float = math.inf) -> Plan | None:
        """Return the plan in force at an arrival (ms): before any event, the first plan; None without any."""
        return self._plans[bisect_right(self._times, arrival)]
