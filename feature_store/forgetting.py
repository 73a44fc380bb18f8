"""Kernels of the rule by which a card is forgotten: after how long a silence it starts afresh.

A card is forgotten after FORGET_AFTER_MS. A stranger is forgotten after the allowed lateness and
STRANGER_MARGIN_MS: a card with one accepted transaction and no version of a profile on the log until then.
Who invents card ids makes strangers, as many as there are ids. The rule looks at the log alone, by arrival: a
profile that comes later makes no difference, so that a stranger may be evicted before it comes.
"""

from feature_store.catalogue import FORGET_AFTER_MS, STRANGER_MARGIN_MS
from feature_store.jit import njit
from feature_store.layout import EMPTY
from feature_store.segments import Array


@njit(cache=True, inline="always")
def shortest_silence(lateness_ms: int) -> int:
    """After how long a silence a stranger is forgotten, ms; no card is forgotten earlier."""
    return min(lateness_ms + STRANGER_MARGIN_MS, FORGET_AFTER_MS)


@njit(cache=True)
def silence(card: Array, profiles: Array, lateness_ms: int) -> int:
    """A card that is silent for longer than this, by arrival, is forgotten; ms.

    Args:
        card: a card with transactions.
        profiles: versions of the key group, with all that arrived within the silence.
        lateness_ms: allowed lateness.
    """
    if card.seen > 1:
        return FORGET_AFTER_MS
    shortest = shortest_silence(lateness_ms)
    # of versions that arrived before the transaction at least one is kept, however many were superseded
    version = card.profile
    while version != EMPTY:
        if profiles[version].arrival <= card.last_arrival + shortest:
            return FORGET_AFTER_MS
        version = profiles[version].older
    return shortest
