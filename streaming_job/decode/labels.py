"""Decoder of labels (contracts label.v1 and chargeback.v1): each key group decodes those of its own cards.

A label that does not keep its contract becomes a dead letter.
"""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from feature_store.kernels.hashing import hash_string
from feature_store.layout import TRANSACTION_MASK
from streaming_job.contracts import Contract, Reason
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.record import DeadLetter, LogRecord
from streaming_job.decode import strict
from streaming_job.decode.own import own_records
from streaming_job.decode.strict import Rejected
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Records

_SAYS_FRAUD = {"early_warning": True, "chargeback": True, "refund": None, "reversal": False}
REASONS = (
    "cardholder_confirmed", "known_merchant", "travel", "family_or_shared_card", "subscription",
    "unusual_but_plausible", "merchant_error", "repeated_alert", "other",
)  # fmt: skip
"""Reasons for which an analyst calls an alert a false positive."""
_KIND = re.compile("|".join([*_SAYS_FRAUD, "verdict"]))
_OUTCOME = re.compile("fraud|genuine")
_REASON = re.compile("|".join(REASONS))
_MATURITY = re.compile("preliminary|final")
FIELDS = {
    Contract.LABEL: (
        "schema_version", "transaction_id", "card_id", "kind", "verdict", "reason", "source", "occurred_at",
        "event_time", "maturity",
    ),
    Contract.CHARGEBACK: (
        "transaction_id", "card_id", "merchant_id", "event_time", "reported_at", "label"
    ),
}  # fmt: skip


Position = tuple[int, int, int]
"""Arrival in ms, topic (0: labels, 1: chargebacks) and offset of a label: of a transaction's labels the one
with the greatest position counts. Without the partition, because a topic has all labels of a card in one
partition."""


class Fields(NamedTuple):
    """The fields of a label's record that are used."""

    card_id: str
    transaction_id: str
    fraud: bool | None
    """True: fraud. False: no fraud. None: the label says neither."""
    event_time: int | None
    """Event time of the transaction as the label gives it, ms; None: it gives none."""


@dataclass(frozen=True)
class Label(LogRecord):
    """One decoded label."""

    lo: int
    """Hash of the card, low half."""
    hi: int
    transaction: int
    """Hash of the transaction id, masked with TRANSACTION_MASK."""
    fraud: bool | None
    """See `Fields.fraud`."""
    event_time: int | None
    """See `Fields.event_time`."""


def contracts(topics: Topics) -> dict[str, Contract]:
    """Return the contract of each topic of labels, by the topic's name, in the order of `Position`."""
    return {topics.labels: Contract.LABEL, topics.chargebacks: Contract.CHARGEBACK}


def position(contract: Contract, arrival: int, offset: int) -> Position:
    """Return the position of a label of a contract, LABEL or CHARGEBACK."""
    return arrival, int(contract is Contract.CHARGEBACK), offset


def decode(
    records: Records, contract: Contract, key_groups: KeyGroups, group: int
) -> list[Label | DeadLetter]:
    """Decode the labels of one key group, in the records' order.

    Args:
        contract: contract of the topic, LABEL or CHARGEBACK.
    """
    decoded: list[Label | DeadLetter] = []
    for record in own_records(records, key_groups, group):
        try:
            fields = read(record.key, record.value, contract)
        except Rejected as fault:
            decoded.append(record.dead_letter(fault.reason, fault.detail))
        else:
            lo, hi = hash_string(fields.card_id)
            transaction = hash_string(fields.transaction_id)[0] & TRANSACTION_MASK
            decoded.append(
                Label(
                    **vars(record), lo=lo, hi=hi, transaction=transaction, fraud=fields.fraud,
                    event_time=fields.event_time,
                )
            )  # fmt: skip
    return decoded


def read(key: bytes | None, value: bytes | None, contract: Contract) -> Fields:
    """Return the fields of a label's record.

    Raises:
        Rejected: the record does not keep the contract.
    """
    record = strict.parse_object(value, FIELDS[contract])
    if contract == Contract.CHARGEBACK:
        transaction_id, card_id = _identity(record)
        strict.identifier(record, "merchant_id")
        event_time: int | None = strict.integer(record, "event_time", 0, strict.MAX_TIME_MS)
        strict.integer(record, "reported_at", 0, strict.MAX_TIME_MS)
        fraud: bool | None = strict.matching(record, "label", _OUTCOME) == "fraud"
    else:
        strict.integer(record, "schema_version", 1, 1)
        transaction_id, card_id = _identity(record)
        fraud = _says_fraud(record)
        strict.identifier(record, "source")
        strict.integer(record, "occurred_at", 0, strict.MAX_TIME_MS)
        event_time = None
        if "event_time" in record:
            event_time = strict.integer(record, "event_time", 0, strict.MAX_TIME_MS)
        strict.matching(record, "maturity", _MATURITY)
    if key != card_id.encode():
        raise Rejected(Reason.INVALID_VALUE, "the key is not the card_id of the value")
    return Fields(card_id, transaction_id, fraud, event_time)


def _identity(record: dict[str, Any]) -> tuple[str, str]:
    return strict.identifier(record, "transaction_id"), strict.identifier(record, "card_id")


def _says_fraud(record: dict[str, Any]) -> bool | None:
    kind = strict.matching(record, "kind", _KIND)
    if kind != "verdict":
        _require_absent(record, "verdict", f"a label of kind {kind}")
        _require_absent(record, "reason", f"a label of kind {kind}")
        return _SAYS_FRAUD[kind]
    is_fraud = strict.matching(record, "verdict", _OUTCOME) == "fraud"
    if is_fraud:
        _require_absent(record, "reason", "a verdict of fraud")
    else:
        strict.matching(record, "reason", _REASON)
    return is_fraud


def _require_absent(record: dict[str, Any], name: str, subject: str) -> None:
    if name in record:
        raise Rejected(Reason.INVALID_VALUE, f"{subject} must not have a {name}")
