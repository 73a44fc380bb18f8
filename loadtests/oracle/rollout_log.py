"""Who scored and who decided at an arrival: the rollout topic, folded from its beginning for every question.

The state of the rollouts is never kept but made anew of the accepted events.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable

from feature_store.catalogue import IDENTITIES
from loadtests.oracle import decode
from loadtests.oracle.records import Outcome, Record
from loadtests.oracle.rollout_events import BrokenError, Event, read
from loadtests.oracle.rollouts import Plan, Scorer, State
from loadtests.oracle.tables import dead_letter
from models.errors import ModelError, ModelMissingError, ModelUnavailableError
from streaming_job.contracts import Reason


class RolloutLog:
    """Every accepted event in the order of the log.

    Args:
        load: gives a model, or raises; default: every model can decide.
        unavailable: offsets of the proposals whose models the job said it could not have: nobody can find
            that out afterwards.
        computed: features that the job computes, name:version.
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
        """From when on each is known; never before the one before it."""
        self._names: set[str] = set()
        """Of all that was proposed, if only to be refused."""
        self._plans: list[Plan | None] = [None]
        """After so many events."""

    def __len__(self) -> int:
        """How many events were accepted."""
        return len(self._events)

    def read(self, records: Iterable[Record]) -> list[Outcome]:
        """Fold the rollout topic in the order of offsets; returns the dead letters."""
        refused = []
        for record in records:
            reason = self._take(record)
            if reason is not None:
                refused.append(dead_letter(record, reason))
        void = self._void()
        plans = [State(self._events[:n], void).plan() for n in range(len(self._events) + 1)]
        # where later withdrawals from the beginning leave nobody, the plan before goes on
        newest_first = (filter(None, (*reversed(plans[: n + 1]), *plans[n + 1 :])) for n in range(len(plans)))
        self._plans = [next(found, None) for found in newest_first]
        return refused

    def _take(self, record: Record) -> Reason | None:
        if not record.value:
            return Reason.EMPTY_VALUE
        if len(record.value) > decode.MAX_RECORD_BYTES:
            return Reason.RECORD_TOO_LARGE
        try:
            events = read(record.value)
        except BrokenError:
            return Reason.INVALID_VALUE
        first, state = events[0], State(self._events)
        if state.repeats(first):
            return None
        reason = state.fault(first)
        if reason is Reason.UNKNOWN_ROLLOUT and first.version == 1 and first.rollout_id in self._names:
            return None  # it takes back what was refused: nothing
        if first.type == "proposed":
            self._names.add(first.rollout_id)
        reason = reason or self._unusable(record.offset, first)
        if reason is None:
            self._events += events
            since = max([record.timestamp, *self._times[-1:]])
            self._times += [since] * len(events)
        return reason

    def _unusable(self, offset: int, event: Event) -> Reason | None:
        """Why a proposal's models cannot decide."""
        if any(not set(one.model.features) <= self._computed for one in event.candidates):
            return Reason.INCOMPATIBLE_FEATURES
        if event.candidates and offset in self._unavailable:
            return Reason.MODEL_UNAVAILABLE
        try:
            for one in event.candidates:
                self._load(Scorer(event.rollout_id, event.seq, one.model, one.policy, one.name))
        except (ModelMissingError, ModelUnavailableError):
            return Reason.MODEL_UNAVAILABLE
        except ModelError:
            return Reason.MODEL_REFUSED
        return None

    def _void(self) -> set[int]:
        """Numbers of the promotions that a later withdrawal takes back from the beginning."""
        return {
            number
            for number, event in enumerate(self._events)
            for later in self._events[number:]
            if event.type == "promoted"
            and (later.type, later.rollout_id, later.from_the_beginning)
            == ("withdrawn", event.rollout_id, True)
        }

    def plan(self, arrival: float = math.inf) -> Plan | None:
        """Who scores and who decides what arrives then (ms): the first plan of all before any; None: none."""
        return self._plans[bisect_right(self._times, arrival)]
