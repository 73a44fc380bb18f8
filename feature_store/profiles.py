"""Kernel that folds profile changes into a short version history per card.

A version is visible to transactions that arrive at or after its own arrival. Versions of a card are chained
from the newest to the oldest, in the order of their Kafka offsets. A deleted row leaves a version that has
nothing but the status of the one before it: who archives the row of a blocked card does not unblock the card.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.cards import Array, Counters
from feature_store.jit import njit
from feature_store.layout import (
    ACTIVE,
    BEGINNING,
    DELETE,
    EMPTY,
    FREE_PROFILE,
    NO_PROFILE,
    PROFILES,
    REREAD,
    SNAPSHOT,
    TOMBSTONE,
    UPSERT,
)


@njit(cache=True)
def drop_superseded(card: Array, profiles: Array, counters: Counters, seen_at: int) -> None:
    """Free the versions that no transaction can see any more.

    No transaction looks behind an earlier one's arrival, so everything older than the version that was in
    force then is out of sight.

    Args:
        card: the card.
        profiles: versions of the key group.
        counters: counters of the key group.
        seen_at: ms; no transaction of the card that arrives before is going to come.
    """
    version = card.profile
    while version != EMPTY and profiles[version].arrival > seen_at:
        version = profiles[version].older
    if version == EMPTY:
        return
    gone = profiles[version].older
    profiles[version].older = EMPTY
    while gone != EMPTY:
        older = profiles[gone].older
        profiles[gone].older = counters[FREE_PROFILE]
        counters[FREE_PROFILE] = gone
        gone = older


@njit(cache=True)
def _is_newer(change: Array, version: Array) -> bool:
    """Whether a row was read after the version was written, by Postgres's log; no if that is not known.

    Postgres's log is in the order of commits for each single row: who changes it waits for the one before.
    """
    unknown = True
    for byte in version.lsn:
        unknown &= byte == 0
    if unknown:
        return False
    for place in range(version.lsn.size):
        if change.lsn[place] != version.lsn[place]:
            return bool(change.lsn[place] > version.lsn[place])
    return False


@njit(cache=True)
def apply_changes(
    cards: Array, profiles: Array, counters: Counters, changes: Array, numbers: NDArray[np.int32]
) -> int:
    """Fold changes, in offset order, into the version histories.

    Args:
        cards: cards of the key group (CARD).
        profiles: versions of the key group (PROFILE), with room for one more per change.
        counters: counters of the key group.
        changes: n changes (PROFILE); `older` is ignored.
        numbers: card number of each change, shape (n,).

    Returns:
        How many changes turned up behind a transaction that should have seen them.
    """
    behind = 0
    for row in range(changes.size):
        change = changes[row]
        card = cards[numbers[row]]
        newest = card.profile
        read = change.change == SNAPSHOT or change.change == REREAD
        if read and newest != EMPTY and not _is_newer(change, profiles[newest]):
            continue  # a snapshot row never overwrites what is newer
        beginning = change.change == SNAPSHOT and newest == EMPTY
        if change.change == TOMBSTONE and newest != EMPTY and profiles[newest].change >= DELETE:
            continue  # follows the delete it belongs to
        # a first snapshot's row counts as known from the beginning, and was not when the card's first came
        if card.seen > 0 and (beginning or card.last_arrival >= change.arrival):
            behind += 1
        drop_superseded(card, profiles, counters, card.last_arrival)
        number = counters[FREE_PROFILE]
        if number == EMPTY:
            number = counters[PROFILES]
            counters[PROFILES] += 1
        else:
            counters[FREE_PROFILE] = profiles[number].older
        profiles[number] = change
        if change.change == DELETE or change.change == TOMBSTONE:
            profiles[number].status = ACTIVE if newest == EMPTY else profiles[newest].status
        if beginning:
            profiles[number].arrival = BEGINNING
        if change.change == REREAD:
            profiles[number].change = UPSERT
        profiles[number].older = card.profile
        counters[NO_PROFILE] -= newest == EMPTY
        card.profile = number
    return behind
