"""Computation of a training set from parquet files to a parquet file, in one process, chunk by chunk."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.merchants.facts import Facts
from feature_store.output_files import replacing
from feature_store.state.group_state import DEFAULT_LATENESS_MS
from feature_store.training.labels import Labels
from feature_store.training.merchant_payments import MerchantLabels, Payments, with_merchants
from feature_store.training.training_files import Rows, TrainingFile
from feature_store.training.training_set import CHUNK, DEFAULT_SKEW_MS, PointInTime, arrival_order
from feature_store.training.transaction_files import TransactionFiles


@dataclass(frozen=True)
class Task:
    """Inputs and settings of a training set."""

    transactions: TransactionFiles
    profiles: pa.Table | None = None
    """See `transaction_table.profile_records`."""
    labels: Labels | None = None
    """Default: the transactions' own column `label`, if they have one."""
    lateness_ms: int = DEFAULT_LATENESS_MS
    skew_ms: int = DEFAULT_SKEW_MS
    merchants: MerchantLabels | None = None
    """Labels for merchant label features; None: without these features."""

    @property
    def passes(self) -> int:
        """How often an in-process run reads the input."""
        return 1 if self.merchants is None else 2

    @property
    def labelled(self) -> bool:
        """Whether the training set has a column `label`."""
        return self.labels is not None or self.transactions.has_label

    def point_in_time(self) -> PointInTime:
        """Create an empty history with the profiles."""
        return PointInTime(self.profiles, lateness_ms=self.lateness_ms, skew_ms=self.skew_ms)

    def file(self, path: Path) -> TrainingFile:
        """Open a file for the training set, or for a part of it."""
        return TrainingFile(path, labelled=self.labelled, merchants=self.merchants is not None)


@dataclass
class Summary:
    """Result of a run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """Rows by outcome (`training_set.OUTCOMES`)."""
    frauds: int = 0
    """Rows that are labelled as fraud."""
    sorted_first: bool = False
    """Whether the rows were sorted by arrival first."""

    @property
    def rows(self) -> int:
        """Rows written."""
        return self.outcomes.total()


def compute(task: Task, output: Path, progress: Callable[[int], None] = lambda rows: None) -> Summary:
    """Write the training set in order of arrival, one row group per chunk.

    Rows that are not in order of arrival are sorted first, for which the whole input (not the features) is
    loaded into memory. With merchant label features the input is read twice, and 25 bytes per transaction
    are kept in memory.

    Args:
        output: the file; it is created completely or not at all.
        progress: called with the number of rows of each chunk, `passes` times for each chunk.
    """
    order = arrival_order(task.transactions.arrivals())
    summary = Summary(sorted_first=order is not None)
    with replacing(output) as part:
        facts = None if task.merchants is None else _facts(task, order, progress)
        file = task.file(part)
        point_in_time = task.point_in_time()
        for rows in in_order(task, order):
            decisions = point_in_time.features(rows.records)
            if facts is not None and task.merchants is not None:
                decisions = with_merchants(facts, rows.records, decisions, task.merchants.delay_ms)
            file.write(rows, decisions)
            progress(len(rows))
        file.close()
    summary.outcomes, summary.frauds = file.outcomes, file.frauds
    return summary


def _facts(task: Task, order: NDArray[np.int64] | None, progress: Callable[[int], None]) -> Facts:
    """Compute the merchant facts of the whole input."""
    assert task.merchants is not None
    payments, point_in_time = Payments(task.merchants.reports), task.point_in_time()
    for rows in in_order(task, order):
        payments.add(rows, point_in_time.features(rows.records))
        progress(len(rows))
    return payments.facts(task.lateness_ms)


def in_order(task: Task, order: NDArray[np.int64] | None) -> Iterator[Rows]:
    """Yield the transactions in order of arrival, at most CHUNK at a time.

    Args:
        order: from `arrival_order`; None if the files are in that order.
    """
    batches = task.transactions.batches(CHUNK)
    if order is None:
        for first_row, table in batches:
            yield Rows.of(table, first_row, task.labels)
        return
    everything = Rows.concat([Rows.of(table, first_row, task.labels) for first_row, table in batches])
    for start in range(0, len(everything), CHUNK):
        yield everything.take(order[start : start + CHUNK])
