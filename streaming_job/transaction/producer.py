"""The transactional producer: one life after the other, each fencing what the one before may have left.

librdkafka repeats a request by itself when a connection breaks, and the first copy may still be on its way. A
late copy of an EndTxn would end the *next* transaction, half-written (librdkafka 5423; Jepsen on Bufstream
0.1.0 shows it). Requests of an older epoch are refused, so whoever is not sure gets a new producer.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from feature_store.errors import FraudError
from streaming_job.settings import JobSettings

Headers = list[tuple[str, str | bytes | None]]
Delivered = Callable[[KafkaError | None, Message], None]

CALL_TIMEOUT_S = 60.0
"""For calls outside a transaction: how long brokers may be away before the job ends."""
OFFSETS_TIMEOUT_S = 10.0
"""Far above the milliseconds that it takes, and short because it may be waited for in vain."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
QUEUE_BYTES = 64 * 1024 * 1024
"""What is produced faster waits: a batch's results may be gigabytes."""
RETRY_BACKOFF_MS = 200
"""librdkafka waits so long, give or take a fifth, before it repeats a request of a transaction."""
UNDISTURBED_S = 0.75 * RETRY_BACKOFF_MS / 1000
"""Nothing of a transaction that took less can have been repeated."""


class SinkError(FraudError):
    """The batch's results cannot be written."""


class TransactionalProducer:
    """Writes one transaction after another under the job's transactional.id."""

    def __init__(self, settings: JobSettings) -> None:
        """Fence every earlier producer of the job and settle what it left open.

        Raises:
            SinkError: the brokers do not answer.
        """
        self._settings = settings
        self._limit_s = settings.transaction_timeout_ms / 1000
        self._begun = 0.0
        self._producer = self._new()

    def _new(self) -> Producer:
        producer = Producer(
            {
                "log_level": 2,
                **self._settings.kafka,
                "bootstrap.servers": self._settings.bootstrap_servers,
                "transactional.id": self._settings.job_id,
                "transaction.timeout.ms": self._settings.transaction_timeout_ms,
                "message.max.bytes": MAX_MESSAGE_BYTES,
                "queue.buffering.max.kbytes": QUEUE_BYTES // 1024,
                "linger.ms": 0,  # the flush of the commit follows at once
                "compression.type": "lz4",
                "retry.backoff.ms": RETRY_BACKOFF_MS,
            }
        )
        try:
            producer.init_transactions(CALL_TIMEOUT_S)
        except KafkaException as fault:
            raise SinkError(f"no transactional producer: {say(fault.args[0])}; check the brokers") from fault
        return producer

    def replace(self) -> None:
        """Never again the same producer: after a lost answer a late request could end a later transaction.

        The old one is dropped first, without a word to the brokers (`close` would try to abort and wait); the
        new one fences what may still be on its way.

        Raises:
            SinkError: the brokers do not answer.
        """
        del self._producer
        self._producer = self._new()

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            KafkaException: the producer is not usable any more.
        """
        self._begun = time.monotonic()
        self._producer.begin_transaction()

    def produce(
        self, topic: str, key: bytes | None, value: bytes, headers: Headers, delivered: Delivered
    ) -> None:
        """Add a record.

        Raises:
            KafkaException: the producer is not usable any more.
        """
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
                return
            except BufferError:  # the local queue is full: let some out
                self._producer.poll(0.1)

    def send_offsets(self, offsets: list[TopicPartition], group: object) -> None:
        """Add the offsets; a call that does not come back is given up.

        After a restart of the group's coordinator librdkafka may wait for ever, whatever its timeout says
        (its issues 5456 and 5511). The lost thread then keeps its producer, which the next one fences.

        Raises:
            KafkaException: the call's, or a timeout.
        """
        limit_s = min(OFFSETS_TIMEOUT_S, self._limit_s / 4)
        answer: Future[None] = Future()
        call = partial(self._producer.send_offsets_to_transaction, offsets, group, limit_s)
        threading.Thread(target=_answer, args=(answer, call), name="send-offsets", daemon=True).start()
        try:
            answer.result(limit_s)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer about the offsets")) from None
        finally:
            del answer, call  # an exception would keep them, and with them the producer

    def commit(self) -> None:
        """Flush and commit; then see that nothing of this transaction can reach into the next one.

        Raises:
            KafkaException: it failed, or nobody knows whether it did.
            SinkError: it is committed, but the brokers do not answer any more.
        """
        self._producer.commit_transaction(self._limit_s / 2)
        if time.monotonic() - self._begun > UNDISTURBED_S:
            self.replace()

    def cause(self, error: KafkaError) -> KafkaError:
        """What is behind "fatal error", all that a producer says once it is fenced in the background."""
        if error.code() == KafkaError._FATAL:
            try:
                self._producer.begin_transaction()  # asks nobody: a producer that is lost says why
            except KafkaException as fault:
                cause: KafkaError = fault.args[0]
                return cause
        return error


def _answer(answer: Future[None], call: Callable[[], None]) -> None:
    try:
        call()
    except KafkaException as fault:
        answer.set_exception(fault)
    else:
        answer.set_result(None)


def say(error: object) -> str:
    """A Kafka error in words."""
    return str(error.str()) if isinstance(error, KafkaError) else str(error)
