"""Conversion of tables of transactions and profiles to the structured arrays that the kernels read."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.kernels.hashing import hash_strings
from feature_store.layout import PROFILE, SNAPSHOT, STATUSES, TRANSACTION, UNITS_PER_CURRENCY, UPSERT
from feature_store.training import columns
from feature_store.training.archived import archived_changes
from feature_store.training.columns import TrainingSetError
from feature_store.training.parquet_files import MOST_TIME_MS

MOST_AMOUNT = 1e9
LONGEST_ID = 64
FURTHEST_DAY = 3_000_000


def column(table: pa.Table, name: str, *, nullable: bool = False) -> pa.Array:
    """Return a column as one array of its type, see `columns.convert`.

    Raises:
        TrainingSetError: the column is missing, cannot be converted, or has nulls and is not `nullable`.
    """
    if name not in table.column_names:
        raise TrainingSetError(f"the table has no column {name!r}; give the columns of the contract")
    columns.require_unique([found for found in table.column_names if found == name])
    values = columns.convert(name, table[name])
    if values.null_count and not nullable:
        raise TrainingSetError(f"column {name!r} holds {values.null_count} nulls; remove those rows")
    return values.combine_chunks()


def _refuse(name: str, values: pa.Array, bad: NDArray[np.bool_], rule: str, first_row: int) -> None:
    """Raise TrainingSetError for the first bad value, if there is one."""
    if bad.any():
        at = int(bad.argmax())
        raise TrainingSetError(
            f"row {first_row + at}: {name} {values[at].as_py()!r} is not allowed, {rule}; remove such rows"
        )


def country_codes(countries: pa.StringArray) -> NDArray[np.int16]:
    """Encode strings of two letters A-Z as country codes (`layout.country_code`), shape (n,)."""
    return _letter_codes(countries, 2)


def _letter_codes(texts: pa.StringArray, length: int) -> NDArray[np.int16]:
    """Encode strings of `length` letters A-Z as numbers to the base of 26, shape (n,)."""
    letters = np.frombuffer("".join(texts.to_pylist()).encode(), dtype=np.uint8).reshape(-1, length)
    places = 26 ** np.arange(length)[::-1]
    codes: NDArray[np.int16] = ((letters.astype(np.int16) - 65) @ places).astype(np.int16)
    return codes


def _codes(table: pa.Table, name: str, length: int, first_row: int) -> NDArray[np.int16]:
    texts = column(table, name)
    encoded = pc.dictionary_encode(texts)
    numbers = np.asarray(encoded.indices)
    valid = np.asarray(pc.match_substring_regex(encoded.dictionary, f"^[A-Z]{{{length}}}$")).astype(np.bool_)
    _refuse(name, texts, ~valid[numbers], f"it takes {('two', 'three')[length - 2]} letters A-Z", first_row)
    codes: NDArray[np.int16] = _letter_codes(encoded.dictionary, length)[numbers]
    return codes


def _ids(table: pa.Table, name: str, first_row: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    ids = column(table, name)
    lengths = np.asarray(pc.utf8_length(ids))
    _refuse(
        name, ids, (lengths < 1) | (lengths > LONGEST_ID), f"it takes 1 to {LONGEST_ID} characters", first_row
    )
    return hash_strings(ids)


def _times(table: pa.Table, name: str, first_row: int) -> NDArray[np.int64]:
    times = column(table, name)
    numbers = np.asarray(times)
    _require_times(name, times, numbers, first_row)
    return numbers


def _require_times(name: str, times: pa.Array, numbers: NDArray[np.int64], first_row: int) -> None:
    bad = (numbers < 0) | (numbers > MOST_TIME_MS)
    _refuse(name, times, bad, "it is ms since 1970-01-01 UTC", first_row)


def arrivals(transactions: pa.Table, first_row: int = 0) -> NDArray[np.int64]:
    """Return the arrival of each transaction, ms, shape (n,): `arrival_time`, or `event_time` without it."""
    has_arrival_time = "arrival_time" in transactions.column_names
    return _times(transactions, "arrival_time" if has_arrival_time else "event_time", first_row)


def to_records(transactions: pa.Table, first_row: int = 0) -> NDArray[np.void]:
    """Convert a table of transactions to a structured array of TRANSACTION, in the table's order.

    Args:
        transactions: n rows of the transaction contract: transaction_id, card_id, merchant_id, amount,
            country, event_time, and optionally currency (default: all the same) and arrival_time (default:
            event_time).
        first_row: number of the table's first row, for error messages and the records' field `offset`.

    Raises:
        TrainingSetError: a column is missing, has nulls, cannot be cast or breaks the contract.
    """
    records = np.zeros(len(transactions), dtype=TRANSACTION)
    records["lo"], records["hi"] = _ids(transactions, "card_id", first_row)
    records["transaction"], _ = _ids(transactions, "transaction_id", first_row)
    records["merchant"], _ = _ids(transactions, "merchant_id", first_row)
    records["time"] = _times(transactions, "event_time", first_row)
    records["arrival"] = arrivals(transactions, first_row)
    amounts = column(transactions, "amount")
    numbers = np.asarray(amounts)
    # a negated condition, so that NaN counts as outside
    outside = ~((numbers >= 0) & (numbers <= MOST_AMOUNT))
    _refuse("amount", amounts, outside, f"it takes 0 to {MOST_AMOUNT:.0e}", first_row)
    records["amount"] = np.rint(numbers * UNITS_PER_CURRENCY)
    records["country"] = _codes(transactions, "country", 2, first_row)
    if "currency" in transactions.column_names:
        records["currency"] = _codes(transactions, "currency", 3, first_row)
    records["offset"] = np.arange(first_row, first_row + records.size)
    return records


def profile_records(profiles: pa.Table) -> NDArray[np.void]:
    """Convert a table of the profile contract to a structured array of PROFILE, in order of arrival.

    If the table has a column `arrival_time` (ms), each row is a change that is visible from its
    `arrival_time` on; a row without a time is a row of a snapshot, visible from the beginning. Without the
    column, all rows are snapshot rows. Of two snapshot rows for a card, the first counts. The profiles of an
    archive (`archived.read_profiles`) are changes as the stream has them.

    Raises:
        TrainingSetError: a column is missing, has nulls, cannot be cast or breaks the contract.
    """
    if "ends_snapshot" in profiles.column_names:
        return archived_changes(profiles)
    if "arrival_time" in profiles.column_names:
        times = column(profiles, "arrival_time", nullable=True)
        _require_times("arrival_time", times, np.asarray(pc.fill_null(times, 0)), 0)
        arrival = np.asarray(pc.fill_null(times, -1))
    else:
        arrival = np.full(len(profiles), -1)
    records = np.zeros(len(profiles), dtype=PROFILE)
    records["lo"], records["hi"] = _ids(profiles, "card_id", 0)
    records["credit_limit"] = _between(profiles, "credit_limit", 0, np.inf)
    records["opened_on"] = _between(profiles, "opened_on", -FURTHEST_DAY, FURTHEST_DAY)
    records["risk_tier"] = _between(profiles, "risk_tier", 0, 3)
    records["country"] = _codes(profiles, "home_country", 2, 0)
    statuses = column(profiles, "status")
    numbers = np.asarray(pc.fill_null(pc.index_in(statuses, pa.array(STATUSES)), -1))
    _refuse("status", statuses, numbers < 0, f"it is one of {', '.join(STATUSES)}", 0)
    records["status"] = numbers
    records["change"] = np.where(arrival < 0, SNAPSHOT, UPSERT)
    records["arrival"] = arrival
    return records[np.argsort(arrival, kind="stable")]


def _between(table: pa.Table, name: str, least: float, most: float) -> NDArray[np.number]:
    values = column(table, name)
    numbers = np.asarray(values)
    outside = ~((numbers >= least) & (numbers <= most))
    _refuse(name, values, outside, f"it takes {least:g} to {most:g}", 0)
    return numbers
