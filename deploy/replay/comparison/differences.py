"""The join of two sides' alerts by their transactions, and the kind of each difference. Pure."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from deploy.replay.comparison.columns import ALERT, Ranges, parse, source_of, within

SUPPRESSED = "suppressed"


class Kind(StrEnum):
    """Kinds of differences, of which each difference has the first that applies."""

    ONLY_LIVE = "only_live"
    ONLY_REPLAY = "only_replay"
    DECISION = "other_decision"
    """Decline, review, or suppressed by a cooldown."""
    SCORE = "other_score"
    DETAIL = "other_detail"
    """Alerts with the same decision and score, and other bytes."""


@dataclass(frozen=True)
class Side:
    """One side's alerts, sorted by key."""

    table: pa.Table
    """Columns of `columns.ALERT`, `value`, `key`, and `outcome`: the decision, or SUPPRESSED."""
    key: NDArray[np.int64]
    """Shape (n,), ascending."""
    repeated: int
    """Number of further alerts for the same transactions, which are left out; a job writes none."""


@dataclass(frozen=True)
class Joined:
    """Two sides' alerts for the same transactions."""

    live: Side
    replay: Side
    in_both: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Rows of the two sides, shape (m,) each."""
    only_live: NDArray[np.int64]
    only_replay: NDArray[np.int64]
    kinds: NDArray[np.object_]
    """Kind of each pair of `in_both`; None where the bytes are equal. Shape (m,)."""


def side(sent: pa.ChunkedArray, suppressed: pa.ChunkedArray, ranges: Ranges, topic: str) -> Side:
    """Return the alerts of one side for transactions in the ranges.

    Args:
        sent: records of its topic of alerts.
        suppressed: records of its topic of suppressed alerts.
        topic: topic of the transactions.
    """
    tables = []
    for values, is_suppressed in ((sent, False), (suppressed, True)):
        table = parse(values, ALERT)
        outcome = pa.array([SUPPRESSED]).take(pa.array(np.zeros(len(table), np.int64)))
        tables.append(table.append_column("outcome", outcome if is_suppressed else table["decision"]))
    both = pa.concat_tables(tables)
    sorted_table = within(both, source_of(both), ranges, topic)
    key = sorted_table["key"].to_numpy()
    is_first = np.ones(key.size, np.bool_)
    is_first[1:] = key[1:] != key[:-1]
    rows = np.flatnonzero(is_first)
    return Side(sorted_table.take(pa.array(rows)), key[rows], int(key.size - rows.size))


def join(live: Side, replay: Side) -> Joined:
    """Join two sides."""
    _, ours, theirs = np.intersect1d(live.key, replay.key, assume_unique=True, return_indices=True)
    one, other = live.table.take(pa.array(ours)), replay.table.take(pa.array(theirs))
    kinds: NDArray[np.object_] = np.full(ours.size, Kind.DETAIL, dtype=object)
    kinds[differ(one["score"], other["score"])] = Kind.SCORE
    kinds[differ(one["outcome"], other["outcome"])] = Kind.DECISION
    kinds[~(differ(one["value"], other["value"]) | differ(one["outcome"], other["outcome"]))] = None
    return Joined(
        live, replay, (ours, theirs), _others(live.key.size, ours), _others(replay.key.size, theirs), kinds
    )


def differ(one: pa.ChunkedArray, other: pa.ChunkedArray | str) -> NDArray[np.bool_]:
    """Return where a column differs from a second one or from a text; null is a value. Shape (m,)."""
    differs = compute.fill_null(compute.not_equal(one, other), True)
    if not isinstance(other, str):
        differs = compute.and_not(differs, compute.and_(compute.is_null(one), compute.is_null(other)))
    result: NDArray[np.bool_] = differs.to_numpy()
    return result


def _others(rows: int, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    is_other = np.ones(rows, np.bool_)
    is_other[chosen] = False
    return np.flatnonzero(is_other)
