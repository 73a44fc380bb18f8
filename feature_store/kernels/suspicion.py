"""Kernel that counts the alerts of a card (suspicious_count) and applies escalation and cooldown.

The count of a day covers 24 clock hours of arrival. Arrivals of a card never go back, so 24 counters stay
exact, however late a transaction's event time is. The alerts of a card that starts afresh are reset here, at
the row of its restart. The feature kernel does not reset them: it processes the whole batch before this
kernel starts, so the card's rows before the restart would lose their counts, too.

Escalation and cooldown depend on the order of a card's alerts. The count that escalates an alert includes the
alert itself. An alert that is neither declined nor escalated is suppressed if it arrives within the cooldown
after the last alert sent.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import HOUR_MS
from feature_store.jit import njit
from feature_store.kernels.cards import Array, Counters
from feature_store.layout import ALERTED, EMPTY, FREE_ALERTED

NEVER = 0
"""Value of `escalate_after` by which no alert is escalated."""
FOR_EVER = np.iinfo(np.int64).max
"""Value of `cooldown_ms` for a cooldown that never ends."""


@njit(cache=True, inline="always")
def _in_day(card: Array, hours: Array, hour: int) -> int:
    """Count the alerts of a card in the 24 clock hours up to `hour`."""
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
    last_sent_ms: NDArray[np.int64],
) -> None:
    """Record alerts in log order and give each row its counts, the row itself included.

    A row without an alert is not recorded, but gets the counts that it would have as an alert.

    Args:
        cards: cards of the key group (CARD).
        hours: alert hours of the key group (ALERT_HOURS), with room for one more record per alert.
        numbers: card number of each row, shape (n,).
        arrivals: arrival of each row's transaction, ms, shape (n,).
        alerted: which rows are alerts, shape (n,).
        restarted: rows whose card starts afresh, shape (n,).
        declined: alerts that a cooldown never suppresses, shape (n,).
        escalate_after: value of `day` from which an alert is treated as declined, or NEVER, shape (n,).
        cooldown_ms: time after the last alert sent in which alerts are suppressed; 0: never, shape (n,).
        day: out, alerts of the card in the 24 clock hours up to the arrival, shape (n,).
        total: out, alerts of the card since its start or last restart, shape (n,).
        last_sent_ms: out, for a suppressed alert the arrival of the last alert sent, ms; else 0, shape (n,).
    """
    for row in range(numbers.size):
        card = cards[numbers[row]]
        if restarted[row]:
            card.alerts = 0
        arrival = arrivals[row]
        hour = arrival // HOUR_MS
        last_sent_ms[row] = 0
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
            last_sent_ms[row] = record.sent
        else:
            record.sent = arrival
