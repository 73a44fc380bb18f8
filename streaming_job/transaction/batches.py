"""Kafka's record batches: the records of one partition, as a producer of transactions sends them.

Source: "Record Batch" in the documentation of Kafka's message format (magic 2). Each batch is compressed with
zstd. Its records have the same headers and the time at which the batch was made.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from streaming_job.protocol.fields import unsigned
from streaming_job.transaction.requests import Identity

BATCH_BYTES = 512 * 1024
"""A batch has at most so many bytes before its compression, unless a single record has more."""
MAGIC = 2
TRANSACTIONAL, ZSTD = 0x10, 0x04
"""Attributes of a batch."""
FIRST = struct.Struct(">qiibI")
"""Base offset, length of what follows it, leader epoch, magic, checksum of what follows."""
SEQUENCES = 2**31
"""Sequence numbers begin again after so many."""
COUNTED_FROM = 12
"""Bytes of base offset and length, which the length does not count."""
CHECKED = struct.Struct(">hiqqqhii")
"""Attributes, last place, first and last time, producer id and epoch, sequence, number of records."""


class Headers(bytes):
    """Encoded headers of a record; records that have the same ones share them."""

    @staticmethod
    def of(headers: Sequence[tuple[str, bytes]]) -> "Headers":
        """Encode names and values."""
        parts = [varint(len(headers))]
        for name, value in headers:
            encoded = name.encode()
            parts += varint(len(encoded)), encoded, varint(len(value)), value
        return Headers(b"".join(parts))


class Record(NamedTuple):
    """A record of some partition."""

    key: bytes | None
    value: bytes
    headers: Headers

    @property
    def size(self) -> int:
        """Bytes without the few of its framing."""
        return len(self.key or b"") + len(self.value) + len(self.headers)

    def encode(self, place: int) -> bytes:
        """Return the record with its length, for a place in a batch."""
        key = varint(-1) if self.key is None else varint(len(self.key)) + self.key
        # the first two bytes: no attributes, no time after that of the batch
        body = b"".join((b"\0\0", varint(place), key, varint(len(self.value)), self.value, self.headers))
        return varint(len(body)) + body


class Batch(NamedTuple):
    """Records of one partition, in order."""

    records: Sequence[Record]
    sequence: int
    """Sequence number of the first record."""

    def encode(self, now_ms: int, who: Identity, compress: Callable[[bytes], bytes]) -> bytes:
        """Return the batch as the brokers take it; `compress` makes a frame of zstd."""
        records = b"".join([record.encode(place) for place, record in enumerate(self.records)])
        count = len(self.records)
        checked = CHECKED.pack(
            TRANSACTIONAL | ZSTD, count - 1, now_ms, now_ms, *who[1:], self.sequence, count
        ) + compress(records)
        return FIRST.pack(0, FIRST.size - COUNTED_FROM + len(checked), -1, MAGIC, crc32c(checked)) + checked


def partition_of(record: Record, partitions: int) -> int:
    """Return the partition of a record, of so many: by its key, or by its value if it has none.

    For keys it is that of librdkafka's default partitioner, which earlier releases of the job used.

    >>> partition_of(Record(b"card-1", b"", Headers.of([])), 12)
    8
    """
    return zlib.crc32(record.key or record.value) % partitions


def batches(records: Sequence[Record], sequence: int) -> Iterator[Batch]:
    """Yield batches of at most `BATCH_BYTES` each; `sequence` is the number of the first record."""
    begin = size = 0
    for place, record in enumerate(records):
        if place > begin and size + record.size > BATCH_BYTES:
            yield Batch(records[begin:place], (sequence + begin) % SEQUENCES)
            begin, size = place, 0
        size += record.size
    if records:
        yield Batch(records[begin:], (sequence + begin) % SEQUENCES)


def varint(number: int) -> bytes:
    """Return a zigzag-encoded integer of variable length, as Protocol Buffers' `sint64`.

    >>> [varint(number).hex() for number in (0, -1, 63, 64)]
    ['00', '01', '7e', '8001']
    """
    return unsigned(number << 1 if number >= 0 else (-number << 1) - 1)
