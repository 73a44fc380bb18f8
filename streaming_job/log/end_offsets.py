"""Where the partitions of the input topics begin and end."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from streaming_job.log import topic_reader
from streaming_job.log.errors import PATIENCE_S, LogError
from streaming_job.log.records import Offsets

TIMEOUT_S = 5.0
NEW_PARTITIONS_S = 10.0
"""How often new partitions are looked for."""
PAUSE_S = 0.1
"""Before brokers that did not answer are asked again."""


T = TypeVar("T")


def answered(ask: Callable[[], T]) -> T:
    """The brokers' answer to a question; they may be away for a while.

    Raises:
        LogError: no answer for too long.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as fault:
            if time.monotonic() > deadline:
                raise LogError(
                    f"the ends of the input topics cannot be read: {fault.args[0].str()}; check the brokers"
                ) from fault
        time.sleep(PAUSE_S)


class EndOffsets:
    """Asks the brokers for the first and last offsets of topics; one request a look."""

    def __init__(self, client: Mapping[str, str], topics: Sequence[str]) -> None:
        """Make a client; it connects when it is used.

        Args:
            client: librdkafka's names, bootstrap.servers among them.
            topics: of which topics.
        """
        self._reader = topic_reader.consumer(client["bootstrap.servers"], client, "end-offsets")
        self._topics = tuple(topics)
        self._partitions: dict[str, list[int]] = {}
        self._looked: dict[str, float] = {}

    def __enter__(self) -> "EndOffsets":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the connections go."""
        self._reader.close()

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions, ascending, as they were NEW_PARTITIONS_S ago at most.

        Raises:
            KafkaException: no such topic, or no answer.
        """
        now = time.monotonic()
        if now - self._looked.get(topic, -math.inf) > NEW_PARTITIONS_S:
            self._partitions[topic] = topic_reader.partitions(self._reader, topic, TIMEOUT_S)
            self._looked[topic] = now
        return self._partitions[topic]

    def first(self) -> Offsets:
        """Where each partition begins.

        Raises:
            KafkaException: no answer.
        """
        return self._ask(self._topics, OFFSET_BEGINNING)

    def last(self, topics: Iterable[str] | None = None) -> Offsets:
        """Where each partition ends, open transactions left out.

        Args:
            topics: of these only.

        Raises:
            KafkaException: no answer.
        """
        return self._ask(self._topics if topics is None else topics, OFFSET_END)

    def _ask(self, topics: Iterable[str], which: int) -> Offsets:
        # looking up the offset of a time asks all leaders at once, and takes the ends for times
        places = [TopicPartition(topic, part, which) for topic in topics for part in self.partitions(topic)]
        found: Offsets = {}
        for place in self._reader.offsets_for_times(places, timeout=TIMEOUT_S) if places else ():
            if place.error is not None:
                raise KafkaException(place.error)
            if place.offset < 0:
                words = f"no answer about the ends of {place.topic}-{place.partition}"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words))
            found[place.topic, place.partition] = place.offset
        return found
