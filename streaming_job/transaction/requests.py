"""The three requests of each transaction, and their answers, as bytes.

kafka-python encodes and decodes any message from its description, which takes 1 ms of processor time for
these three: more than all else that the client does. Source: Produce, TxnOffsetCommit and EndTxn in the
documentation of Kafka's protocol.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streaming_job.log.records import PartitionId

NO_TAGS = b"\0"
"""Ends each structure: there are no tagged fields."""
NULL = b"\0"
_SHORT, _INT, _OWNER = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">qh")
_ACKS, _OFFSET = struct.Struct(">hi"), struct.Struct(">iqi")
_PRODUCED, _COMMITTED = struct.Struct(">ihqqq"), struct.Struct(">ih")


class Request(NamedTuple):
    """A request without its header."""

    name: str
    api: int
    version: int
    body: bytes


class Identity(NamedTuple):
    """Who writes: a transactional producer."""

    transactional_id: str
    producer_id: int
    epoch: int


def produce(version: int, who: Identity, timeout_ms: int, batches: Mapping[PartitionId, bytes]) -> Request:
    """Return a request to append a record batch to each partition; versions 9 to 12."""
    parts = [
        (topic, b"".join((_INT.pack(index), _length(batch), batch, NO_TAGS)))
        for (topic, index), batch in batches.items()
    ]
    begin = _text(who.transactional_id) + _ACKS.pack(-1, timeout_ms)
    return Request("Produce", 0, version, begin + _by_topic(parts) + NO_TAGS)


def commit_offsets(
    version: int, who: Identity, group: str, offsets: Iterable[tuple[PartitionId, int, str]]
) -> Request:
    """Return a request to add offsets with metadata, for a group without members; versions 3 to 5."""
    parts = [
        (topic, b"".join((_OFFSET.pack(index, offset, -1), _text(metadata), NO_TAGS)))
        for (topic, index), offset, metadata in offsets
    ]
    no_member = _INT.pack(-1) + _text("") + NULL  # generation, id, id of the instance
    begin = _text(who.transactional_id) + _text(group) + _OWNER.pack(*who[1:]) + no_member
    return Request("TxnOffsetCommit", 28, version, begin + _by_topic(parts) + NO_TAGS)


def end(version: int, who: Identity) -> Request:
    """Return a request to commit the transaction; versions 3 to 5."""
    body = _text(who.transactional_id) + _OWNER.pack(*who[1:]) + b"\1" + NO_TAGS
    return Request("EndTxn", 26, version, body)


def produced(answer: bytes) -> dict[PartitionId, int]:
    """Return each partition's error code in an answer to `produce`."""
    reader, codes = Reader(answer), {}
    for _ in range(reader.length()):
        topic = reader.text()
        for _ in range(reader.length()):
            index, code, *_ = reader.take(_PRODUCED)
            for _ in range(reader.length()):  # errors of single records
                reader.take(_INT)
                reader.text()
                reader.skip_tags()
            reader.text()
            reader.skip_tags()
            codes[topic, index] = code
        reader.skip_tags()
    return codes


def committed(answer: bytes) -> dict[PartitionId, int]:
    """Return each partition's error code in an answer to `commit_offsets`."""
    reader, codes = Reader(answer), {}
    reader.take(_INT)  # for how long the broker throttles this client
    for _ in range(reader.length()):
        topic = reader.text()
        for _ in range(reader.length()):
            index, code = reader.take(_COMMITTED)
            reader.skip_tags()
            codes[topic, index] = code
        reader.skip_tags()
    return codes


def ended(version: int, answer: bytes) -> tuple[int, tuple[int, ...]]:
    """Return the error code of an answer to `end`, and from version 5 on the next producer id and epoch."""
    reader = Reader(answer)
    reader.take(_INT)
    (code,) = reader.take(_SHORT)
    return code, reader.take(_OWNER) if version >= 5 else ()


class Reader:
    """A reader of the fields of an answer, in order, after its header."""

    def __init__(self, answer: bytes) -> None:
        self._answer, self._at = answer, _INT.size  # after the number of the request
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

    def skip_tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.number()):
            self.number()
            length = self.number()
            self._at += length


def _by_topic(parts: Iterable[tuple[str, bytes]]) -> bytes:
    topics: defaultdict[str, list[bytes]] = defaultdict(list)
    for topic, part in parts:
        topics[topic].append(part)
    return _number(len(topics) + 1) + b"".join(
        _text(topic) + _number(len(own) + 1) + b"".join(own) + NO_TAGS for topic, own in topics.items()
    )


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _length(encoded) + encoded


def _length(content: bytes) -> bytes:
    return _number(len(content) + 1)


def _number(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
