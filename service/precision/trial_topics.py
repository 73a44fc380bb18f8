"""The topics with a trial's alerts and labels, read from the trial's start on.

Step 1  start    find the first records since the trial's start, and the time since which none was deleted
Step 2  alerts   read alerts, suppressed and shadow alerts to their ends: most labels then find their alert
Step 3  labels   read labels and chargebacks, too; `counts` is empty until they have been read to their ends
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from confluent_kafka import KafkaException, TopicPartition

from feature_store.catalogue import HOUR_MS
from service.labels.errors import UnreadError
from service.labels.records import Decoder
from service.precision.completeness import PartitionRange, complete_since, ranges_since
from service.precision.labelled_cards import LabelledCards
from service.precision.trial import LabelCounts, LabelledTrial
from service.settings import ServiceSettings
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import describe

SILENCE_S = 15.0
"""Seconds without any record after which `read_once` ends, even if a topic has not been read to its end."""
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
        topics, self._decoder = settings.topics, Decoder(settings.topics)
        alerts = topics.fraud_alerts, topics.suppressed_alerts, topics.shadow_alerts
        self._topics = *alerts, *self._decoder.labels
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
            if (record := self._decoder.read(message)) is not None:
                self._cards.take(record)
        # Step 3
        if self._waiting and all(topic in self._decoder.labels for topic, _ in self._follower.behind):
            self._reader.resume(self._waiting)
            self._waiting = []
        return bool(messages)

    def counts(self) -> LabelCounts:
        """Return the counts; until all ends have been reached, they are empty and `waiting_for` says why."""
        return LabelCounts(waiting_for=UNREAD) if self._follower.behind else self._cards.counts()

    def _parts(self) -> list[PartitionRange]:
        ranges: list[PartitionRange] = []
        for topic in self._topics:
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
        self._waiting = [r for r in starts if r.topic in self._decoder.labels]
        self._reader.pause(self._waiting)

    def _unread(self, fault: KafkaException) -> UnreadError:
        return UnreadError(f"alerts and labels of the trial cannot be read: {describe(fault)}")


def read_once(settings: ServiceSettings, trial: LabelledTrial, now_ms: int) -> LabelCounts:
    """Read a trial's alerts and labels to their ends; if that fails, `waiting_for` of the counts says why.

    Args:
        settings: brokers and topics.
        trial: the trial.
        now_ms: the time now, ms since 1970-01-01 UTC.
    """
    try:
        with TrialTopics(settings, trial, now_ms) as topics:
            deadline = time.monotonic() + SILENCE_S
            while topics.counts().waiting_for is not None and time.monotonic() < deadline:
                if topics.read():
                    deadline = time.monotonic() + SILENCE_S
            return topics.counts()
    except UnreadError as fault:
        return LabelCounts(waiting_for=str(fault))
