"""Conversion of Fraud Detection Handbook tables (Le Borgne et al., 2022) to the transaction contract."""

import pyarrow as pa
import pyarrow.compute as pc

from feature_store.training.columns import TrainingSetError, convert
from feature_store.training.parquet_files import require_ms

COLUMNS = ("TRANSACTION_ID", "TX_DATETIME", "CUSTOMER_ID", "TERMINAL_ID", "TX_AMOUNT")
"""Required columns; TX_FRAUD is optional, all other columns are ignored."""
LABEL = "TX_FRAUD"


class HandbookError(TrainingSetError):
    """A table of the Fraud Detection Handbook lacks columns or values, or its `TX_DATETIME` is no time.

    Use the handbook's files unchanged.
    """


def is_handbook(names: list[str]) -> bool:
    """Return whether these columns indicate the handbook's format."""
    return "TX_DATETIME" in names or "CUSTOMER_ID" in names


def transactions(table: pa.Table) -> pa.Table:
    """Convert rows to the transaction contract's columns.

    The handbook has no currency and no country: they become EUR and ZZ (unknown). Times without
    a time zone are taken as UTC.

    Args:
        table: columns `COLUMNS`, optionally `TX_FRAUD` (0 or 1).

    Returns:
        transaction_id "h-<TRANSACTION_ID>", card_id "c-<CUSTOMER_ID>", merchant_id "t-<TERMINAL_ID>", amount
        float64, currency, country, event_time int64 (ms since 1970-01-01 UTC); if there is `TX_FRAUD`, also
        label int8.

    Raises:
        HandbookError: a required column is missing or has nulls.
        TrainingSetError: a column cannot be converted.
    """
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise HandbookError(f"handbook table without {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
    holes = [name for name in COLUMNS if table.column(name).null_count]
    if holes:
        raise HandbookError(f"handbook table with nulls in {', '.join(holes)}; fill or drop these rows")
    columns = {
        "transaction_id": _token("h-", table, "TRANSACTION_ID"),
        "card_id": _token("c-", table, "CUSTOMER_ID"),
        "merchant_id": _token("t-", table, "TERMINAL_ID"),
        "amount": convert("TX_AMOUNT", table["TX_AMOUNT"]),
        "currency": pa.repeat("EUR", len(table)),
        "country": pa.repeat("ZZ", len(table)),
        "event_time": _milliseconds(table),
    }
    if LABEL in table.column_names:
        columns["label"] = convert(LABEL, table[LABEL])
    return pa.table(columns)


def times(table: pa.Table) -> pa.Table:
    """Convert only the times of the rows to event_time, int64 (ms since 1970-01-01 UTC).

    Args:
        table: column TX_DATETIME.

    Raises:
        HandbookError: the column has nulls or is no time.
        TrainingSetError: the times are read in a wrong unit.
    """
    if table.column("TX_DATETIME").null_count:
        raise HandbookError("handbook table with nulls in TX_DATETIME; fill or drop these rows")
    return pa.table({"event_time": _milliseconds(table)})


def _token(prefix: str, table: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(prefix, convert(name, table[name]), "")


def _milliseconds(table: pa.Table) -> pa.ChunkedArray:
    column = table.column("TX_DATETIME")
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        try:
            column = column.cast(pa.timestamp("ms"))
        except pa.ArrowInvalid as error:
            raise HandbookError(
                f"handbook column TX_DATETIME cannot be read ({error}); mend the file"
            ) from error
    if not pa.types.is_timestamp(column.type):
        raise HandbookError(f"handbook column TX_DATETIME is {column.type}; give a timestamp")
    times = convert("event_time", column)
    require_ms(times, "TX_DATETIME", "handbook table")
    return times
