"""Kernels of the profiles: fold changes into a short version history per card; find the version in force.

A version is visible to transactions that arrive at or after its own arrival. Versions of a card are linked
from the newest to the oldest, in the order of their Kafka offsets. A change that is older than the card's
newest version is ignored. A deleted row becomes a version with only the status of the version before it:
archiving the row of a blocked card does not unblock the card.

A state that is read from a compacted topic lacks the versions that compaction has removed. If the first
version that is left is so old that it may have replaced others, the profile before it counts as unknown, not
as missing: no rule may fire because of compaction (docs/decisions/221).
"""

import math

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS
from feature_store.jit import njit
from feature_store.kernels.cards import Array, Counters
from feature_store.layout import (
    ACTIVE,
    BEGINNING,
    COMPACTED,
    DELETE,
    EMPTY,
    FREE_PROFILE,
    NO_COUNTRY,
    NO_DAY,
    NO_PROFILE,
    NO_TIER,
    PROFILES,
    REREAD,
    SNAPSHOT,
    STATUS_ONLY,
    TOMBSTONE,
    UNKNOWN_VERSION,
    UPSERT,
)

CLOCKS_MS = 5 * 60_000
"""Greatest difference between the clocks of Postgres and of Kafka Connect, or by which one of them goes back.
A change with a lower LSN, but committed later than this after a version, is of another database."""
READING_MS = DAY_MS
"""Longest snapshot. Its rows have the time at which they were read, though a change that was committed
earlier may be newer. A change with a greater LSN, but committed longer than this before a version, is of
another database."""


@njit(cache=True)
def drop_superseded(card: Array, profiles: Array, counters: Counters, seen_at: int) -> None:
    """Free the profile versions that no transaction can see any more.

    A card's arrivals never go back, so all versions older than the one in force at `seen_at` are invisible.

    Args:
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
def _replaces(change: Array, version: Array) -> bool:
    """Return whether a change is newer than a card's newest version, by LSN and time; see docs/decisions/170.

    For a single row the LSNs of one database follow the order of commits: writers of a row wait for each
    other. The LSNs of two databases have no order; then the times contradict the LSNs.
    """
    is_read = change.change == SNAPSHOT or change.change == REREAD
    timed = change.committed != 0 and version.committed != 0
    ahead = change.committed - version.committed
    if change.lsn != 0 and version.lsn != 0:
        if change.lsn < version.lsn:
            return bool(timed and ahead > CLOCKS_MS)
        if change.lsn == version.lsn and is_read and (version.change == UPSERT or version.change == DELETE):
            return False
        return bool(not timed or ahead >= -READING_MS)
    if not timed:
        return not is_read
    return bool(ahead > CLOCKS_MS) if is_read else bool(ahead >= -CLOCKS_MS)


@njit(cache=True)
def _complete(change: Array, profiles: Array, newest: int) -> None:
    """Take a change's invalid columns from the card's newest version; without one only the status counts."""
    is_whole = not math.isnan(change.credit_limit)
    is_whole &= change.country != NO_COUNTRY and change.risk_tier != NO_TIER and change.opened_on != NO_DAY
    if is_whole:
        return
    if newest == EMPTY or profiles[newest].change >= STATUS_ONLY:
        change.change = STATUS_ONLY
        return
    version = profiles[newest]
    if math.isnan(change.credit_limit):
        change.credit_limit = version.credit_limit
    if change.country == NO_COUNTRY:
        change.country = version.country
    if change.risk_tier == NO_TIER:
        change.risk_tier = version.risk_tier
    if change.opened_on == NO_DAY:
        change.opened_on = version.opened_on


@njit(cache=True)
def apply_changes(
    cards: Array, profiles: Array, counters: Counters, changes: Array, numbers: NDArray[np.int32]
) -> tuple[int, int]:
    """Fold changes, in offset order, into the version histories.

    Args:
        cards: cards of the key group (CARD).
        profiles: versions of the key group (PROFILE), with room for one more per change.
        changes: n changes (PROFILE); `older` is ignored.
        numbers: card number of each change, shape (n,).

    Returns:
        How many changes came after a transaction that should have seen them; how many were ignored because
        the card has a newer version.
    """
    behind = ignored = 0
    for row in range(changes.size):
        change = changes[row]
        card = cards[numbers[row]]
        newest = card.profile
        if change.change == COMPACTED:
            if newest != EMPTY:
                continue  # it only says what was before a card's first version
        elif newest != EMPTY and profiles[newest].change == COMPACTED:
            pass  # any version is newer
        elif change.change == TOMBSTONE:
            if newest != EMPTY and profiles[newest].change >= DELETE:
                continue  # the tombstone of a delete that is applied already
        elif newest != EMPTY and not _replaces(change, profiles[newest]):
            ignored += 1
            continue
        beginning = change.change == SNAPSHOT and newest == EMPTY
        # a row of the first snapshot is visible from the beginning, but the card's earlier transactions did
        # not see it
        is_change = change.change != COMPACTED
        if card.seen > 0 and is_change and (beginning or card.last_arrival >= change.arrival):
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
        version = profiles[number]
        if change.change == DELETE or change.change == TOMBSTONE:
            version.status = ACTIVE if newest == EMPTY else profiles[newest].status
        elif is_change:
            if change.change == REREAD:
                version.change = SNAPSHOT
            _complete(version, profiles, newest)
        if newest != EMPTY:  # it is newer than all that the earlier version was newer than
            if change.lsn == 0:
                version.lsn = profiles[newest].lsn
            if change.committed == 0:
                version.committed = profiles[newest].committed
        if beginning:
            version.arrival = BEGINNING
        version.older = newest
        counters[NO_PROFILE] -= newest == EMPTY
        card.profile = number
    return behind, ignored


@njit(cache=True, inline="always")
def profile_in_force(profiles: Array, newest: int, arrival: int) -> tuple[int, int]:
    """Return the newest profile version of a card that was visible at `arrival`, and the card's status.

    The version is -1 if there is none, or only its status counts, and UNKNOWN_VERSION if compaction may have
    removed it. The status outlives a delete; a card without a visible version is active.
    """
    version = newest
    while version != EMPTY and profiles[version].arrival > arrival:
        version = profiles[version].older
    if version == EMPTY:
        return EMPTY, ACTIVE
    if profiles[version].change == COMPACTED:
        return UNKNOWN_VERSION, ACTIVE
    return EMPTY if profiles[version].change >= STATUS_ONLY else version, profiles[version].status
