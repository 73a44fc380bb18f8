"""First and end offsets of the input topics' partitions, and arrivals of single records."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Address, describe
from streaming_job.log.errors import PATIENCE_S, LogError, LogUnavailableError
from streaming_job.log.follow import NEW_PARTITIONS_S, Follower, partition_of
from streaming_job.log.records import Arrivals, Offsets
from streaming_job.runtime.pauses import pause

TIMEOUT_S = 5.0
PAUSE_S = 0.1
"""Pause before a request is repeated."""


T = TypeVar("T")


def with_retries(ask: Callable[[], T]) -> T:
    """Make a request to the brokers, with retries for PATIENCE_S.

    Raises:
        LogError: for PATIENCE_S there was no such topic.
        LogUnavailableError: for PATIENCE_S the brokers did not answer, or answered with another error.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as fault:
            if time.monotonic() > deadline:
                if topic_reader.is_missing(fault):
                    raise LogError(
                        f"{describe(fault)}: an input topic is gone; restore it, or use another job id"
                    ) from fault
                raise LogUnavailableError(
                    f"the ends of the input topics cannot be read: {describe(fault)}; check the brokers"
                ) from fault
        pause(PAUSE_S)


class EndOffsets:
    """A client that looks up the first or end offsets of all partitions of some topics in one call.

    Its methods raise a KafkaException if there is no such topic, or no answer.
    """

    def __init__(
        self,
        client: Mapping[str, str],
        topics: Sequence[str],
        *,
        absent: Collection[str] = (),
    ) -> None:
        """Create the client; it connects when it is used.

        Args:
            client: librdkafka settings, including bootstrap.servers.
            absent: topics that may be missing, and then have no partitions; they are looked up, too.
        """
        brokers = Address(client["bootstrap.servers"], client)
        self._reader = clients.reader(brokers, "end-offsets")
        self._topics, self._absent = (*topics, *absent), absent
        self._partitions: dict[str, list[int]] = {}
        self._looked_up: dict[str, float] = {}

    def __enter__(self) -> "EndOffsets":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def partitions(self, topic: str) -> list[int]:
        """Return the topic's partitions, ascending; the answer is at most NEW_PARTITIONS_S old."""
        now = time.monotonic()
        if now - self._looked_up.get(topic, -math.inf) > NEW_PARTITIONS_S:
            if topic in self._absent and not topic_reader.exists(self._reader, topic, TIMEOUT_S):
                self._partitions[topic] = []
            else:
                self._partitions[topic] = topic_reader.partitions(self._reader, topic, TIMEOUT_S)
            self._looked_up[topic] = now
        return self._partitions[topic]

    def first(self) -> Offsets:
        """Return the first offset of each partition."""
        return self._ask(self._topics, OFFSET_BEGINNING)

    def last(self, topics: Iterable[str] | None = None) -> Offsets:
        """Return the last stable offset of each partition.

        Args:
            topics: the topics to look up; None: all.
        """
        return self._ask(self._topics if topics is None else topics, OFFSET_END)

    def arrivals(self, at: Offsets) -> Arrivals:
        """Return the arrival of the record at each offset, ms, or None; nothing outside the log's bounds."""
        if not at:
            return {}
        first, end = self.first(), self.last()
        kept = {tp: offset for tp, offset in at.items() if first.get(tp, math.inf) <= offset < end[tp]}
        starts = [TopicPartition(*tp, offset) for tp, offset in kept.items()]
        arrivals: Arrivals = dict.fromkeys(kept)
        try:
            records = Follower(self._reader, starts, {tp: offset + 1 for tp, offset in kept.items()})
            arrivals |= {partition_of(record): record.timestamp()[1] for record in records.to_end()}
        finally:
            self._reader.unassign()  # else it would go on fetching
        return arrivals

    def _ask(self, topics: Iterable[str], which: int) -> Offsets:
        # offsets_for_times asks all leaders at once, and accepts OFFSET_BEGINNING and OFFSET_END as times
        requests = [TopicPartition(topic, part, which) for topic in topics for part in self.partitions(topic)]
        offsets: Offsets = {}
        for answer in self._reader.offsets_for_times(requests, timeout=TIMEOUT_S) if requests else ():
            if answer.error is not None:
                raise KafkaException(answer.error)
            if answer.offset < 0:
                error_text = f"no answer about the ends of {answer.topic}-{answer.partition}"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, error_text))
            offsets[answer.topic, answer.partition] = answer.offset
        return offsets
