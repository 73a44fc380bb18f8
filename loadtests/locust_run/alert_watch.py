"""Consumer (read_committed) that records when alerts of one lane (one worker's transactions) arrive."""

import time
from collections import deque
from typing import NamedTuple

import orjson
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from loadtests.locust_run import identity
from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.native import NativeThread
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Brokers

TIMEOUT_S = 10.0
POLL_S = 0.1


class Seen(NamedTuple):
    """A received alert of the lane."""

    due_us: int
    """Intended sending time of its transaction, microseconds from the start of the run."""
    at_ns: int
    """Time of receipt, by `time.monotonic_ns` of the worker, which also sent the transaction."""
    size: int
    """Size in bytes."""


class AlertWatch:
    """Thread that reads alerts."""

    def __init__(self, brokers: Brokers, topic: str, lane_prefix: str) -> None:
        """Connect, and choose the present end of the topic as the position to read from.

        Args:
            brokers: where to connect.
            topic: topic of the alerts.
            lane_prefix: prefix of the lane's transaction_ids.

        Raises:
            LoadTestError: no such topic, or the broker does not answer.
        """
        self._lane_prefix = lane_prefix
        self._consumer = clients.reader(brokers, "fraud-loadtest", fixed=clients.MEASURING)
        try:
            partitions = topic_reader.partitions(self._consumer, topic, TIMEOUT_S)
            assigned = []
            for partition in partitions:
                # read the end now: "latest" would be resolved later and skip alerts in between
                ends = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
                assigned.append(TopicPartition(topic, partition, ends[1]))
            self._consumer.assign(assigned)
        except KafkaException as fault:
            self._consumer.close()
            raise LoadTestError(
                f"alerts on {topic} cannot be read: {fault}; check topic and brokers"
            ) from fault
        self.thread = NativeThread(self._run)
        self.seen: deque[Seen] = deque()
        """Received alerts; `Lane` removes them."""

    def start(self) -> None:
        """Start to read."""
        self.thread.start()

    def check(self) -> None:
        """Check that the thread works.

        Raises:
            LoadTestError: the thread failed.
        """
        if self.thread.fault is not None:
            raise LoadTestError(f"reading alerts failed: {self.thread.fault!r}") from self.thread.fault

    def _run(self) -> None:
        try:
            while not self.thread.stopped:
                message = self._consumer.poll(POLL_S)
                if message is None:
                    continue
                now = time.monotonic_ns()
                if (error := message.error()) is not None:
                    if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                        raise KafkaException(error)
                    continue  # transient errors while a broker restarts: they show as latency
                self._take(message.value() or b"", now)
        finally:
            self._consumer.close()

    def _take(self, value: bytes, now: int) -> None:
        transaction = identity.decode(orjson.loads(value)["transaction_id"], self._lane_prefix)
        if transaction is not None:
            self.seen.append(Seen(transaction.due_us, now, len(value)))
