"""Training sets as parquet files: one row per transaction, one float64 column per feature."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from feature_store.catalogue import feature_hash, names_of
from feature_store.merchants.catalogue import computed
from feature_store.training.labels import Labels, is_fraud
from feature_store.training.training_set import OUTCOMES, Decisions
from feature_store.training.transaction_table import column, to_records

FEATURE_HASH = b"card-fraud.features"
"""Key, in the files' metadata, of the hash of the feature list."""

_OUTCOME = pa.dictionary(pa.int8(), pa.string())


@dataclass(frozen=True)
class Rows:
    """n transactions of the input, before their features are computed."""

    records: NDArray[np.void]
    """Records of type `layout.TRANSACTION`, shape (n,); `offset` is the row number in the input."""
    transaction_id: pa.Array | pa.ChunkedArray
    card_id: pa.Array | pa.ChunkedArray
    label: NDArray[np.int8] | None
    """1 fraud, 0 genuine; None without labels."""

    @staticmethod
    def of(table: pa.Table, first_row: int, labels: Labels | None) -> "Rows":
        """Convert a table in the contract's columns.

        Args:
            table: n transactions.
            first_row: number of the table's first row in the input.
            labels: reported labels; default: the table's own column `label`, if it has one.
        """
        label = None
        if labels is not None:
            label = labels.of(table["card_id"], table["transaction_id"])
        elif "label" in table.column_names:
            label = is_fraud(table["label"]).astype(np.int8)
        transaction_id, card_id = (column(table, name) for name in ("transaction_id", "card_id"))
        return Rows(to_records(table, first_row), transaction_id, card_id, label)

    @staticmethod
    def concat(parts: list["Rows"]) -> "Rows":
        """Concatenate parts; the result has labels if all parts have them."""
        labels = [part.label for part in parts if part.label is not None]
        if len(labels) < len(parts):
            labels = []
        return Rows(
            np.concatenate([part.records for part in parts]),
            pa.chunked_array([part.transaction_id for part in parts]),
            pa.chunked_array([part.card_id for part in parts]),
            np.concatenate(labels) if labels else None,
        )

    def take(self, which: NDArray[np.int64]) -> "Rows":
        """Select rows by number."""
        label = None if self.label is None else self.label[which]
        return Rows(self.records[which], self.transaction_id.take(which), self.card_id.take(which), label)

    def __len__(self) -> int:
        return self.records.size


def schema(*, labelled: bool, merchants: bool) -> pa.Schema:
    """Return the columns of a training set.

    `row` is the number of the row in the input, `outcome` is one of OUTCOMES. Features are NaN unless the
    outcome is accepted.
    """
    identities = computed(merchants=merchants)
    fields = [
        ("row", pa.int64()),
        ("transaction_id", pa.string()),
        ("card_id", pa.string()),
        ("event_time", pa.int64()),
        ("arrival_time", pa.int64()),
        ("outcome", _OUTCOME),
        *([("label", pa.int8())] if labelled else []),
        *((name, pa.float64()) for name in names_of(identities)),
    ]
    return pa.schema(fields, metadata={FEATURE_HASH: feature_hash(identities).encode()})


class TrainingFile:
    """Writer of one parquet file; each `write` appends one row group."""

    def __init__(self, path: Path, *, labelled: bool, merchants: bool) -> None:
        self._schema = schema(labelled=labelled, merchants=merchants)
        self._labelled = labelled
        # amounts and times hardly repeat, so a dictionary gains nothing for them
        repetitive = [
            name
            for name in self._schema.names
            if name.startswith(("count", "merchants", "countries", "is_", "spikes", "new_"))
        ]
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=["outcome", *repetitive],
        )
        self.outcomes: Counter[str] = Counter()
        """Rows written, by outcome."""
        self.frauds = 0
        """Rows written that are labelled as fraud."""

    def write(self, rows: Rows, decisions: Decisions) -> None:
        """Append rows with their features."""
        records = rows.records
        columns = [
            pa.array(np.ascontiguousarray(records["offset"])),
            rows.transaction_id,
            rows.card_id,
            pa.array(np.ascontiguousarray(records["time"])),
            pa.array(np.ascontiguousarray(records["arrival"])),
            pa.DictionaryArray.from_arrays(pa.array(decisions.outcome), pa.array(OUTCOMES)),
            *([pa.array(rows.label)] if self._labelled else []),
            # the kernel writes rows; one transposed copy is cheaper than a strided read for each column
            *(pa.array(values) for values in np.ascontiguousarray(decisions.features.T)),
        ]
        self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=len(rows))
        if rows.label is not None:
            self.frauds += int(np.count_nonzero(rows.label))
        for number, count in enumerate(np.bincount(decisions.outcome, minlength=len(OUTCOMES)).tolist()):
            self.outcomes[OUTCOMES[number]] += count

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
