"""The job's progress topic, read from its start and followed by a thread."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from service.fold import Totals
from service.settings import ServiceSettings, say

POLL_S = 0.2
RETRY_S = 1.0
METADATA_S = 3.0
"""While the broker is away, shutting down takes as long."""
BATCH = 500
"""Records folded per turn of the lock."""

T = TypeVar("T")


class ProgressReader:
    """Totals of one job, rebuilt from the topic at every start and kept up to date.

    Transactions that were aborted are never seen (read_committed). While the broker is away the totals stay;
    the client reconnects by itself and continues where it was.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._totals = Totals()
        self._unreadable = 0
        self._behind: set[int] | None = None
        self._fault: str | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress-reader", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the consumer."""
        self._stop.set()
        self._thread.join()

    def read(self, view: Callable[[Totals], T]) -> T:
        """Call `view` with the totals while nothing changes them."""
        with self._lock:
            return view(self._totals)

    @property
    def last(self) -> Mapping[str, Any] | None:
        """The newest progress record of the job; None before the first."""
        return self.read(lambda totals: totals.last)

    @property
    def unreadable(self) -> int:
        """Records of the topic that were no progress."""
        return self._unreadable

    @property
    def waiting_for(self) -> str | None:
        """Why the totals are not complete; None once every partition has been read to its end."""
        if self._thread.ident is not None and not self._thread.is_alive():
            return "the thread that reads progress has died; restart the sidecar"
        if self._behind is None:
            return self._fault or "the progress topic has not been found yet"
        return "progress has not been read to its end yet" if self._behind else None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except KafkaException as error:
                self._fault = f"the progress topic cannot be read: {say(error)}"
                self._stop.wait(RETRY_S)

    def _follow(self) -> None:
        """Read until told to stop, or until the client gives up."""
        topic = self._settings.topics.job_progress
        consumer = Consumer(
            self._settings.client(
                **{
                    "group.id": f"{self._settings.job_id}-sidecar",  # never joined: partitions are assigned
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "allow.auto.create.topics": False,
                }
            )
        )
        try:
            partitions = _partitions(consumer, topic)
            if not partitions:
                self._fault = f"topic {topic} does not exist"
                self._stop.wait(RETRY_S)
                return
            # from the start, always: a batch that was counted before is recognised by its id
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
            self._behind = set(partitions)
            while not self._stop.is_set():
                self._take(consumer.consume(BATCH, POLL_S))
        finally:
            consumer.close()

    def _take(self, messages: list[Any]) -> None:
        with self._lock:
            for message in messages:
                error = message.error()
                if error is None:
                    self._fold(message.key(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    assert self._behind is not None
                    self._behind.discard(message.partition())
                elif error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise KafkaException(error)

    def _fold(self, key: bytes | None, value: bytes | None) -> None:
        if key != self._settings.job_id.encode():
            return  # another job's
        try:
            self._totals.add(orjson.loads(value or b""))
        except (KeyError, TypeError, ValueError, AttributeError):
            self._unreadable += 1


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    """The topic's partitions; none when it does not exist."""
    found = consumer.list_topics(topic, timeout=METADATA_S).topics[topic]
    return [] if found.error is not None else sorted(found.partitions)
