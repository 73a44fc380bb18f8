"""Labels of transactions, fraud or genuine: read from chargebacks, or from the transactions' own column."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.errors import FraudError

COLUMNS = ("transaction_id", "card_id", "label")
"""Required columns of the chargeback contract; `reported_at` is optional."""
FRAUD, GENUINE = 1, 0


class LabelError(FraudError):
    """Labels are missing or cannot be read."""


def require_columns(table: pa.Table, names: Sequence[str]) -> None:
    """Check that a table of labels has the columns `names`, and no nulls in them.

    Raises:
        LabelError: a column is missing or has nulls.
    """
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise LabelError(f"the labels have no column {missing[0]!r}; give the chargeback contract's columns")
    with_nulls = [name for name in names if table[name].null_count]
    if with_nulls:
        raise LabelError(f"the labels have nulls in column {with_nulls[0]!r}; remove those rows")


class Labels:
    """Reported labels by card and transaction; a transaction without a report is genuine.

    The last report of a transaction counts: by `reported_at`, if the table has it, then by row.
    """

    def __init__(self, table: pa.Table) -> None:
        """Index the reports.

        Args:
            table: columns of the chargeback contract.

        Raises:
            LabelError: a column is missing or has nulls, or `label` cannot be read (see `is_fraud`).
        """
        has_times = "reported_at" in table.column_names
        require_columns(table, (*COLUMNS, "reported_at") if has_times else COLUMNS)
        if has_times:
            order = np.argsort(table["reported_at"].to_numpy(), kind="stable")
            if (order[1:] < order[:-1]).any():
                table = table.take(order)
        # `index_in` finds the first of equal values, so the last report must come first
        newest_first = np.arange(len(table) - 1, -1, -1)
        self._identities = identities(table["card_id"], table["transaction_id"]).take(newest_first)
        self._fraud = is_fraud(table["label"])[newest_first]

    def of(self, cards: pa.ChunkedArray, transactions: pa.ChunkedArray) -> NDArray[np.int8]:
        """Return FRAUD or GENUINE for each of n transactions, shape (n,).

        Args:
            cards: card_id, n strings.
            transactions: transaction_id, n strings.
        """
        if not len(self._fraud):
            return np.zeros(len(cards), dtype=np.int8)
        positions = pc.index_in(identities(cards, transactions), value_set=self._identities)
        at = np.asarray(pc.fill_null(positions, -1))
        return np.where(at >= 0, self._fraud[at], False).astype(np.int8)


def is_fraud(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return whether each label is fraud, shape (n,); null is not fraud.

    Args:
        column: "fraud" and "genuine", or 1 and 0, or booleans.

    Raises:
        LabelError: the column is of another type or has other values.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        unknown = set(pc.unique(column).to_pylist()) - {"fraud", "genuine", None}
        if unknown:
            raise LabelError(f"label {min(unknown)!r} is neither 'fraud' nor 'genuine'; mend the labels")
        column = pc.equal(column, "fraud")
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        unknown = set(pc.unique(column).to_pylist()) - {0, 1, None}
        if unknown:
            raise LabelError(f"label {min(unknown)} is neither 1 (fraud) nor 0 (genuine); mend the labels")
    try:
        flags = pc.fill_null(column.cast(pa.bool_()), False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise LabelError(
            f"labels of type {column.type} cannot be read ({error}); give fraud/genuine or 1/0"
        ) from None
    return np.asarray(flags).astype(np.bool_)


def identities(cards: pa.ChunkedArray, transactions: pa.ChunkedArray) -> pa.Array:
    """Join card_id and transaction_id into one string for each of n transactions, shape (n,).

    Identifiers contain no control characters, so the NUL between them makes the string unambiguous.
    """
    both = (column.cast(pa.large_string()) for column in (cards, transactions))
    joined = pc.binary_join_element_wise(*both, pa.scalar("\0", pa.large_string()))
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
