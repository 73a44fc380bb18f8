"""Merchant facts as arrays: transaction counts by arrival hour, and single frauds.

The topic `merchant-facts` holds the counts and the reports; `spans` derives the frauds from the reports.
`offline` computes the same facts from files. A count does not depend on labels, so it can be written as soon
as its hour is over. A fraud counts from the time when its report takes effect until its reversal does, if
there is one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import HOUR_MS
from feature_store.layout import MERCHANT_MASK
from feature_store.merchants.catalogue import NEVER
from feature_store.merchants.hours import HOUR_COUNT, Hours, Ranges, SortedHours

LABEL_FACT = np.dtype(
    [
        ("merchant", "u8"),
        ("arrival", "i8"),
        ("known_from", "i8"),
        ("known_until", "i8"),
        ("spike", "?"),
    ]
)
"""One fraud: arrival of its transaction, times when its report and its reversal take effect (NEVER: not
reversed), all in ms; and whether its amount was a spike in the card's history."""

REPORT = np.dtype(
    [
        ("merchant", "u8"),
        ("transaction", "u8"),
        ("arrival", "i8"),
        ("effective_at", "i8"),
        ("fraud", "?"),
        ("spike", "?"),
    ]
)
"""One label of a transaction: fraud or genuine from `effective_at` (ms) on. `transaction` is the
TRANSACTION_MASK bits of the hash of its id, `arrival` (ms) the arrival of the transaction."""


def merchant_hash(merchants: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the bits of merchants' hashes that a card's history stores; facts identify merchants by them."""
    return merchants & np.uint64(MERCHANT_MASK)


@dataclass(frozen=True)
class Facts:
    """All facts by merchant and time, for the kernel."""

    hours: Hours
    """Counts by arrival hour."""
    frauds: NDArray[np.void]
    """LABEL_FACT, sorted by merchant and arrival."""
    merchants: NDArray[np.uint64]
    """Merchant of each fraud."""

    def frauds_of(self, merchants: NDArray[np.uint64]) -> Ranges:
        """Return the range of rows in `frauds` of each of n merchants (hashes)."""
        return (
            np.searchsorted(self.merchants, merchants, side="left"),
            np.searchsorted(self.merchants, merchants, side="right"),
        )


def fold(counts: NDArray[np.void], frauds: NDArray[np.void]) -> Facts:
    """Sort and index facts.

    Args:
        counts: HOUR_COUNT in any order; several of one merchant and hour add up.
        frauds: LABEL_FACT in any order.
    """
    return with_frauds(SortedHours.of(added_up(counts)), frauds)


def with_frauds(hours: Hours, frauds: NDArray[np.void]) -> Facts:
    """Sort and index frauds (LABEL_FACT, in any order); join them with counts that are indexed already."""
    frauds = frauds[np.lexsort((frauds["known_from"], frauds["arrival"], frauds["merchant"]))]
    return Facts(hours, frauds, frauds["merchant"].copy())


def spans(reports: NDArray[np.void]) -> NDArray[np.void]:
    """Convert reports to LABEL_FACT: spans from a report of fraud to the report that reverses it.

    Args:
        reports: REPORT; if several for one transaction take effect at the same time, the last of them counts.
    """
    names = ("effective_at", "transaction", "arrival", "merchant")
    reports = reports[np.lexsort([reports[name] for name in names])]  # stable
    first = np.ones(reports.size, dtype=np.bool_)
    first[1:] = np.any([reports[name][1:] != reports[name][:-1] for name in names[1:]], axis=0)
    fraud = reports["fraud"]
    before = np.zeros(reports.size, dtype=np.bool_)
    before[1:] = fraud[:-1]
    # only a report that changes a transaction's label begins or ends a span
    changes = np.flatnonzero(fraud != (before & ~first))
    number = np.cumsum(first)[changes]
    begins = np.flatnonzero(fraud[changes])
    after = np.minimum(begins + 1, max(changes.size - 1, 0))
    is_ended = (begins + 1 < changes.size) & (number[after] == number[begins])
    frauds = np.empty(begins.size, dtype=LABEL_FACT)
    for name in ("merchant", "arrival", "spike"):
        frauds[name] = reports[name][changes[begins]]
    frauds["known_from"] = reports["effective_at"][changes[begins]]
    frauds["known_until"] = np.where(is_ended, reports["effective_at"][changes[after]], NEVER)
    return frauds


def hour_counts(merchants: NDArray[np.uint64], arrivals: NDArray[np.int64]) -> NDArray[np.void]:
    """Build one HOUR_COUNT for each of n transactions; `added_up` combines them.

    Args:
        merchants: hash of each transaction's merchant, shape (n,).
        arrivals: arrival of each transaction, ms, shape (n,).
    """
    counts = np.empty(merchants.size, dtype=HOUR_COUNT)
    counts["merchant"] = merchants
    counts["hour"] = arrivals // HOUR_MS
    counts["count"] = 1
    return counts


def added_up(counts: NDArray[np.void]) -> NDArray[np.void]:
    """Add up counts to one HOUR_COUNT for each merchant and hour, sorted by merchant and hour."""
    counts = counts[np.lexsort((counts["hour"], counts["merchant"]))]
    first = np.ones(counts.size, dtype=np.bool_)
    first[1:] = (counts["merchant"][1:] != counts["merchant"][:-1]) | (
        counts["hour"][1:] != counts["hour"][:-1]
    )
    starts = np.flatnonzero(first)
    total = counts[starts]
    if starts.size:
        total["count"] = np.add.reduceat(counts["count"], starts)
    return total
