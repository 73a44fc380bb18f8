"""Decoder of profile changes in Debezium's envelope: each key group decodes those of its own cards.

Every group reads the whole topic. A row belongs to the group of its card. An invalid row is reported as a
dead letter by exactly one group: that of the card in its key, or group 0 if the key is not plain (`keys`).

A row with a valid card_id and status is applied even if other columns are invalid: a block must not wait for
a credit limit. It is reported as well. An invalid column keeps the value of the card's earlier version;
without one, only the status of the row counts (`kernels.profiles`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.kernels.hashing import hash_string, hash_strings
from feature_store.layout import (
    DELETE,
    NO_COUNTRY,
    NO_DAY,
    NO_TIER,
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
_MAX_INT64 = np.iinfo(np.int64).max
_NOT_PLAIN = -1
"""Placeholder of a row whose key is not plain: its card is unknown until the row is decoded."""
_REPORTER = 0
"""Group that reports invalid rows whose key is not plain, and partition to which they count as belonging."""


@dataclass(frozen=True)
class ProfileChanges:
    """The records of the profile topic, decoded for one key group."""

    changes: NDArray[np.void]
    """Changes of the group's cards (PROFILE), in the records' order; not yet marked by
    `snapshots.mark_later_rows`."""
    whole: NDArray[np.bool_]
    """Which changes have only valid columns; the other records are reported, too, shape (changes,)."""
    places: NDArray[np.void]
    """Place of the card of each change (PLACE), shape (changes,)."""
    dead_letters: list[DeadLetter]
    """Invalid records that this group reports, in the records' order."""
    letter_homes: list[int]
    """Home of the card in the key of each dead letter; 0 if the key is not plain."""
    snapshot_end: int | None
    """Earliest arrival, ms, of a record, of any card, that ends a snapshot; None without one."""


def decode(records: Records, key_groups: KeyGroups, group: int) -> ProfileChanges:
    """Decode the rows of one key group.

    Rows whose plain key belongs to another group are only checked for the end of a snapshot. Rows whose key
    is not plain are decoded by every group.
    """
    homes = _homes_of_keys(records, key_groups)
    groups = np.where(homes == _NOT_PLAIN, _NOT_PLAIN, homes % key_groups.groups)
    own = (groups == group) | (groups == _NOT_PLAIN)
    rows = np.flatnonzero(own | keys.may_end_snapshot(records.values, ~own))
    chosen = records.take(rows)
    changes = np.zeros(rows.size, dtype=PROFILE)
    card_ids: list[str] = []  # of the changes so far
    whole: list[bool] = []
    dead_letters, letter_homes = [], []
    ends = []
    for partition, offset, arrival, key, value, home in zip(
        chosen.partitions.tolist(),
        chosen.offsets.tolist(),
        chosen.arrivals.tolist(),
        chosen.keys.to_pylist(),
        chosen.values.to_pylist(),
        homes[rows].tolist(),
        strict=True,
    ):
        key_group = home if home == _NOT_PLAIN else home % key_groups.groups
        if snapshots.ends_snapshot(value):
            ends.append(arrival)
        if key_group not in (group, _NOT_PLAIN):
            continue
        fault: Rejected | None
        try:
            change, card_id, fault = read(key, value, partition, offset, arrival)
        except Rejected as refusal:
            fault = refusal
        else:
            card_home = home if home != _NOT_PLAIN else key_groups.partition_of(card_id)
            if card_home % key_groups.groups == group:
                changes[len(card_ids)] = change[0]
                card_ids.append(card_id)
                whole.append(fault is None)
        if fault is not None and group == (key_group if key_group != _NOT_PLAIN else _REPORTER):
            position = (records.topic, partition, offset, arrival)
            dead_letters.append(DeadLetter(*position, key, value, fault.reason, fault.detail))
            letter_homes.append(home if home != _NOT_PLAIN else _REPORTER)
    changes = changes[: len(card_ids)]
    # all at once: hashing one by one takes 8 us for each
    cards = pa.array(card_ids, type=pa.string())
    changes["lo"], changes["hi"] = hash_strings(cards)
    return ProfileChanges(
        changes,
        np.array(whole, dtype=np.bool_),
        key_groups.places_of(cards),
        dead_letters,
        letter_homes,
        min(ends, default=None),
    )


def _homes_of_keys(records: Records, key_groups: KeyGroups) -> NDArray[np.int64]:
    """Return the partition of the transactions of the card in each record's key, or _NOT_PLAIN, (n,)."""
    plain, cards = keys.cards(records.keys)
    return np.where(plain, key_groups.partitions_of(cards), _NOT_PLAIN)


def profile_change(
    key: bytes | None, value: bytes | None, partition: int, offset: int, arrival: int
) -> NDArray[np.void]:
    """Decode a record of the profile topic.

    Args:
        key: Debezium's key, an object with card_id.
        value: Debezium's envelope; None is a tombstone, which deletes the profile.
        arrival: Kafka timestamp, ms.

    Returns:
        One record of PROFILE, shape (1,).

    Raises:
        Rejected: the record does not keep the contract.
    """
    change, card_id, fault = read(key, value, partition, offset, arrival)
    if fault is not None:
        raise fault
    change["lo"], change["hi"] = hash_string(card_id)
    return change


def read(
    key: bytes | None, value: bytes | None, partition: int, offset: int, arrival: int
) -> tuple[NDArray[np.void], str, Rejected | None]:
    """Return the change of `profile_change`, still without the card's hash, the card_id, and a row's fault.

    A change with a fault is applied, because card_id and status are valid; it is a dead letter as well.

    Raises:
        Rejected: the record cannot be applied, not even its status.
    """
    change = np.zeros(1, dtype=PROFILE)
    change["partition"], change["offset"], change["arrival"] = partition, offset, arrival
    fault = None
    if value is None:
        card_id = strict.identifier(strict.parse_object(key, part="key"), "card_id")
        change["change"] = TOMBSTONE
    else:
        envelope = strict.parse_object(value)
        kind = _CHANGES.get(str(envelope.get("op")))
        if kind is None:
            raise Rejected(Reason.INVALID_VALUE, _no_op(envelope))
        origin = snapshots.source(envelope)
        reread = kind == SNAPSHOT and origin.get("snapshot") == snapshots.INCREMENTAL
        change["change"] = REREAD if reread else kind
        change["lsn"] = _positive(origin, "lsn")
        # a change cannot have been committed after it arrived: a clock of Postgres that is ahead must not
        # make all later changes look old
        change["committed"] = min(_positive(origin, "ts_ms"), arrival)
        row = _object(envelope, "before" if kind == DELETE else "after")
        card_id = strict.identifier(row, "card_id")
        if keys.card(key) not in (None, card_id.encode()):
            # if accepted, the group of the key's card would keep a card of another group
            raise Rejected(Reason.INVALID_VALUE, "the key names another card than the value")
        if kind != DELETE:
            change["status"] = STATUSES.index(strict.matching(row, "status", _STATUS))
            fault = _fill(change, row)
    return change, card_id, fault


def _no_op(envelope: dict[str, Any]) -> str:
    """Explain a record without one of Debezium's operations; names the two most usual causes."""
    if isinstance(envelope.get("payload"), dict):
        return (
            "the envelope is inside the field payload; set value.converter.schemas.enable=false (and "
            "key.converter.schemas.enable=false)"
        )
    if "op" not in envelope and "card_id" in envelope:
        return (
            "a row without Debezium's envelope; remove the transform ExtractNewRecordState from the connector"
        )
    return "op must be one of r, c, u, d"


def _object(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    if not isinstance(value, dict):
        raise Rejected(Reason.WRONG_TYPE, f"{name} must be an object; is this Debezium's envelope?")
    return value


def _positive(origin: dict[str, Any], name: str) -> int:
    """Return a positive integer of Debezium's `source`; 0 if it has none."""
    number = origin.get(name)
    return number if type(number) is int and 0 < number <= _MAX_INT64 else 0


def _fill(change: NDArray[np.void], row: dict[str, Any]) -> Rejected | None:
    """Set the columns other than status; return what is wrong with the first invalid one, if any."""
    faults = []
    for name, read, unknown in _COLUMNS:
        try:
            value = read(row)
        except Rejected as fault:
            faults.append(fault)
            value = unknown
        if name is not None:
            change[name] = value
    if not faults:
        return None
    return Rejected(faults[0].reason, f"{faults[0].detail}; the status is applied all the same")


_COLUMNS: tuple[tuple[str | None, Callable[[dict[str, Any]], Any], float], ...] = (
    ("country", lambda row: country_code(strict.country(row, "home_country")), NO_COUNTRY),
    (None, lambda row: strict.currency(row, "currency"), 0),
    ("credit_limit", lambda row: strict.number(row, "credit_limit", 1e15), np.nan),
    ("risk_tier", lambda row: strict.integer(row, "risk_tier", 0, 3), NO_TIER),
    ("opened_on", lambda row: strict.integer(row, "opened_on", -_MAX_DAY, _MAX_DAY), NO_DAY),
)
"""Field of PROFILE (None: only checked), reader, and value if it is invalid, of each column but status."""
