"""The requests of each transaction, and their answers, as bytes.

kafka-python takes 1 ms of processor time to encode three of these. Source: AddPartitionsToTxn,
AddOffsetsToTxn, Produce, TxnOffsetCommit and EndTxn in the documentation of Kafka's protocol. There are two
versions of the last three: one that Kafka 3.0 knows, and an `implicit` one, by which brokers register
partitions and group by themselves.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streaming_job.log.records import PartitionId
from streaming_job.protocol.fields import INT, NO_TAGS, SHORT, Reader, Request, by_topic, length_of, text

NULL = b"\0"
_OWNER = struct.Struct(">qh")
_ACKS, _OFFSET = struct.Struct(">hi"), struct.Struct(">iqi")
_PRODUCED, _RESULT = struct.Struct(">ihqqq"), struct.Struct(">ih")


class Identity(NamedTuple):
    """Who writes: a transactional producer."""

    transactional_id: str
    producer_id: int
    epoch: int


def add_partitions(who: Identity, partitions: Iterable[PartitionId]) -> Request:
    """Return a request to register partitions, to which records will be written, with the transaction."""
    parts = ((topic, INT.pack(index)) for topic, index in partitions)
    return Request("AddPartitionsToTxn", 24, 3, _owner(who) + by_topic(parts) + NO_TAGS)


def add_offsets(who: Identity, group: str) -> Request:
    """Return a request to register a consumer group, for which offsets will be committed."""
    return Request("AddOffsetsToTxn", 25, 3, _owner(who) + text(group) + NO_TAGS)


def produce(
    who: Identity, timeout_ms: int, batches: Mapping[PartitionId, bytes], *, implicit: bool
) -> Request:
    """Return a request to append a record batch to each partition."""
    parts = (
        (topic, b"".join((INT.pack(index), length_of(batch), batch, NO_TAGS)))
        for (topic, index), batch in batches.items()
    )
    begin = text(who.transactional_id) + _ACKS.pack(-1, timeout_ms)
    return Request("Produce", 0, 12 if implicit else 9, begin + by_topic(parts) + NO_TAGS)


def commit_offsets(
    who: Identity, group: str, offsets: Iterable[tuple[PartitionId, int, str]], *, implicit: bool
) -> Request:
    """Return a request to commit offsets with metadata, for a group without members."""
    parts = (
        (topic, b"".join((_OFFSET.pack(index, offset, -1), text(metadata), NO_TAGS)))
        for (topic, index), offset, metadata in offsets
    )
    begin = text(who.transactional_id) + text(group) + _OWNER.pack(*who[1:])
    no_member = INT.pack(-1) + text("") + NULL  # generation, id, id of the instance
    body = begin + no_member + by_topic(parts) + NO_TAGS
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
                reader.take(INT)
                reader.text()
                reader.skip_tags()
            reader.text()
            reader.skip_tags()
            codes[topic, index] = code
        reader.skip_tags()
    return codes


def by_partition(answer: bytes) -> dict[PartitionId, int]:
    """Return each partition's error code in an answer to `add_partitions` or `commit_offsets`."""
    reader = Reader(answer)
    reader.take(INT)  # for how long the broker throttles this client
    return {partition: code for partition, (code,) in reader.by_partition(_RESULT).items()}


def of_all(answer: bytes) -> int:
    """Return the error code of an answer to `add_offsets` or `end`."""
    reader = Reader(answer)
    reader.take(INT)
    return reader.take(SHORT)[0]


def next_owner(answer: bytes) -> tuple[int, ...]:
    """Return the next producer id and epoch from an answer to an implicit `end`."""
    reader = Reader(answer)
    reader.take(INT)
    reader.take(SHORT)
    return reader.take(_OWNER)


def _owner(who: Identity) -> bytes:
    return text(who.transactional_id) + _OWNER.pack(*who[1:])
