"""Committed offsets of an engine's consumer group."""

from confluent_kafka import KafkaException, TopicPartition

from loadtests.audit.topic_log import STARTING
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Address


class Position:
    """Client for the offsets of one group on one topic."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str) -> None:
        self._consumer = clients.reader(Address(bootstrap_servers), group)
        self._partitions = [
            TopicPartition(topic, partition) for partition in topic_reader.partitions(self._consumer, topic)
        ]

    def targets(self, *, marked: bool) -> list[int]:
        """Read the offset after the last record of each partition.

        Args:
            marked: whether the last record is a transaction marker; it is then left out, because not every
            client commits it.
        """
        ends = [topic_reader.offsets(self._consumer, partition)[1] for partition in self._partitions]
        return [max(0, end - marked) for end in ends]

    def behind(self, targets: list[int]) -> int:
        """Count the uncommitted records before `targets`; count all while the broker loads the offsets."""
        try:
            committed = self._consumer.committed(self._partitions, topic_reader.TIMEOUT_S)
        except KafkaException as fault:
            if fault.args[0].code() in STARTING:
                return sum(targets)
            raise
        return sum(max(0, target - max(0, at.offset)) for target, at in zip(targets, committed, strict=True))

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()
