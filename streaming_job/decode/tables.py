"""Changelog records one by one: profile changes in Debezium's envelope, and rollouts."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.hashing import hash_string
from feature_store.layout import DELETE, PROFILE, SNAPSHOT, STATUSES, TOMBSTONE, UPSERT, country_code
from streaming_job.contracts import Reason
from streaming_job.decode import strict
from streaming_job.decode.strict import Rejected

_CHANGES = {"r": SNAPSHOT, "c": UPSERT, "u": UPSERT, "d": DELETE}
_STATUS = re.compile("|".join(STATUSES))
_MAX_DAY = 3_000_000


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
        change["change"] = kind
        row = _object(envelope, "before" if kind == DELETE else "after")
        card = strict.identifier(row, "card_id")
        if kind != DELETE:
            _fill(change, row)
    change["lo"], change["hi"] = hash_string(card)
    return change


def _fill(change: NDArray[np.void], row: dict[str, Any]) -> None:
    change["status"] = STATUSES.index(strict.matching(row, "status", _STATUS))
    change["country"] = country_code(strict.country(row, "home_country"))
    strict.currency(row, "currency")
    change["credit_limit"] = strict.number(row, "credit_limit", 1e15)
    change["risk_tier"] = strict.integer(row, "risk_tier", 0, 3)
    change["opened_on"] = strict.integer(row, "opened_on", -_MAX_DAY, _MAX_DAY)
