"""Receipt of alerts: the consumer by which every tool measures latency, and the latency that all report.

The latency of an alert is the time from its transaction's arrival, which is the transaction's Kafka
timestamp, to the receipt of the alert by a `read_committed` consumer as a bank would run one. A load test
also measures from the intended sending time. Transactions that arrive during the warm-up are left out.
"""

import gc
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import orjson
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from numpy.typing import NDArray

from feature_store.errors import FraudError
from loadtests.rig.native import NativeThread, sleep
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Brokers
from streaming_job.log.follow import partition_of
from streaming_job.log.records import Offsets

POLL_S = 0.1
JOIN_S = 0.01
PATIENCE_S = 60.0
"""Limit of the time to read the rest, in which brokers may restart."""
FATAL = (KafkaError._AUTO_OFFSET_RESET, KafkaError.UNKNOWN_TOPIC_OR_PART)
"""Errors after which alerts would be missing; all others are of brokers that restart."""


class WatchError(FraudError):
    """The alerts cannot be read, so no latency is measured.

    Check that the brokers answer and that the topic exists.
    """


class ReceivedAlert(NamedTuple):
    """A received alert."""

    value: bytes
    at_ns: int
    """Time of receipt, by the watch's clock."""


class AlertWatch(NativeThread):
    """Thread that consumes alerts and does nothing else, so that it notes each receipt at once.

    It is a thread of the operating system, also where gevent has replaced Python's threads. It survives
    restarts of brokers, which show as latency.
    """

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        *,
        from_beginning: bool = False,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Connect, and choose the position to read from.

        Args:
            from_beginning: whether to read the whole topic, and not only alerts written from now on.

        Raises:
            WatchError: no such topic, or the broker does not answer.
        """
        self._clock_ns = clock_ns
        self._topic = topic
        self._read: Offsets = {}
        """Partition -> next offset, after the records and transaction markers read."""
        self._consumer = clients.reader(brokers, "fraud-watch", fixed=clients.MEASURING)
        try:
            # read the offsets now: "latest" would be resolved later and skip alerts in between
            bounds = topic_reader.bounds(self._consumer, topic)
            self._consumer.assign(
                [
                    TopicPartition(topic, partition, first if from_beginning else end)
                    for partition, (first, end) in bounds.items()
                ]
            )
        except KafkaException as fault:
            self._consumer.close()
            raise WatchError(
                f"alerts on {topic} cannot be read: {clients.describe(fault)}; check topic and brokers"
            ) from fault
        super().__init__(self._receive)
        self.seen: deque[ReceivedAlert] = deque()
        """Received alerts in the order of receipt; `take` removes them."""
        # until `finish`: traversing a million objects would hold a receipt back for half a second
        gc.collect()
        gc.freeze()

    def check(self) -> None:
        """Raise WatchError if the thread failed."""
        if self.fault is not None:
            raise WatchError(f"reading alerts failed: {self.fault!r}") from self.fault

    def take(self) -> list[ReceivedAlert]:
        """Return the alerts received since the last call, and forget them."""
        return [self.seen.popleft() for _ in range(len(self.seen))]

    def finish(self) -> list[ReceivedAlert]:
        """Read the alerts that are committed by now, end the thread, and return all since the last `take`.

        Some that are committed meanwhile may be among them.

        Raises:
            WatchError: as `check`, or the alerts cannot be read in PATIENCE_S.
        """
        self.stop()
        while not self.ended:
            sleep(JOIN_S)
        gc.unfreeze()
        self.check()
        return self.take()

    def _receive(self) -> None:
        try:
            while not self.stopped:
                self._poll()
            bounds = topic_reader.bounds(self._consumer, self._topic)
            deadline = time.monotonic() + PATIENCE_S
            while any(self._read.get((self._topic, part), 0) < end for part, (_, end) in bounds.items()):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self._topic} not read to its end in {PATIENCE_S:.0f} s")
                self._poll()
        finally:
            self._consumer.close()

    def _poll(self) -> None:
        """Receive an alert, or the report of a partition's end."""
        message = self._consumer.poll(POLL_S)  # returns with the first record; consume would wait
        now = self._clock_ns()
        if message is None:
            return
        error = message.error()
        if error is None:
            self.seen.append(ReceivedAlert(message.value() or b"", now))
            self._read[partition_of(message)] = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._read[partition_of(message)] = message.offset() or 0
        elif error.fatal() or error.code() in FATAL:
            raise KafkaException(error)


def latency_us(arrival_ms: int, at_ns: int) -> int:
    """Return the microseconds from an arrival, ms since 1970-01-01 UTC, to a receipt, ns since then."""
    return at_ns // 1_000 - arrival_ms * 1_000


def arrival_latencies_us(
    alerts: Iterable[ReceivedAlert], from_ms: float, to_ms: float = float("inf")
) -> NDArray[np.int64]:
    """Return the latencies, microseconds, of the alerts whose transactions arrived in an interval.

    Args:
        alerts: alerts whose receipt was noted by `time.time_ns`.
        from_ms: first arrival to include, ms since 1970-01-01 UTC: the end of the warm-up.
        to_ms: first arrival to leave out, the same unit.
    """
    arrivals = ((orjson.loads(alert.value)["arrival_time"], alert.at_ns) for alert in alerts)
    chosen = [latency_us(arrival, at_ns) for arrival, at_ns in arrivals if from_ms <= arrival < to_ms]
    return np.array(chosen, dtype=np.int64)
