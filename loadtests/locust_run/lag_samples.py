"""The job's lag during a run: transactions on the topic that its consumer group has not committed."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.native import NativeThread, sleep
from streaming_job.log import topic_reader
from streaming_job.settings import JobSettings

INTERVAL_S = 0.5
TIMEOUT_S = 10.0


class LagSamples:
    """A thread that asks the brokers twice a second."""

    def __init__(self, settings: JobSettings) -> None:
        """Connect.

        Raises:
            LoadTestError: no such topic, or no broker.
        """
        client: dict[str, Any] = {
            "log_level": 2,
            **settings.kafka,
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": settings.job_id,  # never joined: only asked about
            "enable.auto.commit": False,
        }
        self._consumer = Consumer(client)
        topic = settings.topics.transactions
        try:
            found = topic_reader.partitions(self._consumer, topic, TIMEOUT_S)
        except KafkaException as fault:
            raise LoadTestError(f"topic {topic} cannot be read: {fault}; check topic and brokers") from fault
        self._places = [TopicPartition(topic, partition) for partition in found]
        self.thread = NativeThread(self._run)
        self.samples: list[tuple[float, int]] = []
        """(`time.monotonic`, records behind)."""

    @property
    def newest(self) -> int | None:
        """Records behind; None before the first answer."""
        return self.samples[-1][1] if self.samples else None

    def start(self) -> None:
        """Begin to ask."""
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self.thread.stopped:
                try:
                    lag = self._ask()
                except KafkaException:
                    lag = None  # a broker that restarts: the next answer counts
                if lag is not None:
                    self.samples.append((time.monotonic(), lag))
                sleep(INTERVAL_S)
        finally:
            self._consumer.close()

    def _ask(self) -> int:
        # ends after commits: a lag is never too small
        committed = {
            place.partition: place.offset for place in self._consumer.committed(self._places, TIMEOUT_S)
        }
        behind = 0
        for place in self._places:
            low, high = self._consumer.get_watermark_offsets(place, TIMEOUT_S)
            behind += max(0, high - max(low, committed[place.partition]))
        return behind
