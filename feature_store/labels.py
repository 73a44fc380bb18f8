"""Labels of transactions: which were fraud, from chargebacks or from a column of their own."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.errors import FraudError

COLUMNS = ("transaction_id", "card_id", "label")
"""Columns of the chargeback contract that labels need; `reported_at` is used where it is present."""
FRAUD, GENUINE = 1, 0


class LabelError(FraudError):
    """Labels are missing or cannot be read."""


class Labels:
    """Outcomes that the bank was told, by card and transaction; what nobody reported is genuine.

    The last report of a transaction counts: by `reported_at` where the table has it, then by row.
    """

    def __init__(self, table: pa.Table) -> None:
        """Index them.

        Args:
            table: columns of the chargeback contract.

        Raises:
            LabelError: a column is missing, has nulls or is of another type.
        """
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise LabelError(
                f"the labels have no column {missing[0]!r}; give the chargeback contract's columns"
            )
        holes = [name for name in COLUMNS if table[name].null_count]
        if holes:
            raise LabelError(f"the labels have nulls in column {holes[0]!r}; remove those rows")
        if "reported_at" in table.column_names:
            order = np.argsort(table["reported_at"].to_numpy(), kind="stable")
            if (order[1:] < order[:-1]).any():
                table = table.take(order)
        # `index_in` finds the first of equal ones: the last report has to come first
        newest_first = np.arange(len(table) - 1, -1, -1)
        self._identities = identities(table["card_id"], table["transaction_id"]).take(newest_first)
        self._fraud = is_fraud(table["label"])[newest_first]

    def of(self, cards: pa.ChunkedArray, transactions: pa.ChunkedArray) -> NDArray[np.int8]:
        """FRAUD or GENUINE for each of n transactions, shape (n,).

        Args:
            cards: card_id, n strings.
            transactions: transaction_id, n strings.
        """
        if not len(self._fraud):
            return np.zeros(len(cards), dtype=np.int8)
        found = pc.index_in(identities(cards, transactions), value_set=self._identities)
        at = np.asarray(pc.fill_null(found, -1))
        return np.where(at >= 0, self._fraud[at], False).astype(np.int8)


def is_fraud(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Whether each label says fraud, shape (n,); nulls do not.

    Args:
        column: "fraud" and "genuine", or 1 and 0, or booleans.

    Raises:
        LabelError: other types or words.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        words = set(pc.unique(column).to_pylist()) - {"fraud", "genuine", None}
        if words:
            raise LabelError(f"label {min(words)!r} is neither 'fraud' nor 'genuine'; mend the labels")
        column = pc.equal(column, "fraud")
    try:
        flags = pc.fill_null(column.cast(pa.bool_()), False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as fault:
        raise LabelError(
            f"labels of type {column.type} cannot be read ({fault}); give fraud/genuine or 1/0"
        ) from None
    return np.asarray(flags).astype(np.bool_)


def identities(cards: pa.ChunkedArray, transactions: pa.ChunkedArray) -> pa.Array:
    """One string for each of n transactions, of card_id and transaction_id.

    Identifiers hold no control characters, so two never mix.
    """
    both = (column.cast(pa.large_string()) for column in (cards, transactions))
    joined = pc.binary_join_element_wise(*both, pa.scalar("\0", pa.large_string()))
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
