"""Changelog records one by one: profile changes in Debezium's envelope, and rollouts."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.hashing import hash_string
from feature_store.layout import (
    DELETE,
    PROFILE,
    REREAD,
    SNAPSHOT,
    STATUSES,
    TOMBSTONE,
    UPSERT,
    country_code,
)
from streaming_job.contracts import Reason
from streaming_job.decode import strict
from streaming_job.decode.strict import Rejected

_CHANGES = {"r": SNAPSHOT, "c": UPSERT, "u": UPSERT, "d": DELETE}
_STATUS = re.compile("|".join(STATUSES))
_MAX_DAY = 3_000_000
_LSN_BYTES = 7
SNAPSHOT_ENDS = "last"
"""`source.snapshot` of the last row of a snapshot, as Debezium has it."""
IN_PASSING = "incremental"
"""`source.snapshot` of a row that Debezium read again while it followed the changes."""


def _object(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    if not isinstance(value, dict):
        raise Rejected(Reason.WRONG_TYPE, f"{name} must be an object; is this Debezium's envelope?")
    return value


def profile_change(
    key: bytes | None, value: bytes | None, partition: int, offset: int, arrival: int
) -> NDArray[np.void]:
    """A record of the profile topic as a change.

    Args:
        key: Debezium's key, an object with card_id.
        value: Debezium's envelope; None is a tombstone, which deletes.
        partition: Kafka partition.
        offset: Kafka offset.
        arrival: Kafka timestamp, ms.

    Returns:
        One record of PROFILE, shape (1,).

    Raises:
        Rejected: the record does not keep the contract.
    """
    change = np.zeros(1, dtype=PROFILE)
    change["partition"], change["offset"], change["arrival"] = partition, offset, arrival
    if value is None:
        card = strict.identifier(strict.parse_object(key), "card_id")
        change["change"] = TOMBSTONE
    else:
        envelope = strict.parse_object(value)
        kind = _CHANGES.get(str(envelope.get("op")))
        if kind is None:
            raise Rejected(Reason.INVALID_VALUE, "op must be one of r, c, u, d")
        origin = source(envelope)
        change["change"] = REREAD if kind == SNAPSHOT and origin.get("snapshot") == IN_PASSING else kind
        change["lsn"] = _lsn(origin)
        row = _object(envelope, "before" if kind == DELETE else "after")
        card = strict.identifier(row, "card_id")
        if kind != DELETE:
            _fill(change, row)
    change["lo"], change["hi"] = hash_string(card)
    return change


def source(envelope: dict[str, Any]) -> dict[str, Any]:
    """Where a change comes from, by Debezium; empty if it is not Debezium who tells."""
    found = envelope.get("source")
    return found if isinstance(found, dict) else {}


def ends_snapshot(value: bytes | None) -> bool:
    """Whether a record of the profile topic that `profile_change` took is the last row of a snapshot."""
    # most records are not: their parsing is not paid twice
    if value is None or b'"last"' not in value:
        return False
    return source(strict.parse_object(value)).get("snapshot") == SNAPSHOT_ENDS


def _lsn(origin: dict[str, Any]) -> NDArray[np.uint8]:
    """Place in Postgres's log as bytes, most significant first, shape (7,); 0 where there is none."""
    lsn = origin.get("lsn")
    known = lsn if type(lsn) is int and 0 < lsn < 1 << 8 * _LSN_BYTES else 0
    return np.frombuffer(known.to_bytes(_LSN_BYTES, "big"), dtype=np.uint8)


def _fill(change: NDArray[np.void], row: dict[str, Any]) -> None:
    change["status"] = STATUSES.index(strict.matching(row, "status", _STATUS))
    change["country"] = country_code(strict.country(row, "home_country"))
    strict.currency(row, "currency")
    change["credit_limit"] = strict.number(row, "credit_limit", 1e15)
    change["risk_tier"] = strict.integer(row, "risk_tier", 0, 3)
    change["opened_on"] = strict.integer(row, "opened_on", -_MAX_DAY, _MAX_DAY)
