"""Decoder of transactions, an Arrow batch at a time.

One kernel reads all plain records (`plain`). All other records go one by one to `strict`, which is
authoritative. So a record that is not plain costs more time, but the kernel still reads the plain ones of its
batch.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.kernels.hashing import hash_string
from feature_store.layout import PLACE, TRANSACTION, UNITS_PER_CURRENCY, country_code, currency_code, rows_of
from streaming_job.contracts import Reason
from streaming_job.decode import card_numbers, columns, plain, strict
from streaming_job.decode.framed import RecordSchemas
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Records


@dataclass(frozen=True)
class TimeLimits:
    """Limits that an installation sets; they refuse some transactions that keep the contract."""

    lateness_ms: int
    """How far the event time may be before the arrival."""
    skew_ms: int
    """How far the event time may be after the arrival."""
    refuse_card_numbers: bool = True
    """Whether a transaction of which an id has the form of a card number is refused (`card_numbers`)."""


@dataclass(frozen=True)
class Rejection:
    """A record of the batch that becomes a dead letter."""

    row: int
    """Row in the batch."""
    reason: Reason
    detail: str


@dataclass(frozen=True)
class DecodedTransactions:
    """The decoded records of a batch."""

    records: NDArray[np.void]
    """Accepted transactions (TRANSACTION), in the batch's order."""
    quotes: pa.BinaryArray
    """Quote of each accepted transaction, see `quote`."""
    rows: NDArray[np.int64]
    """Row in the batch of each accepted transaction."""
    rejections: list[Rejection]
    """The rows that are not accepted."""
    places: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, dtype=PLACE))
    """Place of each accepted transaction's card (PLACE); set by `check_partitions`."""


def _enter(record: np.void, fields: dict[str, Any]) -> None:
    """Set the fields that `plain.read` sets in a plain record."""
    record["lo"], record["hi"] = hash_string(fields["card_id"])
    record["transaction"], _ = hash_string(fields["transaction_id"])
    record["merchant"], _ = hash_string(fields["merchant_id"])
    record["time"] = fields["event_time"]
    record["amount"] = np.rint(fields["amount"] * UNITS_PER_CURRENCY)
    record["country"] = country_code(fields["country"])
    record["currency"] = currency_code(fields["currency"])


def quote(fields: dict[str, Any]) -> bytes:
    """Return a transaction's quote: card_id, transaction_id, merchant_id and currency, which alerts copy.

    The fields are joined by `plain.SEPARATOR`.
    """
    return "\n".join(fields[strict.FIELDS[field]] for field in plain.QUOTED).encode()


def split_quote(text: bytes) -> list[str]:
    """Split a quote into its fields; inverse of `quote`."""
    return text.decode().split("\n")


def decode_fields(
    values: pa.BinaryArray, arrivals: NDArray[np.int64] | None = None, schemas: RecordSchemas | None = None
) -> DecodedTransactions:
    """Decode the fields of transactions, shape (n,); the checks of times and partitions are not made.

    Args:
        arrivals: arrivals, ms, shape (n,); needed only with `schemas`.
        schemas: the schemas of framed transactions; None: there are none.
    """
    refused: dict[int, strict.Rejected] = {}
    if schemas is not None and arrivals is not None:
        values, refused = schemas.unframed(values, arrivals)
    n = len(values)
    data, offsets = columns.buffers(values)
    records = np.zeros(n, dtype=TRANSACTION)
    good = np.empty(n, dtype=np.bool_)
    text = np.empty(offsets[-1] - offsets[0], dtype=np.uint8)
    text_offsets = np.empty(n + 1, dtype=np.int32)
    plain.read(data, offsets, columns.present(values), records, good, text, text_offsets)
    quotes = columns.column(text, text_offsets)
    if good.all():
        return DecodedTransactions(records, quotes, np.arange(n), [])
    doubtful = ~good
    strict_quotes: list[bytes] = []
    rejections = []
    for row in np.flatnonzero(doubtful).tolist():
        try:
            if row in refused:
                raise refused[row]
            fields = strict.transaction(values[row].as_py())
        except strict.Rejected as fault:
            rejections.append(Rejection(row, fault.reason, fault.detail))
            strict_quotes.append(b"")
        else:
            _enter(records[row], fields)
            strict_quotes.append(quote(fields))
            good[row] = True
    quotes = pc.replace_with_mask(quotes, pa.array(doubtful), pa.array(strict_quotes, type=pa.binary()))
    if not rejections:
        return DecodedTransactions(records, quotes, np.arange(n), [])
    return DecodedTransactions(
        rows_of(records, good), quotes.filter(pa.array(good)), np.flatnonzero(good), rejections
    )


def decode(
    records: Records, limits: TimeLimits, key_groups: KeyGroups, schemas: RecordSchemas | None = None
) -> DecodedTransactions:
    """Decode and check transaction records.

    Args:
        records: records of the transactions topic, of any partitions.
        schemas: see `decode_fields`.
    """
    decoded = decode_fields(records.values, records.arrivals, schemas)
    accepted = decoded.records
    accepted["partition"] = records.partitions[decoded.rows]
    accepted["offset"] = records.offsets[decoded.rows]
    accepted["arrival"] = records.arrivals[decoded.rows]
    if limits.refuse_card_numbers:
        decoded = _check_card_numbers(decoded)
    return check_partitions(_check_times(decoded, limits), key_groups)


def _check_card_numbers(decoded: DecodedTransactions) -> DecodedTransactions:
    suspects = np.flatnonzero(card_numbers.find(decoded.quotes)).tolist()
    refused = np.zeros(decoded.rows.size, dtype=np.bool_)
    rejections = []
    for index in suspects:
        ids = split_quote(decoded.quotes[index].as_py())
        try:
            card_numbers.check(dict(zip(card_numbers.FIELDS, ids, strict=False)))  # the currency is left
        except strict.Rejected as fault:
            refused[index] = True
            rejections.append(Rejection(int(decoded.rows[index]), fault.reason, fault.detail))
    return _without(decoded, refused, rejections) if rejections else decoded


def with_card_numbers(
    records: Records, limits: TimeLimits, schemas: RecordSchemas | None = None
) -> list[Rejection]:
    """Return the rejections of those transactions that hold card numbers, whatever else is wrong with others.

    Args:
        records: records of a topic of transactions.
        schemas: see `decode_fields`.
    """
    if not limits.refuse_card_numbers:
        return []
    rejections = _check_card_numbers(decode_fields(records.values, records.arrivals, schemas)).rejections
    return [rejection for rejection in rejections if rejection.reason is Reason.CARD_NUMBER]


def _check_times(decoded: DecodedTransactions, limits: TimeLimits) -> DecodedTransactions:
    records = decoded.records
    timely = (records["time"] >= records["arrival"] - limits.lateness_ms) & (
        records["time"] <= records["arrival"] + limits.skew_ms
    )
    if timely.all():
        return decoded
    rejections = []
    for index in np.flatnonzero(~timely).tolist():
        try:
            strict.check_time(
                int(records["time"][index]),
                int(records["arrival"][index]),
                limits.lateness_ms,
                limits.skew_ms,
            )
        except strict.Rejected as fault:
            rejections.append(Rejection(int(decoded.rows[index]), fault.reason, fault.detail))
    return _without(decoded, ~timely, rejections)


def check_partitions(decoded: DecodedTransactions, key_groups: KeyGroups) -> DecodedTransactions:
    """Refuse transactions that are not in their card's partition, as the producers' partitioner defines it.

    Sets the places of the others. The key group that reads the wrong partition may lack the card's history.
    """
    actual = decoded.records["partition"]
    places = key_groups.places_of(_card_ids(decoded.quotes))
    expected = places["home"]
    decoded = replace(decoded, places=places)
    wrong = actual != expected
    if not wrong.any():
        return decoded
    rule = f"{key_groups.partitioner} of {key_groups.partitions} partitions"
    rejections = [
        Rejection(
            row,
            Reason.WRONG_PARTITION,
            f"in partition {actual_partition}, but the card's partition is {expected_partition}; is card_id "
            f"the key, and {rule} the producer's partitioner?",
        )
        for row, actual_partition, expected_partition in zip(
            decoded.rows[wrong].tolist(), actual[wrong].tolist(), expected[wrong].tolist(), strict=True
        )
    ]
    return _without(decoded, wrong, rejections)


def _card_ids(quotes: pa.BinaryArray) -> pa.BinaryArray:
    data, offsets = columns.buffers(quotes)
    card_ids = np.empty(offsets[-1] - offsets[0], dtype=np.uint8)
    card_offsets = np.empty(len(quotes) + 1, dtype=np.int32)
    plain.copy_card_ids(data, offsets, card_ids, card_offsets)
    return columns.column(card_ids, card_offsets)


def _without(
    decoded: DecodedTransactions, refused: NDArray[np.bool_], rejections: list[Rejection]
) -> DecodedTransactions:
    """Drop the accepted transactions that the mask `refused`, shape (accepted,), marks; add `rejections`."""
    remaining = ~refused
    return DecodedTransactions(
        rows_of(decoded.records, remaining),
        decoded.quotes.filter(pa.array(remaining)),
        decoded.rows[remaining],
        decoded.rejections + rejections,
        rows_of(decoded.places, remaining) if decoded.places.size else decoded.places,
    )
