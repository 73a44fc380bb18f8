"""Follows partitions of the log: fetches continuously from given offsets on, hands out what has come."""

import math
import time
from collections.abc import Mapping

import numpy as np
from confluent_kafka import KafkaError

from streaming_job.log.errors import PATIENCE_S, LogError
from streaming_job.log.ffi import Client, error_of, place_of
from streaming_job.log.message_batch import MessageBatch
from streaming_job.log.message_kernels import NO_LIMIT, PARTITION_STATE
from streaming_job.log.records import Offsets, Place, Records

SLICE = 4096
"""Messages taken together at most; what a call takes beyond its bytes is less than that."""
FIRST_SIZE = 1024
"""Bytes of a record, until some were seen."""
PAUSE_S = 0.1
"""Before fetching begins anew after an error."""
GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)

TUNING = {
    "log_level": "2",  # what goes wrong is raised
    # a fetch returns with its first record; only an empty one reports the end of the partition, which moves
    # positions past transaction markers
    "fetch.wait.max.ms": "50",
    # both are of the one queue of all partitions; a record takes 400 bytes more in it
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "16384",
    "fetch.queue.backoff.ms": "1",
    # compressed bytes, all of which are unpacked at once: a hundred times as many in a flood of blanks;
    # larger fetches read no faster
    "max.partition.fetch.bytes": str(256 << 10),
    "reconnect.backoff.max.ms": "1000",
}
"""The job's own settings of the client; the operator's win."""
GUARANTEES = {
    "isolation.level": "read_committed",
    # positions move over marks of transactions, which no record tells of
    "enable.partition.eof": "true",
    # records that are gone are never skipped in silence
    "auto.offset.reset": "error",
    "check.crcs": "true",
    "allow.auto.create.topics": "false",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
}
"""Fixed: exactly-once depends on them."""


class LogFollower:
    """Fetches partitions continuously from given offsets on, into one queue. For one thread at a time."""

    def __init__(self, client: Mapping[str, str], positions: Offsets) -> None:
        """Begin to fetch.

        Args:
            client: librdkafka's names, bootstrap.servers among them.
            positions: the partitions to follow, and the offset at which each begins.

        Raises:
            LibraryError: librdkafka does not take the settings.
        """
        self._client = Client({**TUNING, **client, **GUARANTEES})
        self._places: list[Place] = sorted(positions)
        topics = sorted({topic for topic, _ in positions})
        self._states = np.zeros(len(positions), dtype=PARTITION_STATE)
        for state, (topic, partition) in zip(self._states, self._places, strict=True):
            state["topic"], state["topic_number"] = self._client.topic(topic), topics.index(topic)
            state["partition"], state["position"] = partition, positions[topic, partition]
        self._states["limit"] = NO_LIMIT
        self._batch = MessageBatch(topics, self._states)
        self._record_size = FIRST_SIZE
        self._restarts: dict[int, float] = {}
        """When a partition that failed is fetched again, by its row."""
        self._failing_since: dict[int, float] = {}
        """Partitions of which nothing but errors has come since."""
        self._lost: LogError | None = None
        for row in range(len(self._places)):
            self._start(row)

    @property
    def positions(self) -> Offsets:
        """By partition: the offset after what `take` has handed out, and after what never will be."""
        return dict(zip(self._places, self._states["position"].tolist(), strict=True))

    def take(self, most: int, most_bytes: int, wait_s: float, linger_s: float = 0.0) -> list[Records]:
        """What has come.

        Args:
            most: records at most.
            most_bytes: of keys and values; what is beyond it is less than SLICE of the last records' size.
            wait_s: for the first record.
            linger_s: for more, after the first.

        Returns:
            One `Records` for each topic with something.

        Raises:
            LogError: records are gone, or a partition cannot be read for PATIENCE_S. What was taken before
                has been handed out then.
        """
        if self._lost is not None:
            raise self._lost
        self._batch.reserve(most)
        self._client.listen()
        self._wait(most, most_bytes, wait_s)
        if self._batch.record_count:
            self._client.trouble = ""
            if linger_s > 0:
                self._fill(most, most_bytes, math.ceil(linger_s * 1000))
        found = self._batch.hand_out()
        if self._lost is not None and not found:
            raise self._lost
        return found

    def limit(self, ends: Offsets | None) -> None:
        """Hand out no record at or beyond an end; no position moves beyond it either.

        Args:
            ends: by partition; one that is not there has no end. None lifts the limit.
        """
        for row, place in enumerate(self._places):
            self._states[row]["limit"] = NO_LIMIT if ends is None else ends.get(place, NO_LIMIT)
            # left out by a limit; those that failed have their time
            if self._states[row]["is_cut"] and row not in self._restarts:
                self._start(row)

    def trouble(self) -> str:
        """What went wrong last since records came, in the client's words; empty if nothing did."""
        self._client.listen()
        return self._client.trouble

    def close(self) -> None:
        """Stop fetching, and give the memory back."""
        self._client.close()

    def _wait(self, most: int, most_bytes: int, wait_s: float) -> None:
        """Take the first record when it comes, and what else is there then."""
        batch, queue = self._batch, self._client.queue
        deadline = time.monotonic() + wait_s
        while True:
            due = min(deadline, self._restart()) if self._restarts else deadline
            # librdkafka waits for as many messages as it is asked for: so for one, and then without waiting
            arrived = batch.read(queue, 1, _ms_until(due))
            if arrived:
                self._fill(most, most_bytes, 0)
            if batch.record_count or self._lost is not None:
                return
            batch.hand_out()  # nothing but ends of partitions
            if not arrived and time.monotonic() >= deadline:
                return

    def _fill(self, most: int, most_bytes: int, wait_ms: int) -> None:
        """Take messages until the batch is full, or for so long."""
        batch, queue = self._batch, self._client.queue
        deadline = time.monotonic() + wait_ms / 1000
        while (room := most - batch.count) > 0 and (bytes_left := most_bytes - batch.size) > 0:
            asked = min(room, SLICE, max(1, bytes_left // self._record_size))
            arrived = batch.read(queue, asked, _ms_until(deadline) if wait_ms else 0)
            self._measure()
            if arrived < asked:
                return
        self._measure()

    def _measure(self) -> None:
        is_troubled = self._batch.measure()
        if self._batch.record_count:
            self._record_size = max(1, self._batch.size // self._batch.record_count)
        if is_troubled:
            for message in self._batch.failures():
                self._fail(message)
            for row in np.flatnonzero(self._states["is_cut"]).tolist():
                self._client.stop(*self._places[row])
                if self._states[row]["position"] < self._states[row]["limit"]:
                    self._restarts.setdefault(row, 0.0)  # there was no room for more; the next call has it

    def _fail(self, message: int) -> None:
        """Have a partition that failed fetched again in a while, or give it up."""
        error, place = error_of(message), place_of(message)
        self._client.trouble = error.str() if place is None else f"{place[0]}-{place[1]}: {error.str()}"
        if place not in self._places:
            return
        row, now = self._places.index(place), time.monotonic()
        state = self._states[row]
        if state["is_heard"] or row not in self._failing_since:
            self._failing_since[row] = now
        state["is_cut"], state["is_heard"] = True, False
        self._restarts[row] = now + PAUSE_S
        where = f"{place[0]}-{place[1]} from offset {state['position']} on"
        if error.code() in GONE:
            self._lost = LogError(
                f"the records of {where} are gone ({error.str()}): retention has taken them, or the topic "
                "was made anew; see docs/operations.md"
            )
        elif now - self._failing_since[row] > PATIENCE_S:
            self._lost = LogError(
                f"{where} cannot be read for {PATIENCE_S:.0f} s ({error.str()}); check the brokers, and "
                "whether the topic is there"
            )

    def _restart(self) -> float:
        """Fetch again what has waited for its time; when the next one is due."""
        now = time.monotonic()
        for row in [row for row, due in self._restarts.items() if due <= now]:
            del self._restarts[row]
            self._start(row)
        return min(self._restarts.values(), default=math.inf)

    def _start(self, row: int) -> None:
        state = self._states[row]
        state["is_cut"] = False
        self._client.start(*self._places[row], int(state["position"]))


def _ms_until(deadline: float) -> int:
    return max(0, math.ceil((deadline - time.monotonic()) * 1000))
