"""Notes when a read_committed consumer, as a risk team's, holds the alert of each transaction of a lane."""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from loadtests.locust_run import identity
from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.native import NativeThread
from streaming_job.log import topic_reader

TIMEOUT_S = 10.0
POLL_S = 0.1


class Seen(NamedTuple):
    """An alert of ours."""

    due_us: int
    """When its transaction was meant to be sent, microseconds from the start."""
    at_ns: int
    """When the consumer held it, `time.monotonic_ns`: this worker's clock, which sent it, too."""
    size: int
    """Bytes."""


class AlertWatch:
    """The thread that reads alerts."""

    def __init__(self, client: Mapping[str, Any], topic: str, mine: str) -> None:
        """Connect, and stand at the end of the topic.

        Args:
            client: Kafka settings.
            topic: of the alerts.
            mine: what the transaction_ids of this lane begin with.

        Raises:
            LoadTestError: no such topic or no broker.
        """
        self._mine = mine
        self._consumer = Consumer(
            {
                "log_level": 2,
                **client,
                "group.id": "fraud-loadtest",  # never joined
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                # an answer as soon as there is one
                "fetch.wait.max.ms": 5,
                "fetch.error.backoff.ms": 5,
            }
        )
        try:
            partitions = topic_reader.partitions(self._consumer, topic, TIMEOUT_S)
            places = []
            for partition in partitions:
                # the end is asked for now: what "latest" means later would leave out what came meanwhile
                ends = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
                places.append(TopicPartition(topic, partition, ends[1]))
            self._consumer.assign(places)
        except KafkaException as fault:
            self._consumer.close()
            raise LoadTestError(
                f"alerts on {topic} cannot be read: {fault}; check topic and brokers"
            ) from fault
        self.thread = NativeThread(self._run)
        self.seen: deque[Seen] = deque()
        """Taken out by the reader."""

    def start(self) -> None:
        """Begin to read."""
        self.thread.start()

    def check(self) -> None:
        """See that it works.

        Raises:
            LoadTestError: the thread ended by a fault.
        """
        if self.thread.fault is not None:
            raise LoadTestError(f"reading alerts ended: {self.thread.fault!r}") from self.thread.fault

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
        found = identity.decode(orjson.loads(value)["transaction_id"], self._mine)
        if found is not None:
            self.seen.append(Seen(found.due_us, now, len(value)))
