"""Audit records and their chain: each holds the digest of the one before it. Pure.

What the chain shows: a record that was changed, removed, inserted or moved after later ones were written. By
itself it does not show that records are missing at the end, or that all from some record on was written anew:
for that somebody has to keep a digest elsewhere, and give it to `verify` (decision 51).
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
    """The audit log is not what was written, or cannot be read."""


@dataclass(frozen=True)
class Entry:
    """What happened, as its author tells it."""

    at: int
    """Milliseconds since 1970-01-01 UTC."""
    actor: str
    """Name of the token, or user of the operating system."""
    role: str
    action: str
    """For example `rollout.canary_set`."""
    target: str
    """What was changed: for example a rollout's id."""
    origin: str
    """From where: the client's address, or `cli`. In records: `from`."""
    outcome: str
    """For example `done` or `refused`."""
    detail: Mapping[str, Any] = field(default_factory=dict)


class Fault(StrEnum):
    """What is wrong with a record."""

    CHANGED = "changed"
    """Its content is not that of its digest."""
    INSERTED = "inserted"
    """What comes after it follows from a record before it."""
    MISPLACED = "misplaced"
    """The record that it follows from comes later."""
    MISSING = "missing"
    """The record that it follows from is not there."""
    FOREIGN = "foreign"
    """It is no audit record."""
    CUT = "cut"
    """A digest that was known is in no record: the end is missing, or was written anew."""


@dataclass(frozen=True)
class Finding:
    """A fault, and the number of the record (from 0) that it was found at."""

    number: int
    fault: Fault

    def __str__(self) -> str:
        if self.fault is Fault.CUT:
            return "cut: no record has the digest that was given: the end is missing or was written anew"
        texts = {
            Fault.CHANGED: "was changed",
            Fault.INSERTED: "was inserted, or repeats another",
            Fault.MISPLACED: "stands before the record that it follows from",
            Fault.MISSING: "follows from a record that is not there: removed or rewritten",
            Fault.FOREIGN: "is no audit record",
        }
        return f"record {self.number} {texts[self.fault]}"


@dataclass(frozen=True)
class Verification:
    """What a reading of the whole log has found."""

    records: int
    head: str | None
    """Digest of the last record; None if there is none. Keep it elsewhere, and give it next time."""
    findings: tuple[Finding, ...]

    @property
    def is_intact(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def next_record(previous: bytes | None, entry: Entry) -> bytes:
    """The record to be written after another.

    Args:
        previous: value of the log's last record, whatever that is; None if the log is empty.
        entry: what happened.
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
    return _canonical({**record, "digest": _digest(record)})


def link(value: bytes) -> str:
    """What the record after this one has as `previous`: of what it holds, not of what it says of itself."""
    return _link(value, read(value))


def read(value: bytes) -> dict[str, Any] | None:
    """The record that bytes hold; None if they hold none."""
    try:
        record: dict[str, Any] = json.loads(value)
        validate(Contract.AUDIT_RECORD, record)
        record_bytes = _canonical(record)
    except (ValueError, RecursionError, ContractError):
        return None
    # other bytes of the same content have not been written by us
    return record if record_bytes == value else None


def verify(values: Iterable[bytes], known_head: str | None = None) -> Verification:
    """Check the chain of a whole log.

    Args:
        values: the records' values, from the first one on.
        known_head: a digest that `verify` told before.
    """
    records: list[dict[str, Any] | None] = []
    links: list[str] = []
    for value in values:
        records.append(read(value))
        links.append(_link(value, records[-1]))
    # a changed record still says what its digest was: who follows from that is where it belongs
    stated = [record["digest"] if record else links[number] for number, record in enumerate(records)]
    first_at: dict[str, int] = {}
    for number, digests in enumerate(zip(links, stated, strict=True)):
        for digest in digests:
            first_at.setdefault(digest, number)
    findings: list[Finding] = []
    for number, record in enumerate(records):
        if record is None:
            findings.append(Finding(number, Fault.FOREIGN))
            continue
        if record["digest"] != links[number]:
            findings.append(Finding(number, Fault.CHANGED))
        if record["previous"] not in ((links[number - 1], stated[number - 1]) if number else (None,)):
            findings.append(_break(number, record["previous"], first_at))
    if known_head is not None and known_head not in links:
        findings.append(Finding(len(records), Fault.CUT))
    head = links[-1] if links else None
    return Verification(len(records), head, tuple(dict.fromkeys(findings)))


def _break(number: int, previous: str | None, first_at: Mapping[str, int]) -> Finding:
    """What a record that does not follow from the one before it tells."""
    origin = -1 if previous is None else first_at.get(previous)
    if origin is None:
        return Finding(number, Fault.MISSING)
    if origin >= number:
        return Finding(number, Fault.MISPLACED)
    return Finding(origin + 1, Fault.INSERTED)


def _link(value: bytes, record: Mapping[str, Any] | None) -> str:
    return hashlib.sha256(value).hexdigest() if record is None else _digest(record)


def _digest(record: Mapping[str, Any]) -> str:
    content = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(_canonical(content)).hexdigest()


def _canonical(record: Mapping[str, Any]) -> bytes:
    """The one way to write a record: sorted names, no blanks, no NaN; all characters beyond ASCII escaped."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
