"""The state of a key group, put together from parts of others: by the Kafka partition of each card."""

from collections.abc import Collection

import numpy as np

from feature_store.layout import CARDS, EMPTY
from feature_store.state.codec import StateDamagedError
from feature_store.state.group_state import GroupState
from feature_store.state.piece_records import chosen, gather, insert, is_used, piece_count


def merge(state: GroupState, other: GroupState, partitions: Collection[int]) -> None:
    """Insert the cards of another state whose transactions are in some partitions.

    The caller calls `GroupState.end_replay` once after the last merge. Of each card what its next transaction
    can see is copied, so decisions do not change; card numbers do.

    Raises:
        StateDamagedError: a card's partition is unknown.
    """
    homes = np.array(sorted(partitions))
    for piece in range(piece_count(other)):
        contents = gather(other, piece)
        used = is_used(contents.cards)
        if (contents.cards["partition"][used] == EMPTY).any():
            raise StateDamagedError(
                f"a card of piece {piece} has no partition, so no key group can take it over; read the "
                "log again"
            )
        keep = used & np.isin(contents.cards["partition"], homes)
        if keep.any():
            insert(state, int(state.counters[CARDS]), chosen(contents, keep))
