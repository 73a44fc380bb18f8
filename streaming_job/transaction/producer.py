"""The transactional producer of a key group, replaced once a request of its transactions may be repeated.

librdkafka repeats a request by itself when a connection breaks, and the first copy may still be on its way. A
late copy of an EndTxn would end the *next* transaction while it is half-written (librdkafka issue 5423; the
Jepsen report on Bufstream 0.1.0 shows it). A producer whose requests may have been repeated is therefore
replaced: the new one has a higher producer epoch, so the brokers refuse late requests of the old one
(decision 12).
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from feature_store.errors import FraudError
from streaming_job.log.clients import COMMON
from streaming_job.runtime import pauses
from streaming_job.settings import JobSettings
from streaming_job.transaction.caller import Caller

Headers = list[tuple[str, str | bytes | None]]

CALL_TIMEOUT_S = 60.0
"""Limit for calls outside a transaction: brokers may be unreachable for that long before the job ends."""
FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""Errors of a missing permission."""
OFFSETS_TIMEOUT_S = 10.0
"""Limit for sending offsets, which takes milliseconds; short because the call may never return."""
FIRST_TRY_S = 0.05
"""Time limit of the first `init_transactions`; it is doubled for each further attempt."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
QUEUE_BYTES = 64 * 1024 * 1024
"""Size of the local queue; `produce` waits while it is full."""
RETRY_BACKOFF_MS = 2
"""Time, plus or minus a fifth, after which librdkafka repeats a request that the brokers have refused: they
refuse some while they finish the previous transaction, or add partitions to this one."""
RETRY_BACKOFF_MAX_MS = 1_000
"""Limit of this time, which doubles with each repetition."""
WATCHED = {"debug": "broker", "log_level": 7}
"""Settings with which librdkafka logs the end of each connection, before it repeats unanswered requests."""
UNCONNECTED = re.compile(
    r"\(after \d+ms in state (INIT|DOWN|TRY_CONNECT|CONNECT|SSL_HANDSHAKE|APIVERSION_QUERY|AUTH_LEGACY"
    r"|AUTH_HANDSHAKE|AUTH_REQ)\b"
)
"""The end of a connection that has carried no request of a transaction, or logs in again (`REAUTH`)."""
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class SinkError(FraudError):
    """A key group's output cannot be committed to Kafka, or what it has written so far cannot be read.

    Check the brokers or, if the message says that a transaction stays open, find out who writes to that
    topic; start again: the job continues after its last commit.
    """


class Connections:
    """librdkafka's logger; notices that a connection ended, or that a request got no answer in time.

    Only then does librdkafka repeat a request whose first copy may arrive later. Any other request that it
    repeats has been answered.
    """

    def __init__(self) -> None:
        self.broken = False
        """Whether a request of a transaction may have been repeated."""

    def log(self, level: int, text: str, facility: str, client: str, line: str) -> None:
        """Take a line of the log; confluent-kafka calls it whenever the client is polled."""
        # a connection that logs in again still waits for answers; where it then is says nothing about them
        if facility in ("REQTMOUT", "REAUTH"):
            self.broken = True
        # the broker "bootstrap" is dropped once the brokers' names are known; no transaction uses it
        elif facility == "FAIL" and "/bootstrap: " not in line:
            self.broken |= UNCONNECTED.search(line) is None


class TransactionalProducer:
    """A producer of transactions: `begin`, `produce` ..., `add_offsets`, `flush`, `commit`.

    After any KafkaException, and if it is `disturbed`, it must be closed and replaced by a new one.
    """

    def __init__(self, settings: JobSettings, transactional_id: str) -> None:
        """Fence every earlier producer of this id, and end its open transaction.

        Raises:
            SinkError: the brokers do not answer, or refuse the producer.
        """
        self._settings, self._id = settings, transactional_id
        self._limit_s = settings.transaction_timeout_ms / 1000
        self._begun = 0.0
        self._progress_partitions = 1
        self._unproven = 0
        self._connections = Connections()
        try:
            self._producer: Producer | None = self._ready()
        except KafkaException as fault:
            raise SinkError(
                f"no transactional producer: {describe(fault.args[0])}; check the brokers"
            ) from fault
        self._caller = Caller()

    def _ready(self) -> Producer:
        """Return an initialised client.

        While an earlier transaction is being ended, each attempt uses a new client: librdkafka retries only
        every 500 ms; a new client tries at once.
        """
        deadline, limit_s = time.monotonic() + CALL_TIMEOUT_S, FIRST_TRY_S
        client = self._connected()
        while True:
            try:
                client.init_transactions(min(limit_s, max(0.0, deadline - time.monotonic())))
                client.poll(0)
                self._connections.broken = False  # no transaction has used a connection yet
                return client
            except KafkaException as fault:
                error = fault.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    raise
            pauses.look()
            limit_s *= 2
            if error.code() == KafkaError.CONCURRENT_TRANSACTIONS:
                client = self._connected()

    def _connected(self) -> Producer:
        client = Producer(
            {
                **COMMON,
                **self._settings.kafka,
                "bootstrap.servers": self._settings.bootstrap_servers,
                "transactional.id": self._id,
                "transaction.timeout.ms": self._settings.transaction_timeout_ms,
                "message.max.bytes": MAX_MESSAGE_BYTES,
                "queue.buffering.max.kbytes": QUEUE_BYTES // 1024,
                "linger.ms": 0,  # `flush` follows at once
                "compression.type": "lz4",
                "retry.backoff.ms": RETRY_BACKOFF_MS,
                "retry.backoff.max.ms": RETRY_BACKOFF_MAX_MS,
                **WATCHED,
                "logger": self._connections,
                "delivery.report.only.error": False,
                "on_delivery": self._delivered,
            }
        )
        # metadata are requested twice, because the second answer comes from a broker whose id is known:
        # without such a broker, the client would look for the coordinator again only after 500 ms
        progress, deadline = self._settings.topics.job_progress, time.monotonic() + CALL_TIMEOUT_S
        client.list_topics(self._settings.topics.fraud_alerts, CALL_TIMEOUT_S)
        # a broker that has just started may not know the topic yet
        while not (known := client.list_topics(progress, CALL_TIMEOUT_S).topics[progress]).partitions:
            if time.monotonic() > deadline:
                raise KafkaException(known.error)
            pauses.pause(FIRST_TRY_S)
        self._progress_partitions = len(known.partitions)
        return client

    @property
    def disturbed(self) -> bool:
        """Whether a repeated request of a transaction may still arrive."""
        try:
            with _fatal_error_itself():
                self._client.poll(0)  # hands over what has been logged
        except KafkaException:  # then it has not handed over all
            return True
        return self._connections.broken

    @property
    def open_s(self) -> float:
        """Seconds since the transaction was begun."""
        return time.monotonic() - self._begun

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            KafkaException: the producer is no longer usable.
        """
        self._begun = time.monotonic()
        self._client.begin_transaction()

    def produce_progress(self, group: int, value: bytes, headers: Headers) -> None:
        """Add a progress record of a key group, whose records share a partition; see `produce`."""
        topic, partition = self._settings.topics.job_progress, group % self._progress_partitions
        self.produce(topic, self._settings.job_id.encode(), value, headers, partition)

    def produce(
        self, topic: str, key: bytes | None, value: bytes, headers: Headers, partition: int = -1
    ) -> None:
        """Add a record; if it cannot be delivered, `flush` or `commit` fails.

        Args:
            partition: default: that of the key.

        Raises:
            KafkaException: the producer is no longer usable, or the brokers are too slow.
        """
        while True:
            try:
                self._client.produce(topic, value, key, partition, headers=headers)
                return
            except BufferError:  # the local queue is full: wait until some records are sent
                with _fatal_error_itself():
                    self._client.poll(min(0.1, self._left_s(1 / 2)))

    def flush(self) -> None:
        """Wait until the brokers have all records and the offsets, within their time limits.

        Raises:
            KafkaException: some records were not acknowledged in time, or may be lost, or the offsets were
                not added.
        """
        with _fatal_error_itself():
            remaining = self._client.flush(self._left_s(1 / 2))
        if remaining:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer about {remaining} records"))
        if self._unproven:
            text = f"the brokers may have refused {self._unproven} records that the client takes as delivered"
            raise KafkaException(KafkaError(KafkaError._INCONSISTENT, text))
        self._caller.wait()

    def _delivered(self, error: KafkaError | None, record: Message) -> None:
        """Count a record that librdkafka takes as delivered only because a later one is.

        A partition without a leader refuses records. If it has one when a later record of the transaction
        arrives, and knows no earlier record of this producer, it accepts that one; librdkafka then reports
        the refused ones as delivered, but without an offset, and would commit without them (decision 219).
        """
        if error is None and record.offset() is None:
            self._unproven += 1

    def add_offsets(self, offsets: list[TopicPartition], group: object) -> None:
        """Begin to add the offsets, while the records are on their way; `flush` waits for the answer.

        After a restart of the group's coordinator librdkafka may wait for ever, despite its timeout (issues
        5456 and 5511 of librdkafka), so a call that does not return is abandoned. Its thread then keeps this
        producer alive; the next producer fences it.

        Args:
            offsets: offsets with metadata.
            group: metadata of the consumer group.

        Raises:
            KafkaException: the transaction takes too long.
        """
        limit_s = min(OFFSETS_TIMEOUT_S, self._left_s(3 / 4) / 2)
        self._caller.start(
            partial(self._client.send_offsets_to_transaction, offsets, group, limit_s), limit_s
        )

    def commit(self) -> None:
        """Commit within three quarters of the transaction timeout; after all of it the brokers would abort.

        Raises:
            KafkaException: the commit failed, or its outcome is unknown.
        """
        with _fatal_error_itself():
            self._client.commit_transaction(self._left_s(3 / 4))

    def cause(self, error: KafkaError) -> KafkaError:
        """Return the error behind librdkafka's general "fatal error", such as fencing; others unchanged."""
        if error.code() == KafkaError._FATAL:
            try:
                self._client.begin_transaction()  # a local call: a fatally failed producer reports the cause
            except KafkaException as fault:
                cause: KafkaError = fault.args[0]
                return cause
        return error

    def close(self) -> None:
        """Close without a request to the brokers: aborting the open transaction would take time."""
        self._producer = None
        self._caller.close()

    @property
    def _client(self) -> Producer:
        assert self._producer is not None, "closed"
        return self._producer

    def _left_s(self, share: float) -> float:
        """Return the seconds until this share of the transaction timeout is over.

        Raises:
            KafkaException: the share is over already.
        """
        left = share * self._limit_s - self.open_s
        if left <= 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the transaction takes too long"))
        return left


@contextmanager
def _fatal_error_itself() -> Iterator[None]:
    """Raise the producer's fatal error, which confluent-kafka has set already when it calls `_delivered`.

    Python replaces an exception that is set when a function returns normally by a SystemError.
    """
    try:
        yield
    except SystemError as fault:
        cause: BaseException | None = fault
        while isinstance(cause, SystemError):
            cause = cause.__cause__
        raise (cause or fault) from None


def describe(error: object) -> str:
    """Return a Kafka error as text; if a permission is missing, name the command that lists all needed."""
    if not isinstance(error, KafkaError):
        return str(error)
    hint = " (`fraud job permissions` prints what the job needs)" if error.code() in FORBIDDEN else ""
    return f"{error.str()}{hint}"
