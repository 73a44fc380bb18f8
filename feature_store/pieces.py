"""Snapshot pieces: the whole state of a range of card numbers as one blob."""

import numpy as np
from numpy.typing import NDArray

from feature_store.cards import Array, Counters, move_segment
from feature_store.codec import decode, encode
from feature_store.group_state import GroupState
from feature_store.hot import BUCKETS_PER_CARD
from feature_store.jit import njit
from feature_store.layout import (
    ALERT_HOURS,
    ALERTED,
    BUCKET,
    CARD,
    CARDS,
    EMPTY,
    EVENT,
    FIRST_CAPACITY,
    HOT,
    HOT_CARDS,
    HOT_IDS,
    LIVE_EVENTS,
    PROFILE,
    PROFILES,
)

CARDS_PER_PIECE = 1024


@njit(cache=True)
def _count(cards: Array, profiles: Array, first: int, end: int) -> tuple[int, int, int]:
    """Events, profile versions and alert records of a range of cards."""
    events = versions = alerted = 0
    for number in range(first, end):
        events += cards[number].events
        alerted += cards[number].alert_hours != EMPTY
        version = cards[number].profile
        while version != EMPTY:
            versions += 1
            version = profiles[version].older
    return events, versions, alerted


@njit(cache=True)
def _gather(
    cards: Array,
    events: Array,
    profiles: Array,
    hours: Array,
    first: int,
    end: int,
    out_events: Array,
    out_profiles: Array,
    out_hours: Array,
    version_counts: NDArray[np.uint16],
) -> None:
    at_event = at_version = at_hours = 0
    for number in range(first, end):
        card = cards[number]
        for i in range(card.events):
            out_events[at_event] = events[card.segment + i]
            at_event += 1
        if card.alert_hours != EMPTY:
            out_hours[at_hours] = hours[card.alert_hours]
            at_hours += 1
        version = card.profile
        while version != EMPTY:
            out_profiles[at_version] = profiles[version]
            at_version += 1
            version_counts[number - first] += 1
            version = profiles[version].older


def write_piece(state: GroupState, piece: int) -> bytes:
    """The cards of a piece, with their events, profile versions and alert counts, as a blob."""
    arrays = state.arena.arrays
    first = piece * CARDS_PER_PIECE
    end = min(first + CARDS_PER_PIECE, state.card_count)
    n_events, n_versions, n_alerted = _count(arrays["cards"], arrays["profiles"], first, end)
    events = np.zeros(n_events, dtype=EVENT)
    versions = np.zeros(n_versions, dtype=PROFILE)
    hours = np.zeros(n_alerted, dtype=ALERT_HOURS)
    version_counts = np.zeros(end - first, dtype=np.uint16)
    _gather(
        arrays["cards"], arrays["events"], arrays["profiles"], arrays["alert_hours"], first, end,
        events, versions, hours, version_counts,
    )  # fmt: skip
    hot = arrays["cards"]["hot"][first:end]
    hot = hot[hot != EMPTY]
    return encode(
        {
            "cards": arrays["cards"][first:end],
            "events": events,
            "profiles": versions,
            "alert_hours": hours,
            "version_counts": version_counts,
            "hots": arrays["hots"][hot],
            "buckets": arrays["buckets"].reshape(-1, BUCKETS_PER_CARD)[hot].reshape(-1),
            "ids": arrays["ids"].reshape(-1, HOT_IDS)[hot].reshape(-1),
        }
    )


@njit(cache=True)
def _place(
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
    version_counts: NDArray[np.uint16],
) -> None:
    at_event = at_version = at_hours = 0
    for i in range(in_cards.size):
        cards[first + i] = in_cards[i]
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
        # oldest first, so that each version links to the one before it
        for k in range(version_counts[i] - 1, -1, -1):
            number = counters[PROFILES]
            counters[PROFILES] += 1
            profiles[number] = in_profiles[at_version + k]
            profiles[number].older = card.profile
            card.profile = number
        at_version += version_counts[i]


def read_piece(state: GroupState, piece: int, blob: bytes) -> None:
    """Put a piece's cards into a state that is being rebuilt; the index is filled afterwards.

    Raises:
        StateDamagedError: the blob cannot be trusted.
    """
    raw = decode(blob, f"snapshot {piece}")
    cards = raw["cards"].view(CARD)
    events = raw["events"].view(EVENT)
    versions = raw["profiles"].view(PROFILE)
    hours = raw["alert_hours"].view(ALERT_HOURS)
    first = piece * CARDS_PER_PIECE
    state.reserve("cards", 0, first + cards.size)
    # a segment holds less than twice its events, or FIRST_CAPACITY
    room = 2 * events.size + FIRST_CAPACITY * cards.size
    state.reserve_events(room)
    state.reserve("profiles", int(state.counters[PROFILES]), versions.size)
    state.reserve("alert_hours", int(state.counters[ALERTED]), hours.size)
    arrays = state.arena.arrays
    _place(
        arrays["cards"], arrays["events"], arrays["profiles"], arrays["alert_hours"], arrays["counters"],
        first, cards, events, versions, hours, raw["version_counts"],
    )  # fmt: skip
    state.counters[CARDS] = max(int(state.counters[CARDS]), first + cards.size)
    _place_hot(state, first, cards.size, raw)


def _place_hot(state: GroupState, first: int, count: int, raw: dict[str, NDArray[np.generic]]) -> None:
    hots = raw["hots"].view(HOT)
    state.reserve_hot(hots.size)
    start = int(state.counters[HOT_CARDS])
    end = start + hots.size
    arrays = state.arena.arrays
    arrays["hots"][start:end] = hots
    arrays["buckets"][start * BUCKETS_PER_CARD : end * BUCKETS_PER_CARD] = raw["buckets"].view(BUCKET)
    arrays["ids"][start * HOT_IDS : end * HOT_IDS] = raw["ids"]
    numbers = arrays["cards"]["hot"][first : first + count]  # a view
    numbers[numbers != EMPTY] = np.arange(start, end)
    state.counters[HOT_CARDS] = end
