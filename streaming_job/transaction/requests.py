"""The requests of each transaction, and their answers, as bytes.

kafka-python encodes and decodes any message from its description, which takes 1 ms of processor time for
three of these: more than all else that the client does. Source: AddPartitionsToTxn, AddOffsetsToTxn, Produce,
TxnOffsetCommit and EndTxn in the documentation of Kafka's protocol. There are two versions of the last three:
one that Kafka 3.0 knows, and an `implicit` one, by which brokers register partitions and group by themselves.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from streaming_job.log.records import PartitionId

NO_TAGS = b"\0"
"""Ends each structure: there are no tagged fields."""
NULL = b"\0"
_SHORT, _INT, _OWNER = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">qh")
_ACKS, _OFFSET = struct.Struct(">hi"), struct.Struct(">iqi")
_PRODUCED, _RESULT = struct.Struct(">ihqqq"), struct.Struct(">ih")


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


def add_partitions(who: Identity, partitions: Iterable[PartitionId]) -> Request:
    """Return a request to register partitions, to which records will be written, with the transaction."""
    topics: defaultdict[str, list[bytes]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(_INT.pack(index))
    return Request("AddPartitionsToTxn", 24, 3, _owner(who) + _by_topic(topics) + NO_TAGS)


def add_offsets(who: Identity, group: str) -> Request:
    """Return a request to register a consumer group, for which offsets will be committed."""
    return Request("AddOffsetsToTxn", 25, 3, _owner(who) + _text(group) + NO_TAGS)


def produce(
    who: Identity, timeout_ms: int, batches: Mapping[PartitionId, bytes], *, implicit: bool
) -> Request:
    """Return a request to append a record batch to each partition."""
    topics: defaultdict[str, list[bytes]] = defaultdict(list)
    for (topic, index), batch in batches.items():
        topics[topic].append(b"".join((_INT.pack(index), _length(batch), batch, NO_TAGS)))
    begin = _text(who.transactional_id) + _ACKS.pack(-1, timeout_ms)
    return Request("Produce", 0, 12 if implicit else 9, begin + _by_topic(topics) + NO_TAGS)


def commit_offsets(
    who: Identity, group: str, offsets: Iterable[tuple[PartitionId, int, str]], *, implicit: bool
) -> Request:
    """Return a request to commit offsets with metadata, for a group without members."""
    topics: defaultdict[str, list[bytes]] = defaultdict(list)
    for (topic, index), offset, metadata in offsets:
        topics[topic].append(b"".join((_OFFSET.pack(index, offset, -1), _text(metadata), NO_TAGS)))
    begin = _text(who.transactional_id) + _text(group) + _OWNER.pack(*who[1:])
    no_member = _INT.pack(-1) + _text("") + NULL  # generation, id, id of the instance
    body = begin + no_member + _by_topic(topics) + NO_TAGS
    return Request("TxnOffsetCommit", 28, 5 if implicit else 3, body)


def end(who: Identity, *, implicit: bool) -> Request:
    """Return a request to commit the transaction."""
    return Request("EndTxn", 26, 5 if implicit else 3, _owner(who) + b"\1" + NO_TAGS)


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


def by_partition(answer: bytes) -> dict[PartitionId, int]:
    """Return each partition's error code in an answer to `add_partitions` or `commit_offsets`."""
    reader, codes = Reader(answer), {}
    reader.take(_INT)  # for how long the broker throttles this client
    for _ in range(reader.length()):
        topic = reader.text()
        for _ in range(reader.length()):
            index, code = reader.take(_RESULT)
            reader.skip_tags()
            codes[topic, index] = code
        reader.skip_tags()
    return codes


def of_all(answer: bytes) -> int:
    """Return the error code of an answer to `add_offsets` or `end`."""
    reader = Reader(answer)
    reader.take(_INT)
    return reader.take(_SHORT)[0]


def next_owner(answer: bytes) -> tuple[int, ...]:
    """Return the next producer id and epoch from an answer to an implicit `end`."""
    reader = Reader(answer)
    reader.take(_INT)
    reader.take(_SHORT)
    return reader.take(_OWNER)


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


def _owner(who: Identity) -> bytes:
    return _text(who.transactional_id) + _OWNER.pack(*who[1:])


def _by_topic(topics: Mapping[str, Sequence[bytes]]) -> bytes:
    return unsigned(len(topics) + 1) + b"".join(
        _text(topic) + unsigned(len(parts) + 1) + b"".join(parts) + NO_TAGS for topic, parts in topics.items()
    )


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _length(encoded) + encoded


def _length(content: bytes) -> bytes:
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
