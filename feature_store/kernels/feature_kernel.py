"""The feature kernel: one pass over a batch of transactions, in log order, against a key group's state.

For each transaction the kernel detects repetition, computes features from what the log held before it, and
inserts it into its card's history. Per event it touches only flat arrays and integers. One walk backwards
through the card's events gives all windows. The naive oracle of the tests computes the same numbers in plain
Python.
"""

import math

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import (
    CLIP_RATIO,
    COLUMN,
    DAY_MS,
    HOUR_MS,
    MEDIAN_OF,
    NAMES,
    ROBUST_MEMORY,
    SPIKE_RATIO,
)
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
from feature_store.kernels.cards import MORE_EVENTS, TOO_MANY, Array, Counters, forget, make_room
from feature_store.kernels.countries import CENTROIDS
from feature_store.kernels.forgetting import shortest_silence, silence
from feature_store.kernels.hot import add, become_hot, cool_down, look_up, ring_features
from feature_store.kernels.windows import (
    DAY_WINDOW,
    FIRST_WINDOWED,
    LONGEST,
    PER_WINDOW,
    late_flags,
    month_features,
    scratch,
    walk_late,
    walk_windows,
)
from feature_store.layout import (
    ACTIVE,
    COUNTRY_MASK,
    COUNTRY_SHIFT,
    DELETE,
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

C_AMOUNT, C_TAIL = COLUMN["amount"], COLUMN["amount_tail"]
C_HOUR, C_NIGHT, C_WEEKEND = COLUMN["hour_of_day"], COLUMN["is_night"], COLUMN["is_weekend"]
C_LATENESS = COLUMN["lateness"]
C_GAP, C_COUNT_ALL, C_Z_ALL = COLUMN["time_since_previous"], COLUMN["count_all"], COLUMN["zscore_all"]
C_RATIO_ROBUST, C_RATIO_MEDIAN = COLUMN["ratio_robust"], COLUMN["ratio_median"]
C_SPEED = COLUMN["travel_speed"]
C_HAS_PROFILE, C_LIMIT_USE, C_AGE = COLUMN["has_profile"], COLUMN["limit_use_24h"], COLUMN["account_age"]
C_RISK, C_AWAY = COLUMN["risk_tier"], COLUMN["away_from_home"]
UNKNOWN_COUNTRY = 25 * 26 + 25  # ZZ

MEDIAN_SLOTS = 16  # at least MEDIAN_OF, a multiple of a vector's lanes
GREATEST = np.iinfo(np.int64).max
AHEAD = 16  # rows whose memory is fetched together


@njit(cache=True)
def _lower_median(values: NDArray[np.int64], count: int) -> int:
    """Return the lower median of the first `count` values, by ranks: a sort's branches are unpredictable."""
    for i in range(count, MEDIAN_SLOTS):
        values[i] = GREATEST
    rank = (count - 1) // 2
    median = GREATEST
    # a fixed number of iterations without a branch: the compiler vectorises them
    for i in range(MEDIAN_SLOTS):
        value = values[i]
        up_to = 0
        for j in range(MEDIAN_SLOTS):
            up_to += values[j] <= value
        median = min(median, value if up_to > rank else GREATEST)
    return median


@njit(cache=True)
def _speed_kmh(a: int, b: int, gap_ms: int) -> float:
    """Compute the implied speed between two countries' centroids (haversine, earth radius 6371 km).

    The distance is rounded to whole metres: sines of different C libraries differ in their last bits.
    """
    if a == UNKNOWN_COUNTRY or b == UNKNOWN_COUNTRY:
        return np.nan
    if a == b:
        return 0.0
    phi_a, phi_b = math.radians(CENTROIDS[a, 0]), math.radians(CENTROIDS[b, 0])
    half_phi = (phi_b - phi_a) / 2
    half_lambda = math.radians(CENTROIDS[b, 1] - CENTROIDS[a, 1]) / 2
    h = math.sin(half_phi) ** 2 + math.cos(phi_a) * math.cos(phi_b) * math.sin(half_lambda) ** 2
    km = np.rint(2 * 6371.0 * math.asin(min(1.0, math.sqrt(h))) * 1000) / 1000
    return km / (max(gap_ms, 1000) / HOUR_MS)


@njit(cache=True, inline="always")
def _transaction_features(out: NDArray[np.float64], amount: float, time: int, arrival: int) -> None:
    out[C_AMOUNT] = amount
    out[C_LATENESS] = (arrival - time) / 1000
    out[C_TAIL] = min(max(np.rint(amount), 150.0), 400.0)
    hour = time // HOUR_MS % 24
    out[C_HOUR] = hour
    out[C_NIGHT] = 1.0 if hour <= 6 else 0.0
    # day 0 of the epoch was a Thursday
    out[C_WEEKEND] = 1.0 if (time // DAY_MS + 3) % 7 >= 5 else 0.0


@njit(cache=True, inline="always")
def _running_features(out: NDArray[np.float64], card: Array, amount: float) -> bool:
    """Set the features from the running statistics; return whether the amount is a spike."""
    out[C_COUNT_ALL] = card.seen
    out[C_Z_ALL] = np.nan
    if card.seen >= 2 and card.m2 > 0.0:
        out[C_Z_ALL] = (amount - card.mean) / math.sqrt(card.m2 / card.seen)
    if card.robust_mean > 0.0:
        out[C_RATIO_ROBUST] = amount / card.robust_mean
        return amount / card.robust_mean > SPIKE_RATIO
    out[C_RATIO_ROBUST] = np.nan
    return False


@njit(cache=True, inline="always")
def _update_running(card: Array, amount: float) -> None:
    card.seen += 1
    delta = amount - card.mean
    card.mean += delta / card.seen
    card.m2 += delta * (amount - card.mean)
    if card.robust_mean > 0.0:
        clipped = min(amount, CLIP_RATIO * card.robust_mean)
        card.robust_mean += (clipped - card.robust_mean) / min(card.seen, ROBUST_MEMORY)
    else:
        card.robust_mean = amount


@njit(cache=True, inline="always")
def _profile_features(
    out: NDArray[np.float64], profiles: Array, version: int, time: int, country: int
) -> None:
    if version == EMPTY:
        out[C_HAS_PROFILE] = 0.0
        out[C_LIMIT_USE] = out[C_AGE] = out[C_RISK] = out[C_AWAY] = np.nan
        return
    profile = profiles[version]
    out[C_HAS_PROFILE] = 1.0
    spent = out[FIRST_WINDOWED + PER_WINDOW * DAY_WINDOW + 1]
    out[C_LIMIT_USE] = spent / profile.credit_limit if profile.credit_limit > 0.0 else np.nan
    out[C_AGE] = time // DAY_MS - profile.opened_on
    out[C_RISK] = profile.risk_tier
    unknown = country == UNKNOWN_COUNTRY or profile.country == UNKNOWN_COUNTRY
    out[C_AWAY] = np.nan if unknown else (1.0 if country != profile.country else 0.0)


@njit(cache=True, inline="always")
def profile_in_force(profiles: Array, newest: int, arrival: int) -> tuple[int, int]:
    """Return the newest profile version of a card that was visible at `arrival`, and the card's status.

    The version is -1 if there is none or it was deleted. The status outlives a delete (see `profiles`); a
    card without any version is active.
    """
    version = newest
    while version != EMPTY and profiles[version].arrival > arrival:
        version = profiles[version].older
    if version == EMPTY:
        return EMPTY, ACTIVE
    return EMPTY if profiles[version].change >= DELETE else version, profiles[version].status


@njit(cache=True)
def _near_features(
    out: NDArray[np.float64],
    events: Array,
    first: int,
    last: int,
    time: int,
    units: int,
    country: int,
    amounts: NDArray[np.int64],
) -> None:
    """Set the features that compare with the previous event and the last few."""
    out[C_GAP] = out[C_RATIO_MEDIAN] = out[C_SPEED] = np.nan
    count = 0
    most = min(MEDIAN_OF, last - first + 1)
    while count < most:
        event = events[np.uint64(last - count)]
        if (event.when >> WHEN_SHIFT) <= time - LONGEST:
            break
        amounts[count] = event.amount
        count += 1
    if count == 0:
        return
    previous = events[last].when
    gap = time - (previous >> WHEN_SHIFT)
    out[C_GAP] = gap / 1000
    out[C_SPEED] = _speed_kmh((previous >> COUNTRY_SHIFT) & COUNTRY_MASK, country, gap)
    median = _lower_median(amounts, count)
    if median > 0:
        out[C_RATIO_MEDIAN] = units / median


@njit(cache=True, inline="always")
def _touch(cards: Array, events: Array, numbers: NDArray[np.int32], start: int, end: int) -> int:
    """Prefetch the cards of rows start..end - 1 and their newest events; return a meaningless sum.

    The reads are independent, so that their cache misses overlap; the kernel, row by row, would wait for
    each. With more cards than the caches hold this halves the time of an event.
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
    """Compute the features of the rows from `start` on and insert the rows.

    Args:
        cards: cards of the key group (CARD).
        events: events of the key group (EVENT).
        profiles: profile versions of the key group (PROFILE).
        hots: hot cards of the key group (HOT).
        buckets: their rings (BUCKET).
        latest: their recent transactions (EVENT).
        counters: counters of the key group.
        batch: n transactions (TRANSACTION) in log order.
        numbers: card number of each row, shape (n,).
        start: first row to process.
        lateness_ms: allowed lateness.
        features: out, shape (n, len(FEATURES)).
        status: out, ACCEPTED, DUPLICATE, RESTARTED (accepted as a forgotten card's first) or CONFLICT
            (accepted, but its transaction id was seen with other content), shape (n,).
        late: out, whether an event of the card with a later event time was accepted before, shape (n,).
        version: out, the profile version in force or -1, shape (n,).
        standing: out, the card's status by its profile, index into STATUSES, shape (n,).
        seen: scratch.
        seen_in: scratch.
        seen_country: scratch.
        walk: walk number of row 0; `walk` + row must exceed every number used with this scratch before.

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
                cool_down(card, hots, counters)
            forget(card)
        time = record.time
        arrival = max(record.arrival, card.last_arrival)
        horizon = arrival - LONGEST - lateness_ms
        known_from = arrival - lateness_ms - REPEAT_MARGIN_MS
        transaction = record.transaction & np.uint64(TRANSACTION_MASK)
        merchant = record.merchant & np.uint64(MERCHANT_MASK)
        # versions superseded at an earlier arrival may have been dropped: `arrival` never goes back
        version[row], standing[row] = profile_in_force(profiles, card.profile, arrival)
        country = np.int64(record.country)
        when = (time << WHEN_SHIFT) | (country << COUNTRY_SHIFT)
        minute = five = longest = 0
        if card.hot != EMPTY:
            repetition = look_up(latest, card.hot, transaction, when, record.amount, merchant)
        else:
            repetition, minute, five, longest = look_back(
                card, events, transaction, when, record.amount, merchant, known_from, arrival
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
        out = features[row]
        amount = record.amount / UNITS_PER_CURRENCY
        _transaction_features(out, amount, time, record.arrival)
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
        _near_features(out, events, card.segment, at - 1, time, record.amount, country, amounts)
        spike = _running_features(out, card, amount)
        _profile_features(out, profiles, version[row], time, country)
        _update_running(card, amount)
        for i in range(end, at, -1):
            events[i] = events[i - 1]
        event = events[at]
        event.when = when | flags | (SPIKE if spike else 0)
        event.amount = record.amount
        stamp(event, transaction, merchant, arrival)
        if card.hot != EMPTY:
            add(hots, buckets, latest, card.hot, event, arrival)
        card.events += 1
        counters[LIVE_EVENTS] += 1
        card.last_arrival = arrival
        card.partition = record.partition
        card.max_time = max(card.max_time, time)
    return batch.size


N_FEATURES = len(NAMES)
