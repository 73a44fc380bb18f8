"""Merchant label features in plain Python, straight from their definitions: loops, no arrays."""

from typing import NamedTuple

from feature_store.catalogue import DAY_MS, HOUR_MS
from feature_store.merchants.catalogue import MERCHANT_NAMES

NAN = float("nan")


class Tx(NamedTuple):
    """An accepted transaction."""

    merchant: str
    arrival: int
    spike: bool


class Report(NamedTuple):
    """A report about the transaction with the index `tx`."""

    tx: int
    reported_at: int
    fraud: bool


def takes_effect(reported_at: int) -> int:
    """Return when a report takes effect: an hour after the end of its hour."""
    return (reported_at // HOUR_MS + 2) * HOUR_MS


def is_known_fraud(number: int, reports: list[Report], time: int) -> bool:
    """Return whether the last report up to `time` about transaction `number` says fraud.

    Of reports with equal times, the later one in the list counts.
    """
    earlier = [report for report in reports if report.tx == number and report.reported_at <= time]
    earlier.sort(key=lambda report: report.reported_at)
    return bool(earlier) and earlier[-1].fraud


def features(
    txs: list[Tx], reports: list[Report], merchant: str, arrival: int, delay_ms: int
) -> dict[str, float]:
    """Compute a merchant's features from the reports in effect at an arrival."""
    in_effect = [report for report in reports if takes_effect(report.reported_at) <= arrival]
    unripe = (arrival - delay_ms - HOUR_MS) // HOUR_MS
    seen = [
        (tx, is_known_fraud(number, in_effect, arrival))
        for number, tx in enumerate(txs)
        if tx.merchant == merchant and tx.arrival <= arrival and tx.arrival // HOUR_MS >= unripe - 30 * 24
    ]
    hour = {tx: tx.arrival // HOUR_MS for tx, _ in seen}
    in_week = {tx: hour[tx] >= unripe - 7 * 24 for tx, _ in seen}
    ripe = [(tx, fraud) for tx, fraud in seen if hour[tx] < unripe]
    frauds = sorted((tx for tx, fraud in seen if fraud), key=lambda tx: tx.arrival)
    genuine = [tx for tx, fraud in ripe if not fraud]
    newest_genuine = max((hour[tx] for tx in genuine), default=-1)
    streak = [tx for tx in frauds if hour[tx] > newest_genuine]
    unexplained = [tx for tx in frauds if not tx.spike]

    def age(tx: Tx) -> float:
        return (arrival - tx.arrival) / DAY_MS

    def share(part: list[bool]) -> float:
        return sum(part) / len(part) if part else NAN

    return {
        "merchant_count_7d": sum(in_week[tx] for tx, _ in ripe),
        "merchant_count_30d": len(ripe),
        "merchant_risk_7d": share([fraud for tx, fraud in ripe if in_week[tx]]),
        "merchant_risk_30d": share([fraud for _, fraud in ripe]),
        "merchant_unexplained_7d": sum(in_week[tx] for tx in unexplained),
        "merchant_unexplained_30d": len(unexplained),
        "merchant_last_label": 1.0 if streak else 0.0 if genuine else NAN,
        "merchant_streak": len(streak),
        "merchant_streak_age": age(streak[0]) if streak else NAN,
        "merchant_last_unexplained_age": age(unexplained[-1]) if unexplained else NAN,
        "merchant_first_unexplained_age": age(unexplained[0]) if unexplained else NAN,
        "merchant_genuine_since": sum(hour[tx] > hour[unexplained[-1]] for tx in genuine)
        if unexplained
        else NAN,
    }


def row(values: dict[str, float]) -> list[float]:
    """Return the values in the order of the columns."""
    return [float(values[name]) for name in MERCHANT_NAMES]
