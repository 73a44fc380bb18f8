"""The topics with a trial's alerts and labels, read from the trial's start on.

Step 1  start    find the first records since the trial's start, and the time since which none was deleted
Step 2  alerts   read alerts, suppressed and shadow alerts to their ends: most labels then find their alert
Step 3  labels   read labels and chargebacks, too; `counts` is empty until they have been read to their ends
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from confluent_kafka import KafkaException, TopicPartition

from feature_store.catalogue import HOUR_MS
from service.labels.errors import UnreadError
from service.labels.records import Decoder
from service.precision.completeness import complete_since, ranges_since
from service.precision.labelled_cards import LabelledCards
from service.precision.trial import LabelCounts, LabelledTrial
from service.settings import ServiceSettings
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Consumer, describe

SILENCE_S = 15.0
"""Seconds without any record after which `read_once` ends, even if a topic has not been read to its end."""
FETCH_WAIT_MS = 200
"""How long the broker waits for a record before it answers that there is none."""
CLOCK_SKEW_MS = HOUR_MS
"""How much the Kafka timestamp of an alert or label may precede the arrival of its transaction."""
UNREAD = "alerts and labels of the trial have not been read to their ends yet"


@contextmanager
def opened(settings: ServiceSettings, trial: LabelledTrial, now_ms: int) -> Iterator["TrialTopics"]:
    """Connect, find where a trial's records begin, and yield the reader.

    Args:
        now_ms: the time now, ms since 1970-01-01 UTC, to tell which records retention may have deleted.

    Raises:
        UnreadError: here or in the block: a topic does not exist, its retention cannot be read, the brokers
            do not answer, or the client has failed for good.
    """
    tuning = {"fetch.wait.max.ms": FETCH_WAIT_MS}
    try:
        name = f"{settings.job_id}-precision"
        with closing(clients.reader(settings, name, tuning=tuning)) as reader:
            yield TrialTopics(settings, trial, reader, now_ms)
    except KafkaException as fault:
        raise UnreadError(f"alerts and labels of the trial cannot be read: {describe(fault)}") from fault


class TrialTopics:
    """A reader of a trial's alerts and labels; its calls raise KafkaException, which `opened` translates."""

    def __init__(
        self, settings: ServiceSettings, trial: LabelledTrial, reader: Consumer, now_ms: int
    ) -> None:
        topics, self._decoder, self._reader = settings.topics, Decoder(settings.topics), reader
        alerts = topics.fraud_alerts, topics.suppressed_alerts, topics.shadow_alerts
        # Step 1
        read = (*alerts, *self._decoder.labels)
        topic_reader.require(reader, read, UnreadError)
        ranges = [r for topic in read for r in ranges_since(reader, topic, trial.since - CLOCK_SKEW_MS)]
        since = complete_since(clients.admin(settings), reader, ranges, trial.since, now_ms)
        self._cards = LabelledCards(replace(trial, since=since))
        # Step 2
        starts = [TopicPartition(r.topic, r.partition, r.start) for r in ranges]
        self._follower = follow.Follower(reader, starts)
        self._waiting = [start for start in starts if start.topic in self._decoder.labels]
        """Partitions of labels, paused until the alerts have been read to their ends."""
        reader.pause(self._waiting)

    def read(self) -> bool:
        """Read the next records; return False if none came within a moment."""
        messages = self._follower.poll()
        for message in messages:
            if (record := self._decoder.read(message)) is not None:
                self._cards.take(record)
        # Step 3
        if self._waiting and all(topic in self._decoder.labels for topic, _ in self._follower.behind):
            self._reader.resume(self._waiting)
            self._waiting = []
        return bool(messages)

    def counts(self) -> LabelCounts:
        """Return the counts; while records may be missing, they are empty and `waiting_for` says why."""
        missing = UNREAD if self._follower.behind else self._follower.trouble
        return LabelCounts(waiting_for=missing) if missing else self._cards.counts()


def read_once(settings: ServiceSettings, trial: LabelledTrial, now_ms: int) -> LabelCounts:
    """Read a trial's alerts and labels to their ends; if that fails, `waiting_for` of the counts says why."""
    try:
        with opened(settings, trial, now_ms) as topics:
            deadline = time.monotonic() + SILENCE_S
            while topics.counts().waiting_for is not None and time.monotonic() < deadline:
                if topics.read():
                    deadline = time.monotonic() + SILENCE_S
            return topics.counts()
    except UnreadError as fault:
        return LabelCounts(waiting_for=str(fault))
