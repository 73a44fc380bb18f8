"""Offsets are looked up until the partition has a leader, and other errors are raised at once."""

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streaming_job.log import topic_reader
from streaming_job.log.clients import Consumer

pytestmark = pytest.mark.unit


class Reader:
    """A consumer whose look-ups fail with some errors before they succeed."""

    def __init__(self, codes: Sequence[int]) -> None:
        """Give each look-up the next error."""
        self.codes = list(codes)

    def get_watermark_offsets(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Return the first and the end offset."""
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 3, 7


def offsets(*codes: int) -> tuple[int, int]:
    return topic_reader.offsets(cast(Consumer, Reader(codes)), TopicPartition("tx", 0))


def test_a_partition_without_a_leader_is_waited_for():
    codes = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE
    assert offsets(*codes, KafkaError.OFFSET_NOT_AVAILABLE) == (3, 7)


def test_the_wait_for_a_leader_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(topic_reader, "TIMEOUT_S", 0.0)
    with pytest.raises(KafkaException, match="NOT_LEADER"):
        offsets(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 2)


def test_another_error_is_raised_at_once():
    with pytest.raises(KafkaException, match="TIMED_OUT"):
        offsets(KafkaError._TIMED_OUT, KafkaError._TIMED_OUT)
