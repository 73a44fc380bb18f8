"""Profile versions by card and arrival: what the bank's table held at any time."""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from loadtests.oracle import decode
from loadtests.oracle.card import Profile
from loadtests.oracle.decode import RefusedError
from loadtests.oracle.records import Kind, Outcome, Record, digest, part
from streaming_job.contracts import Reason

BEGINNING = 0
"""Timestamp before any arrival."""
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
    """Return the outcome of a record that breaks its contract."""
    return Outcome(
        record.topic,
        record.partition,
        record.offset,
        Kind.DEAD_LETTER,
        reason,
        digest=digest(part(record.key), part(record.value)),
    )


class _Version(NamedTuple):
    """One version of a card's row."""

    known_from: int
    """Kafka timestamp, ms; BEGINNING for a card's first version if it is of the first snapshot."""
    profile: Profile | None
    """None where the row was deleted."""
    status: str | None
    """Status of the card; a delete leaves it unchanged. None if the card never had one."""
    lsn: int
    """Postgres LSN; 0 if unknown."""


class ProfileLog:
    """All versions of all profiles: a list for each card, in log order."""

    def __init__(self) -> None:
        self._versions: dict[str, list[_Version]] = {}
        self._first_snapshot_until = math.inf

    def read(self, records: Iterable[Record]) -> list[Outcome]:
        """Fold the profile topic, each partition in the order of offsets; returns the dead letters.

        The first call must contain the whole first snapshot.
        """
        refused = []
        changes = list(records)
        ends = [record.timestamp for record in changes if _snapshot(record) == "last"]
        self._first_snapshot_until = min([self._first_snapshot_until, *ends])
        for record in changes:
            try:
                self._fold(record, self._first_snapshot_until)
            except RefusedError as refusal:
                refused.append(dead_letter(record, refusal.reason))
        return refused

    def _fold(self, record: Record, first_snapshot_until: float) -> None:
        if record.value is None:
            card_id = decode.identifier(decode.parse_object(record.key), "card_id")
            versions = self._versions.setdefault(card_id, [])
            # a tombstone after a delete changes nothing
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
        # a snapshot's row replaces the newest version only if the LSN of that version is known and older
        if operation != SNAPSHOT or not versions or 0 < versions[-1].lsn < lsn:
            versions.append(_Version(known_from, profile, status, lsn))

    def drop_before(self, arrival: int) -> None:
        """Drop the versions that were already replaced at `arrival` (ms).

        Later calls must not ask for a time before `arrival`. The first version of each card stays, because
        `had_version` needs its time.
        """
        for card_id, versions in self._versions.items():
            replaced = [number for number, version in enumerate(versions) if version.known_from <= arrival]
            if replaced and replaced[-1] > 1:
                self._versions[card_id] = [versions[0], *versions[replaced[-1] :]]

    def in_force(self, card_id: str, arrival: int) -> Profile | None:
        """Return the newest version at `arrival`; None without one or after a delete."""
        version = self._version(card_id, arrival)
        return version and version.profile

    def status(self, card_id: str, arrival: int) -> str | None:
        """Return the card's status at `arrival`: that of its newest row, even a deleted one."""
        version = self._version(card_id, arrival)
        return version and version.status

    def had_version(self, card_id: str, arrival: int) -> bool:
        """Return whether the log held any version of a card's row at `arrival`, deletes included."""
        return self._version(card_id, arrival) is not None

    def _version(self, card_id: str, arrival: int) -> _Version | None:
        for version in reversed(self._versions.get(card_id, [])):
            if version.known_from <= arrival:
                return version
        return None


def _status(versions: list[_Version]) -> str | None:
    return versions[-1].status if versions else None


def _require_key(record: Record, card_id: str) -> None:
    """Refuse a row if its key is an object of only `card_id`, without escapes, and names another card."""
    plain = _PLAIN_KEY.fullmatch(record.key or b"")
    if plain is not None and plain[1] != card_id.encode():
        raise RefusedError(Reason.INVALID_VALUE)


def _source(envelope: Any) -> dict[str, Any]:
    source = envelope.get("source") if isinstance(envelope, dict) else None
    return source if isinstance(source, dict) else {}


def _snapshot(record: Record) -> Any:
    """Return Debezium's `snapshot` marker of a record."""
    try:
        return _source(json.loads(record.value or b"")).get("snapshot")
    except (ValueError, RecursionError):
        return None


def _lsn(envelope: Any) -> int:
    """Return the Postgres LSN of a change; 0 if unknown."""
    lsn = _source(envelope).get("lsn")
    return lsn if type(lsn) is int and 0 < lsn < 2**56 else 0
