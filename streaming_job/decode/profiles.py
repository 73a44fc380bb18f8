"""Decoder of profile changes in Debezium's envelope: each key group decodes those of its own cards.

Every group reads the whole topic. A row belongs to the group of its card. An invalid row is reported as a
dead letter by exactly one group: that of the card in its key, or group 0 if the key is not plain (`keys`).
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.kernels.hashing import hash_string, hash_strings
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
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decode import keys, snapshots, strict
from streaming_job.decode.strict import Rejected
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Records

_CHANGES = {"r": SNAPSHOT, "c": UPSERT, "u": UPSERT, "d": DELETE}
_STATUS = re.compile("|".join(STATUSES))
_MAX_DAY = 3_000_000
_LSN_BYTES = 7
_NOT_PLAIN = -1
"""Placeholder group of a row whose key is not plain: its group is unknown until the row is decoded."""
_REPORTER = 0
"""Group that reports invalid rows whose key is not plain."""


@dataclass(frozen=True)
class ProfileChanges:
    """The records of the profile topic, decoded for one key group."""

    changes: NDArray[np.void]
    """Changes of the group's cards (PROFILE), in the records' order; not yet marked by
    `snapshots.mark_later_rows`."""
    dead_letters: list[DeadLetter]
    """Invalid records that this group reports, in the records' order."""
    snapshot_end: int | None
    """Earliest arrival, ms, of a record, of any card, that ends a snapshot; None without one."""


def decode(records: Records, key_groups: KeyGroups, group: int) -> ProfileChanges:
    """Decode the rows of one key group.

    Rows whose plain key belongs to another group are only checked for the end of a snapshot. Rows whose key
    is not plain are decoded by every group.

    Args:
        records: records of the profile topic.
        key_groups: maps cards to groups.
        group: the key group.
    """
    groups = _groups_of_keys(records, key_groups)
    own = (groups == group) | (groups == _NOT_PLAIN)
    rows = np.flatnonzero(own | keys.may_end_snapshot(records.values, ~own))
    chosen = records.take(rows)
    changes = np.zeros(rows.size, dtype=PROFILE)
    card_ids: list[str] = []  # of the changes so far
    dead_letters = []
    ends = []
    for partition, offset, arrival, key, value, key_group in zip(
        chosen.partitions.tolist(),
        chosen.offsets.tolist(),
        chosen.arrivals.tolist(),
        chosen.keys.to_pylist(),
        chosen.values.to_pylist(),
        groups[rows].tolist(),
        strict=True,
    ):
        if snapshots.ends_snapshot(value):
            ends.append(arrival)
        if key_group not in (group, _NOT_PLAIN):
            continue
        try:
            change, card_id = _read(key, value, partition, offset, arrival)
        except Rejected as fault:
            if group == (key_group if key_group != _NOT_PLAIN else _REPORTER):
                position = (records.topic, partition, offset, arrival)
                dead_letters.append(DeadLetter(*position, key, value, fault.reason, fault.detail))
        else:
            if key_group == group or key_groups.group_of(card_id) == group:
                changes[len(card_ids)] = change[0]
                card_ids.append(card_id)
    changes = changes[: len(card_ids)]
    # all at once: hashing one by one takes 8 us for each
    changes["lo"], changes["hi"] = hash_strings(pa.array(card_ids, type=pa.string()))
    return ProfileChanges(changes, dead_letters, min(ends, default=None))


def _groups_of_keys(records: Records, key_groups: KeyGroups) -> NDArray[np.int64]:
    """Return the key group of the card in each record's key, or _NOT_PLAIN, shape (n,)."""
    plain, cards = keys.cards(records.keys)
    return np.where(plain, key_groups.partitions_of(cards) % key_groups.groups, _NOT_PLAIN)


def profile_change(
    key: bytes | None, value: bytes | None, partition: int, offset: int, arrival: int
) -> NDArray[np.void]:
    """Decode a record of the profile topic.

    Args:
        key: Debezium's key, an object with card_id.
        value: Debezium's envelope; None is a tombstone, which deletes the profile.
        partition: Kafka partition.
        offset: Kafka offset.
        arrival: Kafka timestamp, ms.

    Returns:
        One record of PROFILE, shape (1,).

    Raises:
        Rejected: the record does not keep the contract.
    """
    change, card_id = _read(key, value, partition, offset, arrival)
    change["lo"], change["hi"] = hash_string(card_id)
    return change


def _read(
    key: bytes | None, value: bytes | None, partition: int, offset: int, arrival: int
) -> tuple[NDArray[np.void], str]:
    """Return the change of `profile_change`, still without the card's hash, and the card_id."""
    change = np.zeros(1, dtype=PROFILE)
    change["partition"], change["offset"], change["arrival"] = partition, offset, arrival
    if value is None:
        card_id = strict.identifier(strict.parse_object(key, part="key"), "card_id")
        change["change"] = TOMBSTONE
    else:
        envelope = strict.parse_object(value)
        kind = _CHANGES.get(str(envelope.get("op")))
        if kind is None:
            raise Rejected(Reason.INVALID_VALUE, "op must be one of r, c, u, d")
        origin = snapshots.source(envelope)
        reread = kind == SNAPSHOT and origin.get("snapshot") == snapshots.INCREMENTAL
        change["change"] = REREAD if reread else kind
        change["lsn"] = _lsn(origin)
        row = _object(envelope, "before" if kind == DELETE else "after")
        card_id = strict.identifier(row, "card_id")
        if kind != DELETE:
            _fill(change, row)
        if keys.card(key) not in (None, card_id.encode()):
            # if accepted, the group of the key's card would keep a card of another group
            raise Rejected(Reason.INVALID_VALUE, "the key names another card than the value")
    return change, card_id


def _object(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    if not isinstance(value, dict):
        raise Rejected(Reason.WRONG_TYPE, f"{name} must be an object; is this Debezium's envelope?")
    return value


def _lsn(origin: dict[str, Any]) -> NDArray[np.uint8]:
    """Return the position in Postgres's log as bytes, big-endian, shape (7,); zeros without one."""
    lsn = origin.get("lsn")
    number = lsn if type(lsn) is int and 0 < lsn < 1 << 8 * _LSN_BYTES else 0
    return np.frombuffer(number.to_bytes(_LSN_BYTES, "big"), dtype=np.uint8)


def _fill(change: NDArray[np.void], row: dict[str, Any]) -> None:
    change["status"] = STATUSES.index(strict.matching(row, "status", _STATUS))
    change["country"] = country_code(strict.country(row, "home_country"))
    strict.currency(row, "currency")
    change["credit_limit"] = strict.number(row, "credit_limit", 1e15)
    change["risk_tier"] = strict.integer(row, "risk_tier", 0, 3)
    change["opened_on"] = strict.integer(row, "opened_on", -_MAX_DAY, _MAX_DAY)
