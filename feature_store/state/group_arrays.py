"""The arrays of a key group, which grow when they are full, and the numbers of its cards.

A card's number is the index of its record in the array `cards`. Numbers of evicted cards are assigned again.
Deltas and pieces name cards by number, so a rebuilt state gives each card its old number (`prepare_replay`,
`adopt`).
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.kernels import eviction
from feature_store.kernels.cards import adopt, fill_index, locate
from feature_store.kernels.hot import BUCKETS_PER_CARD
from feature_store.layout import (
    CARDS,
    EMPTY,
    EVENTS,
    FREE_CARDS,
    HOT_CARDS,
    HOT_IDS,
    LIVE_EVENTS,
    NO_PROFILE,
    PLACE,
)
from feature_store.state.arena import Arena

IDENTITY = np.dtype([("lo", "u8"), ("hi", "u8"), ("number", "i4"), *PLACE.descr])
"""A card's hash, its number and its place."""


class GroupArrays:
    """Arrays of a key group in an arena, and the numbers of its cards."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._added: list[NDArray[np.int32]] = []

    @property
    def counters(self) -> NDArray[np.int64]:
        """Counters of the group, indexed by the constants in `layout`."""
        return self.arena.arrays["counters"]

    @property
    def profiles(self) -> NDArray[np.void]:
        """Profile versions (PROFILE)."""
        return self.arena.arrays["profiles"]

    @property
    def card_count(self) -> int:
        """Cards in the state, with transactions or only with a profile."""
        return int(self.counters[CARDS] - self.counters[FREE_CARDS])

    @property
    def cards_without_profile(self) -> int:
        """Cards that have never had a row of the profile table on the log."""
        return int(self.counters[NO_PROFILE])

    @property
    def numbers_given(self) -> int:
        """Card numbers assigned so far, those of evicted cards included."""
        return int(self.counters[CARDS])

    @property
    def event_count(self) -> int:
        """Events kept."""
        return int(self.counters[LIVE_EVENTS])

    def clear(self) -> None:
        """Remove all cards."""
        self.arena.clear()
        self._added = []

    def reserve(self, name: str, used: int, more: int) -> None:
        """Grow an array, if needed, so that `more` records fit behind the `used` ones."""
        if used + more > self.arena.arrays[name].size:
            self.arena.grow(name, used + more)

    def reserve_events(self, more: int) -> None:
        """Grow the events array, if needed, so that segments of `more` events in total fit."""
        self.reserve("events", int(self.counters[EVENTS]), more)

    def reserve_hot(self, more: int) -> None:
        """Grow the arrays of hot cards, if needed, for `more` hot cards."""
        hot = int(self.counters[HOT_CARDS])
        self.reserve("hots", hot, more)
        size = self.arena.arrays["hots"].size
        # the sizes of these arrays follow that of `hots`
        for name, records_per_card in (("buckets", BUCKETS_PER_CARD), ("latest", HOT_IDS)):
            if self.arena.arrays[name].size != size * records_per_card:
                self.arena.resize(name, size * records_per_card)

    def _locate(
        self, lo: NDArray[np.uint64], hi: NDArray[np.uint64], places: NDArray[np.void]
    ) -> NDArray[np.int32]:
        arrays = self.arena.arrays
        # every row could be a new card; the index stays at most half full
        self.reserve("cards", self.numbers_given, lo.size)
        slots = 2 * (self.card_count + lo.size)
        if slots > arrays["index"].size:
            self.arena.resize("index", 1 << (slots - 1).bit_length())
            fill_index(arrays["index"], arrays["cards"], self.numbers_given)
        numbers, added = np.empty(lo.size, dtype=np.int32), np.empty(lo.size, dtype=np.int32)
        count = locate(arrays["index"], arrays["cards"], self.counters, lo, hi, places, numbers, added)
        if count:
            self._added.append(added[:count].copy())
        return numbers

    def card_numbers(
        self, records: NDArray[np.void], places: NDArray[np.void] | None = None
    ) -> NDArray[np.int32]:
        """Return the card number of each record; add cards that are new.

        Args:
            records: records with fields lo and hi, shape (n,).
            places: where each card's transactions are (PLACE), shape (n,); None: unknown.
        """
        if places is None:
            places = np.zeros(records.size, dtype=PLACE)
            places["home"] = EMPTY
        return self._locate(np.ascontiguousarray(records["lo"]), np.ascontiguousarray(records["hi"]), places)

    def take_added(self) -> NDArray[np.void]:
        """Return the cards added since the last call (IDENTITY)."""
        numbers = np.concatenate(self._added) if self._added else np.zeros(0, dtype=np.int32)
        self._added = []
        cards = self.arena.arrays["cards"]
        added = np.zeros(numbers.size, dtype=IDENTITY)
        added["number"], added["lo"], added["hi"] = numbers, cards["lo"][numbers], cards["hi"][numbers]
        added["home"] = cards["partition"][numbers]
        added["murmur2"], added["crc32"] = cards["murmur2"][numbers], cards["crc32"][numbers]
        return added

    def prepare_replay(self, numbers: int) -> None:
        """Make room for the cards that deltas name by number; see `adopt`."""
        self.reserve("cards", 0, numbers)
        self.counters[CARDS] = numbers

    def adopt(self, added: NDArray[np.void]) -> None:
        """Set up the cards that a delta added (IDENTITY), except those whose numbers are in use already."""
        adopt(self.arena.arrays["cards"], added)

    def with_identity(self, changes: NDArray[np.void], numbers: NDArray[np.int32]) -> NDArray[np.void]:
        """Return profile changes (PROFILE) with their cards' hashes, which deltas leave out."""
        cards = self.arena.arrays["cards"]
        named = changes.copy()
        named["lo"], named["hi"] = cards["lo"][numbers], cards["hi"][numbers]
        return named

    def end_replay(self) -> None:
        """Rebuild what follows from the cards: index, list of free numbers, `cards_without_profile`."""
        arrays = self.arena.arrays
        eviction.release_unused(arrays["cards"], self.counters)
        size = 1 << (2 * self.card_count).bit_length()
        if size > arrays["index"].size:
            self.arena.resize("index", size)
        fill_index(arrays["index"], arrays["cards"], self.numbers_given)
