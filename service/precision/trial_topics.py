"""The topics with a trial's alerts and labels, read from the trial's start on.

Step 1  start    find the first records since the trial's start, and the time since which none was deleted
Step 2  alerts   read alerts, suppressed and shadow alerts to their ends: most labels then find their alert
Step 3  labels   read labels and chargebacks, too; `counts` is empty until they have been read to their ends
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import orjson
from confluent_kafka import KafkaException, Message, TopicPartition

from feature_store.catalogue import HOUR_MS
from service.precision.completeness import PartitionRange, complete_since, ranges_since
from service.precision.errors import UnreadError
from service.precision.labelled_cards import LabelledCards
from service.precision.trial import LabelCounts, LabelledTrial
from service.settings import ServiceSettings
from streaming_job.contracts import Contract
from streaming_job.decode import labels
from streaming_job.decode.strict import Rejected
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import describe

log = logging.getLogger(__name__)
FETCH_WAIT_MS = 200
"""How long the broker waits for a record before it answers that there is none."""
CLOCK_SKEW_MS = HOUR_MS
"""How much the Kafka timestamp of an alert or label may precede the arrival of its transaction."""
UNREAD = "alerts and labels of the trial have not been read to their ends yet"


class TrialTopics:
    """A reader of a trial's alerts and labels; a context manager."""

    def __init__(self, settings: ServiceSettings, trial: LabelledTrial, now_ms: int) -> None:
        """Prepare without connecting.

        Args:
            settings: brokers and topics.
            trial: the trial.
            now_ms: the time now, ms since 1970-01-01 UTC, to tell which records retention may have deleted.

        Raises:
            UnreadError: the client's settings are invalid.
        """
        self._settings, self._trial, self._now_ms = settings, trial, now_ms
        topics = settings.topics
        self._alerts = {topics.fraud_alerts, topics.suppressed_alerts, topics.shadow_alerts}
        self._labels = {topics.labels: Contract.LABEL, topics.chargebacks: Contract.CHARGEBACK}
        self._waiting: list[TopicPartition] = []
        """Partitions of labels, paused until the alerts have been read to their ends."""
        self._cards = LabelledCards(trial)
        tuning = {"fetch.wait.max.ms": FETCH_WAIT_MS}
        try:
            self._reader = clients.reader(settings, f"{settings.job_id}-precision", tuning=tuning)
        except KafkaException as fault:
            raise self._unread(fault) from fault

    def __enter__(self) -> "TrialTopics":
        """Find where the records begin.

        Raises:
            UnreadError: a topic does not exist, its retention cannot be read, or the brokers do not answer.
        """
        try:
            self._begin(self._parts())
        except KafkaException as fault:
            self._reader.close()
            raise self._unread(fault) from fault
        except UnreadError:
            self._reader.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self._reader.close()

    def read(self) -> bool:
        """Read the next records; return False if none came within a moment.

        Raises:
            UnreadError: a topic does not exist, or the client has failed for good.
        """
        try:
            messages = self._follower.poll()
        except KafkaException as fault:
            raise self._unread(fault) from fault
        for message in messages:
            self._take(message)
        # Step 3
        if self._waiting and all(topic in self._labels for topic, _ in self._follower.behind):
            self._reader.resume(self._waiting)
            self._waiting = []
        return bool(messages)

    def counts(self) -> LabelCounts:
        """Return the counts; until all ends have been reached, they are empty and `waiting_for` says why."""
        return LabelCounts(waiting_for=UNREAD) if self._follower.behind else self._cards.counts()

    def _parts(self) -> list[PartitionRange]:
        ranges: list[PartitionRange] = []
        for topic in (*sorted(self._alerts), *self._labels):
            if not topic_reader.exists(self._reader, topic):
                raise UnreadError(f"topic {topic} does not exist; create it with `fraud job topics`")
            ranges += ranges_since(self._reader, topic, self._trial.since - CLOCK_SKEW_MS)
        return ranges

    def _begin(self, ranges: Sequence[PartitionRange]) -> None:
        # Step 1
        admin = clients.admin(self._settings)
        since = complete_since(admin, self._reader, ranges, self._trial.since, self._now_ms)
        self._cards = LabelledCards(replace(self._trial, since=since))
        # Step 2
        starts = [TopicPartition(r.topic, r.partition, r.start) for r in ranges]
        self._follower = follow.Follower(self._reader, starts)
        self._waiting = [TopicPartition(r.topic, r.partition) for r in ranges if r.topic in self._labels]
        self._reader.pause(self._waiting)

    def _take(self, message: Message) -> None:
        topic, value = message.topic() or "", message.value() or b""
        if topic in self._labels:
            self._take_label(message, topic)
            return
        try:
            record: Mapping[str, Any] = orjson.loads(value)
            if topic == self._settings.topics.shadow_alerts:
                self._cards.shadow_alert(record)
            else:
                self._cards.alert(record)
        except (KeyError, TypeError, ValueError) as error:
            log.warning(
                "%s-%s at %s is not an alert: %s", topic, message.partition(), message.offset(), error
            )

    def _take_label(self, message: Message, topic: str) -> None:
        try:
            label = labels.read(message.key(), message.value(), self._labels[topic])
        except Rejected:
            return  # a dead letter of the job
        if label.fraud is not None:
            position = message.timestamp()[1], topic, message.offset() or 0
            self._cards.label(label.card_id, label.transaction_id, position, label.fraud)

    def _unread(self, fault: KafkaException) -> UnreadError:
        return UnreadError(f"alerts and labels of the trial cannot be read: {describe(fault)}")
