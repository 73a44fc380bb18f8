"""What the bank knew and when: profile versions per card, and rollouts, by their arrival on the log."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from feature_store.catalogue import IDENTITIES
from loadtests.oracle import decode
from loadtests.oracle.card import Profile
from loadtests.oracle.decode import RefusedError
from loadtests.oracle.records import Kind, Outcome, Record, digest, part
from models.errors import ModelError, ModelMissingError, ModelUnavailableError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts import events
from models.rollouts.events import Challenger, Event, Type
from streaming_job.contracts import ContractError, Reason

BEGINNING = 0
"""Not later than any arrival."""
SNAPSHOT, DELETE = "r", "d"
CHANGES = ("c", "u", SNAPSHOT)
"""Debezium's operations that carry a row."""
STATUS = re.compile("active|blocked|closed")
_PLAIN_KEY = re.compile(
    rb'[ \t\r\n]*\{[ \t\r\n]*"card_id"[ \t\r\n]*:[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*\}[ \t\r\n]*'
)
MOST_CREDIT = 1e15
MOST_DAYS = 3_000_000


def dead_letter(record: Record, reason: Reason) -> Outcome:
    """The outcome of a record that breaks its contract."""
    return Outcome(
        record.topic,
        record.partition,
        record.offset,
        Kind.DEAD_LETTER,
        reason,
        digest=digest(part(record.key), part(record.value)),
    )


class _Version(NamedTuple):
    """What the log says of a card's row."""

    known_from: int
    """Kafka timestamp, ms."""
    profile: Profile | None
    """None where the row was deleted."""
    status: str | None
    """Of the card; a delete leaves it as it was. None if it never had one."""
    lsn: int
    """Place in Postgres's log; 0 if it is not told."""


class ProfileLog:
    """Every version of every profile, by card in the order of the log."""

    def __init__(self) -> None:
        self._versions: dict[str, list[_Version]] = {}

    def read(self, records: Iterable[Record]) -> list[Outcome]:
        """Fold the profile topic, each partition in the order of offsets; returns the dead letters."""
        refused = []
        everything = list(records)
        ends = [record.timestamp for record in everything if _snapshot(record) == "last"]
        first_snapshot_until = min(ends, default=math.inf)
        for record in everything:
            try:
                self._fold(record, first_snapshot_until)
            except RefusedError as refusal:
                refused.append(dead_letter(record, refusal.reason))
        return refused

    def _fold(self, record: Record, first_snapshot_until: float) -> None:
        if record.value is None:
            card_id = decode.identifier(decode.parse_object(record.key), "card_id")
            versions = self._versions.setdefault(card_id, [])
            # after a delete it says nothing new
            if not versions or versions[-1].profile is not None:
                versions.append(_Version(record.timestamp, None, _status(versions), 0))
            return
        envelope = decode.parse_object(record.value)
        operation = envelope.get("op")
        lsn = _lsn(envelope)
        if operation == DELETE:
            card_id = decode.identifier(envelope.get("before"), "card_id")
            _require_key(record, card_id)
            versions = self._versions.setdefault(card_id, [])
            versions.append(_Version(record.timestamp, None, _status(versions), lsn))
            return
        if operation not in CHANGES:
            raise RefusedError(Reason.INVALID_VALUE)
        row = envelope.get("after")
        card_id = decode.identifier(row, "card_id")
        status = decode.text(row, "status", STATUS)
        home_country = decode.text(row, "home_country", decode.COUNTRY)
        decode.text(row, "currency", decode.CURRENCY)
        credit_limit = decode.amount(row, "credit_limit", MOST_CREDIT)
        risk_tier = decode.integer(row, "risk_tier", 0, 3)
        opened_on = decode.integer(row, "opened_on", -MOST_DAYS, MOST_DAYS)
        _require_key(record, card_id)
        versions = self._versions.setdefault(card_id, [])
        first = record.timestamp <= first_snapshot_until and _snapshot(record) != "incremental"
        known_from = BEGINNING if operation == SNAPSHOT and first and not versions else record.timestamp
        profile = Profile(
            status,
            home_country,
            credit_limit,
            risk_tier,
            opened_on,
            record.partition,
            record.offset,
            known_from,
        )
        # a row that a snapshot found in the table replaces only what Postgres's log says is older
        if operation != SNAPSHOT or not versions or 0 < versions[-1].lsn < lsn:
            versions.append(_Version(known_from, profile, status, lsn))

    def in_force(self, card_id: str, arrival: int) -> Profile | None:
        """The newest version that the log held at `arrival`; None without one or after a delete."""
        version = self._version(card_id, arrival)
        return version and version.profile

    def status(self, card_id: str, arrival: int) -> str | None:
        """The card's status as the log had it at `arrival`: that of its row, even if that is deleted."""
        version = self._version(card_id, arrival)
        return version and version.status

    def had_version(self, card_id: str, arrival: int) -> bool:
        """Whether the log held anything of a card's row at `arrival`, a delete included."""
        return self._version(card_id, arrival) is not None

    def _version(self, card_id: str, arrival: int) -> _Version | None:
        for version in reversed(self._versions.get(card_id, [])):
            if version.known_from <= arrival:
                return version
        return None


def _status(versions: list[_Version]) -> str | None:
    return versions[-1].status if versions else None


def _require_key(record: Record, card_id: str) -> None:
    """Refuse a row whose key, where it is a plain one, names another card."""
    plain = _PLAIN_KEY.fullmatch(record.key or b"")
    if plain is not None and plain[1] != card_id.encode():
        raise RefusedError(Reason.INVALID_VALUE)


def _source(envelope: Any) -> dict[str, Any]:
    found = envelope.get("source") if isinstance(envelope, dict) else None
    return found if isinstance(found, dict) else {}


def _snapshot(record: Record) -> Any:
    """What Debezium says of a record's part in a snapshot."""
    try:
        return _source(json.loads(record.value or b"")).get("snapshot")
    except (ValueError, RecursionError):
        return None


def _lsn(envelope: Any) -> int:
    """Place in Postgres's log; 0 if it is not told."""
    lsn = _source(envelope).get("lsn")
    return lsn if type(lsn) is int and 0 < lsn < 2**56 else 0


class Rollout(NamedTuple):
    """A model and a policy that decide for every card."""

    rollout_id: str
    model: ModelRef
    policy: Policy


class RolloutLog:
    """Every rollout and withdrawal in the order of the log.

    Args:
        load: gives the model of a rollout, or raises; default: every model can decide.
        unavailable: offsets of the rollouts whose models the job said it could not have: nobody can find that
            out afterwards.
    """

    def __init__(
        self, load: Callable[[Rollout], object] = lambda _: None, unavailable: Collection[int] = ()
    ) -> None:
        self._load, self._unavailable = load, unavailable
        self._names: set[str] = set()
        self._proposed: dict[str, tuple[Challenger, ...]] = {}
        """Of the second version, by rollout_id."""
        self._usable: list[tuple[int, int, Rollout]] = []
        """(known from, offset, rollout)."""
        self._withdrawn: list[tuple[int, int, str, bool]] = []
        """(known from, offset, rollout_id, from the beginning)."""
        self._latest = 0

    def __len__(self) -> int:
        return len(self._usable)

    def read(self, records: Iterable[Record]) -> list[Outcome]:
        """Fold the rollout topic in the order of offsets; returns the dead letters."""
        refused = []
        for record in records:
            reason = self._fold(record)
            if reason is not None:
                refused.append(dead_letter(record, reason))
        return refused

    def _fold(self, record: Record) -> Reason | None:
        if not record.value:
            return Reason.EMPTY_VALUE
        if len(record.value) > decode.MAX_RECORD_BYTES:
            return Reason.RECORD_TOO_LARGE
        try:
            told = events.read(record.value)
        except ContractError:
            return Reason.INVALID_VALUE
        for event in told:
            reason = self._take(record, event)
            if reason is not None:
                return reason
        return None

    def _take(self, record: Record, event: Event) -> Reason | None:
        name = event.rollout_id
        if event.type is Type.PROPOSED:
            for one in event.challengers:
                reason = self._fault(record.offset, Rollout(name, one.model, one.policy))
                if reason is not None:
                    if event.schema_version == 1:
                        self._names.add(name)
                    return reason
            self._names.add(name)
            self._proposed[name] = event.challengers
            return None
        if name not in self._names:
            return Reason.UNKNOWN_ROLLOUT
        if event.type is Type.PROMOTED:
            best = next(one for one in self._proposed[name] if one.name == event.challenger)
            self._latest = max(self._latest, record.timestamp)
            self._usable.append((self._latest, record.offset, Rollout(name, best.model, best.policy)))
        if event.type is Type.WITHDRAWN:
            alive = self._alive(math.inf)
            if alive and {rollout.rollout_id for rollout in alive} == {name}:
                return Reason.LAST_ROLLOUT
            self._latest = max(self._latest, record.timestamp)
            self._withdrawn.append((self._latest, record.offset, name, event.from_the_beginning))
        return None

    def _fault(self, offset: int, rollout: Rollout) -> Reason | None:
        if not set(rollout.model.features) <= set(IDENTITIES):
            return Reason.INCOMPATIBLE_FEATURES
        if offset in self._unavailable:
            return Reason.MODEL_UNAVAILABLE
        try:
            self._load(rollout)
        except (ModelMissingError, ModelUnavailableError):
            return Reason.MODEL_UNAVAILABLE
        except ModelError:
            return Reason.MODEL_REFUSED
        return None

    def _alive(self, until: float) -> list[Rollout]:
        """Usable rollouts known by `until`, less those withdrawn by then."""
        return [
            rollout
            for known_from, offset, rollout in self._usable
            if known_from <= until and not self._is_void(offset, rollout, until)
        ]

    def _is_void(self, offset: int, rollout: Rollout, until: float = -math.inf) -> bool:
        """Whether a rollout is withdrawn by `until`, or from the beginning."""
        return any(
            name == rollout.rollout_id and offset < at and (since <= until or from_the_beginning)
            for since, at, name, from_the_beginning in self._withdrawn
        )

    def in_force(self, arrival: int) -> Rollout:
        """The newest rollout that the log held at `arrival`; the first of all for what arrived before it."""
        alive = self._alive(arrival)
        return alive[-1] if alive else next(r for _, at, r in self._usable if not self._is_void(at, r))
