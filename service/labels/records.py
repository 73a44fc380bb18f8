"""Alerts and labels as the sidecar joins them: one decoder for the live precision and for trials."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Message

from streaming_job.contracts import Contract
from streaming_job.contracts.topics import Topics
from streaming_job.decode import labels
from streaming_job.decode.strict import MAX_TIME_MS, Rejected

log = logging.getLogger(__name__)
RULE, MODEL, ROLLOUT = "rule", "model", "rollout"

Position = tuple[int, int, int]
"""Arrival in ms, partition and offset of a transaction."""
Group = tuple[str, str]
"""RULE, MODEL or ROLLOUT, and a name."""
Kind = tuple[Group, ...]
"""All groups of an alert."""


class Alert(NamedTuple):
    """An alert, suppressed or not."""

    card_id: str
    transaction_id: str
    position: Position
    kind: Kind


class ShadowAlert(NamedTuple):
    """A transaction on which champion and challenger differ."""

    card_id: str
    transaction_id: str
    position: Position
    rollout_id: str
    challenger: str
    champion: bool
    """Whether the champion alerted."""


class Label(NamedTuple):
    """A label that says fraud or genuine."""

    card_id: str
    transaction_id: str
    position: labels.Position
    fraud: bool


class Decoder:
    """A decoder of the records of an installation's topics."""

    def __init__(self, topics: Topics) -> None:
        self._shadow_alerts = topics.shadow_alerts
        self.labels = labels.contracts(topics)
        """Contract by topic of labels."""

    def read(self, message: Message) -> Alert | ShadowAlert | Label | None:
        """Return what a record says.

        None for a label that says neither fraud nor genuine, or that the job rejects, too; and for an alert
        that breaks its contract, which is logged.
        """
        topic = message.topic() or ""
        if topic in self.labels:
            return self._label(message, self.labels[topic])
        try:
            record = orjson.loads(message.value() or b"")
            return shadow_alert_of(record) if topic == self._shadow_alerts else alert_of(record)
        except (KeyError, TypeError, ValueError) as error:
            at = f"{topic}-{message.partition()} at {message.offset()}"
            log.warning("%s is not an alert: %s", at, error)
            return None

    def _label(self, message: Message, contract: Contract) -> Label | None:
        try:
            label = labels.read(message.key(), message.value(), contract)
        except Rejected:
            return None  # a dead letter of the job
        if label.fraud is None:
            return None
        position = labels.position(contract, message.timestamp()[1], message.offset() or 0)
        return Label(label.card_id, label.transaction_id, position, label.fraud)


def alert_of(record: Mapping[str, Any]) -> Alert:
    """Return the alert of a record of contract alert.v1.

    Raises:
        KeyError, TypeError, ValueError: the record breaks its contract.
    """
    model = f"{record['model']['name']} {record['model']['version']}"
    rules = ((RULE, str(rule)) for rule in record["rules"])
    kind = (*rules, (MODEL, model), (ROLLOUT, str(record["rollout_id"])))
    return Alert(str(record["card_id"]), str(record["transaction_id"]), _position(record), kind)


def shadow_alert_of(record: Mapping[str, Any]) -> ShadowAlert:
    """Return the shadow alert of a record of contract shadow-alert.v1."""
    return ShadowAlert(
        str(record["card_id"]),
        str(record["transaction_id"]),
        _position(record),
        str(record["rollout_id"]),
        str(record["challenger"]),
        bool(record["champion"]["alerts"]),
    )


def _position(record: Mapping[str, Any]) -> Position:
    arrival, source = int(record["arrival_time"]), record["source"]
    if not 0 <= arrival <= MAX_TIME_MS:
        raise ValueError(f"arrival_time is {arrival}")
    return arrival, int(source["partition"]), int(source["offset"])
