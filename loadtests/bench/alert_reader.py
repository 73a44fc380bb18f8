"""Consumer of new alerts that records when each is received."""

import threading
import time

import numpy as np
import orjson
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from numpy.typing import NDArray

from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Address

TIMEOUT_S = 10.0
FETCH_S = 0.1


class AlertReader:
    """A read_committed consumer, like a risk team's, that records when each alert is received.

    It reads alerts written after its creation.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = clients.reader(Address(bootstrap_servers), "fraud-bench", fixed=clients.MEASURING)
        partitions = topic_reader.partitions(self._consumer, topic, TIMEOUT_S)
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        for partition in assigned:  # "latest" would be resolved by the first fetch, too late
            partition.offset = self._consumer.get_watermark_offsets(partition, TIMEOUT_S)[1]
        self._consumer.assign(assigned)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alert-reader", daemon=True)
        self._fault: KafkaError | None = None
        self.values: list[bytes] = []
        """Values of the alerts."""
        self.received: list[float] = []
        """Time of receipt of each alert, ms since 1970-01-01 UTC."""

    def start(self) -> None:
        """Start to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read the remaining alerts, then stop.

        Raises:
            KafkaException: reading failed.
        """
        self._stopped.set()
        self._thread.join()
        self._consumer.close()
        if self._fault is not None:
            raise KafkaException(self._fault)

    def latencies(self, begin: float, end: float) -> NDArray[np.float64]:
        """Return the ms from each transaction's arrival to the receipt of its alert; call after `stop`.

        Args:
            begin: first arrival to include, ms since 1970-01-01 UTC.
            end: first arrival to leave out, the same unit.
        """
        arrivals = np.array([orjson.loads(value)["arrival_time"] for value in self.values], dtype=np.float64)
        chosen = (arrivals >= begin) & (arrivals < end)
        return np.array(self.received, dtype=np.float64)[chosen] - arrivals[chosen]

    def _run(self) -> None:
        while True:
            message = self._consumer.poll(FETCH_S)
            if message is None:
                if self._stopped.is_set():
                    return
                continue
            now = time.time() * 1000
            if (error := message.error()) is not None:
                self._fault = error
                return
            self.received.append(now)
            self.values.append(message.value() or b"")
