"""The rule for Debezium's snapshots: which rows of the profile topic belong to the first one.

Rows of the first snapshot are the profiles from before the topic began: they count as known from the
beginning. Rows of later snapshots (incremental ones, or of a recreated connector) count as known from their
arrival on, like any change. Rows of incremental snapshots say so. Those of a recreated connector look like
rows of the first snapshot, so their arrival decides: Debezium marks the last row of a table, and snapshot
rows that arrive after the first such row belong to a later snapshot.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import ACTIVE, BEGINNING, COMPACTED, REREAD, SNAPSHOT
from streaming_job.decode import strict
from streaming_job.decode.keys import MARKS, may_end_snapshot
from streaming_job.log.records import Records

ENDS = ("last", "last_in_data_collection")
"""Debezium's `source.snapshot` of the last row of a snapshot, and of the last row of this table in a snapshot
of several tables: either ends the snapshot of this topic."""
INCREMENTAL = "incremental"
"""Debezium's `source.snapshot` of a row that was read again by an incremental snapshot."""


def source(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return the envelope's `source`; empty if there is none."""
    origin = envelope.get("source")
    return origin if isinstance(origin, dict) else {}


def ends_snapshot(value: bytes | None) -> bool:
    """Return whether a value of the profile topic is a snapshot's last row, even if the row is invalid."""
    # most records do not end a snapshot: avoid parsing them twice
    if value is None or not any(mark in value for mark in MARKS):
        return False
    try:
        return source(strict.parse_object(value)).get("snapshot") in ENDS
    except strict.Rejected:
        return False


def earliest_end(records: Records) -> int | None:
    """Return the earliest arrival of a record that ends a snapshot, ms; None without one."""
    candidates = np.flatnonzero(may_end_snapshot(records.values, np.ones(len(records), dtype=np.bool_)))
    ends = [row for row in candidates.tolist() if ends_snapshot(records.values[row].as_py())]
    return min(records.arrivals[ends].tolist(), default=None)


def first_end(known: int | None, new: int | None) -> int | None:
    """Return the earlier of two arrivals of a snapshot's last row, known and new, ms; None without any."""
    ends = [end for end in (known, new) if end is not None]
    return min(ends, default=None)


def mark_later_rows(changes: NDArray[np.void], end: int | None) -> None:
    """Mark rows of later snapshots as REREAD.

    Args:
        changes: changes (PROFILE) of any partitions; altered in place.
        end: arrival of the first snapshot's last row, ms; None while it has not been read.
    """
    if end is not None:
        later = (changes["change"] == SNAPSHOT) & (changes["arrival"] > end)
        changes["change"][later] = REREAD


def with_compacted(
    changes: NDArray[np.void], cards: NDArray[np.int32], before: int | None
) -> tuple[NDArray[np.void], NDArray[np.int32]]:
    """Put COMPACTED before changes that may have replaced others which compaction has removed.

    Rows of the first snapshot have replaced none: `mark_later_rows` must have marked the others.

    Args:
        changes: changes (PROFILE), in the records' order.
        cards: number of the card of each.
        before: arrival before which compaction may have removed versions, ms; None: it has removed none.

    Returns:
        The changes and the cards, with one more for each card that has such a change.
    """
    if before is None:
        return changes, cards
    old = np.flatnonzero((changes["arrival"] < before) & (changes["change"] != SNAPSHOT))
    if not old.size:  # as always in a live log
        return changes, cards
    _, firsts = np.unique(cards[old], return_index=True)
    counts = np.ones(changes.size, dtype=np.int64)
    counts[old[firsts]] = 2
    more = np.repeat(changes, counts)
    at = (np.cumsum(counts) - counts)[counts == 2]
    for name, value in (
        ("change", COMPACTED), ("status", ACTIVE), ("arrival", BEGINNING), ("lsn", 0), ("committed", 0)
    ):  # fmt: skip
        more[name][at] = value
    return more, np.repeat(cards, counts)
