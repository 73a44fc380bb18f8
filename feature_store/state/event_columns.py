"""Columnar encoding of the events of many cards, and its inverse.

The columns list each card's events from the newest to the oldest:

- time: the gap to the next newer event, or for the newest event to the card's `max_time` (`gaps`);
- amount (`amounts`), and whether it was a spike (`spikes`);
- country: XOR with the country of the next newer event, or for the newest event with 0 (`lands`);
- merchant: its rank among the card's merchants, 1 for the newest (`known`); but 0 where the list comes to a
  merchant for the first time: there `numbers` has its index in the piece's sorted list `merchants`;
- hash of the transaction id (`ids`): only while a repetition of the transaction would not be too late, and
  never for a hot card;
- currency: XOR with the currency of the previous event in this list that has one; only stored with the id;
- arrival: the time until the card's last arrival (`ages`), stored with the id; exact while the event can
  count in a window by arrival, then the length of the longest such window.

With `all_ids`, for jobs whose labels look up transactions, every event has its id and exact arrival.
`repeats_for` has one element, the time (ms) for which ids are kept; with `all_ids`, a second element, 1.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.jit import njit
from feature_store.kernels.arrivals import LONGEST, REPEAT_MARGIN_MS, age, stamp, transaction_of
from feature_store.kernels.segments import Array
from feature_store.layout import (
    CARD,
    COUNTRY_MASK,
    COUNTRY_SHIFT,
    CURRENCY_BITS,
    CURRENCY_MASK,
    EMPTY,
    EVENT,
    LAST_AT_MERCHANT,
    LAST_IN_COUNTRY,
    MERCHANT_MASK,
    SPIKE,
    WHEN_SHIFT,
)
from feature_store.state.codec import StateDamagedError

_POSITION_BITS = 24


@njit(cache=True)
def _split(
    cards: Array,
    events: Array,
    repeats_for: int,
    all_ids: bool,
    gaps: NDArray[np.int64],
    amounts: NDArray[np.int64],
    country_changes: NDArray[np.uint16],
    spikes: NDArray[np.bool_],
    merchant_refs: NDArray[np.uint16],
    merchants: NDArray[np.uint64],
    ids: NDArray[np.uint64],
    currency_changes: NDArray[np.uint16],
    ages: NDArray[np.int64],
) -> tuple[int, int]:
    at = n_merchants = n_ids = end = currency = 0
    for card in cards:
        first, end = end, end + card.events
        newer_time, newer_country, first_merchant = card.max_time, 0, n_merchants
        for i in range(end - 1, first - 1, -1):
            event = events[i]
            time = event.when >> WHEN_SHIFT
            country = (event.when >> COUNTRY_SHIFT) & COUNTRY_MASK
            merchant = event.merchant & np.uint64(MERCHANT_MASK)
            gaps[at] = newer_time - time
            amounts[at] = event.money >> CURRENCY_BITS
            country_changes[at] = country ^ newer_country
            spikes[at] = event.when & SPIKE
            newer_time, newer_country = time, country
            merchant_refs[at] = 0
            for number in range(first_merchant, n_merchants):
                if merchants[number] == merchant:
                    merchant_refs[at] = number - first_merchant + 1
                    break
            if merchant_refs[at] == 0:
                merchants[n_merchants] = merchant
                n_merchants += 1
            if all_ids or (card.hot == EMPTY and time >= card.last_arrival - repeats_for):
                event_age = age(event, card.last_arrival)
                ids[n_ids] = transaction_of(event)
                previous, currency = currency, event.money & CURRENCY_MASK
                currency_changes[n_ids] = currency ^ previous
                ages[n_ids] = event_age if all_ids else min(event_age, LONGEST)
                n_ids += 1
            at += 1
    return n_merchants, n_ids


@njit(cache=True)
def _number(packed: NDArray[np.uint64], unique: NDArray[np.uint64], numbers: NDArray[np.uint32]) -> int:
    """Write the unique merchants, and for each position its merchant's index; return how many are unique.

    `packed` has the words `merchant << _POSITION_BITS | position`, sorted.
    """
    count = 0
    for word in packed:
        merchant = word >> np.uint64(_POSITION_BITS)
        if count == 0 or unique[count - 1] != merchant:
            unique[count] = merchant
            count += 1
        numbers[word & np.uint64((1 << _POSITION_BITS) - 1)] = count - 1
    return count


def split(
    cards: NDArray[np.void], events: NDArray[np.void], lateness_ms: int, *, all_ids: bool = False
) -> dict[str, NDArray[Any]]:
    """Encode events as columns.

    Args:
        cards: cards of a piece (CARD).
        events: each card's events, as many as its field `events` says, sorted by time; one card after another
            (EVENT), shape (n,).
        all_ids: whether to store hash and arrival of all events.
    """
    n = events.size
    repeats_for = lateness_ms + REPEAT_MARGIN_MS
    gaps, amounts = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    country_changes, spikes = np.empty(n, dtype=np.uint16), np.empty(n, dtype=np.bool_)
    merchant_refs = np.empty(n, dtype=np.uint16)
    merchants, ids = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.uint64)
    currency_changes, ages = np.empty(n, dtype=np.uint16), np.empty(n, dtype=np.int64)
    n_merchants, n_ids = _split(
        cards, events, repeats_for, all_ids, gaps, amounts, country_changes, spikes, merchant_refs,
        merchants, ids, currency_changes, ages,
    )  # fmt: skip
    # one sort of (merchant, position) words is enough to number the unique merchants
    words = (merchants[:n_merchants] << np.uint64(_POSITION_BITS)) | np.arange(n_merchants, dtype=np.uint64)
    words.sort()
    unique, numbers = np.empty(n_merchants, dtype=np.uint64), np.empty(n_merchants, dtype=np.uint32)
    count = _number(words, unique, numbers)
    return {
        "gaps": gaps,
        "amounts": amounts,
        "lands": country_changes,
        "spikes": np.packbits(spikes),
        "known": merchant_refs,
        "numbers": numbers,
        "merchants": np.diff(unique[:count], prepend=np.uint64(0)),
        "ids": ids[:n_ids],
        "currencies": currency_changes[:n_ids],
        "ages": ages[:n_ids],
        "repeats_for": np.array([repeats_for, 1] if all_ids else [repeats_for]),
    }


@njit(cache=True)
def _join(
    cards: Array,
    repeats_for: int,
    all_ids: bool,
    gaps: NDArray[np.int64],
    amounts: NDArray[np.int64],
    country_changes: NDArray[np.uint16],
    spikes: NDArray[np.uint8],
    merchant_refs: NDArray[np.uint16],
    merchants: NDArray[np.uint64],
    ids: NDArray[np.uint64],
    currency_changes: NDArray[np.uint16],
    ages: NDArray[np.int64],
    events: Array,
) -> None:
    at = n_merchants = n_ids = end = currency = 0
    seen_countries = np.zeros((COUNTRY_MASK + 1) // 64, dtype=np.uint64)
    for card in cards:
        first, end = end, end + card.events
        time, country, first_merchant = card.max_time, 0, n_merchants
        seen_countries[:] = 0
        for i in range(end - 1, first - 1, -1):
            time -= gaps[at]
            country ^= int(country_changes[at])
            event = events[i]
            flags = SPIKE if spikes[at] else 0
            if merchant_refs[at] == 0:
                flags |= LAST_AT_MERCHANT
            if seen_countries[country >> 6] >> np.uint64(country & 63) & np.uint64(1) == 0:
                flags |= LAST_IN_COUNTRY
                seen_countries[country >> 6] |= np.uint64(1) << np.uint64(country & 63)
            event.when = (time << WHEN_SHIFT) | (country << COUNTRY_SHIFT) | flags
            event.money = amounts[at] << CURRENCY_BITS
            if merchant_refs[at] == 0:
                merchant = merchants[n_merchants]
                n_merchants += 1
            else:
                merchant = merchants[first_merchant + merchant_refs[at] - 1]
            transaction, event_age = np.uint64(0), LONGEST
            if all_ids or (card.hot == EMPTY and time >= card.last_arrival - repeats_for):
                transaction, event_age = ids[n_ids], ages[n_ids]
                currency ^= int(currency_changes[n_ids])
                event.money |= currency
                n_ids += 1
            stamp(event, transaction, merchant, card.last_arrival - event_age)
            at += 1


def join(cards: NDArray[np.void], columns: Mapping[str, NDArray[Any]], piece_name: str) -> NDArray[np.void]:
    """Decode the columns of `split` into events.

    An event without a stored id gets the id 0, the currency 0, and an arrival before every window by arrival.

    Raises:
        StateDamagedError: the columns are not those of these cards.
    """
    assert cards.dtype == CARD
    n = int(cards["events"].sum())
    if columns["gaps"].size != n:
        raise StateDamagedError(
            f"state piece {piece_name} has {columns['gaps'].size} events, but its cards should have {n}; "
            "restore the checkpoint"
        )
    merchants = np.cumsum(columns["merchants"])[columns["numbers"]] if n else np.zeros(0, dtype=np.uint64)
    events = np.empty(n, dtype=EVENT)
    repeats_for = columns["repeats_for"]
    _join(
        cards, int(repeats_for[0]), repeats_for.size > 1, columns["gaps"], columns["amounts"],
        columns["lands"], np.unpackbits(columns["spikes"], count=n), columns["known"],
        merchants.astype(np.uint64), columns["ids"], columns["currencies"], columns["ages"], events,
    )  # fmt: skip
    return events
