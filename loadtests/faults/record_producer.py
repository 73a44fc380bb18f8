"""Producer whose records arrive exactly once, even when the broker is killed."""

import json

from loadtests.faults.errors import FaultError
from loadtests.faults.job_process import PATIENCE_S
from streaming_job.log import clients
from streaming_job.log.clients import Address
from streaming_job.log.partitioner import Partitioner

PARTITIONERS = {Partitioner.MURMUR2: "murmur2_random", Partitioner.CRC32: "consistent_random"}
"""librdkafka's names of the partitioners."""
NO_CARD = b"card"
"""Key of records that name no card."""


class RecordProducer:
    """Idempotent producer with the partitioner that the job expects."""

    def __init__(self, bootstrap_servers: str, partitioner: Partitioner) -> None:
        """Create the client; it connects in the background."""
        self._undelivered: list[str] = []
        self._producer = clients.producer(
            Address(bootstrap_servers),
            tuning={
                "message.max.bytes": 2_000_000,
                "partitioner": PARTITIONERS[partitioner],
                "delivery.report.only.error": True,
            },
            on_delivery=lambda error, _: self._undelivered.append(str(error)),
        )

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        timestamp: int = 0,
    ) -> None:
        """Produce a record.

        Args:
            partition: default: that of the key.
            timestamp: ms since 1970-01-01 UTC; 0: now.
        """
        self._producer.produce(topic, value, key, -1 if partition is None else partition, timestamp=timestamp)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all records are acknowledged.

        Raises:
            FaultError: records were not delivered.
        """
        if unsent := self._producer.flush(PATIENCE_S):
            raise FaultError(f"{unsent} records were not delivered in {PATIENCE_S:.0f} s; check the broker")
        if self._undelivered:
            raise FaultError(
                f"{len(self._undelivered)} records were not delivered: {self._undelivered[0]}; correct them, "
                "or check the broker"
            )


def card_of(value: bytes | None) -> bytes:
    """Return the key that a correct producer gives a transaction: its card, or NO_CARD."""
    try:
        card = json.loads(value or b"")["card_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return NO_CARD
    return card.encode(errors="surrogatepass") if isinstance(card, str) and card else NO_CARD
