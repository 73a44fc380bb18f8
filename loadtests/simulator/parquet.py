"""Writer of a stream to a Parquet file: the contract's columns and the ground truth, rows by arrival."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from feature_store.errors import FraudError
from loadtests.simulator import disturbances
from loadtests.simulator.batch import EventBatch


class OutputError(FraudError):
    """The simulated stream has no transactions, or its file cannot be written."""


def write(
    batches: Iterable[EventBatch], path: Path, progress: Callable[[int], None] = lambda _: None
) -> tuple[int, int]:
    """Write transactions to a Parquet file atomically.

    Columns: see `EventBatch.table`. Malformed records do not fit these columns and are left out.

    Args:
        path: the file; replaced if it exists.
        progress: called after each batch, with its number of records.

    Returns:
        Number of rows written, and of malformed records left out.

    Raises:
        OutputError: there is nothing to write, or the file cannot be written.
    """
    part = path.with_name(path.name + ".part")
    written = left_out = 0
    writer: pq.ParquetWriter | None = None
    try:
        for batch in batches:
            clean = batch.take(batch.disturbance < disturbances.MALFORMED)
            writer = writer or pq.ParquetWriter(part, clean.table.schema, compression="zstd")
            writer.write_table(clean.table)
            written, left_out = written + len(clean), left_out + len(batch) - len(clean)
            progress(len(batch))
        if writer is None:
            raise OutputError(f"no events to write to {path}; give at least one")
        writer.close()
        part.replace(path)
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"cannot write {path} ({error}); give a writable path with free space") from error
    finally:
        part.unlink(missing_ok=True)
    return written, left_out
