"""Profile versions by card and arrival: what the bank's table held at any time."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from loadtests.oracle import decode
from loadtests.oracle.card import Profile
from loadtests.oracle.decode import RefusedError
from loadtests.oracle.records import ExpectedOutcome, Kind, Record, digest, sized_hash
from streaming_job.contracts import Reason

BEGINNING = 0
"""Timestamp before any arrival."""
SNAPSHOT, DELETE, TOMBSTONE = "r", "d", "tombstone"
CHANGES = ("c", "u", SNAPSHOT)
"""Debezium's operations that carry a row."""
LAST = ("last", "last_in_data_collection")
"""Debezium's marks of a table's last row in a snapshot."""
MINUTES_5, HOURS_24 = 5 * 60_000, 24 * 3_600_000
"""How far two clocks may differ, and how long a snapshot may take, ms."""
STATUS = re.compile("active|blocked|closed")
_PLAIN_KEY = re.compile(
    rb'[ \t\r\n]*\{[ \t\r\n]*"card_id"[ \t\r\n]*:[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*\}[ \t\r\n]*'
)
MOST_CREDIT = 1e15
MOST_DAYS = 3_000_000


def dead_letter(record: Record, reason: Reason) -> ExpectedOutcome:
    """Return the outcome of a record that breaks its contract."""
    return ExpectedOutcome(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        Kind.DEAD_LETTER,
        reason,
        # the key of a refused transaction may be the card number
        digest=digest(
            None if reason is Reason.CARD_NUMBER else sized_hash(record.key), sized_hash(record.value)
        ),
    )


class _Version(NamedTuple):
    """One version of a card's row."""

    known_from: int
    """Kafka timestamp, ms; BEGINNING for a card's first version if it is of the first snapshot."""
    profile: Profile | None
    """None where the row was deleted, or is incomplete."""
    status: str | None
    """Status of the card; a delete leaves it unchanged. None if the card never had one."""
    lsn: int
    """Postgres LSN; 0 if unknown."""
    time: int
    """Debezium's `source.ts_ms`, at most `known_from`; 0 if unknown."""
    operation: str
    """Debezium's operation, or "tombstone"."""

    def replaced_by(self, operation: str, lsn: int, time: int) -> bool:
        """Return whether a change is newer than this version."""
        times_known = time > 0 and self.time > 0
        if lsn > 0 and self.lsn > 0:
            if lsn < self.lsn:  # an older change, or another database
                return times_known and time - self.time > MINUTES_5
            whole = self.operation == DELETE or (self.operation in ("c", "u") and self.profile is not None)
            if lsn == self.lsn and operation == SNAPSHOT and whole:
                return False
            return not times_known or self.time - time <= HOURS_24
        if times_known:
            return time - self.time > MINUTES_5 if operation == SNAPSHOT else self.time - time <= MINUTES_5
        return operation != SNAPSHOT


class CardTable(Protocol):
    """What the log of a table keyed by card says."""

    def read(self, records: Iterable[Record]) -> list[ExpectedOutcome]:
        """Read records, each partition in the order of offsets; returns the dead letters."""

    def drop_before(self, arrival: int) -> None:
        """Drop what no later transaction can need, given that none will arrive before `arrival` (ms)."""


class ProfileLog:
    """All versions of all profiles: a list for each card, in log order."""

    def __init__(self) -> None:
        self._versions: dict[str, list[_Version]] = {}
        self._first_snapshot_until = math.inf
        self.compacted_before = 0
        """Arrival before which compaction may have removed versions that the job then lacked; 0: none."""

    def read(self, records: Iterable[Record]) -> list[ExpectedOutcome]:
        """Fold the profile topic, each partition in the order of offsets; returns the dead letters.

        The first call must contain the whole first snapshot.
        """
        refused = []
        changes = list(records)
        ends = [record.timestamp for record in changes if _snapshot(record) in LAST]
        self._first_snapshot_until = min([self._first_snapshot_until, *ends])
        for record in changes:
            try:
                reason = self._fold(record, self._first_snapshot_until)
            except RefusedError as refusal:
                reason = refusal.reason
            if reason is not None:
                refused.append(dead_letter(record, reason))
        return refused

    def _fold(self, record: Record, first_snapshot_until: float) -> Reason | None:
        """Fold a record; returns what is wrong with a row of which only the status could be used."""
        if record.value is None:
            card_id = decode.identifier(decode.parse_object(record.key), "card_id")
            versions = self._versions.setdefault(card_id, [])
            # a tombstone after a delete changes nothing
            if not versions or versions[-1].operation not in (DELETE, TOMBSTONE):
                versions.append(_gone(record, versions, 0, 0, TOMBSTONE))
            return None
        envelope = decode.parse_object(record.value)
        operation = envelope.get("op")
        lsn = _number(envelope, "lsn")
        time = min(_number(envelope, "ts_ms"), record.timestamp)
        if operation == DELETE:
            card_id = decode.identifier(envelope.get("before"), "card_id")
            _require_key(record, card_id)
            versions = self._versions.setdefault(card_id, [])
            if not versions or versions[-1].replaced_by(operation, lsn, time):
                versions.append(_gone(record, versions, lsn, time, DELETE))
            return None
        if operation not in CHANGES:
            raise RefusedError(Reason.INVALID_VALUE)
        row = envelope.get("after")
        card_id = decode.identifier(row, "card_id")
        _require_key(record, card_id)
        status = decode.text(row, "status", STATUS)
        columns, fault = _columns(row)
        versions = self._versions.setdefault(card_id, [])
        if versions and not versions[-1].replaced_by(operation, lsn, time):
            return fault
        first = record.timestamp <= first_snapshot_until and _snapshot(record) != "incremental"
        known_from = BEGINNING if operation == SNAPSHOT and first and not versions else record.timestamp
        last = versions[-1] if versions else None
        if last is not None and last.profile is not None:
            columns = {name: getattr(last.profile, name) for name in columns} | {
                name: value for name, value in columns.items() if value is not None
            }
        profile = None
        if None not in columns.values():
            profile = Profile(
                status=status,
                partition=record.partition,
                offset=record.offset,
                known_from=known_from,
                **columns,
            )
        if last is not None:
            lsn, time = lsn or last.lsn, time or last.time
        versions.append(_Version(known_from, profile, status, lsn, time, operation))
        return fault

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

    def is_compacted(self, card_id: str, arrival: int) -> bool:
        """Return whether the version at `arrival` may have been removed: the first one left is later."""
        versions = self._versions.get(card_id)
        if not versions or self._version(card_id, arrival) is not None:
            return False
        return versions[0].known_from < self.compacted_before

    def had_version(self, card_id: str, arrival: int) -> bool:
        """Return whether the log held a version of a card's row at `arrival`, or may have; deletes count."""
        return self._version(card_id, arrival) is not None or self.is_compacted(card_id, arrival)

    def _version(self, card_id: str, arrival: int) -> _Version | None:
        for version in reversed(self._versions.get(card_id, [])):
            if version.known_from <= arrival:
                return version
        return None


def _gone(record: Record, versions: list[_Version], lsn: int, time: int, operation: str) -> _Version:
    """Return the version of a deleted row, which keeps the status, and LSN and time if it has none."""
    if not versions:
        return _Version(record.timestamp, None, None, lsn, time, operation)
    last = versions[-1]
    return _Version(record.timestamp, None, last.status, lsn or last.lsn, time or last.time, operation)


def _columns(row: Any) -> tuple[dict[str, Any], Reason | None]:
    """Return the columns that decisions use, None for an invalid one, and the first fault."""
    readers: dict[str, Callable[[], Any]] = {
        "home_country": lambda: decode.text(row, "home_country", decode.COUNTRY),
        "currency": lambda: decode.text(row, "currency", decode.CURRENCY),
        "credit_limit": lambda: decode.amount(row, "credit_limit", MOST_CREDIT),
        "risk_tier": lambda: decode.integer(row, "risk_tier", 0, 3),
        "opened_on": lambda: decode.integer(row, "opened_on", -MOST_DAYS, MOST_DAYS),
    }
    columns, fault = dict.fromkeys(readers), None
    for name, read in readers.items():
        try:
            columns[name] = read()
        except RefusedError as refusal:
            fault = fault or refusal.reason
    del columns["currency"]
    return columns, fault


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


def _number(envelope: Any, name: str) -> int:
    """Return a positive number of a change's source; 0 if unknown."""
    number = _source(envelope).get(name)
    return number if type(number) is int and 0 < number < 2**63 else 0


CARD_TABLES: Mapping[str, type[CardTable]] = {"profiles": ProfileLog}
"""The logs of the tables keyed by card that every job folds, by the topic's field of `Topics`."""
