"""Kernels of the profiles: fold changes into a short version history per card; find the version in force.

A version is visible to transactions that arrive at or after its own arrival. Versions of a card are linked
from the newest to the oldest, in the order of their Kafka offsets. A deleted row becomes a version with only
the status of the version before it: archiving the row of a blocked card does not unblock the card.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.jit import njit
from feature_store.kernels.cards import Array, Counters
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
    """Free the profile versions that no transaction can see any more.

    A card's arrivals never go back, so all versions older than the one in force at `seen_at` are invisible.

    Args:
        card: the card.
        profiles: versions of the key group.
        counters: counters of the key group.
        seen_at: ms; no transaction of the card will arrive before it.
    """
    version = card.profile
    while version != EMPTY and profiles[version].arrival > seen_at:
        version = profiles[version].older
    if version == EMPTY:
        return
    dropped = profiles[version].older
    profiles[version].older = EMPTY
    while dropped != EMPTY:
        older = profiles[dropped].older
        profiles[dropped].older = counters[FREE_PROFILE]
        counters[FREE_PROFILE] = dropped
        dropped = older


@njit(cache=True)
def _is_newer(change: Array, version: Array) -> bool:
    """Return whether a row of Debezium's snapshot is newer than a version, by LSN; False if either has none.

    For a single row the LSNs follow the order of commits: writers of a row wait for each other.
    """
    unknown = True
    for byte in version.lsn:
        unknown &= byte == 0
    if unknown:
        return False
    for byte_number in range(version.lsn.size):
        if change.lsn[byte_number] != version.lsn[byte_number]:
            return bool(change.lsn[byte_number] > version.lsn[byte_number])
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
        How many changes came after a transaction that should have seen them.
    """
    behind = 0
    for row in range(changes.size):
        change = changes[row]
        card = cards[numbers[row]]
        newest = card.profile
        read = change.change == SNAPSHOT or change.change == REREAD
        if read and newest != EMPTY and not _is_newer(change, profiles[newest]):
            continue  # a snapshot row becomes a version only if its LSN is newer than the newest version's
        beginning = change.change == SNAPSHOT and newest == EMPTY
        if change.change == TOMBSTONE and newest != EMPTY and profiles[newest].change >= DELETE:
            continue  # the tombstone of a delete that is applied already
        # a row of the first snapshot is visible from the beginning, but the card's earlier transactions did
        # not see it
        if card.seen > 0 and (beginning or card.last_arrival >= change.arrival):
            behind += 1
        if card.seen > 0:  # without transactions no version is superseded, and many would be searched in vain
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


@njit(cache=True, inline="always")
def profile_in_force(profiles: Array, newest: int, arrival: int) -> tuple[int, int]:
    """Return the newest profile version of a card that was visible at `arrival`, and the card's status.

    The version is -1 if there is none or it was deleted. The status outlives a delete; a card without a
    visible version is active.
    """
    version = newest
    while version != EMPTY and profiles[version].arrival > arrival:
        version = profiles[version].older
    if version == EMPTY:
        return EMPTY, ACTIVE
    return EMPTY if profiles[version].change >= DELETE else version, profiles[version].status
