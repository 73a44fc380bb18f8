"""Notes every alert, and when a read_committed consumer, as a risk team's, held it."""

import threading
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streaming_job.log import topic_reader

TIMEOUT_S = 10.0
FETCH_S = 0.2


@dataclass(frozen=True)
class Alerts:
    """What came, in the order in which it came."""

    transaction_ids: list[str]
    scores: list[float]
    arrivals: npt.NDArray[np.int64]
    """Kafka timestamps of the transactions, ms."""
    received: npt.NDArray[np.float64]
    """Wall clock at receipt, ms."""

    def __len__(self) -> int:
        return len(self.transaction_ids)

    @property
    def by_transaction(self) -> dict[str, float]:
        """Transaction -> score."""
        return dict(zip(self.transaction_ids, self.scores, strict=True))

    @property
    def duplicated(self) -> int:
        """Alerts beyond the first one of their transactions."""
        return sum(count - 1 for count in Counter(self.transaction_ids).values())


class AlertReader:
    """The thread that reads."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "fraud-compare",  # never joined
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # an answer as soon as there is one
                "fetch.wait.max.ms": 5,
                "fetch.error.backoff.ms": 5,
            }
        )
        partitions = topic_reader.partitions(self._consumer, topic, TIMEOUT_S)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alert-reader", daemon=True)
        self._fault: KafkaError | None = None
        self._found: list[tuple[float, bytes]] = []
        self._thread.start()

    def stop(self) -> Alerts:
        """Read what there is, and end.

        Raises:
            KafkaException: reading failed.
        """
        self._stopped.set()
        self._thread.join()
        self._consumer.close()
        if self._fault is not None:
            raise KafkaException(self._fault)
        values = [orjson.loads(value) for _, value in self._found]
        return Alerts(
            [value["transaction_id"] for value in values],
            [value["score"] for value in values],
            np.array([value["arrival_time"] for value in values], dtype=np.int64),
            np.array([at for at, _ in self._found]),
        )

    def _run(self) -> None:
        while True:
            message = self._consumer.poll(FETCH_S)
            now = time.time() * 1_000
            if message is None:
                if self._stopped.is_set():
                    return
            elif (error := message.error()) is not None:
                self._fault = error
                return
            else:
                self._found.append((now, message.value() or b""))
