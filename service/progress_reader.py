"""The newest progress record of a job, which tells its totals: found at the end of its topic and followed."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from service.settings import ServiceSettings, say
from streaming_job.log import topic_reader
from streaming_job.progress.writer import decoded
from streaming_job.progress.totals import Totals

POLL_S = 0.2
RETRY_S = 1.0
BATCH = 500
"""Records taken per turn of the lock."""

T = TypeVar("T")


class ProgressReader:
    """Totals of one job, from its newest record, kept up to date.

    Transactions that were aborted are never seen (read_committed). While the broker is away the totals stay;
    the client reconnects by itself and continues where it was.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._totals = Totals()
        self._last: Mapping[str, Any] | None = None
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
        return self._last

    @property
    def end_offsets(self) -> dict[tuple[str, int], int]:
        """(topic, partition) -> end offset of the newest batch."""
        parts = self._last["partitions"] if self._last else ()
        return {(part["topic"], part["partition"]): part["end_offset"] for part in parts}

    @property
    def unreadable(self) -> int:
        """Records of the job, met since the start, that were no progress."""
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
                self._fault = self._words(error)
                self._stop.wait(RETRY_S)

    def _words(self, error: KafkaException) -> str:
        topic = self._settings.topics.job_progress
        if error.args and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return f"topic {topic} does not exist"
        return f"the progress topic cannot be read: {say(error)}"

    def _follow(self) -> None:
        """Read until told to stop, or until the client gives up."""
        topic, job = self._settings.topics.job_progress, self._settings.job_id
        reader = topic_reader.consumer(self._settings.bootstrap_servers, self._settings.kafka, f"{job}-sidecar")
        try:
            places = []
            for partition in topic_reader.partitions(reader, topic):
                found = topic_reader.newest(reader, topic, partition, lambda m: decoded(m, job) is not None)
                if found is not None:
                    self._take(found)
                after = OFFSET_BEGINNING if found is None else (found.offset() or 0) + 1
                places.append(TopicPartition(topic, partition, after))
            reader.assign(places)
            self._behind = {place.partition for place in places}
            while not self._stop.is_set():
                self._take_all(reader)
        finally:
            reader.close()

    def _take_all(self, reader: Consumer) -> None:
        for message in reader.consume(BATCH, POLL_S):
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                assert self._behind is not None
                self._behind.discard(message.partition())
            elif error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)

    def _take(self, message: Any) -> None:
        record = decoded(message, self._settings.job_id)
        if record is None:
            self._unreadable += message.key() == self._settings.job_id.encode()
            return
        totals = Totals.from_json(record["totals"])
        with self._lock:
            # totals only grow, unless they had to begin anew: what is older was read again
            if totals.since != self._totals.since or totals.batches > self._totals.batches:
                self._totals, self._last = totals, record
