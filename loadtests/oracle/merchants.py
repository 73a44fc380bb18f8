"""A second, naive implementation of the merchant label features, from payments and labels.

A payment is an accepted transaction. All partitions are read once before any transaction is judged, because a
merchant's payments are in all of them. A label counts if its card still has the transaction that the label
names; if it says fraud or genuine, it is a report on that payment. A report takes effect one hour (the
margin) after the end of the hour in which it arrived. A payment is genuine if its arrival hour ended at least
the label delay plus the margin ago, unless its last report in effect says fraud.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from loadtests.oracle import decode
from loadtests.oracle.card import DAY_MS, HOUR_MS, MONTH_MS, Card
from loadtests.oracle.decode import RefusedError, read_transaction
from loadtests.oracle.partitions import partition_of
from loadtests.oracle.records import AcceptanceRules, ExpectedOutcome, Record, Transaction
from loadtests.oracle.tables import ProfileLog, dead_letter
from loadtests.oracle.view import View
from streaming_job.contracts import Reason

WEEK_HOURS, MONTH_HOURS = 7 * 24, 30 * 24
SECONDS_UNTIL = 10**11
"""A time of a label below this is in seconds, not ms."""
SAYS_FRAUD = {"early_warning": True, "chargeback": True, "refund": None, "reversal": False}
GENUINE_BECAUSE = {
    "cardholder_confirmed", "known_merchant", "travel", "family_or_shared_card", "subscription",
    "unusual_but_plausible", "merchant_error", "repeated_alert", "other",
}  # fmt: skip
_DECIDING = {
    "label": {
        "schema_version", "transaction_id", "card_id", "kind", "verdict", "reason", "source", "occurred_at",
        "event_time", "maturity",
    },
    "chargeback": {"transaction_id", "card_id", "merchant_id", "event_time", "reported_at", "label"},
}  # fmt: skip


class _Label(NamedTuple):
    """What a label's record says."""

    card_id: str
    transaction_id: str
    fraud: bool | None
    """Fraud, genuine (False), or neither (None)."""
    paid_at: int | None
    """Event time of the transaction according to the label, ms; None if it does not say."""


class Payment:
    """An accepted transaction of a merchant, with its reports."""

    def __init__(self, arrival: int) -> None:
        self.arrival = arrival
        self.spike = False
        self.reports: list[tuple[int, bool]] = []
        """(time at which the report takes effect, ms; whether it says fraud), in order of arrival."""

    def is_fraud(self, time: int) -> bool:
        """Return whether the payment was known as fraud at a time (ms): the last report in effect counts."""
        in_effect = sorted(
            (report for report in self.reports if report[0] <= time), key=lambda report: report[0]
        )
        return bool(in_effect) and in_effect[-1][1]


class MerchantLog:
    """Every merchant's payments, from the logs of transactions and labels.

    Args:
        delay_ms: label delay, ms.
        profiles: all versions of the profiles, already read.
    """

    def __init__(self, rules: AcceptanceRules, delay_ms: int, profiles: ProfileLog) -> None:
        self._rules, self._delay_ms, self._profiles = rules, delay_ms, profiles
        self._payments: dict[str, list[Payment]] = defaultdict(list)
        self._arrivals: dict[str, list[int]] = {}

    def read(
        self, transactions: Iterable[Record], labels: Iterable[Record], chargebacks: Iterable[Record]
    ) -> list[ExpectedOutcome]:
        """Read the logs; returns the dead letters among labels and chargebacks.

        Args:
            transactions: each partition in the order of offsets.
            labels: records of contract label.v1.
            chargebacks: records of contract chargeback.v1.
        """
        refused: list[ExpectedOutcome] = []
        waiting: dict[int, list[tuple[Record, _Label]]] = defaultdict(list)
        for kind, records in (("label", labels), ("chargeback", chargebacks)):
            for record in records:
                try:
                    label = read_label(record, kind)
                except RefusedError as fault:
                    refused.append(dead_letter(record, fault.reason))
                else:
                    partition = partition_of(label.card_id, self._rules.partitions, self._rules.partitioner)
                    waiting[partition].append((record, label))
        by_partition: dict[int, list[Record]] = defaultdict(list)
        for record in transactions:
            by_partition[record.partition].append(record)
        for partition in sorted(by_partition.keys() | waiting.keys()):
            lines = sorted(waiting[partition], key=lambda line: line[0].timestamp)
            refused += self._read_partition(by_partition[partition], lines)
        for merchant_id, payments in self._payments.items():
            payments.sort(key=lambda payment: payment.arrival)
            self._arrivals[merchant_id] = [payment.arrival for payment in payments]
        return refused

    def _read_partition(
        self, transactions: list[Record], labels: list[tuple[Record, _Label]]
    ) -> Iterator[ExpectedOutcome]:
        """Read one partition, each label after the transactions up to its arrival; yield dead letters."""
        cards: dict[str, Card] = {}
        payments: dict[Transaction, Payment] = {}
        remaining = iter([*transactions, None])
        upcoming = next(remaining)
        for record, label in labels:
            while upcoming is not None and upcoming.timestamp <= record.timestamp:
                self._accept(upcoming, cards, payments)
                upcoming = next(remaining)
            labelled = _transactions(
                cards.get(label.card_id), label.transaction_id, record.timestamp,
                self._rules.allowed_lateness_ms, partial(self._profiles.had_version, label.card_id),
            )  # fmt: skip
            if not labelled:
                oldest = record.timestamp - _reach_ms(self._rules.allowed_lateness_ms)
                is_old = label.paid_at is not None and SECONDS_UNTIL <= label.paid_at <= oldest
                yield dead_letter(record, Reason.LABEL_TOO_OLD if is_old else Reason.UNKNOWN_TRANSACTION)
            elif label.fraud is not None:
                takes_effect = (record.timestamp // HOUR_MS + 2) * HOUR_MS
                for tx in labelled:
                    payments[tx].reports.append((takes_effect, label.fraud))
        while upcoming is not None:
            self._accept(upcoming, cards, payments)
            upcoming = next(remaining)

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
        payment.spike = card.spikes[view.index]
        self._payments[tx.merchant_id].append(payment)

    def features(self, merchant_id: str, arrival: int) -> dict[str, float]:
        """Compute a merchant's features as of an arrival (ms); NaN where unknown."""
        unripe = (arrival - self._delay_ms - HOUR_MS) // HOUR_MS
        arrivals = self._arrivals.get(merchant_id, [])
        first = bisect_left(arrivals, (unripe - MONTH_HOURS) * HOUR_MS)
        seen = self._payments[merchant_id][first : bisect_right(arrivals, arrival)] if arrivals else []
        is_fraud = [payment.is_fraud(arrival) for payment in seen]
        hours = [payment.arrival // HOUR_MS for payment in seen]
        outcomes = list(zip(hours, is_fraud, strict=True))
        ripe = [(hour, fraud) for hour, fraud in outcomes if hour < unripe]
        week = [(hour, fraud) for hour, fraud in ripe if hour >= unripe - WEEK_HOURS]
        frauds = [payment for payment, fraud in zip(seen, is_fraud, strict=True) if fraud]
        unexplained = [payment for payment in frauds if not payment.spike]
        genuine = [hour for hour, fraud in ripe if not fraud]
        streak = [payment for payment in frauds if payment.arrival // HOUR_MS > max(genuine, default=-1)]
        values: dict[str, float] = {
            "count_7d": len(week),
            "count_30d": len(ripe),
            "risk_7d": _share(week),
            "risk_30d": _share(ripe),
            "unexplained_7d": sum(
                payment.arrival // HOUR_MS >= unripe - WEEK_HOURS for payment in unexplained
            ),
            "unexplained_30d": len(unexplained),
            "last_label": 1 if streak else 0 if genuine else math.nan,
            "streak": len(streak),
            "streak_age": _age(streak[:1], arrival),
            "last_unexplained_age": _age(unexplained[-1:], arrival),
            "first_unexplained_age": _age(unexplained[:1], arrival),
            "genuine_since": math.nan,
        }
        if unexplained:
            values["genuine_since"] = sum(hour > unexplained[-1].arrival // HOUR_MS for hour in genuine)
        return {f"merchant_{name}": float(value) for name, value in values.items()}


def _share(part: list[tuple[int, bool]]) -> float:
    return sum(fraud for _, fraud in part) / len(part) if part else math.nan


def _age(payments: list[Payment], arrival: int) -> float:
    return (arrival - payments[0].arrival) / DAY_MS if payments else math.nan


def _reach_ms(lateness_ms: int) -> int:
    """Return how long after its event time a transaction can be labelled, ms."""
    return MONTH_MS + lateness_ms - DAY_MS


def _transactions(
    card: Card | None, transaction_id: str, labelled: int, lateness_ms: int, had_profile: Any
) -> list[Transaction]:
    """Return the transactions to which a label of `transaction_id`, arrived at `labelled` (ms), applies."""
    if card is None:
        return []
    remembered = len(card.times) if card.hot is None else len(card.hot.kept)
    candidates = [
        (tx, arrival)
        for tx, arrival in list(zip(card.transactions, card.arrivals, strict=True))[-remembered:]
        if arrival <= labelled and tx.event_time > labelled - _reach_ms(lateness_ms)
    ]
    matches = [(tx, arrival) for tx, arrival in candidates if tx.transaction_id == transaction_id]
    is_stranger = len(candidates) == 1 and bool(matches) and not had_profile(matches[0][1] + lateness_ms)
    return [tx for tx, arrival in matches if not is_stranger or labelled - arrival <= lateness_ms]


def read_label(record: Record, kind: str) -> _Label:
    """Decode a label.

    Raises:
        RefusedError: the record breaks its contract.
    """
    row = decode.parse_object(record.value)
    if row.repeated & _DECIDING[kind]:
        raise RefusedError(Reason.DUPLICATE_FIELD)
    if kind == "label":
        decode.integer(row, "schema_version", 1, 1)
    transaction_id = decode.identifier(row, "transaction_id")
    card_id = decode.identifier(row, "card_id")
    fraud: bool | None
    if kind == "label":
        fraud = _says_fraud(row)
        decode.identifier(row, "source")
        decode.integer(row, "occurred_at", 0, decode.MAX_EVENT_TIME)
        paid_at = decode.integer(row, "event_time", 0, decode.MAX_EVENT_TIME) if "event_time" in row else None
        _word(row, "maturity", {"preliminary", "final"})
    else:
        decode.identifier(row, "merchant_id")
        paid_at = decode.integer(row, "event_time", 0, decode.MAX_EVENT_TIME)
        decode.integer(row, "reported_at", 0, decode.MAX_EVENT_TIME)
        fraud = _word(row, "label", {"fraud", "genuine"}) == "fraud"
    if record.key != card_id.encode():
        raise RefusedError(Reason.INVALID_VALUE)
    return _Label(card_id, transaction_id, fraud, paid_at)


def _says_fraud(row: dict[str, Any]) -> bool | None:
    kind = _word(row, "kind", {*SAYS_FRAUD, "verdict"})
    verdict = _word(row, "verdict", {"fraud", "genuine"}) if kind == "verdict" else None
    if verdict == "genuine":
        _word(row, "reason", GENUINE_BECAUSE)
    if (verdict is None and "verdict" in row) or (verdict != "genuine" and "reason" in row):
        raise RefusedError(Reason.INVALID_VALUE)
    return SAYS_FRAUD[kind] if verdict is None else verdict == "fraud"


def _word(row: dict[str, Any], name: str, allowed: set[str]) -> str:
    if name not in row:
        raise RefusedError(Reason.MISSING_FIELD)
    if type(row[name]) is not str:
        raise RefusedError(Reason.WRONG_TYPE)
    if row[name] not in allowed:
        raise RefusedError(Reason.INVALID_VALUE)
    return str(row[name])
