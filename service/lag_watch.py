"""Watches how far the job is behind its inputs, by the broker's own account."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are its documented names
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from service.background import Background
from service.lag import Lag, PartitionLag
from service.settings import ServiceSettings, say
from service.waiting import Place, Waiting

TIMEOUT_S = 5.0
METADATA_S = 3.0
EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
NEWEST: Any = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]


class LagWatch(Background):
    """Asks the broker now and then; keeps the last answer and the last fault."""

    def __init__(
        self,
        settings: ServiceSettings,
        read_by_job: Callable[[], Mapping[Place, int]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Ask for nothing yet.

        Args:
            settings: what to watch.
            read_by_job: tells the offsets up to which every key group has taken its inputs in.
            clock: seconds since 1970-01-01 UTC.
        """
        super().__init__("lag-watch")
        self._settings = settings
        self._read_by_job = read_by_job
        self._clock = clock
        self._lag: Lag | None = None
        self._fault: str | None = "the broker has not answered yet"
        self._waiting = Waiting()
        self._ages: dict[tuple[Place, int], int] = {}

    @property
    def lag(self) -> Lag | None:
        """The last answer; None before the first."""
        return self._lag

    @property
    def fault(self) -> str | None:
        """Why the broker did not answer last time; None when it did."""
        if self.has_died:
            return "the thread that asks the broker has died; restart the sidecar"
        return self._fault

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            except (KafkaException, TimeoutError) as error:
                self._fault = f"the broker does not answer: {say(error)}"
                self._stop.wait(self._settings.offsets_interval_s)

    def _watch(self) -> None:
        """Ask until told to stop, or until an answer stays out.

        Then with new clients, which know nothing of the brokers as they were.
        """
        admin = AdminClient(self._settings.client())
        consumer = Consumer(
            self._settings.client(
                **{
                    "group.id": self._settings.job_id,  # asked for its offsets, never joined
                    "enable.auto.commit": False,
                    "allow.auto.create.topics": False,
                    "auto.offset.reset": "earliest",
                    # what stands in an open transaction waits, too
                    "isolation.level": "read_uncommitted",
                    "fetch.message.max.bytes": 4096,  # one record is wanted, not the backlog
                    "queued.max.messages.kbytes": 64,
                }
            )
        )
        try:
            while not self._stop.is_set():
                found = self._offsets(admin, consumer)
                self._lag = replace(found, partitions=self._with_ages(consumer, found.partitions))
                self._fault = None
                self._stop.wait(self._settings.offsets_interval_s)
        finally:
            consumer.close()

    def _offsets(self, admin: AdminClient, group: Consumer) -> Lag:
        topics = admin.list_topics(timeout=METADATA_S).topics
        places = {
            topic: [TopicPartition(topic, partition) for partition in sorted(topics[topic].partitions)]
            for topic in (*self._settings.inputs, self._settings.topics.heartbeats)
            if topic in topics
        }
        inputs = [place for topic in self._settings.inputs for place in places.get(topic, ())]
        missing = tuple(topic for topic in self._settings.inputs if topic not in topics)
        if not inputs:
            return Lag(self._clock(), (), missing)
        # an admin client that asks for them crashes while the group's coordinator starts (librdkafka #5040)
        asked = group.committed(inputs, TIMEOUT_S)
        starts = _ask(admin, inputs, EARLIEST)
        ends = _ask(admin, inputs, LATEST)
        # asked last: what has come meanwhile is not taken for held back
        stable = _ask(admin, inputs, LATEST, isolation_level=IsolationLevel.READ_COMMITTED)
        committed = {(p.topic, p.partition): p.offset for p in asked if p.offset >= 0}
        # the group's offsets may have expired; and those of tables tell of key group 0 alone
        for place, end in self._read_by_job().items():
            is_table = place[0] != self._settings.topics.transactions
            committed[place] = min(end, committed.get(place, end)) if is_table else committed.get(place, end)
        partitions = tuple(
            PartitionLag(
                *place,
                start=starts[place].offset,
                end=end.offset,
                committed=committed.get(place),
                held_from=stable[place].offset if stable[place].offset < end.offset else None,
            )
            for place, end in ends.items()
        )
        feed = {
            signal: max(
                (found.timestamp for found in _ask(admin, places[topic], NEWEST).values()), default=-1
            )
            for signal, topic in self._settings.feed.items()
            if topic in places
        }
        return Lag(self._clock(), partitions, missing, {name: at for name, at in feed.items() if at >= 0})

    def _with_ages(
        self, consumer: Consumer, partitions: tuple[PartitionLag, ...]
    ) -> tuple[PartitionLag, ...]:
        """Add since when each partition's oldest waiting record has been there."""
        for p in partitions:
            self._waiting.see((p.topic, p.partition), p.position, p.end, self._clock())
        wanted = {((p.topic, p.partition), p.position): p for p in partitions if p.records or p.held}
        self._ages = {at: stamp for at, stamp in self._ages.items() if at in wanted}
        unknown = {place: offset for place, offset in wanted if (place, offset) not in self._ages}
        if unknown:
            consumer.assign([TopicPartition(*place, offset) for place, offset in unknown.items()])
            deadline = time.monotonic() + TIMEOUT_S
            while unknown and time.monotonic() < deadline and not self._stop.is_set():
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                place = (message.topic(), message.partition())
                if place in unknown:
                    kind, stamp = message.timestamp()
                    offset = unknown.pop(place)
                    stamped = stamp if kind == TIMESTAMP_LOG_APPEND_TIME else None
                    self._ages[place, offset] = stamped or self._waiting.since_ms(place, offset)
            consumer.unassign()
        ages = {place: stamp for (place, _), stamp in self._ages.items()}
        return tuple(replace(p, waiting_since_ms=ages.get((p.topic, p.partition))) for p in partitions)


def _ask(
    admin: AdminClient, places: list[TopicPartition], which: Any, **more: Any
) -> dict[Place, ListOffsetsResultInfo]:
    asked = admin.list_offsets(dict.fromkeys(places, which), request_timeout=TIMEOUT_S, **more)
    return {(place.topic, place.partition): answer.result(2 * TIMEOUT_S) for place, answer in asked.items()}
