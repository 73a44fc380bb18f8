"""The high watermarks of tables, asked of the partitions' leaders directly.

A group needs them in each turn of its loop. So question and answer are two calls, and between them the group
does something else. Neither passes through a thread of librdkafka, which on a busy machine would have to wait
for a core. Source: ListOffsets in the documentation of Kafka's protocol.
"""

import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from streaming_job.log.follow import NEW_PARTITIONS_S
from streaming_job.log.records import Offsets, PartitionId
from streaming_job.protocol.cluster import Cluster
from streaming_job.protocol.connection import Connection, UnreachableError, error_of, require
from streaming_job.protocol.fields import INT, NO_TAGS, Reader, Request, by_topic
from streaming_job.protocol.login import Address

TIMEOUT_S = 5.0
_ASKED, _SCOPE, _TOLD = struct.Struct(">iiq"), struct.Struct(">ib"), struct.Struct(">ihqqi")
_LATEST, _NO_EPOCH, _NO_REPLICA, _UNCOMMITTED = -1, -1, -1, 0


class Question(NamedTuple):
    """A request to one leader."""

    leader: Address | None
    request: Request
    partitions: int
    """How many it asks for."""


class Watermarks:
    """A client that looks up the high watermarks of all partitions of some topics; used by one thread."""

    def __init__(self, client: Mapping[str, str], topics: Iterable[str]) -> None:
        """Create the client; it connects when it is used.

        Args:
            client: settings with librdkafka's names, including bootstrap.servers.
        """
        self._cluster = Cluster(client["bootstrap.servers"], client, topics)
        self._is_outdated = True
        """Whether leaders have to be looked up: until an answer shows that they are the ones to ask."""
        self._deadline = 0.0
        self._topics: tuple[str, ...] = ()
        """What was asked for, and is not answered yet."""
        self._asked: list[tuple[Connection, Question]] = []
        self._questions: dict[tuple[str, ...], tuple[float, list[Question]]] = {}
        """By topics: what to ask, and when the leaders were looked up to whom this is addressed."""
        self._answers: dict[Connection, tuple[bytes, Offsets]] = {}
        """The last answer of each leader: nearly always the next one is the same."""

    def ask(self, topics: Iterable[str]) -> None:
        """Ask for the high watermark of each partition, which `last` returns.

        Raises:
            KafkaException: there is no such topic, or a leader cannot be reached.
        """
        self._topics, self._asked = (), []
        wanted, self._deadline = tuple(topics), time.monotonic() + TIMEOUT_S
        if self._is_outdated or time.monotonic() - self._cluster.known_at > NEW_PARTITIONS_S:
            self._cluster.refresh(self._deadline)
        self._is_outdated = True
        try:
            for question in self._questions_about(wanted):
                leader = self._cluster.leader(question.leader, self._deadline)
                leader.send(question.request, self._deadline)
                self._asked.append((leader, question))
        except UnreachableError as fault:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(fault))) from fault
        self._topics = wanted

    def last(self, topics: Iterable[str]) -> Offsets:
        """Return the high watermark of each partition, as of the last `ask` about these topics or later.

        Raises:
            KafkaException: as `ask`; or no answer.
        """
        if self._topics != tuple(topics):
            self.ask(topics)
        ends: Offsets = {}
        asked, self._topics, self._asked = self._asked, (), []
        for leader, question in asked:
            answer = leader.receive(self._deadline)
            content = answer[INT.size :]  # without the number of the request
            before, offsets = self._answers.get(leader, (b"", {}))
            if content != before:
                offsets = _ends(answer)
                if len(offsets) != question.partitions:
                    raise KafkaException(error_of(KafkaError.UNKNOWN, "an end is not in the answer"))
                self._answers[leader] = content, offsets
            ends |= offsets
        self._is_outdated = False
        return ends

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def _questions_about(self, topics: tuple[str, ...]) -> list[Question]:
        cluster = self._cluster
        counts = {topic: cluster.partitions(topic, deadline=0.0) for topic in topics}  # does not wait for one
        known_at, questions = self._questions.get(topics, (0.0, []))
        if known_at != cluster.known_at:
            parts = [(topic, index) for topic, count in counts.items() for index in range(count)]
            questions = [_question(leader, own) for leader, own in cluster.by_leader(parts).items()]
            self._questions[topics] = cluster.known_at, questions
            self._answers.clear()  # of connections that may be gone
        return questions


def _question(leader: Address | None, partitions: Sequence[PartitionId]) -> Question:
    parts = ((topic, _ASKED.pack(index, _NO_EPOCH, _LATEST) + NO_TAGS) for topic, index in partitions)
    body = _SCOPE.pack(_NO_REPLICA, _UNCOMMITTED) + by_topic(parts) + NO_TAGS
    return Question(leader, Request("ListOffsets", 2, 6, body), len(partitions))


def _ends(answer: bytes) -> Offsets:
    """Return the offsets in an answer.

    Raises:
        KafkaException: a partition has an error.
    """
    reader, ends = Reader(answer), dict[PartitionId, int]()
    reader.take(INT)  # for how long the broker throttles this client
    for partition, (code, _, offset, _) in reader.by_partition(_TOLD).items():
        require(code, f"the end of {partition[0]}-{partition[1]}")
        ends[partition] = offset
    return ends
