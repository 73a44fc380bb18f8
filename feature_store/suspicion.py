"""Kernel that counts the alerts of a card (suspicious_count), and says which of them a cooldown holds back.

The count of a day is by clock hours of arrival, because arrivals of a card never go back: 24 counters are
then exact for ever, however late a transaction's event time is. A card that starts afresh does so here too,
at the row where it does: the features of the whole batch were computed before its first alert is counted.

Escalation and cooldown need the order of a card's alerts: whether one is escalated follows from its own
count, and one that is not declined is held back while the cooldown since the last one sent has not passed.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.cards import Array, Counters
from feature_store.catalogue import HOUR_MS
from feature_store.jit import njit
from feature_store.layout import ALERTED, EMPTY, FREE_ALERTED

NEVER = 0
"""As `escalate_after`: no alert is escalated."""
FOR_EVER = np.iinfo(np.int64).max
"""As `cooldown_ms`: longer than any."""


@njit(cache=True, inline="always")
def _in_day(card: Array, hours: Array, hour: int) -> int:
    """Alerts of a card in the 24 clock hours up to `hour`."""
    if card.alert_hours == EMPTY or card.alerts == 0 or hour - hours[card.alert_hours].hour >= 24:
        return 0
    record = hours[card.alert_hours]
    count = 0
    for h in range(max(hour, record.hour) - 23, record.hour + 1):
        count += record.counts[h % 24]
    return count


@njit(cache=True)
def count_alerts(
    cards: Array,
    hours: Array,
    counters: Counters,
    numbers: NDArray[np.int32],
    arrivals: NDArray[np.int64],
    alerted: NDArray[np.bool_],
    restarted: NDArray[np.bool_],
    declined: NDArray[np.bool_],
    escalate_after: NDArray[np.int64],
    cooldown_ms: NDArray[np.int64],
    day: NDArray[np.int64],
    total: NDArray[np.int64],
    held_since: NDArray[np.int64],
) -> None:
    """Enter alerts in log order and give each row its counts, itself included.

    A row that is no alert changes nothing, and gets the counts that it would have as one.

    Args:
        cards: cards of the key group (CARD).
        hours: alert hours of the key group (ALERT_HOURS), with room for one more record per alert.
        counters: counters of the key group.
        numbers: card number of each row, shape (n,).
        arrivals: arrival of each row's transaction, ms, shape (n,).
        alerted: which rows are alerts, shape (n,).
        restarted: rows whose card starts afresh, shape (n,).
        declined: alerts that a cooldown never holds back, shape (n,).
        escalate_after: the count of a day from which an alert is as if declined; NEVER, shape (n,).
        cooldown_ms: how long after the last alert sent one is held back; 0: never, shape (n,).
        day: out, alerts of the card in the 24 clock hours up to the arrival, shape (n,).
        total: out, alerts of the card so far, shape (n,).
        held_since: out, of an alert held back the arrival of the last one sent, ms; else 0, shape (n,).
    """
    for row in range(numbers.size):
        card = cards[numbers[row]]
        if restarted[row]:
            card.alerts = 0
        arrival = arrivals[row]
        hour = arrival // HOUR_MS
        held_since[row] = 0
        if not alerted[row]:
            day[row] = _in_day(card, hours, hour) + 1
            total[row] = card.alerts + 1
            continue
        if card.alert_hours == EMPTY:
            card.alert_hours = counters[FREE_ALERTED]
            if card.alert_hours != EMPTY:
                counters[FREE_ALERTED] = hours[card.alert_hours].hour
            else:
                card.alert_hours = counters[ALERTED]
                counters[ALERTED] += 1
            hours[card.alert_hours].hour = 0
            hours[card.alert_hours].counts[:] = 0
        record = hours[card.alert_hours]
        if card.alerts == 0:
            record.sent = 0
        if card.alerts == 0 or hour - record.hour >= 24:
            record.counts[:] = 0
            record.hour = hour
        while record.hour < hour:
            record.hour += 1
            record.counts[record.hour % 24] = 0
        record.counts[record.hour % 24] += 1
        card.alerts += 1
        day[row] = record.counts.sum()
        total[row] = card.alerts
        urgent = declined[row] or 0 < escalate_after[row] <= day[row]
        cooldown = cooldown_ms[row]
        if not urgent and record.sent > 0 and cooldown > 0 and arrival - record.sent <= cooldown:
            held_since[row] = record.sent
        else:
            record.sent = arrival
