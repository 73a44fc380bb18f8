"""A labelled history in order of arrival, with point-in-time features of the days to train and test on."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS, NAMES
from feature_store.layout import UNITS_PER_CURRENCY
from feature_store.merchants.catalogue import ALL_NAMES
from feature_store.merchants.fraud_spans import FraudSpans
from feature_store.merchants.offline import features_as_of
from feature_store.training.handbook import is_handbook
from feature_store.training.merchant_payments import Payments
from feature_store.training.merchant_reports import Reports, UndatedLabels
from feature_store.training.parquet_files import open_parquet
from feature_store.training.training_run import Task, in_order
from feature_store.training.training_set import ACCEPTED, arrival_order
from feature_store.training.transaction_files import TransactionFiles
from models.errors import ModelError

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class History:
    """n accepted transactions in order of arrival."""

    names: tuple[str, ...]
    features: NDArray[np.float64]
    """Shape (n, len(names)); NaN where unknown."""
    arrival: NDArray[np.int64]
    """Arrival of each transaction, ms."""
    card: NDArray[np.int64]
    """Card number of each transaction, from 0."""
    amount: NDArray[np.float64]
    known: FraudSpans
    """The transactions reported as fraud, with the times of report and reversal."""
    scenario: NDArray[np.str_] | None
    """Fraud scenario of each transaction; None if a file has no such column."""
    not_decided: int
    """Number of rows that the stream would not decide: repeated, or with an event time out of range.
    Rows of other days are counted, too: those before the first day kept and, in the last chunk read, those
    after the last day kept."""

    @property
    def day(self) -> NDArray[np.int64]:
        """Day of arrival of each transaction (UTC), counted from 1970-01-01."""
        return self.arrival // DAY_MS


@dataclass(frozen=True)
class Source:
    """Inputs of a history."""

    transactions: TransactionFiles
    labels: UndatedLabels | Reports
    profiles: pa.Table | None = None
    merchant_delay_ms: int | None = None
    """Label delay of the merchant label features, ms; None leaves these features out."""


def read(
    source: Source, first: date, end: date, progress: Callable[[int], None] = lambda rows: None
) -> History:
    """Compute features over a whole history and keep those of a range of days.

    Args:
        first: first day to keep, by arrival (UTC); earlier rows only build up state.
        end: day after the last day to keep; rows from this day on are left out.
        progress: called after each chunk of rows with the number of rows in it.

    Raises:
        ModelError: no transactions arrived before `end`, or the column of scenarios cannot be read.
    """
    keep_from, keep_until = ((day - _EPOCH).days * DAY_MS for day in (first, end))
    files = source.transactions
    task = Task(files, source.profiles)
    point_in_time, payments = task.point_in_time(), Payments(source.labels)
    kept: list[tuple[NDArray[np.void], NDArray[np.float64]]] = []
    before = refused = 0
    for rows in in_order(task, arrival_order(files.arrivals())):
        if rows.records["arrival"][0] >= keep_until:
            break
        decisions = point_in_time.features(rows.records)
        payments.add(rows, decisions)
        accepted = decisions.outcome == ACCEPTED
        refused += len(rows) - int(np.count_nonzero(accepted))
        arrival = rows.records["arrival"]
        before += int(np.count_nonzero(accepted & (arrival < keep_from)))
        inside = accepted & (arrival >= keep_from) & (arrival < keep_until)
        kept.append((rows.records[inside], decisions.features[inside]))
        progress(len(rows))
    if source.labels.matches is not None:
        source.labels.matches.require_some()
    if not kept:
        raise ModelError(f"no transactions arrived before {end}; move --train-start")
    records, features = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    return _assemble(source, payments, before, records, features, refused)


def _assemble(
    source: Source,
    payments: Payments,
    begin: int,
    kept: NDArray[np.void],
    features: NDArray[np.float64],
    not_decided: int,
) -> History:
    """Build the history of the accepted transactions `kept`, which `begin` accepted transactions precede."""
    names: tuple[str, ...] = NAMES
    if source.merchant_delay_ms is not None:
        merchant = features_as_of(
            payments.facts(), kept["merchant"], kept["arrival"], source.merchant_delay_ms
        )
        features, names = np.hstack([features, merchant]), ALL_NAMES
    known = payments.spans
    inside = (known.row >= begin) & (known.row < begin + kept.size)
    scenario = _scenarios(source.transactions)
    return History(
        names,
        features,
        kept["arrival"].copy(),
        _card_numbers(kept),
        kept["amount"] / UNITS_PER_CURRENCY,
        FraudSpans(known.row[inside] - begin, known.reported_at[inside], known.reversed_at[inside]),
        None if scenario is None else scenario[kept["offset"]],
        not_decided,
    )


def _card_numbers(records: NDArray[np.void]) -> NDArray[np.int64]:
    """Return a number for the card of each record, from 0 in the order of the card hashes, shape (n,)."""
    order = np.lexsort((records["hi"], records["lo"]))
    ranked = records[order]
    changes = (ranked["lo"][1:] != ranked["lo"][:-1]) | (ranked["hi"][1:] != ranked["hi"][:-1])
    numbers = np.zeros(records.size, dtype=np.int64)
    numbers[order[1:]] = np.cumsum(changes)
    return numbers


def _scenarios(files: TransactionFiles) -> NDArray[np.str_] | None:
    """Read the scenario of every row, in row order; None if a file has no such column."""
    parts = []
    for piece in files.pieces:
        file = open_parquet(Path(piece.path))
        names = file.schema_arrow.names
        column = "TX_FRAUD_SCENARIO" if is_handbook(names) else "scenario"
        if column not in names:
            return None
        try:
            values = file.read_row_group(piece.row_group, columns=[column])[column].cast(pa.string())
        except (OSError, pa.ArrowException) as fault:
            raise ModelError(
                f"column {column} of {piece.path} cannot be read ({fault}); repair the file"
            ) from fault
        encoded = values.fill_null("unknown").combine_chunks().dictionary_encode()
        parts.append(np.array(encoded.dictionary.to_pylist(), dtype=np.str_)[np.asarray(encoded.indices)])
    return np.concatenate(parts)
