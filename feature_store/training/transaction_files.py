"""Parquet files of transactions, read by row group in the contract's columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.training import archived, handbook
from feature_store.training.columns import TrainingSetError
from feature_store.training.parquet_files import batches, open_parquet
from feature_store.training.transaction_table import arrivals

REQUIRED = ("transaction_id", "card_id", "merchant_id", "amount", "country", "event_time")
"""Columns of the transaction contract that features are computed from."""
OPTIONAL = ("currency", "arrival_time", "label")


@dataclass(frozen=True)
class Piece:
    """One row group of one file, the unit that a task reads."""

    path: str
    row_group: int
    first_row: int
    """Number of the row group's first row in the whole input."""
    rows: int


class TransactionFiles:
    """The transactions of a file, of all files below a directory in order of name, or of an archive."""

    def __init__(self, path: Path) -> None:
        """Read the names of the columns and the sizes of the row groups, but no rows.

        Raises:
            TrainingSetError: no such file, not parquet, no rows, or columns that are neither the contract's
                nor the handbook's.
        """
        paths = archived.files_of(path, "transactions")
        self.pieces: list[Piece] = []
        self.rows = 0
        self._unlabelled: list[Path] = []
        for file, _ in map(archived.present, paths):
            parquet = open_parquet(file)
            names = parquet.schema_arrow.names
            _columns(file, names)
            if (handbook.LABEL if handbook.is_handbook(names) else "label") not in names:
                self._unlabelled.append(file)
            for number in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(number).num_rows
                if archived.is_archived(names):
                    rows = archived.decodable_rows(parquet.metadata, number)
                self.pieces.append(Piece(str(file), number, self.rows, rows))
                self.rows += rows
        if not self.rows:
            raise TrainingSetError(f"{path} holds no rows; give some transactions")
        self._files = len(paths)

    @property
    def has_label(self) -> bool:
        """Whether every file has a column of labels."""
        return not self._unlabelled

    def labels(self, path: Path | None) -> pa.Table | None:
        """Read labels; None if the transactions' own column `label` has them.

        Args:
            path: file or archive; None: there is none.

        Raises:
            TrainingSetError: `path` cannot be read; or is None, and only some files have a column of labels.
        """
        if path is not None:
            return archived.read_labels(path)
        if 0 < len(self._unlabelled) < self._files:
            raise TrainingSetError(
                f"only some files have a column 'label', and {self._unlabelled[0]} has none; "
                "give it in all or none"
            )
        return None

    def arrivals(self) -> NDArray[np.int64]:
        """Read the arrival of every row, ms, shape (rows,), without the other columns."""
        parts = [
            arrivals(table, first_row)
            for piece in self.pieces
            for first_row, table in read(piece, 1 << 20, times_only=True)
        ]
        return np.concatenate(parts)

    def batches(self, rows: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield batches of at most `rows` rows, in order, each as (number of its first row, batch)."""
        for piece in self.pieces:
            yield from read(piece, rows)

    def table(self) -> pa.Table:
        """Read all rows, in order, in the columns of the contract."""
        return pa.concat_tables([table for _, table in self.batches(1 << 20)], promote_options="default")


def read(piece: Piece, rows: int, *, times_only: bool = False) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of a row group, at most `rows` at a time, in the columns of the contract.

    Args:
        times_only: read only the column that determines the order of arrival.

    Yields:
        Number of a batch's first row, and the batch.

    Raises:
        TrainingSetError: the file is missing or damaged, or lacks a required column.
    """
    path, end = archived.present(Path(piece.path))
    names = open_parquet(path).schema_arrow.names
    columns = _columns(path, names)
    as_handbook, is_archived = handbook.is_handbook(names), archived.is_archived(names)
    if times_only and is_archived:
        columns = [archived.DECODES, "timestamp"]
    elif times_only:
        time = "TX_DATETIME" if as_handbook else "event_time"
        columns = ["arrival_time" if "arrival_time" in columns else time]
    if end is not None:
        columns.append("offset")
    next_row = piece.first_row
    for first_row, table in batches(path, columns, rows, [piece.row_group], piece.first_row):
        if is_archived:
            decoded = archived.decodable(archived.before(table, end))
            yield next_row, decoded
            next_row += len(decoded)
        elif as_handbook:
            yield first_row, (handbook.times if times_only else handbook.transactions)(table)
        else:
            yield first_row, table


def _columns(path: Path, names: list[str]) -> list[str]:
    """Select the columns to read from a file that has columns `names`."""
    as_handbook = handbook.is_handbook(names)
    needed = handbook.COLUMNS if as_handbook else REQUIRED
    missing = [name for name in needed if name not in names]
    if missing:
        raise TrainingSetError(
            f"{path} has no column {', '.join(missing)}; give the transaction contract's "
            f"({', '.join(REQUIRED)}) or the handbook's ({', '.join(handbook.COLUMNS)})"
        )
    optional: tuple[str, ...] = (handbook.LABEL,) if as_handbook else OPTIONAL
    if archived.is_archived(names):
        optional = (*OPTIONAL, "timestamp")
    return [name for name in (*needed, *optional) if name in names]
