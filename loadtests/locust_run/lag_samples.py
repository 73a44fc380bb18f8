"""Sampler of the job's lag: the number of transactions that the job's consumer group has not committed."""

import time

from confluent_kafka import KafkaException, TopicPartition

from loadtests.locust_run.errors import LoadTestError
from loadtests.rig.native import NativeThread, sleep
from streaming_job.log import clients, topic_reader
from streaming_job.settings import JobSettings

INTERVAL_S = 0.5


class LagSamples(NativeThread):
    """Thread that samples the lag twice a second."""

    def __init__(self, settings: JobSettings) -> None:
        """Connect.

        Raises:
            LoadTestError: no such topic, or the broker does not answer.
        """
        self._consumer = clients.reader(settings, settings.job_id)
        topic = settings.topics.transactions
        try:
            partitions = topic_reader.partitions(self._consumer, topic)
        except KafkaException as fault:
            raise LoadTestError(f"topic {topic} cannot be read: {fault}; check topic and brokers") from fault
        self._partitions = [TopicPartition(topic, partition) for partition in partitions]
        super().__init__(self._sample_until_stopped)
        self.samples: list[tuple[float, int]] = []
        """(`time.monotonic`, lag in records)."""

    @property
    def newest(self) -> int | None:
        """Newest lag in records; None before the first sample."""
        return self.samples[-1][1] if self.samples else None

    def _sample_until_stopped(self) -> None:
        try:
            while not self.stopped:
                try:
                    lag = self._sample()
                except KafkaException:
                    lag = None  # a broker restarts: wait for the next sample
                if lag is not None:
                    self.samples.append((time.monotonic(), lag))
                sleep(INTERVAL_S)
        finally:
            self._consumer.close()

    def _sample(self) -> int:
        # committed offsets first, the partitions' ends afterwards, so that the lag is never too small
        committed = {
            partition.partition: partition.offset
            for partition in self._consumer.committed(self._partitions, topic_reader.TIMEOUT_S)
        }
        behind = 0
        for partition in self._partitions:
            first, end = topic_reader.offsets(self._consumer, partition)
            behind += max(0, end - max(first, committed[partition.partition]))
        return behind
