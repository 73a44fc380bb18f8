"""Reader of a Parquet file of transactions, with columns of the contract or the Fraud Detection Handbook."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from feature_store.errors import FraudError
from feature_store.training import handbook
from loadtests.simulator import encode

_ROWS = 16_384
REQUIRED = (*encode.REQUIRED, "arrival_time")
"""Columns without nulls, if they are there."""
_LABELS = {"fraud": 1, "genuine": 0, 1: 1, 0: 0, None: None}


class ReplayError(FraudError):
    """The file cannot be replayed."""


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
            ReplayError: no such file, not Parquet, empty, or columns that are neither the contract's nor the
            handbook's.
        """
        self.path = path
        try:
            self._file = pq.ParquetFile(path)
        except FileNotFoundError as error:
            raise ReplayError(f"no file {path}; give a parquet file of transactions") from error
        except (OSError, pa.ArrowException) as error:
            raise ReplayError(f"cannot read {path} as parquet ({' '.join(str(error).split())})") from error
        names = self._file.schema_arrow.names
        self._handbook = handbook.is_handbook(names)
        needed = handbook.COLUMNS if self._handbook else encode.REQUIRED
        missing = [name for name in needed if name not in names]
        if missing:
            raise ReplayError(
                f"{path} lacks the columns {', '.join(missing)}; it needs those of the transaction contract "
                f"({', '.join(encode.REQUIRED)}) or of the Fraud Detection Handbook "
                f"({', '.join(handbook.COLUMNS)})"
            )
        self.rows: int = self._file.metadata.num_rows
        if self.rows == 0:
            raise ReplayError(f"{path} has no rows; nothing to replay")
        used = {*needed, *encode.OPTIONAL, "arrival_time", "label", handbook.LABEL}
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
            ReplayError: a value is missing or cannot be converted, or the rows are not in order of arrival.
            HandbookError: a value of a handbook file is missing or of another type.
        """
        previous = -1
        for number, part in enumerate(self._file.iter_batches(_ROWS, columns=self._columns)):
            if events is not None:
                part = part.slice(0, max(0, events - number * _ROWS))
            if not len(part):
                return
            table = pa.Table.from_batches([part])
            batch = ReplayBatch(handbook.transactions(table) if self._handbook else self._contract(table))
            batch = ReplayBatch(_with_arrival(batch.table))
            steps = np.diff(batch.arrival, prepend=previous)
            if steps.min() < 0:
                row = number * _ROWS + int(np.argmax(steps < 0))
                time = "TX_DATETIME" if self._handbook else "arrival_time (or event_time)"
                raise ReplayError(f"{self.path} goes back in time at row {row}; sort it by {time}")
            previous = int(batch.arrival[-1])
            yield batch

    def _contract(self, table: pa.Table) -> pa.Table:
        columns = {}
        for name in self._columns:
            if name in table.column_names and name != handbook.LABEL:
                columns[name] = self._cast(name, table.column(name))
        holes = [name for name, column in columns.items() if name in REQUIRED and column.null_count]
        if holes:
            raise ReplayError(f"{self.path} has nulls in {', '.join(holes)}; fill or drop these rows")
        return pa.table(columns)

    def _cast(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        try:
            if name in ("event_time", "arrival_time"):
                if pa.types.is_timestamp(column.type):
                    return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
                return column.cast(pa.int64())
            if name == "label":
                return _labels(column)
            return column.cast(pa.float64() if name == "amount" else pa.string())
        except (pa.ArrowException, KeyError) as error:
            raise ReplayError(
                f"{self.path}: column {name}, {column.type}, has a wrong type or value ({error})"
            ) from error


def _labels(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert labels to 1 fraud, 0 genuine, null unknown, from integers, booleans or the contract's words."""
    numeric = pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)
    values = (column if numeric else column.cast(pa.string())).to_pylist()
    return pa.chunked_array([pa.array([_LABELS[value] for value in values], pa.int8())])


def _with_arrival(table: pa.Table) -> pa.Table:
    """Use the event time as arrival if the file has no arrival times."""
    if "arrival_time" in table.column_names:
        return table
    return table.append_column("arrival_time", table.column("event_time"))
