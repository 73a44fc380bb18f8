"""The records of a snapshot piece, copied out of a key group's state and into one that is being rebuilt."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from feature_store.jit import njit
from feature_store.kernels.cards import Array, Counters, move_segment
from feature_store.kernels.hot import BUCKETS_PER_CARD
from feature_store.kernels.windows import LONGEST
from feature_store.layout import (
    ALERT_HOURS,
    ALERTED,
    CARD,
    CARDS,
    EMPTY,
    EVENT,
    FIRST_CAPACITY,
    HOT_CARDS,
    HOT_IDS,
    LIVE_EVENTS,
    MOST_EVENTS,
    PROFILE,
    PROFILES,
    WHEN_SHIFT,
)
from feature_store.state.group_state import GroupState

CARDS_PER_PIECE = 1024


@dataclass(frozen=True)
class PieceRecords:
    """The records of a piece's n cards, one card after another."""

    cards: NDArray[np.void]
    """CARD, shape (n,), one for each card number; all zero for a card number that is not in use."""
    events: NDArray[np.void]
    """All kept events of hot cards, and those events of other cards that a window can still reach (EVENT).

    A card's field `events` says how many of them are its own.
    """
    profiles: NDArray[np.void]
    """Profile versions of each card, newest first (PROFILE)."""
    version_counts: NDArray[np.uint32]
    """Number of profile versions of each card, shape (n,)."""
    alert_hours: NDArray[np.void]
    """Alert counts of the cards that have any (ALERT_HOURS)."""
    hots: NDArray[np.void]
    """Records of the hot cards (HOT)."""
    buckets: NDArray[np.void]
    """The hot cards' buckets by event time, BUCKETS_PER_CARD for each card (BUCKET)."""
    latest: NDArray[np.void]
    """Recent transactions of the hot cards (EVENT)."""
    after: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    """Digest of the delta after which the piece was written."""


def first_number(piece: int) -> int:
    """Return the number of a piece's first card."""
    return piece * CARDS_PER_PIECE


def piece_count(state: GroupState) -> int:
    """Return the number of pieces of a state."""
    return -(-state.numbers_given // CARDS_PER_PIECE)


def is_used(cards: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which card numbers (CARD) are in use; in unused ones `lo` and `hi` are 0."""
    used: NDArray[np.bool_] = (cards["lo"] != 0) | (cards["hi"] != 0)
    return used


def has_record(cards: NDArray[np.void], pointer: str) -> NDArray[np.bool_]:
    """Return which cards (CARD) have the record that a field such as `hot` points to.

    In a snapshot the pointers of unused card numbers are zero, not EMPTY; they point to nothing all the same.
    """
    has: NDArray[np.bool_] = is_used(cards) & (cards[pointer] != EMPTY)
    return has


@njit(cache=True)
def _first_reachable(card: Array, events: Array, lateness_ms: int) -> int:
    """Return the index of the first event that a window can reach; for a hot card, of its first kept event.

    A hot card drops the older half of its kept events when it has MOST_EVENTS, and a rebuilt one has to do so
    at the same moment, so a snapshot includes them all.
    """
    first = card.segment
    if card.hot == EMPTY:
        horizon = card.last_arrival - LONGEST - lateness_ms
        while first < card.segment + card.events and (events[first].when >> WHEN_SHIFT) <= horizon:
            first += 1
    return first


@njit(cache=True)
def _count(
    cards: Array, events: Array, profiles: Array, out_cards: Array, lateness_ms: int
) -> tuple[int, int]:
    """Count the profile versions of cards, and the cards with alert counts.

    Set the field `events` of `out_cards` to the number of events from `_first_reachable` on.
    """
    versions = alerted = 0
    for i in range(cards.size):
        card = cards[i]
        out_cards[i].events = card.segment + card.events - _first_reachable(card, events, lateness_ms)
        alerted += card.alert_hours != EMPTY
        version = card.profile
        while version != EMPTY:
            versions += 1
            version = profiles[version].older
    return versions, alerted


@njit(cache=True)
def _gather(
    cards: Array,
    events: Array,
    profiles: Array,
    hours: Array,
    out_cards: Array,
    out_events: Array,
    out_profiles: Array,
    out_hours: Array,
    version_counts: NDArray[np.uint32],
) -> None:
    at_event = at_version = at_hours = 0
    for i in range(cards.size):
        card = cards[i]
        end = card.segment + card.events
        for k in range(end - out_cards[i].events, end):
            out_events[at_event] = events[k]
            at_event += 1
        if card.alert_hours != EMPTY:
            out_hours[at_hours] = hours[card.alert_hours]
            at_hours += 1
        version = card.profile
        while version != EMPTY:
            out_profiles[at_version] = profiles[version]
            at_version += 1
            version_counts[i] += 1
            version = profiles[version].older


def gather(state: GroupState, piece: int) -> PieceRecords:
    """Copy the records of a piece, without the pointers into this state's arrays."""
    arrays = state.arena.arrays
    first = first_number(piece)
    stored = arrays["cards"][first : min(first + CARDS_PER_PIECE, state.numbers_given)]
    hot = stored["hot"][stored["hot"] != EMPTY]
    cards = stored.copy()
    for pointer in ("segment", "profile", "alert_hours", "hot"):
        cards[pointer] = np.where(stored[pointer] == EMPTY, EMPTY, 0)
    cards["size_class"] = 0
    cards["segment"] = 0
    cards[~is_used(cards)] = np.zeros((), dtype=CARD)
    n_versions, n_alerted = _count(stored, arrays["events"], arrays["profiles"], cards, state.lateness_ms)
    contents = PieceRecords(
        cards,
        np.empty(int(cards["events"].sum()), dtype=EVENT),
        np.empty(n_versions, dtype=PROFILE),
        np.zeros(cards.size, dtype=np.uint32),
        np.empty(n_alerted, dtype=ALERT_HOURS),
        arrays["hots"][hot],
        arrays["buckets"].reshape(-1, BUCKETS_PER_CARD)[hot].reshape(-1),
        arrays["latest"].reshape(-1, HOT_IDS)[hot].reshape(-1),
    )
    _gather(
        stored, arrays["events"], arrays["profiles"], arrays["alert_hours"],
        cards, contents.events, contents.profiles, contents.alert_hours, contents.version_counts,
    )  # fmt: skip
    contents.profiles["older"] = 0
    return contents


def chosen(contents: PieceRecords, keep: NDArray[np.bool_]) -> PieceRecords:
    """Return the records of some of the cards.

    Args:
        contents: records of n cards.
        keep: which cards, shape (n,); all of them in use.
    """
    cards = contents.cards
    hot = keep[has_record(cards, "hot")]
    return PieceRecords(
        cards[keep],
        contents.events[np.repeat(keep, cards["events"])],
        contents.profiles[np.repeat(keep, contents.version_counts)],
        contents.version_counts[keep],
        contents.alert_hours[keep[has_record(cards, "alert_hours")]],
        contents.hots[hot],
        contents.buckets.reshape(-1, BUCKETS_PER_CARD)[hot].reshape(-1),
        contents.latest.reshape(-1, HOT_IDS)[hot].reshape(-1),
    )


@njit(cache=True)
def _insert(
    cards: Array,
    events: Array,
    profiles: Array,
    hours: Array,
    counters: Counters,
    first: int,
    in_cards: Array,
    in_events: Array,
    in_profiles: Array,
    in_hours: Array,
    version_counts: NDArray[np.uint32],
) -> None:
    at_event = at_version = at_hours = 0
    for i in range(in_cards.size):
        cards[first + i] = in_cards[i]
        if in_cards[i].lo == 0 and in_cards[i].hi == 0:
            continue
        card = cards[first + i]
        count = card.events
        card.segment = EMPTY
        card.size_class = EMPTY
        card.events = 0
        if count > 0:
            size_class = 0
            while FIRST_CAPACITY << size_class < count:
                size_class += 1
            move_segment(card, events, counters, size_class)
            for k in range(count):
                events[card.segment + k] = in_events[at_event + k]
            at_event += count
            card.events = count
            counters[LIVE_EVENTS] += count
        if card.alert_hours != EMPTY:
            card.alert_hours = counters[ALERTED]
            hours[card.alert_hours] = in_hours[at_hours]
            counters[ALERTED] += 1
            at_hours += 1
        card.profile = EMPTY
        # oldest first, so that each version links to the next older one
        for k in range(version_counts[i] - 1, -1, -1):
            number = counters[PROFILES]
            counters[PROFILES] += 1
            profiles[number] = in_profiles[at_version + k]
            profiles[number].older = card.profile
            card.profile = number
        at_version += version_counts[i]


def insert(state: GroupState, first: int, contents: PieceRecords) -> None:
    """Insert records into a state, under card numbers from `first` on; the caller rebuilds the index."""
    state.reserve("cards", 0, first + contents.cards.size)
    # a segment has room for less than twice its card's events, or for FIRST_CAPACITY; segments are cut from
    # chunks of MOST_EVENTS by halving, which leaves at most one free segment of each size, together less than
    # 2 * MOST_EVENTS
    state.reserve_events(2 * (contents.events.size + MOST_EVENTS) + FIRST_CAPACITY * contents.cards.size)
    state.reserve("profiles", int(state.counters[PROFILES]), contents.profiles.size)
    state.reserve("alert_hours", int(state.counters[ALERTED]), contents.alert_hours.size)
    arrays = state.arena.arrays
    _insert(
        arrays["cards"], arrays["events"], arrays["profiles"], arrays["alert_hours"], arrays["counters"],
        first, contents.cards, contents.events, contents.profiles, contents.alert_hours,
        contents.version_counts,
    )  # fmt: skip
    state.counters[CARDS] = max(int(state.counters[CARDS]), first + contents.cards.size)
    _insert_hot(state, first, contents)


def _insert_hot(state: GroupState, first: int, contents: PieceRecords) -> None:
    state.reserve_hot(contents.hots.size)
    start = int(state.counters[HOT_CARDS])
    end = start + contents.hots.size
    arrays = state.arena.arrays
    arrays["hots"][start:end] = contents.hots
    arrays["buckets"][start * BUCKETS_PER_CARD : end * BUCKETS_PER_CARD] = contents.buckets
    arrays["latest"][start * HOT_IDS : end * HOT_IDS] = contents.latest
    numbers = arrays["cards"][first : first + contents.cards.size]
    numbers["hot"][has_record(numbers, "hot")] = np.arange(start, end)
    state.counters[HOT_CARDS] = end
