"""Audit records in a hash chain: each record holds the digest of the previous one. Pure.

The chain reveals that a record was changed, removed, inserted or moved, if later records follow it. The chain
alone does not reveal that the last records are missing, or that all records from some point on were
rewritten. To detect these, keep the last digest elsewhere and give it to `verify` (decision 51).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from feature_store.errors import FraudError
from streaming_job.contracts import Contract, ContractError, validate

SCHEMA_VERSION = 1


class AuditError(FraudError):
    """The audit log was altered or cannot be read, or its topic or that of the refusals does not exist.

    Run `fraud job topics` if a topic is missing. Else find out who could write the topic; compare with a
    copy; check the brokers.
    """


@dataclass(frozen=True)
class Entry:
    """A change or refusal, before it becomes a record of the chain."""

    at: int
    """Milliseconds since 1970-01-01 UTC."""
    actor: str
    """For the API, name of the token, or `local` without a tokens file; for the command line, user of the
    operating system; for guards, `guard`."""
    role: str
    action: str
    """For example `rollout.canary_set`."""
    target: str
    """Object of the change, for example a rollout's id."""
    origin: str
    """The client's address, the command line's host, or, for guards, the job's id. In records: `from`."""
    outcome: str
    """For example `done` or `refused`."""
    detail: Mapping[str, Any] = field(default_factory=dict)


class Fault(StrEnum):
    """Fault of a record in the chain."""

    CHANGED = "changed"
    """The record's content does not match its digest."""
    INSERTED = "inserted"
    """A later record refers past it, to an earlier record."""
    MISPLACED = "misplaced"
    """The record refers to a later record."""
    MISSING = "missing"
    """The record refers to a record that does not exist."""
    FOREIGN = "foreign"
    """The value is not an audit record."""
    CUT = "cut"
    """No record has the given digest: the end is missing, or was rewritten."""


@dataclass(frozen=True)
class FaultyRecord:
    """A fault, and the number of its record, from 0; for `CUT`, the number of records in the log."""

    number: int
    fault: Fault

    def __str__(self) -> str:
        if self.fault is Fault.CUT:
            return "cut: no record has the given digest: the end is missing or was rewritten"
        texts = {
            Fault.CHANGED: "was changed",
            Fault.INSERTED: "was inserted, or repeats another",
            Fault.MISPLACED: "comes before the record that it refers to",
            Fault.MISSING: "refers to a record that does not exist: removed or rewritten",
            Fault.FOREIGN: "is not an audit record",
        }
        return f"record {self.number} {texts[self.fault]}"


@dataclass(frozen=True)
class Verification:
    """Result of the verification of a whole log."""

    records: int
    head: str | None
    """Digest of the last record; None without records. Keep it elsewhere for the next verification."""
    findings: tuple[FaultyRecord, ...]

    @property
    def is_intact(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def next_record(previous: bytes | None, entry: Entry) -> bytes:
    """Create the record that follows another.

    Args:
        previous: value of the log's last record, valid or not; None if the log is empty.
    """
    record = {
        "schema_version": SCHEMA_VERSION,
        "at": entry.at,
        "actor": entry.actor,
        "role": entry.role,
        "action": entry.action,
        "target": entry.target,
        "from": entry.origin,
        "outcome": entry.outcome,
        "detail": dict(entry.detail),
        "previous": None if previous is None else link(previous),
    }
    return canonical({**record, "digest": digest(record)})


def link(value: bytes) -> str:
    """Return the next record's `previous`: this record's digest, computed even if the record states one."""
    return _link(value, read(value))


def read(value: bytes) -> dict[str, Any] | None:
    """Parse a record; return None if the bytes are not an audit record."""
    try:
        record: dict[str, Any] = json.loads(value)
        validate(Contract.AUDIT_RECORD, record)
        record_bytes = canonical(record)
    except (ValueError, RecursionError, ContractError):
        return None
    # another serialisation of the same content was not written by `next_record`
    return record if record_bytes == value else None


def verify(
    values: Iterable[bytes], known_head: str | None = None, *, is_from_the_first: bool = True
) -> Verification:
    """Check the chain of a whole log.

    Args:
        values: values of all records, from the first.
        known_head: head of an earlier verification.
        is_from_the_first: whether the chain must begin with its first record; else earlier records may have
            been deleted by their age.
    """
    records: list[dict[str, Any] | None] = []
    links: list[str] = []
    for value in values:
        records.append(read(value))
        links.append(_link(value, records[-1]))
    # a changed record still states its old digest: the next record, which refers to that digest, has no fault
    stated = [record["digest"] if record else links[number] for number, record in enumerate(records)]
    first_at: dict[str, int] = {}
    for number, digests in enumerate(zip(links, stated, strict=True)):
        for one in digests:
            first_at.setdefault(one, number)
    findings: list[FaultyRecord] = []
    for number, record in enumerate(records):
        if record is None:
            findings.append(FaultyRecord(number, Fault.FOREIGN))
            continue
        if record["digest"] != links[number]:
            findings.append(FaultyRecord(number, Fault.CHANGED))
        if number == 0 and not is_from_the_first:
            continue
        if record["previous"] not in ((links[number - 1], stated[number - 1]) if number else (None,)):
            findings.append(_break(number, record["previous"], first_at))
    if known_head is not None and known_head not in links:
        findings.append(FaultyRecord(len(records), Fault.CUT))
    head = links[-1] if links else None
    return Verification(len(records), head, tuple(dict.fromkeys(findings)))


def _break(number: int, previous: str | None, first_at: Mapping[str, int]) -> FaultyRecord:
    """Classify a record that does not refer to the previous record."""
    origin = -1 if previous is None else first_at.get(previous)
    if origin is None:
        return FaultyRecord(number, Fault.MISSING)
    if origin >= number:
        return FaultyRecord(number, Fault.MISPLACED)
    return FaultyRecord(origin + 1, Fault.INSERTED)


def _link(value: bytes, record: Mapping[str, Any] | None) -> str:
    return hashlib.sha256(value).hexdigest() if record is None else digest(record)


def digest(record: Mapping[str, Any]) -> str:
    """Return the digest of a record's content, without the digest that the record states."""
    content = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(canonical(content)).hexdigest()


def canonical(record: Mapping[str, Any]) -> bytes:
    """Serialise a record canonically: sorted names, no blanks, no NaN, all non-ASCII characters escaped."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
