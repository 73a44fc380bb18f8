"""Kernel that counts the alerts of a card: suspicious_count.

The count of a day is by clock hours of arrival, because arrivals of a card never go back: 24 counters are
then exact for ever, however late a transaction's event time is. A card that starts afresh does so here too,
at the row where it does: the features of the whole batch were computed before its first alert is counted.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.cards import Array, Counters
from feature_store.catalogue import HOUR_MS
from feature_store.jit import njit
from feature_store.layout import ALERTED, EMPTY, FREE_ALERTED


@njit(cache=True)
def count_alerts(
    cards: Array,
    hours: Array,
    counters: Counters,
    numbers: NDArray[np.int32],
    arrivals: NDArray[np.int64],
    alerted: NDArray[np.bool_],
    restarted: NDArray[np.bool_],
    day: NDArray[np.int64],
    total: NDArray[np.int64],
) -> None:
    """Enter alerts in log order and give each its counts, itself included.

    Args:
        cards: cards of the key group (CARD).
        hours: alert hours of the key group (ALERT_HOURS), with room for one more record per alert.
        counters: counters of the key group.
        numbers: card number of each row, shape (n,).
        arrivals: arrival of each row's transaction, ms, shape (n,).
        alerted: which rows are alerts, shape (n,).
        restarted: rows whose card starts afresh, shape (n,).
        day: out, alerts of the card in the 24 clock hours up to the arrival, shape (alerts,).
        total: out, alerts of the card so far, shape (alerts,).
    """
    at = 0
    for row in range(numbers.size):
        card = cards[numbers[row]]
        if restarted[row]:
            card.alerts = 0
        if not alerted[row]:
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
        hour = arrivals[row] // HOUR_MS
        if card.alerts == 0 or hour - record.hour >= 24:
            record.counts[:] = 0
            record.hour = hour
        while record.hour < hour:
            record.hour += 1
            record.counts[record.hour % 24] = 0
        record.counts[record.hour % 24] += 1
        card.alerts += 1
        day[at] = record.counts.sum()
        total[at] = card.alerts
        at += 1
