"""A thread that queries the job's lag from the broker's offsets."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented names of the module
    ListOffsetsResultInfo,
    OffsetSpec,
)

from service.background import Background, text_of
from service.health.lag import Lag, PartitionLag
from service.health.waiting import Waiting
from service.settings import ServiceSettings
from streaming_job.log import clients
from streaming_job.log.clients import AdminClient, Consumer, describe
from streaming_job.log.records import PartitionId
from streaming_job.transaction.written import Mark

log = logging.getLogger(__name__)
TIMEOUT_S = 5.0
METADATA_S = 3.0
EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
NEWEST: Any = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]


class LagWatch(Background):
    """Periodic query of offsets at the broker; keeps the last answer, and the last query's error, if any."""

    def __init__(
        self,
        settings: ServiceSettings,
        read_by_job: Callable[[], Mapping[PartitionId, int]],
        clock: Callable[[], float] = time.time,
        after_look: Callable[[Lag], None] | None = None,
    ) -> None:
        """Prepare the thread without connecting.

        Args:
            read_by_job: returns the offsets up to which all key groups have read their inputs.
            after_look: called with each answer, in this thread.
        """
        super().__init__("lag-watch")
        self._settings = settings
        self._read_by_job = read_by_job
        self._clock = clock
        self._after_look = after_look
        self.lag: Lag | None = None
        """The last answer; None before the first."""
        self._fault: str | None = "the broker has not answered yet"
        self._waiting = Waiting()
        self._ages: dict[tuple[PartitionId, int], int] = {}

    @property
    def fault(self) -> str | None:
        """Why the last query has no answer; None if it has one."""
        if self.has_ended:
            return "the thread that asks the broker has died; restart the sidecar"
        return self._fault

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            except (KafkaException, TimeoutError) as error:
                self._fault = f"the broker does not answer: {describe(error)}"
                self._stop.wait(self._settings.offsets_interval_s)
            except Exception as error:
                fault = f"the broker's answer cannot be judged: {text_of(error)}"
                if fault != self._fault:
                    log.exception("the job cannot be judged")
                self._fault = fault
                self._stop.wait(self._settings.offsets_interval_s)

    def _watch(self) -> None:
        """Query until stopped, or until the broker does not answer.

        The next call makes new clients, which have no stale metadata of the brokers.
        """
        admin = clients.admin(self._settings)
        consumer = clients.reader(
            self._settings,
            self._settings.job_id,
            committed_only=False,  # records of an open transaction count as waiting, too
            # only the first record is needed, not the backlog
            tuning={"fetch.message.max.bytes": 4096, "queued.max.messages.kbytes": 64},
        )
        try:
            while not self._stop.is_set():
                lag = self._query(admin, consumer)
                self.lag = replace(lag, partitions=self._with_ages(consumer, lag.partitions))
                self._fault = None
                if self._after_look is not None:
                    self._after_look(self.lag)
                self._stop.wait(self._settings.offsets_interval_s)
        finally:
            consumer.close()

    def _query(self, admin: AdminClient, group: Consumer) -> Lag:
        topics = admin.list_topics(timeout=METADATA_S).topics
        read_by_job = self._read_by_job()
        # of merchant facts and labels, those that the job reads: a job without merchant facts ignores them
        facts = dict.fromkeys(topic for topic, _ in read_by_job if topic in self._settings.topics.fact_tables)
        names = (*self._settings.inputs, *facts)
        by_topic = {
            topic: [TopicPartition(topic, partition) for partition in sorted(topics[topic].partitions)]
            for topic in (*names, self._settings.topics.heartbeats)
            if topic in topics
        }
        inputs = [partition for topic in names for partition in by_topic.get(topic, ())]
        missing = tuple(topic for topic in names if topic not in topics)
        if not inputs:
            return Lag(self._clock(), (), missing)
        # the admin client could query committed offsets, too, but crashes while the coordinator starts
        # (librdkafka #5040)
        answers = group.committed(inputs, TIMEOUT_S)
        starts = _list_offsets(admin, inputs, EARLIEST)
        ends = _list_offsets(admin, inputs, LATEST)
        # queried last, so that records that arrived meanwhile do not appear to be held back
        stable = _list_offsets(admin, inputs, LATEST, isolation_level=IsolationLevel.READ_COMMITTED)
        offsets = [p for p in answers if p.offset >= 0]
        committed = {(p.topic, p.partition): p.offset for p in offsets}
        # only of the transactions topic: all key groups commit its offsets, but only group 0 those of tables
        marks = [
            Mark.from_metadata(p.metadata) for p in offsets if p.topic == self._settings.topics.transactions
        ]
        # progress fills two gaps: committed offsets may have expired, and only key group 0 commits those of
        # tables
        for key, end in read_by_job.items():
            is_table = key[0] != self._settings.topics.transactions
            committed[key] = min(end, committed.get(key, end)) if is_table else committed.get(key, end)
        partitions = tuple(
            PartitionLag(
                *key,
                start=starts[key].offset,
                end=end.offset,
                committed=committed.get(key),
                held_from=stable[key].offset if stable[key].offset < end.offset else None,
            )
            for key, end in ends.items()
        )
        feed = {
            signal: max(
                (newest.timestamp for newest in _list_offsets(admin, by_topic[topic], NEWEST).values()),
                default=-1,
            )
            for signal, topic in self._settings.feed.items()
            if topic in by_topic
        }
        return Lag(
            self._clock(),
            partitions,
            missing,
            {name: at for name, at in feed.items() if at >= 0},
            frozenset(mark.owner.partition("/")[0] for mark in marks if mark is not None),
        )

    def _with_ages(
        self, consumer: Consumer, partitions: tuple[PartitionLag, ...]
    ) -> tuple[PartitionLag, ...]:
        """Add the arrival of each partition's oldest waiting record."""
        for p in partitions:
            self._waiting.see((p.topic, p.partition), p.position, p.end, self._clock())
        oldest = {((p.topic, p.partition), p.position) for p in partitions if p.records or p.held}
        self._ages = {record: stamp for record, stamp in self._ages.items() if record in oldest}
        unknown = {key: offset for key, offset in oldest if (key, offset) not in self._ages}
        if unknown:
            consumer.assign([TopicPartition(*key, offset) for key, offset in unknown.items()])
            deadline = time.monotonic() + TIMEOUT_S
            while unknown and time.monotonic() < deadline and not self._stop.is_set():
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                key = (message.topic(), message.partition())
                if key in unknown:
                    kind, stamp = message.timestamp()
                    offset = unknown.pop(key)
                    appended = stamp if kind == TIMESTAMP_LOG_APPEND_TIME else None
                    self._ages[key, offset] = appended or self._waiting.since_ms(key, offset)
            consumer.unassign()
        ages = {key: stamp for (key, _), stamp in self._ages.items()}
        return tuple(replace(p, waiting_since_ms=ages.get((p.topic, p.partition))) for p in partitions)


def _list_offsets(
    admin: AdminClient, partitions: list[TopicPartition], spec: Any, **more: Any
) -> dict[PartitionId, ListOffsetsResultInfo]:
    futures = admin.list_offsets(dict.fromkeys(partitions, spec), request_timeout=TIMEOUT_S, **more)
    return {(p.topic, p.partition): future.result(2 * TIMEOUT_S) for p, future in futures.items()}
