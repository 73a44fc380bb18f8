"""The desk's access to the rollout topic: reading to its end, and writing events with audit records."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException

from models.rollouts.events import Event
from service.rollouts import reading
from service.rollouts.errors import DeskError, UnansweredError
from service.rollouts.history import History
from service.rollouts.refusals import Refusals
from service.rollouts.requests import GUARD, Actor
from service.rollouts.writing import ExtraRecord, RolloutWriter
from service.security.audit import Entry, next_record
from service.security.audit_log import AuditLog, NoAuditError
from service.settings import ServiceSettings
from streaming_job.log.clients import describe

log = logging.getLogger(__name__)
DONE = "done"


class RolloutAudit:
    """Creator of audit records, each of which holds the digest of the one before.

    It may be called only while a `RolloutWriter` is open: an older writer can no longer commit then, so no
    two records hold the digest of the same record.
    """

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float]) -> None:
        """Create the object without connecting."""
        self._settings, self._clock = settings, clock
        self._log = AuditLog(settings)

    def of(self, events: Sequence[Event], actor: Actor) -> list[ExtraRecord]:
        """Create the audit records of events that will be written.

        Without an audit log only guards may write: their events give all cards back to the champion.

        Raises:
            UnansweredError: the audit log cannot be read, or does not exist.
        """
        topic = self._settings.topics.audit_log
        try:
            previous = self._log.last()
        except NoAuditError as fault:
            if actor.name == GUARD and actor.role == GUARD:
                log.critical("a guard ends a rollout without an audit record: %s", fault)
                return []
            raise UnansweredError("audit", f"changes cannot be audited: {fault}, then retry") from fault
        except KafkaException as fault:
            raise UnansweredError("audit", f"{topic} cannot be read: {describe(fault)}; retry") from fault
        records = []
        for event in events:
            previous = next_record(previous, self._entry(event, actor))
            records.append(ExtraRecord(topic, event.rollout_id.encode(), previous))
        return records

    def _entry(self, event: Event, actor: Actor) -> Entry:
        return Entry(
            at=int(self._clock() * 1000),
            actor=actor.name,
            role=actor.role,
            action=f"rollout.{event.type.value}",
            target=event.rollout_id,
            origin=actor.origin,
            outcome=DONE,
            detail=_detail(event),
        )


def _detail(event: Event) -> dict[str, Any]:
    """Return the fields of an event that the audit copies; the event itself is on model-rollouts."""
    common: dict[str, Any] = {"seq": event.seq, "reason": event.reason, "key": event.idempotency_key}
    models = {item.name: str(item.model) for item in event.challengers}
    optional = {
        "approved_by": event.approved_by,
        "challenger": event.challenger,
        "share_bp": event.share_bp,
        "guard": event.guard,
        "models": models,
    }
    return common | {name: value for name, value in optional.items() if value}


Write = Callable[[Sequence[Event], Actor], list[int]]
"""Writes events and their audit records in one Kafka transaction; returns the events' offsets."""


class Rollouts:
    """The rollout topic of a job, with one writer at a time."""

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float]) -> None:
        """Create the object without connecting."""
        self._settings = settings
        self._audit = RolloutAudit(settings, clock)
        self._refusals = Refusals(settings, clock)

    def read(self, set_aside: Mapping[int, str], since: History) -> History:
        """Extend the history `since` by all later records; raises DeskError."""
        return reading.history(self._settings, set_aside, since)

    def open(self) -> Write:
        """Fence the previous writer, and return the function that writes; it and `open` raise DeskError."""
        writer = RolloutWriter(self._settings)
        return lambda events, actor: writer.write(events, self._audit.of(events, actor))

    def note_refusal(self, action: str, target: str, actor: Actor, refusal: DeskError) -> None:
        """Record a refused request, without fencing a writer; never raises."""
        self._refusals.note(action, target, actor, refusal)
