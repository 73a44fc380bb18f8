"""A training set as parquet: one row a transaction, one float64 column a feature, and what they are."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from feature_store.catalogue import NAMES, feature_hash
from feature_store.labels import Labels, is_fraud
from feature_store.training_set import OUTCOMES, Decided
from feature_store.transaction_table import column, to_records

FEATURE_HASH = b"card-fraud.features"
"""Key of the feature list's hash in the files' metadata."""

_OUTCOME = pa.dictionary(pa.int8(), pa.string())


@dataclass(frozen=True)
class Rows:
    """n transactions on their way to their features."""

    records: NDArray[np.void]
    """TRANSACTION; `offset` is the row number in the input, shape (n,)."""
    transaction_id: pa.Array | pa.ChunkedArray
    card_id: pa.Array | pa.ChunkedArray
    label: NDArray[np.int8] | None
    """1 fraud, 0 genuine; None where labels are not known."""

    @staticmethod
    def of(table: pa.Table, first_row: int, labels: Labels | None) -> "Rows":
        """Rows of a table in the contract's columns.

        Args:
            table: n transactions.
            first_row: number of the first one in the input.
            labels: reported ones; default: the table's own column `label`, if it has one.

        Raises:
            TrainingSetError: the table breaks the contract.
            LabelError: its labels do.
        """
        label = None
        if labels is not None:
            label = labels.of(table["card_id"], table["transaction_id"])
        elif "label" in table.column_names:
            label = is_fraud(table["label"]).astype(np.int8)
        transaction_id, card_id = (column(table, name, pa.string()) for name in ("transaction_id", "card_id"))
        return Rows(to_records(table, first_row), transaction_id, card_id, label)

    @staticmethod
    def concat(parts: list["Rows"]) -> "Rows":
        """All parts one after another; they are labelled or they are not."""
        labels = [part.label for part in parts if part.label is not None]
        return Rows(
            np.concatenate([part.records for part in parts]),
            pa.chunked_array([part.transaction_id for part in parts]),
            pa.chunked_array([part.card_id for part in parts]),
            np.concatenate(labels) if labels else None,
        )

    def take(self, which: NDArray[np.int64]) -> "Rows":
        """The rows of these numbers."""
        label = None if self.label is None else self.label[which]
        return Rows(self.records[which], self.transaction_id.take(which), self.card_id.take(which), label)

    def __len__(self) -> int:
        return self.records.size


def schema(*, labelled: bool) -> pa.Schema:
    """Columns of a training set.

    row is the number of the row in the input, outcome one of OUTCOMES; features are NaN where the outcome
    is not accepted.
    """
    fields = [
        ("row", pa.int64()),
        ("transaction_id", pa.string()),
        ("card_id", pa.string()),
        ("event_time", pa.int64()),
        ("arrival_time", pa.int64()),
        ("outcome", _OUTCOME),
        *([("label", pa.int8())] if labelled else []),
        *((name, pa.float64()) for name in NAMES),
    ]
    return pa.schema(fields, metadata={FEATURE_HASH: feature_hash().encode()})


class TrainingFile:
    """Writes one parquet file, a row group for each call."""

    def __init__(self, path: Path, *, labelled: bool) -> None:
        self._schema = schema(labelled=labelled)
        self._labelled = labelled
        # amounts and times hardly repeat: a dictionary of them is built for nothing
        few = [
            name
            for name in NAMES
            if name.startswith(("count", "merchants", "countries", "is_", "spikes", "new_"))
        ]
        self._writer = pq.ParquetWriter(
            path, self._schema, compression="zstd", compression_level=1, use_dictionary=["outcome", *few]
        )
        self.outcomes: Counter[str] = Counter()
        """Rows written, by outcome."""

    def write(self, rows: Rows, decided: Decided) -> None:
        """Append rows with their features."""
        records = rows.records
        columns = [
            pa.array(np.ascontiguousarray(records["offset"])),
            rows.transaction_id,
            rows.card_id,
            pa.array(np.ascontiguousarray(records["time"])),
            pa.array(np.ascontiguousarray(records["arrival"])),
            pa.DictionaryArray.from_arrays(pa.array(decided.outcome), pa.array(OUTCOMES)),
            *([pa.array(rows.label)] if self._labelled else []),
            # the kernel writes rows; a copy turned round once is cheaper than 61 strided reads
            *(pa.array(values) for values in np.ascontiguousarray(decided.features.T)),
        ]
        self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=len(rows))
        for number, count in enumerate(np.bincount(decided.outcome, minlength=len(OUTCOMES)).tolist()):
            self.outcomes[OUTCOMES[number]] += count

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
