"""Kernels of the forgetting rule: the length of silence after which a card starts afresh.

A card is forgotten after FORGET_AFTER_MS without a transaction. A stranger is forgotten after the allowed
lateness plus STRANGER_MARGIN_MS, if that is shorter. A stranger is a card with one accepted transaction and
no profile version on the log by the end of that time; invented card ids are strangers. The rule depends only
on arrival times on the log. A profile that arrives after the stranger is forgotten makes no difference, so
the stranger may be evicted before such a profile arrives.
"""

from feature_store.catalogue import FORGET_AFTER_MS, STRANGER_MARGIN_MS
from feature_store.jit import njit
from feature_store.kernels.segments import Array
from feature_store.layout import EMPTY


@njit(cache=True, inline="always")
def shortest_silence(lateness_ms: int) -> int:
    """Compute the silence after which a stranger is forgotten, ms; no card is forgotten earlier."""
    return min(lateness_ms + STRANGER_MARGIN_MS, FORGET_AFTER_MS)


@njit(cache=True)
def silence(card: Array, profiles: Array, lateness_ms: int) -> int:
    """Compute how long a card can be silent, by arrival, before it is forgotten, ms.

    Args:
        card: a card with transactions.
        profiles: profile versions of the key group, including all that arrived within the silence.
    """
    if card.seen > 1:
        return FORGET_AFTER_MS
    shortest = shortest_silence(lateness_ms)
    # of the versions that arrived before the card's transaction at least one is kept: the last of them
    version = card.profile
    while version != EMPTY:
        if profiles[version].arrival <= card.last_arrival + shortest:
            return FORGET_AFTER_MS
        version = profiles[version].older
    return shortest
