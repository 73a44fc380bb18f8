"""Which rows of the profile topic belong to Debezium's first snapshot.

Those are what the bank knew before anybody listened: they count as known from the beginning. Rows of later
snapshots (incremental ones, or of a connector that was made anew) tell what somebody found in the table at
that time: they are known from their arrival on, as any change. Only the log tells them apart: the record that
ends the first snapshot is marked, and what arrives after it belongs to a later one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import REREAD, SNAPSHOT
from streaming_job.packets import Packet

_KEY = "snapshot_end"


def mark_later_ones(changes: NDArray[np.void], packets: list[Packet], known: dict[str, Any]) -> None:
    """Make REREAD of the rows of later snapshots.

    Args:
        changes: changes of a batch (PROFILE); altered.
        packets: of the same batch.
        known: what a key group keeps from batch to batch; altered once the first snapshot has ended.
    """
    ends = [packet.snapshot_end for packet in packets if packet.snapshot_end is not None]
    if ends:
        known.setdefault(_KEY, min(ends))
    if _KEY in known:
        later = (changes["change"] == SNAPSHOT) & (changes["arrival"] > known[_KEY])
        changes["change"][later] = REREAD
