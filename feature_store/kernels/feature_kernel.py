"""The feature kernel: one pass over a batch of transactions, in log order, against a key group's state.

For each transaction the kernel detects repetition, computes features from what the log held before it, and
inserts it into its card's history, in flat arrays of fixed-size records. Unless the card is hot, one walk
through its events gives all counts and sums by event time. The tests' oracle computes the same, naively.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import NAMES
from feature_store.jit import njit
from feature_store.kernels.arrivals import (
    CONFLICTING,
    REPEAT_MARGIN_MS,
    REPEATED,
    arrival_features,
    look_back,
    stamp,
    turn_rings,
)
from feature_store.kernels.card_features import (
    MEDIAN_SLOTS,
    near_features,
    profile_features,
    running_features,
    transaction_features,
    update_running,
)
from feature_store.kernels.cards import MORE_EVENTS, TOO_MANY, Array, Counters, forget, make_room
from feature_store.kernels.forgetting import shortest_silence, silence
from feature_store.kernels.hot import add, become_hot, release_rings, ring_features
from feature_store.kernels.profiles import profile_in_force
from feature_store.kernels.recent_ids import look_up
from feature_store.kernels.windows import (
    LONGEST,
    late_flags,
    month_features,
    scratch,
    walk_late,
    walk_windows,
)
from feature_store.layout import (
    COUNTRY_SHIFT,
    CURRENCY_BITS,
    EMPTY,
    LAST_AT_MERCHANT,
    LAST_IN_COUNTRY,
    LIVE_EVENTS,
    MERCHANT_MASK,
    SPIKE,
    TRANSACTION_MASK,
    UNITS_PER_CURRENCY,
    WHEN_SHIFT,
)

__all__ = ["ACCEPTED", "CONFLICT", "DUPLICATE", "N_FEATURES", "RESTARTED", "apply", "scratch"]

ACCEPTED, DUPLICATE, RESTARTED, CONFLICT = range(4)
N_FEATURES = len(NAMES)
AHEAD = 16  # rows whose memory is fetched together


@njit(cache=True, inline="always")
def _touch(cards: Array, events: Array, numbers: NDArray[np.int32], start: int, end: int) -> int:
    """Prefetch the cards of rows start..end - 1 and their newest events; return a meaningless sum.

    The reads are independent, so their cache misses overlap; the kernel, row by row, would wait for
    each. With more cards than the processor's caches hold, this halves the kernel's time per row.
    """
    touched = 0
    for row in range(start, end):
        card = cards[numbers[row]]
        touched += card.seen + events[max(card.segment + card.events - 1, 0)].when
    return touched


@njit(cache=True, nogil=True)
def apply(
    cards: Array,
    events: Array,
    profiles: Array,
    hots: Array,
    buckets: Array,
    latest: Array,
    counters: Counters,
    batch: Array,
    numbers: NDArray[np.int32],
    start: int,
    accepted: int,
    lateness_ms: int,
    features: NDArray[np.float64],
    status: NDArray[np.uint8],
    late: NDArray[np.bool_],
    version: NDArray[np.int32],
    standing: NDArray[np.uint8],
    seen: NDArray[np.uint64],
    seen_in: NDArray[np.int64],
    seen_country: NDArray[np.int64],
    walk: int,
) -> int:
    """Compute the features of the rows from `start` on and insert the rows; skip repeated transactions.

    Args:
        cards: cards of the key group (CARD).
        events: events of the key group (EVENT).
        profiles: profile versions of the key group (PROFILE).
        hots: hot cards of the key group (HOT).
        buckets: rings of the hot cards (BUCKET).
        latest: recent transactions of the hot cards (EVENT).
        batch: n transactions (TRANSACTION) in log order.
        numbers: card number of each row, shape (n,).
        start: first row to process.
        accepted: number of accepted rows before `start`.
        features: out, a row of N_FEATURES columns or more for each accepted row, shape (n, c).
        status: out, ACCEPTED, DUPLICATE (a repetition, not accepted), RESTARTED (accepted as a forgotten
            card's first transaction) or CONFLICT (accepted, but its transaction id was seen with other
            content), shape (n,).
        late: out, whether an event of the card with a later event time was accepted before, shape (n,).
        version: out, the profile version in force or -1, shape (n,).
        standing: out, the card's status by its profile, index into STATUSES, shape (n,).
        seen: scratch.
        seen_in: scratch.
        seen_country: scratch.
        walk: `walk` + row marks the scratch entries of a row; each mark must exceed all earlier ones.

    Returns:
        n when all rows are done; else the first row not processed, because the events array or the arrays of
        the hot cards must grow first.
    """
    amounts = np.zeros(MEDIAN_SLOTS + 1, dtype=np.int64)
    shortest = shortest_silence(lateness_ms)
    for row in range(start, batch.size):
        if (row - start) % AHEAD == 0:
            # stored, so that the compiler does not remove the reads
            amounts[MEDIAN_SLOTS] += _touch(cards, events, numbers, row, min(row + AHEAD, batch.size))
        record = batch[row]
        card = cards[numbers[row]]
        status[row] = ACCEPTED
        silent = record.arrival - card.last_arrival
        if card.seen > 0 and silent > shortest and silent > silence(card, profiles, lateness_ms):
            status[row] = RESTARTED
            counters[LIVE_EVENTS] -= card.events
            card.events = 0
            if card.hot != EMPTY:
                release_rings(card, hots, counters)
            forget(card)
        time = record.time
        arrival = max(record.arrival, card.last_arrival)
        horizon = arrival - LONGEST - lateness_ms
        known_from = arrival - lateness_ms - REPEAT_MARGIN_MS
        transaction = record.transaction & np.uint64(TRANSACTION_MASK)
        merchant = record.merchant & np.uint64(MERCHANT_MASK)
        # as of `arrival`, which never goes back: versions superseded earlier may have been dropped
        version[row], standing[row] = profile_in_force(profiles, card.profile, arrival)
        country = np.int64(record.country)
        when = (time << WHEN_SHIFT) | (country << COUNTRY_SHIFT)
        money = (record.amount << CURRENCY_BITS) | np.int64(record.currency)
        minute = five = longest = 0
        if card.hot != EMPTY:
            repetition = look_up(latest, card.hot, transaction, when, money, merchant)
        else:
            repetition, minute, five, longest = look_back(
                card, events, transaction, when, money, merchant, known_from, arrival
            )
        if repetition == REPEATED:
            status[row] = DUPLICATE
            continue
        if repetition == CONFLICTING:
            status[row] = CONFLICT
        room = make_room(card, events, counters, horizon)
        if room == TOO_MANY:
            if not become_hot(card, events, hots, buckets, latest, counters, known_from, arrival):
                return row
            room = make_room(card, events, counters, horizon)
        if room == MORE_EVENTS:
            return row
        late[row] = card.seen > 0 and time < card.max_time
        end = card.segment + card.events
        at = end
        while at > card.segment and (events[at - 1].when >> WHEN_SHIFT) > time:
            at -= 1
        out = features[accepted]
        amount = record.amount / UNITS_PER_CURRENCY
        transaction_features(out, amount, time, record.arrival)
        flags = LAST_AT_MERCHANT | LAST_IN_COUNTRY
        if card.hot != EMPTY:
            hot = hots[card.hot]
            turn_rings(hot, arrival)
            minute, five, longest = hot.arrived[0], hot.arrived[1], hot.arrived[2]
            others, total, squares = ring_features(
                out, hots, buckets, card.hot, time, record.amount, merchant, country
            )
        else:
            if at == end:
                others, total, squares = walk_windows(
                    out, events, card.segment, at - 1, time, record.amount, merchant, country
                )
            else:
                others, total, squares = walk_late(
                    out, events, card.segment, at - 1, time, record.amount, merchant, country,
                    walk + row, seen, seen_in, seen_country,
                )  # fmt: skip
                flags = late_flags(events, card.segment, at, end, merchant, country)
        arrival_features(out, minute, five, longest)
        month_features(out, record.amount, others, total, squares)
        near_features(out, events, card.segment, at - 1, time, record.amount, country, amounts)
        spike = running_features(out, card, amount)
        profile_features(out, profiles, version[row], time, country)
        update_running(card, amount)
        for i in range(end, at, -1):
            events[i] = events[i - 1]
        event = events[at]
        event.when = when | flags | (SPIKE if spike else 0)
        event.money = money
        stamp(event, transaction, merchant, arrival)
        if card.hot != EMPTY:
            add(hots, buckets, latest, card.hot, event, arrival)
        card.events += 1
        counters[LIVE_EVENTS] += 1
        card.last_arrival = arrival
        card.partition = record.partition
        card.max_time = max(card.max_time, time)
        accepted += 1
    return batch.size
