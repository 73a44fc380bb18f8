"""Reads new alerts as a risk team's consumer would, and notes when each came."""

import threading
import time

import numpy as np
import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from numpy.typing import NDArray

from streaming_job.log import topic_reader

TIMEOUT_S = 10.0
FETCH_S = 0.1


class AlertReader:
    """What a risk team's consumer is: read_committed, and it notes when each alert came.

    It reads what comes after it was made.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "fraud-bench",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                # an answer as soon as there is one: latency is what this consumer is for
                "fetch.wait.max.ms": 5,
                "fetch.error.backoff.ms": 5,
            }
        )
        partitions = topic_reader.partitions(self._consumer, topic, TIMEOUT_S)
        places = [TopicPartition(topic, partition) for partition in partitions]
        for place in places:  # "latest" would be what it is when the first answer comes
            place.offset = self._consumer.get_watermark_offsets(place, TIMEOUT_S)[1]
        self._consumer.assign(places)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alert-reader", daemon=True)
        self._fault: KafkaError | None = None
        self.values: list[bytes] = []
        """The alerts."""
        self.received: list[float] = []
        """Wall clock at receipt of each alert, ms."""

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read what there is, then end.

        Raises:
            KafkaException: reading failed.
        """
        self._stopped.set()
        self._thread.join()
        self._consumer.close()
        if self._fault is not None:
            raise KafkaException(self._fault)

    def latencies(self, begin: float, end: float) -> NDArray[np.float64]:
        """Milliseconds from each transaction's arrival to the receipt of its alert; ask after `stop`.

        Args:
            begin: of the transactions' arrivals, ms since 1970-01-01 UTC.
            end: the same; exclusive.
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
