"""Fields of Kafka's requests and answers, as bytes.

kafka-python encodes and decodes any message from its description. For what a key group asks again and again,
that takes more processor time than all else that its clients do.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from streaming_job.log.records import PartitionId

NO_TAGS = b"\0"
"""Ends each structure: there are no tagged fields."""
SHORT, INT = struct.Struct(">h"), struct.Struct(">i")


class Request(NamedTuple):
    """A request without its header."""

    name: str
    api: int
    version: int
    body: bytes


class Reader:
    """A reader of the fields of an answer, in order, after its header."""

    def __init__(self, answer: bytes) -> None:
        self._answer, self._at = answer, INT.size  # after the number of the request
        self.skip_tags()

    def take(self, fields: struct.Struct) -> tuple[int, ...]:
        """Read fields of fixed length."""
        values = fields.unpack_from(self._answer, self._at)
        self._at += fields.size
        return values

    def number(self) -> int:
        """Read an integer of variable length."""
        number = shift = 0
        while True:
            byte = self._answer[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def length(self) -> int:
        """Read the length of an array or a text; 0 if it is null."""
        return max(0, self.number() - 1)

    def text(self) -> str:
        """Read a text."""
        length = self.length()
        begin = self._at
        self._at += length
        return self._answer[begin : self._at].decode()

    def by_partition(self, fields: struct.Struct) -> dict[PartitionId, tuple[int, ...]]:
        """Read an array of topics, each with partitions: the index of each, and fields of fixed length."""
        values: dict[PartitionId, tuple[int, ...]] = {}
        for _ in range(self.length()):
            topic = self.text()
            for _ in range(self.length()):
                index, *rest = self.take(fields)
                self.skip_tags()
                values[topic, index] = tuple(rest)
            self.skip_tags()
        return values

    def skip_tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.number()):
            self.number()
            length = self.number()
            self._at += length


def by_topic(parts: Iterable[tuple[str, bytes]]) -> bytes:
    """Return an array of topics, each with an array of what is said of its partitions.

    Args:
        parts: the topic of each partition, and what is said of it.
    """
    topics: defaultdict[str, list[bytes]] = defaultdict(list)
    for topic, part in parts:
        topics[topic].append(part)
    return unsigned(len(topics) + 1) + b"".join(
        text(topic) + unsigned(len(own) + 1) + b"".join(own) + NO_TAGS for topic, own in topics.items()
    )


def text(content: str) -> bytes:
    """Return a text."""
    encoded = content.encode()
    return length_of(encoded) + encoded


def length_of(content: bytes) -> bytes:
    """Return the length that precedes a text or bytes."""
    return unsigned(len(content) + 1)


def unsigned(number: int) -> bytes:
    """Return an integer of variable length, as Protocol Buffers' `uint64`."""
    if number < 0x80:  # most are
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
