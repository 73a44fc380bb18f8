"""Snapshot pieces: the whole state of a range of card numbers as one blob."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from feature_store import event_columns
from feature_store.cards import Array, Counters, move_segment
from feature_store.codec import decode, encode, records
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
    MOST_EVENTS,
    PROFILE,
    PROFILES,
    WHEN_SHIFT,
)
from feature_store.windows import LONGEST

CARDS_PER_PIECE = 1024


@dataclass(frozen=True)
class PieceRecords:
    """The records of a piece's n cards, one card after another."""

    cards: NDArray[np.void]
    """CARD, shape (n,); all zero where a number is nobody's."""
    events: NDArray[np.void]
    """`events` of each card that a window can still reach (EVENT)."""
    profiles: NDArray[np.void]
    """Versions of each card, newest first (PROFILE)."""
    version_counts: NDArray[np.uint32]
    """How many each card has, shape (n,)."""
    alert_hours: NDArray[np.void]
    """Of the cards that have one (ALERT_HOURS)."""
    hots: NDArray[np.void]
    """Of the hot cards (HOT)."""
    buckets: NDArray[np.void]
    """Their rings (BUCKET)."""
    latest: NDArray[np.void]
    """Their last transactions (EVENT)."""
    after: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    """Digest of the delta that they were written after."""


@njit(cache=True)
def _reached(card: Array, events: Array, lateness_ms: int) -> int:
    """The first of a card's events that matters; of a hot card their number decides when half of them go."""
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
    """Profile versions and alert records of cards; sets `events` to the number of those that matter."""
    versions = alerted = 0
    for i in range(cards.size):
        card = cards[i]
        out_cards[i].events = card.segment + card.events - _reached(card, events, lateness_ms)
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
    """The records of a piece, without what only says where they lie in this state's arrays."""
    arrays = state.arena.arrays
    first = piece * CARDS_PER_PIECE
    held = arrays["cards"][first : min(first + CARDS_PER_PIECE, state.numbers_given)]
    hot = held["hot"][held["hot"] != EMPTY]
    cards = held.copy()
    free = (cards["lo"] == 0) & (cards["hi"] == 0)
    for place in ("segment", "profile", "alert_hours", "hot"):
        cards[place] = np.where(held[place] == EMPTY, EMPTY, 0)
    cards["size_class"] = 0
    cards["segment"] = 0
    cards[free] = np.zeros((), dtype=CARD)
    n_versions, n_alerted = _count(held, arrays["events"], arrays["profiles"], cards, state.lateness_ms)
    found = PieceRecords(
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
        held, arrays["events"], arrays["profiles"], arrays["alert_hours"],
        cards, found.events, found.profiles, found.alert_hours, found.version_counts,
    )  # fmt: skip
    found.profiles["older"] = 0
    return found


def write_piece(state: GroupState, piece: int, after: bytes = b"") -> bytes:
    """The cards of a piece, with their events, profile versions and alert counts, as a blob.

    Args:
        state: the key group.
        piece: number of the piece.
        after: digest of the last delta that the state holds.
    """
    found = gather(state, piece)
    cards, events = found.cards, found.events
    # of a card with events the time of the newest is the greatest
    return encode(
        {
            **{f"cards.{name}": cards[name] for name in _TOLD if name != "last_arrival"},
            "ahead": cards["last_arrival"] - cards["max_time"],
            **event_columns.split(cards, events, state.lateness_ms, all_ids=state.keeps_ids),
            # whose they are is told by the counts
            **{f"profiles.{name}": found.profiles[name].reshape(-1) for name in _TOLD_OF_PROFILE},
            "version_counts": found.version_counts,
            "alert_hours": found.alert_hours,
            "hots": found.hots,
            "buckets": found.buckets,
            "latest": found.latest,
            "after": np.frombuffer(after, dtype=np.uint8),
        }
    )


_TOLD = tuple(name for name in CARD.names or () if name not in ("segment", "size_class"))
_TOLD_OF_PROFILE = tuple(name for name in PROFILE.names or () if name not in ("lo", "hi", "older"))


def decode_piece(blob: bytes, what: str) -> PieceRecords:
    """Inverse of `write_piece`.

    Raises:
        StateDamagedError: the blob cannot be trusted.
    """
    raw = decode(blob, what)
    cards = records(raw, "cards", CARD)
    cards["last_arrival"] = raw["ahead"] + cards["max_time"]
    profiles = records(raw, "profiles", PROFILE)
    for name in ("lo", "hi"):
        profiles[name] = np.repeat(cards[name], raw["version_counts"])
    return PieceRecords(
        cards,
        event_columns.join(cards, raw, what),
        profiles,
        raw["version_counts"].astype(np.uint32),
        records(raw, "alert_hours", ALERT_HOURS),
        records(raw, "hots", HOT),
        records(raw, "buckets", BUCKET),
        records(raw, "latest", EVENT),
        raw["after"].astype(np.uint8),
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
        # oldest first, so that each version links to the one before it
        for k in range(version_counts[i] - 1, -1, -1):
            number = counters[PROFILES]
            counters[PROFILES] += 1
            profiles[number] = in_profiles[at_version + k]
            profiles[number].older = card.profile
            card.profile = number
        at_version += version_counts[i]


def read_piece(state: GroupState, piece: int, blob: bytes) -> bytes:
    """Put a piece's cards into a state that is being rebuilt; the index is filled afterwards.

    Returns:
        Digest of the delta that the piece was written after.

    Raises:
        StateDamagedError: the blob cannot be trusted.
    """
    found = decode_piece(blob, f"snapshot {piece}")
    first = piece * CARDS_PER_PIECE
    state.reserve("cards", 0, first + found.cards.size)
    # a segment holds less than twice its events, or FIRST_CAPACITY; of each size one may be left over
    state.reserve_events(2 * (found.events.size + MOST_EVENTS) + FIRST_CAPACITY * found.cards.size)
    state.reserve("profiles", int(state.counters[PROFILES]), found.profiles.size)
    state.reserve("alert_hours", int(state.counters[ALERTED]), found.alert_hours.size)
    arrays = state.arena.arrays
    _place(
        arrays["cards"], arrays["events"], arrays["profiles"], arrays["alert_hours"], arrays["counters"],
        first, found.cards, found.events, found.profiles, found.alert_hours, found.version_counts,
    )  # fmt: skip
    state.counters[CARDS] = max(int(state.counters[CARDS]), first + found.cards.size)
    _place_hot(state, first, found)
    return found.after.tobytes()


def _place_hot(state: GroupState, first: int, found: PieceRecords) -> None:
    state.reserve_hot(found.hots.size)
    start = int(state.counters[HOT_CARDS])
    end = start + found.hots.size
    arrays = state.arena.arrays
    arrays["hots"][start:end] = found.hots
    arrays["buckets"][start * BUCKETS_PER_CARD : end * BUCKETS_PER_CARD] = found.buckets
    arrays["latest"][start * HOT_IDS : end * HOT_IDS] = found.latest
    numbers = arrays["cards"][first : first + found.cards.size]
    # a number that is nobody's has no place anywhere
    hot = ((numbers["lo"] != 0) | (numbers["hi"] != 0)) & (numbers["hot"] != EMPTY)
    numbers["hot"][hot] = np.arange(start, end)
    state.counters[HOT_CARDS] = end
