"""Labels of transactions, fraud or genuine: read from chargebacks, or from the transactions' own column."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.training.columns import TrainingSetError, convert, flags

COLUMNS = ("transaction_id", "card_id", "label")
"""Required columns of the chargeback contract; `reported_at` is optional."""
FRAUD, GENUINE = 1, 0


class LabelError(TrainingSetError):
    """Labels or their columns are missing or have nulls, or no label is of one of the transactions.

    Give `--labels` a file with the chargeback contract's columns; compare the ids of both files.
    """


def reports(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the columns `names` of a table of labels, converted.

    Raises:
        LabelError: a column is missing or has nulls.
        TrainingSetError: a column cannot be converted, see `columns.convert`.
    """
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise LabelError(f"the labels have no column {missing[0]!r}; give the chargeback contract's columns")
    table = pa.table({name: convert(name, table[name]) for name in names})
    with_nulls = [name for name in names if table[name].null_count]
    if with_nulls:
        raise LabelError(f"the labels have nulls in column {with_nulls[0]!r}; remove those rows")
    return table


class Matches:
    """A count of the labelled transactions that were found among the transactions so far."""

    def __init__(self, identities: pa.Array) -> None:
        """Start with none found.

        Args:
            identities: the labelled transactions, repeated if a transaction has several reports.
        """
        self._found = np.zeros(len(identities), dtype=np.bool_)
        self.labelled: int = pc.count_distinct(identities).as_py()
        """Number of labelled transactions."""

    def add(self, rows: NDArray[np.int64]) -> None:
        """Count labelled transactions as found, by the number of their first row in `identities`."""
        self._found[rows] = True

    @property
    def found(self) -> int:
        """Number of labelled transactions that were found."""
        return int(np.count_nonzero(self._found))

    def require_some(self) -> None:
        """Raise LabelError if there are labels, and none of them was found."""
        if self.labelled and not self.found:
            raise LabelError(
                f"none of the {self.labelled:,} labelled transactions is among the transactions; compare "
                "card_id and transaction_id of both files"
            )


class Labels:
    """Reported labels by card and transaction; a transaction without a report is genuine.

    The last report of a transaction counts: by `reported_at`, if the table has it, then by row.
    """

    def __init__(self, table: pa.Table) -> None:
        """Index the reports.

        Args:
            table: columns of the chargeback contract.
        """
        has_times = "reported_at" in table.column_names
        table = reports(table, (*COLUMNS, "reported_at") if has_times else COLUMNS)
        if has_times:
            order = np.argsort(table["reported_at"].to_numpy(), kind="stable")
            if (order[1:] < order[:-1]).any():
                table = table.take(order)
        # `index_in` finds the first of equal values, so the last report must come first
        newest_first = np.arange(len(table) - 1, -1, -1)
        self._identities = identities(table["card_id"], table["transaction_id"]).take(newest_first)
        self._fraud = flags(table["label"])[newest_first]
        self.matches = Matches(self._identities)

    def of(self, cards: pa.ChunkedArray, transactions: pa.ChunkedArray) -> NDArray[np.int8]:
        """Return FRAUD or GENUINE for each of n transactions, shape (n,).

        Args:
            cards: card_id, of n transactions.
            transactions: transaction_id, of n transactions.
        """
        cards, transactions = convert("card_id", cards), convert("transaction_id", transactions)
        if not len(self._fraud):
            return np.zeros(len(cards), dtype=np.int8)
        positions = pc.index_in(identities(cards, transactions), value_set=self._identities)
        at = np.asarray(pc.fill_null(positions, -1))
        self.matches.add(at[at >= 0])
        return np.where(at >= 0, self._fraud[at], False).astype(np.int8)


def is_fraud(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return whether each label is fraud, shape (n,); null is not fraud."""
    return flags(convert("label", column))


def identities(cards: pa.ChunkedArray, transactions: pa.ChunkedArray) -> pa.Array:
    """Join card_id and transaction_id into one string for each of n transactions, shape (n,).

    Identifiers contain no control characters, so the NUL between them makes the string unambiguous.
    """
    both = (column.cast(pa.large_string()) for column in (cards, transactions))
    joined = pc.binary_join_element_wise(*both, pa.scalar("\0", pa.large_string()))
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
