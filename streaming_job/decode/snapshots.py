"""Debezium's snapshots: which rows of the profile topic belong to the first one.

Rows of the first snapshot are what the bank knew before anybody listened: they count as known from the
beginning. Rows of later snapshots (incremental ones, or of a connector that was made anew) tell what was in
the table at that time: they count as known from their arrival on, like any change. Only the log tells them
apart: the record that ends the first snapshot is marked, and rows that arrive after it belong to a later one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import REREAD, SNAPSHOT
from streaming_job.decode import strict
from streaming_job.decode.keys import LAST

SNAPSHOT_ENDS = "last"
"""`source.snapshot` of the last row of a snapshot, as Debezium has it."""
IN_PASSING = "incremental"
"""`source.snapshot` of a row that Debezium read again while it followed the changes."""


def source(envelope: dict[str, Any]) -> dict[str, Any]:
    """Debezium's description of where a change comes from; empty if there is none."""
    found = envelope.get("source")
    return found if isinstance(found, dict) else {}


def ends_snapshot(value: bytes | None) -> bool:
    """Whether a value of the profile topic is the last row of a snapshot, be the row itself good or not."""
    # most records are not: their parsing is not paid twice
    if value is None or LAST not in value:
        return False
    try:
        return source(strict.parse_object(value)).get("snapshot") == SNAPSHOT_ENDS
    except strict.Rejected:
        return False


def first_end(known: int | None, found: int | None) -> int | None:
    """The arrival of the first snapshot's last row, ms, from what was known and what has been read since."""
    ends = [end for end in (known, found) if end is not None]
    return min(ends, default=None)


def mark_later_rows(changes: NDArray[np.void], end: int | None) -> None:
    """Mark rows of later snapshots as REREAD.

    Args:
        changes: changes (PROFILE) of any partitions; altered.
        end: arrival of the first snapshot's last row, ms; None while it has not been read.
    """
    if end is not None:
        later = (changes["change"] == SNAPSHOT) & (changes["arrival"] > end)
        changes["change"][later] = REREAD
