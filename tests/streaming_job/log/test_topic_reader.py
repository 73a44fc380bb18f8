"""Offsets are looked up until the partition's leader answers, and other errors are raised at once."""

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streaming_job.log import topic_reader
from streaming_job.log.clients import Consumer
from streaming_job.runtime import pauses

pytestmark = pytest.mark.unit


class Reader:
    """A consumer whose look-ups fail with some errors before they succeed."""

    def __init__(self, codes: Sequence[int]) -> None:
        """Give each look-up the next error."""
        self.codes = list(codes)
        self.limits_s: list[float] = []

    def get_watermark_offsets(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Return the first and the end offset."""
        self.limits_s.append(timeout_s)
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 3, 7


def offsets(*codes: int) -> tuple[int, int]:
    return topic_reader.offsets(cast(Consumer, Reader(codes)), TopicPartition("tx", 0))


def test_a_partition_without_a_leader_is_waited_for():
    codes = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE
    assert offsets(*codes, KafkaError.OFFSET_NOT_AVAILABLE) == (3, 7)


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TIMED_OUT])
def test_the_wait_for_a_leader_ends(monkeypatch: pytest.MonkeyPatch, code: int):
    monkeypatch.setattr(topic_reader, "TIMEOUT_S", 0.0)
    with pytest.raises(KafkaException, match=KafkaError(code).name()):
        offsets(*[code] * 2)


def test_another_error_is_raised_at_once():
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        offsets(*[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2)


def test_a_stop_waits_for_one_request_to_a_silent_broker():
    reader = Reader([KafkaError._TIMED_OUT] * 99)
    with (
        pauses.ended_by(lambda: len(reader.limits_s) == 4, grace_s=0.0),
        pytest.raises(pauses.StoppedError),
    ):
        topic_reader.offsets(cast(Consumer, reader), TopicPartition("tx", 0))
    assert reader.limits_s == [2.0, 4.0, 5.0, 5.0]
