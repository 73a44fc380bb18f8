"""Reader of a Parquet file of transactions, with columns of the contract or the Fraud Detection Handbook."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feature_store.errors import FraudError
from feature_store.training import handbook
from feature_store.training.parquet_files import batches, open_parquet
from loadtests.simulator import encode

_ROWS = 16_384
REQUIRED = (*encode.REQUIRED, "arrival_time")
"""Columns without nulls, if they are there."""


class ReplayError(FraudError):
    """A file to replay is empty, lacks columns, has nulls, or is not in order of time.

    Use the contract's columns or the handbook's; sort the file by time.
    """


@dataclass(frozen=True, eq=False)
class ReplayBatch:
    """Rows of the file in order of arrival."""

    table: pa.Table
    """The contract's columns, arrival_time int64 (ms) and, if the file has it, label int8."""
    accepted: None = None
    """Rows that can get a label, as in `EventBatch`; None: every row."""

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def arrival(self) -> npt.NDArray[np.int64]:
        """Arrivals, ms since 1970-01-01 UTC, ascending."""
        arrival: npt.NDArray[np.int64] = self.table.column("arrival_time").combine_chunks().to_numpy()
        return arrival

    def encode(self) -> tuple[list[bytes], list[bytes | None]]:
        """Encode Kafka keys and values."""
        keys = self.table.column("card_id").combine_chunks().cast(pa.binary()).to_pylist()
        return keys, list(encode.encode(self.table))


class Replay:
    """A Parquet file of transactions, read in batches."""

    def __init__(self, path: Path) -> None:
        """Open a file and check its columns.

        Raises:
            ReplayError: empty, or columns that are neither the contract's nor the handbook's.
        """
        self.path = path
        file = open_parquet(path)
        names = file.schema_arrow.names
        self._handbook = handbook.is_handbook(names)
        needed = handbook.COLUMNS if self._handbook else encode.REQUIRED
        missing = [name for name in needed if name not in names]
        if missing:
            raise ReplayError(
                f"{path} lacks the columns {', '.join(missing)}; it needs those of the transaction contract "
                f"({', '.join(encode.REQUIRED)}) or of the Fraud Detection Handbook "
                f"({', '.join(handbook.COLUMNS)})"
            )
        self.rows: int = file.metadata.num_rows
        if self.rows == 0:
            raise ReplayError(f"{path} has no rows; nothing to replay")
        used = {*needed, *encode.OPTIONAL, "arrival_time", "label", handbook.LABEL}
        if not self._handbook:
            used.discard(handbook.LABEL)
        self._columns = [name for name in names if name in used]

    @cached_property
    def first_ms(self) -> int:
        """Arrival of the first row, ms since 1970-01-01 UTC."""
        return int(next(self.batches()).arrival[0])

    def batches(self, events: int | None = None) -> Iterator[ReplayBatch]:
        """Yield the rows in the file's order.

        Args:
            events: number of rows after which to stop; None: all.

        Raises:
            ReplayError: a value is missing, or the rows are not in order of arrival.
        """
        previous = -1
        for first_row, table in batches(self.path, self._columns, _ROWS):
            if events is not None:
                table = table.slice(0, max(0, events - first_row))
            if not len(table):
                return
            contract = handbook.transactions(table) if self._handbook else self._without_holes(table)
            batch = ReplayBatch(_with_arrival(contract))
            steps = np.diff(batch.arrival, prepend=previous)
            if steps.min() < 0:
                row = first_row + int(np.argmax(steps < 0))
                time = "TX_DATETIME" if self._handbook else "arrival_time (or event_time)"
                raise ReplayError(f"{self.path} goes back in time at row {row}; sort it by {time}")
            previous = int(batch.arrival[-1])
            yield batch

    def _without_holes(self, table: pa.Table) -> pa.Table:
        holes = [name for name in REQUIRED if name in table.column_names and table[name].null_count]
        if holes:
            raise ReplayError(f"{self.path} has nulls in {', '.join(holes)}; fill or drop these rows")
        return table


def _with_arrival(table: pa.Table) -> pa.Table:
    """Use the event time as arrival if the file has no arrival times."""
    if "arrival_time" in table.column_names:
        return table
    return table.append_column("arrival_time", table.column("event_time"))
