"""Records of refused requests, on a topic of their own, written without the rollouts' transactional id.

A refused request must not take what a guard needs to end a rollout: opening the writer of rollouts fences
every other one. So refusals have a plain idempotent producer. The refusals of one process form a hash chain
of their own, as on the audit log; the key of their records is the chain's id.
"""

import atexit
import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException

from service.rollouts.errors import DeskError
from service.rollouts.requests import Actor
from service.security.audit import Entry, next_record
from service.settings import ServiceSettings
from streaming_job.log import clients
from streaming_job.log.clients import Producer, describe

log = logging.getLogger(__name__)
REFUSED = "refused"
WINDOW_S = 10.0
"""After the first refusal of a kind (actor, action, check), further ones are counted for this long."""
MOST_KINDS = 8
"""Kinds that are told apart within a window; further ones are one kind."""
FLUSH_S = 5.0
"""Longest wait for the brokers at the end of the process."""

Kind = tuple[str, str, str]
_OTHERS: Kind = ("", "", "")


@dataclass
class _Window:
    newest: Entry
    further: int = 0


class Refusals:
    """Writer of the refusals of one process: at most two records of a kind in 10 s; it never blocks."""

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float]) -> None:
        """Create the object without connecting."""
        self._settings, self._clock = settings, clock
        self._lock = threading.Lock()
        self._windows: dict[Kind, _Window] = {}
        self._timer: threading.Timer | None = None
        self._producer: Producer | None = None
        self._chain = ""
        self._previous: bytes | None = None

    def note(self, action: str, target: str, actor: Actor, refusal: DeskError) -> None:
        """Record a refused request, or count it if its kind was recorded a moment ago."""
        entry = Entry(
            at=int(self._clock() * 1000),
            actor=actor.name,
            role=actor.role,
            action=action,
            target=target,
            origin=actor.origin,
            outcome=REFUSED,
            detail={"check": refusal.check, "text": str(refusal)},
        )
        kind = actor.name, action, refusal.check
        with self._lock:
            if kind not in self._windows and len(self._windows) >= MOST_KINDS:
                kind = _OTHERS
            if (window := self._windows.get(kind)) is not None:
                window.newest, window.further = entry, window.further + 1
                return
            self._windows[kind] = _Window(entry)
            self._write(entry)
            if self._timer is None:
                self._timer = threading.Timer(WINDOW_S, self.close_window)
                self._timer.daemon = True
                self._timer.start()

    def close_window(self) -> None:
        """Write how many further refusals of each kind there were, with the newest of them."""
        with self._lock:
            windows, self._windows, self._timer = self._windows, {}, None
            for window in windows.values():
                if window.further:
                    detail = {**window.newest.detail, "further": window.further}
                    self._write(replace(window.newest, detail=detail))

    def flush(self) -> None:
        """Write what is counted, and wait up to FLUSH_S for the brokers."""
        self.close_window()
        if self._producer is not None and (left := self._producer.flush(FLUSH_S)):
            self._failed(f"the brokers did not confirm {left} records before the end")

    def _write(self, entry: Entry) -> None:
        topic = self._settings.topics.audit_refusals
        try:
            if self._producer is None:
                # no time limit: later records of the chain may have been sent when an earlier one expires
                self._producer = clients.producer(self._settings, tuning={"message.timeout.ms": 0})
            self._producer.poll(0)  # the outcome of earlier records
            if self._previous is None:
                if not self._chain:
                    atexit.register(self.flush)  # the sidecar's threads may refuse until then
                self._chain = uuid.uuid4().hex
            value = next_record(self._previous, entry)
            self._producer.produce(topic, value, self._chain, partition=0, on_delivery=self._delivered)
            self._previous = value
        except (KafkaException, BufferError) as fault:
            text = describe(fault) if isinstance(fault, KafkaException) else str(fault)
            self._failed(text)
            if isinstance(fault, KafkaException) and fault.args[0].code() == KafkaError._FATAL:
                self._producer = None  # it is of no more use; otherwise it may still have earlier records

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failed(str(error))

    def _failed(self, text: str) -> None:
        log.error("a refusal is not on %s: %s", self._settings.topics.audit_refusals, text)
        self._previous = None  # whether the record was written is not known: begin another chain
