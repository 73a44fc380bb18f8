"""The state of a key group, put together from parts of others: by the Kafka partition of each card."""

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import CARDS
from feature_store.state.codec import StateDamagedError
from feature_store.state.group_state import GroupState
from feature_store.state.piece_records import chosen, gather, insert, is_used, piece_count

HomesOf = Callable[[NDArray[np.void]], NDArray[np.int32]]
"""Returns the Kafka partition of the transactions of each card (CARD, by its hashes), shape (n,)."""


def merge(
    state: GroupState, other: GroupState, partitions: Collection[int], before: HomesOf, after: HomesOf
) -> None:
    """Insert the cards of another state whose transactions will be in some partitions.

    The caller calls `GroupState.end_replay` once after the last merge. Of each card what its next transaction
    can see is copied, so decisions do not change; card numbers do.

    Args:
        before: gives each card the partition in which its transactions have been.
        after: gives each card the partition in which they will be.

    Raises:
        StateDamagedError: a card is not in the partition that follows from its hashes.
    """
    wanted = np.array(sorted(partitions))
    for piece in range(piece_count(other)):
        contents = gather(other, piece)
        cards = contents.cards
        used = is_used(cards)
        if (cards["partition"][used] != before(cards[used])).any():
            raise StateDamagedError(
                f"a card of piece {piece} has no partition, or another one than its hash says, so no key "
                "group can take it over; read the log again"
            )
        cards["partition"] = after(cards)
        keep = used & np.isin(cards["partition"], wanted)
        if keep.any():
            insert(state, int(state.counters[CARDS]), chosen(contents, keep))
