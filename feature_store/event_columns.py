"""Events of many cards as columns that compress well, and back.

Of each card the newest event comes first: times become gaps to the event after, countries become changes, and
a merchant is told as the card's n-th (counted from the newest) unless it is the first time; then it is a
number in the piece's list of merchants. A transaction's hash is told only while a repetition of it could be
accepted; its arrival, as the time until the card's last one, while it can count in a window by arrival. Where
labels are to find transactions, both are told of all events.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.arrivals import LONGEST, REPEAT_MARGIN_MS, age, stamp, transaction_of
from feature_store.codec import StateDamagedError
from feature_store.jit import njit
from feature_store.layout import (
    CARD,
    COUNTRY_MASK,
    COUNTRY_SHIFT,
    EMPTY,
    EVENT,
    LAST_AT_MERCHANT,
    LAST_IN_COUNTRY,
    MERCHANT_MASK,
    SPIKE,
    WHEN_SHIFT,
)
from feature_store.segments import Array

_POSITION_BITS = 24


@njit(cache=True)
def _split(
    cards: Array,
    events: Array,
    repeats_for: int,
    all_ids: bool,
    gaps: NDArray[np.int64],
    amounts: NDArray[np.int64],
    lands: NDArray[np.uint16],
    spikes: NDArray[np.bool_],
    known: NDArray[np.uint16],
    merchants: NDArray[np.uint64],
    ids: NDArray[np.uint64],
    ages: NDArray[np.int64],
) -> tuple[int, int]:
    at = n_merchants = n_ids = end = 0
    for card in cards:
        first, end = end, end + card.events
        after, land, own = card.max_time, 0, n_merchants
        for i in range(end - 1, first - 1, -1):
            event = events[i]
            time = event.when >> WHEN_SHIFT
            country = (event.when >> COUNTRY_SHIFT) & COUNTRY_MASK
            merchant = event.merchant & np.uint64(MERCHANT_MASK)
            gaps[at] = after - time
            amounts[at] = event.amount
            lands[at] = country ^ land
            spikes[at] = event.when & SPIKE
            after, land = time, country
            known[at] = 0
            for number in range(own, n_merchants):
                if merchants[number] == merchant:
                    known[at] = number - own + 1
                    break
            if known[at] == 0:
                merchants[n_merchants] = merchant
                n_merchants += 1
            if all_ids or (card.hot == EMPTY and time >= card.last_arrival - repeats_for):
                old = age(event, card.last_arrival)
                ids[n_ids] = transaction_of(event)
                ages[n_ids] = old if all_ids else min(old, LONGEST)
                n_ids += 1
            at += 1
    return n_merchants, n_ids


@njit(cache=True)
def _number(packed: NDArray[np.uint64], unique: NDArray[np.uint64], numbers: NDArray[np.uint32]) -> int:
    """Sorted `merchant << _POSITION_BITS | position` as unique merchants and each position's number."""
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
    """Events as columns.

    Args:
        cards: cards of a piece (CARD).
        events: `events` of each card, one card after another, sorted by time (EVENT), shape (n,).
        lateness_ms: allowed lateness.
        all_ids: whether hash and arrival of all events are told.
    """
    n = events.size
    repeats_for = lateness_ms + REPEAT_MARGIN_MS
    gaps, amounts = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    lands, spikes = np.empty(n, dtype=np.uint16), np.empty(n, dtype=np.bool_)
    known = np.empty(n, dtype=np.uint16)
    merchants, ids = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.uint64)
    ages = np.empty(n, dtype=np.int64)
    n_merchants, n_ids = _split(
        cards, events, repeats_for, all_ids, gaps, amounts, lands, spikes, known, merchants, ids, ages
    )
    # one sort of words gives the unique merchants and where each stands
    words = (merchants[:n_merchants] << np.uint64(_POSITION_BITS)) | np.arange(n_merchants, dtype=np.uint64)
    words.sort()
    unique, numbers = np.empty(n_merchants, dtype=np.uint64), np.empty(n_merchants, dtype=np.uint32)
    count = _number(words, unique, numbers)
    return {
        "gaps": gaps,
        "amounts": amounts,
        "lands": lands,
        "spikes": np.packbits(spikes),
        "known": known,
        "numbers": numbers,
        "merchants": np.diff(unique[:count], prepend=np.uint64(0)),
        "ids": ids[:n_ids],
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
    lands: NDArray[np.uint16],
    spikes: NDArray[np.uint8],
    known: NDArray[np.uint16],
    merchants: NDArray[np.uint64],
    ids: NDArray[np.uint64],
    ages: NDArray[np.int64],
    events: Array,
) -> None:
    at = n_merchants = n_ids = end = 0
    met = np.zeros((COUNTRY_MASK + 1) // 64, dtype=np.uint64)
    for card in cards:
        first, end = end, end + card.events
        time, country, own = card.max_time, 0, n_merchants
        met[:] = 0
        for i in range(end - 1, first - 1, -1):
            time -= gaps[at]
            country ^= int(lands[at])
            event = events[i]
            flags = SPIKE if spikes[at] else 0
            if known[at] == 0:
                flags |= LAST_AT_MERCHANT
            if met[country >> 6] >> np.uint64(country & 63) & np.uint64(1) == 0:
                flags |= LAST_IN_COUNTRY
                met[country >> 6] |= np.uint64(1) << np.uint64(country & 63)
            event.when = (time << WHEN_SHIFT) | (country << COUNTRY_SHIFT) | flags
            event.amount = amounts[at]
            if known[at] == 0:
                merchant = merchants[n_merchants]
                n_merchants += 1
            else:
                merchant = merchants[own + known[at] - 1]
            transaction, old = np.uint64(0), LONGEST
            if all_ids or (card.hot == EMPTY and time >= card.last_arrival - repeats_for):
                transaction, old = ids[n_ids], ages[n_ids]
                n_ids += 1
            stamp(event, transaction, merchant, card.last_arrival - old)
            at += 1


def join(cards: NDArray[np.void], columns: Mapping[str, NDArray[Any]], what: str) -> NDArray[np.void]:
    """Inverse of `split`, but for what is not told: ids become 0, and arrivals as old as no window is long.

    Raises:
        StateDamagedError: the columns are not those of these cards.
    """
    assert cards.dtype == CARD
    n = int(cards["events"].sum())
    if columns["gaps"].size != n:
        raise StateDamagedError(
            f"state piece {what} has {columns['gaps'].size} events, its cards {n}; restore the checkpoint"
        )
    merchants = np.cumsum(columns["merchants"])[columns["numbers"]] if n else np.zeros(0, dtype=np.uint64)
    events = np.empty(n, dtype=EVENT)
    repeats_for = columns["repeats_for"]
    _join(
        cards, int(repeats_for[0]), repeats_for.size > 1, columns["gaps"], columns["amounts"],
        columns["lands"], np.unpackbits(columns["spikes"], count=n), columns["known"],
        merchants.astype(np.uint64), columns["ids"], columns["ages"], events,
    )  # fmt: skip
    return events
