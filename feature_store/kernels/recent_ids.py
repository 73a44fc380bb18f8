"""Recent transactions of a hot card by id, among which its repetitions are recognised.

A hot card has two hash sets; new transactions enter the newer one. When that is half full, the older one is
cleared and becomes the newer. So the last 1,024 to 2,048 accepted transactions are known, with their content:
by the hash alone, a colliding transaction would be dropped as a repetition. A hash of 0 is stored as 1,
because 0 marks an empty entry.
"""

import numpy as np

from feature_store.jit import njit
from feature_store.kernels.arrivals import CONFLICTING, NEW, REPEATED, agrees, transaction_of
from feature_store.kernels.cards import Array
from feature_store.layout import COUNTRY_SHIFT, IDS_PER_SET, MERCHANT_MASK


@njit(cache=True)
def look_up(
    latest: Array, hot: int, transaction: np.uint64, when: int, money: int, merchant: np.uint64
) -> int:
    """Classify a transaction id against a hot card's recent transactions: NEW, REPEATED or CONFLICTING."""
    outcome = NEW
    transaction = max(transaction, np.uint64(1))
    for part in range(2):
        base = (2 * hot + part) * IDS_PER_SET
        at = np.int64(transaction & np.uint64(IDS_PER_SET - 1))
        while latest[base + at].transaction != 0:
            if latest[base + at].transaction == transaction:
                if agrees(latest[base + at], when, money, merchant):
                    return REPEATED
                outcome = CONFLICTING
            at = (at + 1) & (IDS_PER_SET - 1)
    return outcome


@njit(cache=True)
def clear(latest: Array, start: int, end: int) -> None:
    """Clear the entries from `start` to `end` - 1."""
    for i in range(start, end):
        latest[i].when = 0
        latest[i].money = 0
        latest[i].transaction = np.uint64(0)
        latest[i].merchant = np.uint64(0)


@njit(cache=True)
def remember(latest: Array, record: Array, hot: int, event: Array) -> None:
    """Enter a transaction into the newer of two sets; when that is half full, clear and use the older one."""
    if record.ids == IDS_PER_SET // 2:
        record.newer = 1 - record.newer
        record.ids = 0
        base = (2 * hot + record.newer) * IDS_PER_SET
        clear(latest, base, base + IDS_PER_SET)
    base = (2 * hot + record.newer) * IDS_PER_SET
    transaction = max(transaction_of(event), np.uint64(1))
    at = np.int64(transaction & np.uint64(IDS_PER_SET - 1))
    while latest[base + at].transaction != 0:
        at = (at + 1) & (IDS_PER_SET - 1)
    entry = latest[base + at]
    entry.transaction = transaction
    entry.merchant = event.merchant & np.uint64(MERCHANT_MASK)
    entry.when = event.when >> COUNTRY_SHIFT << COUNTRY_SHIFT
    entry.money = event.money
    record.ids += 1
