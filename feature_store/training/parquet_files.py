"""The reader of all Parquet files: transactions, labels and profiles, for training, import and replay.

Every file is read here, so each has the same rules: which files of a directory count, which types a column
may have (`columns`), and in which unit its times are.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feature_store.catalogue import LEAST_TIME_MS
from feature_store.training import columns
from feature_store.training.columns import TIMES, TrainingSetError
from feature_store.utc import moment_of

MOST_TIME_MS = 99_999_999_999_999
"""Latest time of the contracts, in the year 5138; microseconds and nanoseconds are beyond it."""


def parquet_files(path: Path) -> list[Path]:
    """Return a file, or all files below a directory in order of name.

    Names that begin with `_` or `.`, as of Spark's `_SUCCESS` and `_temporary`, are left out, and so is all
    below directories with such names.

    Raises:
        TrainingSetError: there is no such file or directory, it holds no files, or others than *.parquet.
    """
    if not path.is_dir():
        return [path]
    files = [
        file
        for file in sorted(path.rglob("*"))
        if not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts) and not file.is_dir()
    ]
    others = [file for file in files if file.suffix != ".parquet"]
    if others:
        raise TrainingSetError(
            f"{others[0]} is no *.parquet, and would be left out; rename it, or move it elsewhere"
        )
    if not files:
        raise TrainingSetError(f"{path} holds no *.parquet; give a parquet file or a directory of them")
    return files


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a parquet file.

    Raises:
        TrainingSetError: there is no such file, it is not parquet, or it has a column twice.
    """
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError:
        raise TrainingSetError(f"no file {path}; give a parquet file") from None
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise TrainingSetError(f"{path} cannot be read as parquet ({reason}); check the file") from None
    columns.require_unique(file.schema_arrow.names, str(path))
    return file


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert errors of damaged data in the block, which reads a file.

    Raises:
        TrainingSetError: the file is damaged.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise TrainingSetError(f"{path} is damaged ({reason}); get it again") from None


def converted(table: pa.Table, path: Path, first_row: int = 0) -> pa.Table:
    """Return rows of a file with the types of the contracts.

    Args:
        first_row: number of the first row, for errors.

    Raises:
        TrainingSetError: a column cannot be converted, or a time is in another unit than ms.
    """
    try:
        result = columns.converted(table)
    except TrainingSetError as error:
        raise TrainingSetError(f"{path}: {error}") from None
    for name in TIMES:
        if name in result.column_names:
            require_ms(result[name], name, str(path), first_row)
    return result


def require_ms(times: pa.ChunkedArray, name: str, where: str, first_row: int = 0) -> None:
    """Check that times are in ms, not in seconds, microseconds or nanoseconds.

    Args:
        times: int64; nulls are left out.
        where: the file, for errors.
        first_row: number of the first row, for errors.

    Raises:
        TrainingSetError: a time is before LEAST_TIME_MS or after MOST_TIME_MS.
    """
    wrong = pc.fill_null(pc.or_(pc.less(times, LEAST_TIME_MS), pc.greater(times, MOST_TIME_MS)), False)
    if not pc.any(wrong).as_py():
        return
    row = int(np.argmax(np.asarray(wrong)))
    value = times[row].as_py()
    if 0 <= value < LEAST_TIME_MS:
        reason = f"is in {moment_of(value):%B %Y}; perhaps it is in seconds"
    elif value > MOST_TIME_MS:
        reason = "is after the year 5000; perhaps it is in microseconds or nanoseconds"
    else:
        reason = "is before 1970"
    raise TrainingSetError(
        f"{where}: row {first_row + row}: {name} {value} {reason}; give ms since 1970-01-01 UTC, or "
        "a timestamp"
    )


def batches(
    path: Path, names: Iterable[str], rows: int, row_groups: Sequence[int] | None = None, first_row: int = 0
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of one file in order, converted, as (number of the first row, table)."""
    file = open_parquet(path)
    with reading(path):
        for batch in file.iter_batches(rows, row_groups=row_groups, columns=list(names)):
            yield first_row, converted(pa.Table.from_batches([batch]), path, first_row)
            first_row += batch.num_rows


def read_table(path: Path, names: Iterable[str] | None = None) -> pa.Table:
    """Read a whole parquet file, or all files below a directory, with converted columns."""
    wanted = None if names is None else set(names)
    parts = []
    for file in parquet_files(path):
        parquet = open_parquet(file)
        kept = [name for name in parquet.schema_arrow.names if wanted is None or name in wanted]
        with reading(file):
            parts.append(converted(parquet.read(kept), file))
    return pa.concat_tables(parts, promote_options="default")
