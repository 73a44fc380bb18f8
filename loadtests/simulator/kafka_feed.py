"""Sender of records to Kafka, either at their times (in ticks of 5 ms) or as fast as possible."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
    ResourceType,
)

from feature_store.errors import FraudError
from loadtests.simulator.pacing import Clock, Pace, SystemClock, paced
from loadtests.simulator.timeline import Records
from streaming_job.log import clients
from streaming_job.log.clients import Address, AdminClient, describe

_FLUSH_S = 60.0
ANSWER_S = 10.0

_PRODUCER = {
    **clients.BULK,
    "linger.ms": 2,
    # the largest malformed record is a megabyte
    "message.max.bytes": 2 * 1024 * 1024,
    "message.timeout.ms": 120_000,
}
_TRANSACTION = {"transaction.timeout.ms": 600_000}


class FeedError(FraudError):
    """Records could not be sent."""


class KafkaFeed:
    """One producer for all topics of a stream."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        kafka: Mapping[str, str] | None = None,
        archive: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Create the producer, which connects lazily.

        Args:
            bootstrap_servers: host:port[,host:port].
            kafka: more librdkafka settings, for example for security. With transactional.id a whole `run` is
                one Kafka transaction: read_committed consumers see nothing before its end.
            archive: whether records carry their own arrivals as timestamps (the topics must have CreateTime);
                otherwise the broker sets timestamps.
            clock: default: the system clock.
        """
        self._brokers = Address(bootstrap_servers, kafka or {})
        self._archive, self._clock = archive, clock or SystemClock()
        self._stopped = threading.Event()
        self._fault: KafkaError | None = None
        self._transactional = "transactional.id" in self._brokers.kafka
        tuning = _PRODUCER | _TRANSACTION if self._transactional else _PRODUCER
        self._producer = clients.producer(self._brokers, tuning=tuning, on_delivery=self._undelivered)
        self.sent: Counter[str] = Counter()
        """Records given to the producer, by topic; all delivered once `run` has returned."""
        self.behind_ms = 0.0
        """Delay of the last records, simulated ms; grows if the machine cannot send at the rate."""

    def stop(self) -> None:
        """Make `run` flush and return soon; callable from any thread and from signal handlers."""
        self._stopped.set()

    def run(
        self,
        records: Iterable[Records],
        pace: Pace | None = None,
        *,
        for_s: float | None = None,
        progress: Callable[["KafkaFeed"], None] | None = None,
    ) -> Counter[str]:
        """Send until the records end, `stop` is called, or `for_s` is over; blocks.

        Args:
            records: records in time order.
            pace: mapping of simulated to real time; default `Pace.live()`.
            for_s: real seconds after which to stop; None: no limit.
            progress: called after every tick, at least once a second.

        Returns:
            Delivered records by topic.

        Raises:
            FeedError: a record was refused or not delivered, or the Kafka transaction failed.
        """
        pace = pace or Pace.live()
        deadline = self._clock.now_ms() + for_s * 1_000 if for_s is not None else float("inf")
        if self._transactional:
            self._begin()
        for part, behind_ms in paced(records, pace, self._clock, self._stopped, deadline):
            self.behind_ms = behind_ms
            self._send(part)
            if progress is not None:
                progress(self)
        self._commit() if self._transactional else self._flush()
        return self.sent

    def check_topics(self, topics: Iterable[str], first_ms: int | None = None) -> None:
        """Check that the topics exist and, for an archive, take its timestamps and keep records of its age.

        Args:
            topics: names of the topics.
            first_ms: oldest arrival of the archive.

        Raises:
            FeedError: no broker answers, a topic must be created or changed, or its settings cannot be read.
        """
        admin = clients.admin(self._brokers)
        try:
            existing = admin.list_topics(timeout=ANSWER_S).topics
        except KafkaException as error:
            servers = self._brokers.bootstrap_servers
            raise FeedError(
                f"no Kafka at {servers} ({describe(error)}); start it with `fraud stack up`"
            ) from error
        for topic in topics:
            if topic not in existing:
                raise FeedError(f"topic {topic} does not exist; `fraud stack up` creates it")
            if self._archive:
                self._check_archive_topic(admin, topic, first_ms)

    def _check_archive_topic(self, admin: AdminClient, topic: str, first_ms: int | None) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            settings = admin.describe_configs([resource], request_timeout=ANSWER_S)[resource].result()
        except KafkaException as error:
            raise FeedError(
                f"the configuration of topic {topic} cannot be read: {describe(error)}; check the brokers "
                "and the permissions"
            ) from error
        if settings["message.timestamp.type"].value != "CreateTime":
            raise FeedError(
                f"topic {topic} is stamped by the broker, but a replay needs its own timestamps; "
                "create it with message.timestamp.type=CreateTime (`fraud stack up --replay`)"
            )
        retention_ms = int(settings["retention.ms"].value)
        if first_ms is not None and 0 <= retention_ms < self._clock.now_ms() - first_ms:
            raise FeedError(
                f"topic {topic} would delete the replay's oldest records at once; set its retention.ms to -1"
            )

    def _send(self, records: Records) -> None:
        topic, produce, sent = records.topic, self._producer.produce, 0
        # partition, two callbacks and timestamp are positional, because keywords cost 0.4 us per record
        stamps = (repeat(-1), repeat(None), repeat(None), records.at.tolist()) if self._archive else ()
        try:
            for row in zip(repeat(topic), records.values, records.keys, *stamps, strict=False):
                while True:
                    try:
                        produce(*row)
                        break
                    except BufferError:
                        # the queue is full, because the broker is slower: wait
                        self._poll(0.01)
                        if self._stopped.is_set():
                            return
                sent += 1
        except KafkaException as error:
            raise FeedError(
                f"Kafka refused a record for {topic}: {describe(error)}; see the broker's log"
            ) from error
        finally:
            self.sent[topic] += sent
        self._poll()

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._fault is None:
            self._fault = error

    def _poll(self, seconds: float = 0) -> None:
        self._producer.poll(seconds)
        if self._fault is not None:
            raise FeedError(
                f"a record was not delivered: {self._fault.str()}; see the broker's log, then start again"
            )

    def _begin(self) -> None:
        try:
            self._producer.init_transactions(_FLUSH_S)
            self._producer.begin_transaction()
        except KafkaException as error:
            raise FeedError(
                f"no Kafka transaction could be begun: {describe(error)}; check the broker"
            ) from error

    def _commit(self) -> None:
        try:
            self._producer.commit_transaction(_FLUSH_S)
        except KafkaException as error:
            raise FeedError(
                f"the Kafka transaction was not committed: {describe(error)}; see the broker's log, "
                "then start again"
            ) from error

    def _flush(self) -> None:
        unsent = self._producer.flush(_FLUSH_S)
        self._poll()
        if unsent:
            raise FeedError(f"{unsent} records are still unsent after {_FLUSH_S:.0f} s; check the broker")
