"""Reads ranges of a topic's partitions, each to its end."""

import time
from collections.abc import Iterator, Mapping
from functools import lru_cache

from confluent_kafka import KafkaError

from streaming_job.source.errors import PATIENCE_S, LogError
from streaming_job.source.librdkafka import Client
from streaming_job.source.records import Records

CHUNK = 50_000
"""Records decoded together; fewer cost more each."""
WAIT_MS = 5
RETRIED = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
"""What the client tells while it connects again by itself."""
GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)

CLIENT = {
    "log_level": "2",  # what goes wrong is raised
    "isolation.level": "read_committed",
    # a range may end with marks of transactions, which no record tells of
    "enable.partition.eof": "true",
    # records that are gone are never skipped in silence
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "check.crcs": "true",
    # a fetch that waits at the broker holds up the next range's
    "fetch.wait.max.ms": "5",
    # what is fetched beyond a range is thrown away, so not far ahead; and look again at once
    "queued.min.messages": "20000",
    "fetch.queue.backoff.ms": "1",
    "max.partition.fetch.bytes": str(2 << 20),
    "reconnect.backoff.max.ms": "1000",
}
"""The job's own settings of the client."""


class RangeReader:
    """Reads with one client, kept between ranges."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Make the client.

        Args:
            settings: librdkafka's names, bootstrap.servers among them.
        """
        self._client = Client({**CLIENT, **settings})

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        """The committed records of [start, end), in order, up to CHUNK at a time.

        Raises:
            LogError: they are not there, or the brokers do not answer.
        """
        position, heard = start, time.monotonic()
        with self._client.fetching(topic, partition, start) as queue:
            while True:
                taken = queue.take(min(CHUNK, end - position), end, WAIT_MS)
                if taken.error is not None and taken.error.code() not in RETRIED:
                    raise _lost(topic, partition, position, end, taken.error)
                if taken.position > position:
                    position, heard = taken.position, time.monotonic()
                elif time.monotonic() - heard > PATIENCE_S:
                    raise LogError(
                        f"no record of {topic}-{partition} from offset {position} on has come in "
                        f"{PATIENCE_S:.0f} s; check the brokers"
                    )
                if position >= end:
                    break
                if len(taken.records.offsets):
                    yield taken.records
        # nothing more is fetched while these are being decoded
        if len(taken.records.offsets):
            yield taken.records


def _lost(topic: str, partition: int, position: int, end: int, error: KafkaError) -> LogError:
    place = f"{topic}-{partition}"
    if error.code() in GONE:
        return LogError(
            f"the records of {place} from offset {position} to {end} are gone ({error.str()}): the topic's "
            "retention has taken them, or it was made anew; see docs/operations.md"
        )
    return LogError(f"{place} cannot be read from offset {position} on: {error.str()}; check the brokers")


@lru_cache(maxsize=4)
def reader(settings: tuple[tuple[str, str], ...]) -> RangeReader:
    """This process's reader with such client settings."""
    return RangeReader(dict(settings))
