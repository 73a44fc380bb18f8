"""Merchant label features once more, naively: all payments of a merchant, and what was said of each by when.

The transactions of all partitions are gone through once before any is judged: a merchant's payments lie in
all of them. A label counts if its card has such a transaction, and takes effect two hours after the beginning
of the hour in which it arrived (the margin); a payment that nobody has reported within the label delay is
genuine.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from loadtests.oracle import decode
from loadtests.oracle.card import DAY_MS, HOUR_MS, MONTH_MS, Card, View
from loadtests.oracle.decode import RefusedError, read_transaction
from loadtests.oracle.partitions import partition_of
from loadtests.oracle.records import Outcome, Record, Rules, Transaction
from loadtests.oracle.tables import ProfileLog, dead_letter
from streaming_job.contracts import Reason

WEEK_HOURS, MONTH_HOURS = 7 * 24, 30 * 24
SAYS_FRAUD = {"early_warning": True, "chargeback": True, "refund": None, "reversal": False}
GENUINE_BECAUSE = {
    "cardholder_confirmed", "known_merchant", "travel", "family_or_shared_card", "subscription",
    "unusual_but_plausible", "merchant_error", "repeated_alert", "other",
}  # fmt: skip
_DECIDING = {
    "label": {
        "schema_version", "transaction_id", "card_id", "kind", "verdict", "reason", "source", "occurred_at",
        "maturity",
    },
    "chargeback": {"transaction_id", "card_id", "merchant_id", "event_time", "reported_at", "label"},
}  # fmt: skip


class Payment:
    """An accepted transaction as its merchant has it."""

    def __init__(self, arrival: int) -> None:
        self.arrival = arrival
        self.spike = False
        self.reports: list[tuple[int, bool]] = []
        """(when it takes effect, whether it says fraud), in the order of the log."""

    def is_fraud(self, time: int) -> bool:
        """Whether it was known as fraud at a time (ms): the last report that was in effect counts."""
        said = sorted((report for report in self.reports if report[0] <= time), key=lambda report: report[0])
        return bool(said) and said[-1][1]


class MerchantLog:
    """Every merchant's payments, from the logs of transactions and labels.

    Args:
        rules: which transactions are accepted.
        delay_ms: label delay.
        profiles: the profile topic, folded.
    """

    def __init__(self, rules: Rules, delay_ms: int, profiles: ProfileLog) -> None:
        self._rules, self._delay_ms, self._profiles = rules, delay_ms, profiles
        self._payments: dict[str, list[Payment]] = defaultdict(list)
        self._arrivals: dict[str, list[int]] = {}

    def read(
        self, transactions: Iterable[Record], labels: Iterable[Record], chargebacks: Iterable[Record]
    ) -> list[Outcome]:
        """Go through the logs; returns the dead letters among the labels.

        Args:
            transactions: each partition in the order of offsets.
            labels: records of contract label.v1.
            chargebacks: records of contract chargeback.v1.
        """
        refused: list[Outcome] = []
        waiting: dict[int, list[tuple[Record, str, str, bool | None]]] = defaultdict(list)
        for kind, records in (("label", labels), ("chargeback", chargebacks)):
            for record in records:
                try:
                    card_id, transaction_id, fraud = _read(record, kind)
                except RefusedError as fault:
                    refused.append(dead_letter(record, fault.reason))
                else:
                    place = partition_of(card_id, self._rules.partitions, self._rules.partitioner)
                    waiting[place].append((record, card_id, transaction_id, fraud))
        by_partition: dict[int, list[Record]] = defaultdict(list)
        for record in transactions:
            by_partition[record.partition].append(record)
        for partition in sorted(by_partition.keys() | waiting.keys()):
            lines = sorted(waiting[partition], key=lambda line: line[0].timestamp)
            refused += self._go_through(by_partition[partition], lines)
        for merchant_id, payments in self._payments.items():
            payments.sort(key=lambda payment: payment.arrival)
            self._arrivals[merchant_id] = [payment.arrival for payment in payments]
        return refused

    def _go_through(
        self, transactions: list[Record], labels: list[tuple[Record, str, str, bool | None]]
    ) -> Iterator[Outcome]:
        """One partition: each label after the transactions that arrived before it, or with it."""
        cards: dict[str, Card] = {}
        payments: dict[Transaction, Payment] = {}
        left = iter([*transactions, None])
        coming = next(left)
        for record, card_id, transaction_id, fraud in labels:
            while coming is not None and coming.timestamp <= record.timestamp:
                self._accept(coming, cards, payments)
                coming = next(left)
            found = _transactions(
                cards.get(card_id), transaction_id, record.timestamp, self._rules.allowed_lateness_ms,
                partial(self._profiles.had_version, card_id),
            )  # fmt: skip
            if not found:
                yield dead_letter(record, Reason.UNKNOWN_TRANSACTION)
            elif fraud is not None:
                takes_effect = (record.timestamp // HOUR_MS + 2) * HOUR_MS
                for tx in found:
                    payments[tx].reports.append((takes_effect, fraud))
        while coming is not None:
            self._accept(coming, cards, payments)
            coming = next(left)

    def _accept(self, record: Record, cards: dict[str, Card], payments: dict[Transaction, Payment]) -> None:
        try:
            tx = read_transaction(record, self._rules)
        except RefusedError:
            return
        card = cards.get(tx.card_id)
        if card is None or card.is_forgotten(
            tx.arrival, self._rules.allowed_lateness_ms, partial(self._profiles.had_version, tx.card_id)
        ):
            card = cards[tx.card_id] = Card()
        if card.has(tx):
            return
        view = View(tx, card, None)
        payment = payments[tx] = Payment(tx.arrival)
        payment.spike = card.spikes[view.place]
        self._payments[tx.merchant_id].append(payment)

    def features(self, merchant_id: str, arrival: int) -> dict[str, float]:
        """What was known of a merchant at an arrival, ms; NaN where unknown."""
        unripe = (arrival - self._delay_ms - HOUR_MS) // HOUR_MS
        arrivals = self._arrivals.get(merchant_id, [])
        first = bisect_left(arrivals, (unripe - MONTH_HOURS) * HOUR_MS)
        seen = self._payments[merchant_id][first : bisect_right(arrivals, arrival)] if arrivals else []
        is_fraud = [payment.is_fraud(arrival) for payment in seen]
        hours = [payment.arrival // HOUR_MS for payment in seen]
        every = list(zip(hours, is_fraud, strict=True))
        ripe = [one for one in every if one[0] < unripe]
        week = [one for one in ripe if one[0] >= unripe - WEEK_HOURS]
        frauds = [payment for payment, fraud in zip(seen, is_fraud, strict=True) if fraud]
        unexplained = [payment for payment in frauds if not payment.spike]
        genuine = [hour for hour, fraud in ripe if not fraud]
        streak = [payment for payment in frauds if payment.arrival // HOUR_MS > max(genuine, default=-1)]
        found: dict[str, float] = {
            "count_7d": len(week),
            "count_30d": len(ripe),
            "risk_7d": _share(week),
            "risk_30d": _share(ripe),
            "unexplained_7d": sum(one.arrival // HOUR_MS >= unripe - WEEK_HOURS for one in unexplained),
            "unexplained_30d": len(unexplained),
            "last_label": 1 if streak else 0 if genuine else math.nan,
            "streak": len(streak),
            "streak_age": _age(streak[:1], arrival),
            "last_unexplained_age": _age(unexplained[-1:], arrival),
            "first_unexplained_age": _age(unexplained[:1], arrival),
            "genuine_since": math.nan,
        }
        if unexplained:
            found["genuine_since"] = sum(hour > unexplained[-1].arrival // HOUR_MS for hour in genuine)
        return {f"merchant_{name}": float(value) for name, value in found.items()}


def _share(part: list[tuple[int, bool]]) -> float:
    return sum(fraud for _, fraud in part) / len(part) if part else math.nan


def _age(payments: list[Payment], arrival: int) -> float:
    return (arrival - payments[0].arrival) / DAY_MS if payments else math.nan


def _transactions(
    card: Card | None, transaction_id: str, labelled: int, lateness_ms: int, had_profile: Any
) -> list[Transaction]:
    """The card's transactions of that id which a label that arrives then (ms) finds."""
    if card is None:
        return []
    kept = len(card.times) if card.hot is None else len(card.hot.kept)
    known = [
        (tx, arrival)
        for tx, arrival in list(zip(card.transactions, card.arrivals, strict=True))[-kept:]
        if arrival <= labelled and tx.event_time > labelled - (MONTH_MS + lateness_ms - DAY_MS)
    ]
    found = [one for one in known if one[0].transaction_id == transaction_id]
    is_stranger = len(known) == 1 and bool(found) and not had_profile(found[0][1] + lateness_ms)
    return [tx for tx, arrival in found if not is_stranger or labelled - arrival <= lateness_ms]


def _read(record: Record, kind: str) -> tuple[str, str, bool | None]:
    """A label's card and transaction, and whether it says fraud: yes, no, or nothing.

    Raises:
        RefusedError: the record breaks its contract.
    """
    found = decode.parse_object(record.value)
    if found.repeated & _DECIDING[kind]:
        raise RefusedError(Reason.DUPLICATE_FIELD)
    if kind == "label":
        decode.integer(found, "schema_version", 1, 1)
    transaction_id = decode.identifier(found, "transaction_id")
    card_id = decode.identifier(found, "card_id")
    fraud: bool | None
    if kind == "label":
        fraud = _says_fraud(found)
        decode.identifier(found, "source")
        decode.integer(found, "occurred_at", 0, decode.MAX_EVENT_TIME)
        _word(found, "maturity", {"preliminary", "final"})
    else:
        decode.identifier(found, "merchant_id")
        decode.integer(found, "event_time", 0, decode.MAX_EVENT_TIME)
        decode.integer(found, "reported_at", 0, decode.MAX_EVENT_TIME)
        fraud = _word(found, "label", {"fraud", "genuine"}) == "fraud"
    if record.key != card_id.encode():
        raise RefusedError(Reason.INVALID_VALUE)
    return card_id, transaction_id, fraud


def _says_fraud(found: dict[str, Any]) -> bool | None:
    kind = _word(found, "kind", {*SAYS_FRAUD, "verdict"})
    verdict = _word(found, "verdict", {"fraud", "genuine"}) if kind == "verdict" else None
    if verdict == "genuine":
        _word(found, "reason", GENUINE_BECAUSE)
    if (verdict is None and "verdict" in found) or (verdict != "genuine" and "reason" in found):
        raise RefusedError(Reason.INVALID_VALUE)
    return SAYS_FRAUD[kind] if verdict is None else verdict == "fraud"


def _word(found: dict[str, Any], name: str, allowed: set[str]) -> str:
    if name not in found:
        raise RefusedError(Reason.MISSING_FIELD)
    if type(found[name]) is not str:
        raise RefusedError(Reason.WRONG_TYPE)
    if found[name] not in allowed:
        raise RefusedError(Reason.INVALID_VALUE)
    return str(found[name])
