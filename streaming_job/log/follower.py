"""Reads ranges of a topic's partitions, each to its end."""

import time
from collections.abc import Iterator, Mapping
from functools import lru_cache

from confluent_kafka import KafkaError

from streaming_job.log.errors import PATIENCE_S, LogError
from streaming_job.log.librdkafka import Client
from streaming_job.log.records import Records

CHUNK = 50_000
"""Records decoded together; fewer cost more each."""
WAIT_MS = 5
READ_PATIENCE_S = PATIENCE_S / 4
"""Spark tries a task four times."""
PAUSE_S = 0.1
"""Before fetching begins anew after an error."""
GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)

TUNING = {
    "log_level": "2",  # what goes wrong is raised
    # a fetch that waits at the broker holds up the next range's
    "fetch.wait.max.ms": "5",
    # what is fetched beyond a range is thrown away, so not far ahead; and look again at once
    "queued.min.messages": "20000",
    "fetch.queue.backoff.ms": "1",
    "max.partition.fetch.bytes": str(2 << 20),
    "reconnect.backoff.max.ms": "1000",
}
"""The job's own settings of the client; the operator's win."""
GUARANTEES = {
    "isolation.level": "read_committed",
    # a range may end with marks of transactions, which no record tells of
    "enable.partition.eof": "true",
    # records that are gone are never skipped in silence
    "auto.offset.reset": "error",
    "check.crcs": "true",
    "allow.auto.create.topics": "false",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
}
"""Nobody's to change."""


class RangeReader:
    """Reads with one client, kept between ranges."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Make the client.

        Args:
            settings: librdkafka's names, bootstrap.servers among them.
        """
        self._client = Client({**TUNING, **settings, **GUARANTEES})

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        """The committed records of [start, end), in order, up to CHUNK at a time.

        Raises:
            LogError: they are not there, or the brokers do not answer.
        """
        place, position, heard, trouble = f"{topic}-{partition}", start, time.monotonic(), ""
        while position < end:
            with self._client.fetching(topic, partition, position) as queue:
                while True:
                    taken = queue.take(min(CHUNK, end - position), end, WAIT_MS)
                    if taken.position > position:
                        position, heard, trouble = taken.position, time.monotonic(), ""
                    elif time.monotonic() - heard > READ_PATIENCE_S:
                        why = trouble or self._client.trouble()
                        raise LogError(
                            f"no record of {place} from offset {position} on, to be read up to {end}, has "
                            f"come in {READ_PATIENCE_S:.0f} s{why}; check the brokers, and whether the topic "
                            "was made anew or has lost records"
                        )
                    if position >= end or taken.error is not None:
                        break
                    if len(taken.records.offsets):
                        yield taken.records
            # nothing more is fetched while these are being decoded
            if len(taken.records.offsets):
                yield taken.records
            if taken.error is not None:
                trouble = f" ({taken.error.str()})"
                if taken.error.code() in GONE:
                    raise LogError(
                        f"the records of {place} from offset {position} to {end} are gone{trouble}: "
                        "retention has taken them, or the topic was made anew; see docs/operations.md"
                    )
                time.sleep(PAUSE_S)


@lru_cache(maxsize=4)
def reader(settings: tuple[tuple[str, str], ...]) -> RangeReader:
    """This process's reader with such client settings."""
    return RangeReader(dict(settings))
