"""The transactional sink: one Kafka transaction per micro-batch. The order of statements is the guarantee.

A batch's alerts, dead letters, progress record and input offsets become visible together or not at all. The
offsets carry a marker (which query, which batch, which offsets) in their metadata, so that a batch that Spark
runs again is recognised as sent. `init_transactions` fences an older instance of the job.
"""

import base64
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from feature_store.errors import FraudError
from streaming_job import progress
from streaming_job.crash_points import Step, reach
from streaming_job.marker import Marker, MarkerError, is_written
from streaming_job.outcome import Outcome
from streaming_job.packets import DeadLetter
from streaming_job.progress import Batch, OffsetRange
from streaming_job.settings import JobSettings

log = logging.getLogger(__name__)

Headers = list[tuple[str, str | bytes | None]]
Delivered = Callable[[KafkaError | None, Message], None]

TRANSACTION_TIMEOUT_MS = 120_000
"""The broker aborts a transaction that is open for longer; far above the time that writing a batch takes."""
CALL_TIMEOUT_S = 60.0
OFFSETS_TIMEOUT_S = 10.0
"""Far above the milliseconds that it takes, and short because it may be waited for in vain."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
ATTEMPTS = 5


class SinkError(FraudError):
    """The batch's results cannot be written."""


class FencedError(SinkError):
    """Another instance of the job has taken over."""

    exit_code = 3


class TransactionalSink:
    """Writes outcomes of micro-batches, each exactly once."""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._topics = settings.topics
        self._group = Consumer(
            {
                "log_level": 2,  # what goes wrong is raised
                **settings.kafka,
                "bootstrap.servers": settings.bootstrap_servers,
                "group.id": settings.job_id,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",  # offsets of an open transaction are waited for
            }
        )
        self._partitions: list[int] = []
        self._in_step = False
        """Whether a batch of this instance is the last on the topics; from then on nobody else may write."""
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        """A producer that has fenced every earlier one and settled what it left open."""
        producer = Producer(
            {
                "log_level": 2,
                **self._settings.kafka,
                "bootstrap.servers": self._settings.bootstrap_servers,
                "transactional.id": self._settings.job_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.max.bytes": MAX_MESSAGE_BYTES,
                "linger.ms": 0,  # the flush of the commit follows at once
                "compression.type": "lz4",
            }
        )
        try:
            producer.init_transactions(CALL_TIMEOUT_S)
        except KafkaException as fault:
            raise SinkError(f"no transactional producer: {_say(fault.args[0])}; check the brokers") from fault
        return producer

    def _replace_producer(self) -> None:
        """Never again on the same producer: after a lost answer a late request could end a later transaction.

        The old one is dropped first, without a word to the brokers (`close` would try to abort and wait); the
        new one fences what may still be on its way. Then the marker tells what became of the transaction.
        """
        del self._producer
        self._producer = self._new_producer()

    def last_marker(self) -> Marker | None:
        """What was committed last for this job; None before the first batch.

        Raises:
            MarkerError: the job's consumer group holds offsets that the job did not write.
            SinkError: the brokers do not answer.
        """
        topic = self._topics.transactions
        try:
            if not self._partitions:
                found = self._group.list_topics(topic, CALL_TIMEOUT_S).topics[topic]
                self._partitions = sorted(found.partitions)
            asked = [TopicPartition(topic, partition) for partition in self._partitions]
            committed = self._group.committed(asked, CALL_TIMEOUT_S)
            # an answer about one partition only must not be taken for "nothing committed"
            for part in committed:
                if part.error is not None:
                    raise KafkaException(part.error)
        except KafkaException as fault:
            raise SinkError(
                f"the committed offsets cannot be read: {_say(fault.args[0])}; check the brokers"
            ) from fault
        markers = {
            part.metadata: Marker.from_metadata(part.metadata or "") for part in committed if part.offset >= 0
        }
        if None in markers.values():
            raise MarkerError(
                f"consumer group {self._settings.job_id} holds offsets that this job did not write; "
                "use another job id, or delete the group"
            )
        # a partition that was added later has an older marker, or none
        return max((marker for marker in markers.values() if marker), key=lambda m: m.batch_id, default=None)

    def check_start(self, last: Batch | None) -> None:
        """See that topics and checkpoint belong together, before anything is read or written.

        Args:
            last: the last batch that the checkpoint knows; None for an empty checkpoint.

        Raises:
            MarkerError: they do not.
        """
        if last is not None:
            self.is_written(last)
        elif (marker := self.last_marker()) is not None:
            raise MarkerError(
                f"the checkpoint is empty, but job {self._settings.job_id} has written {marker.batch_id + 1} "
                f"batches (query {marker.query_id}): restore their checkpoint, or use another job id"
            )

    def is_written(self, batch: Batch) -> bool:
        """Whether a batch is on the topics already.

        Raises:
            MarkerError: the topics are ahead of the checkpoint, or belong to another one.
        """
        return is_written(self.last_marker(), batch)

    def write(self, batch: Batch, outcome: Outcome) -> bool:
        """Write a batch's outcome, once; False if it had been written before.

        Raises:
            FencedError: a newer instance of the job runs.
            MarkerError: checkpoint and topics do not belong together.
            SinkError: the brokers did not take it in several attempts.
        """
        for attempt in range(1, ATTEMPTS + 1):
            if self.is_written(batch):
                if attempt == 1 and self._in_step:
                    raise self._fenced()
                self._in_step = True
                return False
            try:
                self._write_once(batch, outcome)
                self._in_step = True
                return True
            except KafkaException as fault:
                error = self._cause(fault.args[0])
                if _is_fenced(error):
                    raise self._fenced() from fault
            # here, not above: the exception keeps the old producer alive
            log.warning("batch %d: attempt %d failed: %s", batch.batch_id, attempt, _say(error))
            self._replace_producer()
        raise SinkError(
            f"batch {batch.batch_id} was not taken in {ATTEMPTS} attempts: {_say(error)}; check the brokers, "
            "then start the job again"
        )

    def _cause(self, error: KafkaError) -> KafkaError:
        """What is behind "fatal error", all that a producer says once it is fenced in the background."""
        if error.code() == KafkaError._FATAL:
            try:
                self._producer.begin_transaction()  # asks nobody: a producer that is lost says why
            except KafkaException as fault:
                cause: KafkaError = fault.args[0]
                return cause
        return error

    def _fenced(self) -> FencedError:
        return FencedError(
            f"another instance of job {self._settings.job_id} has taken over, or a transaction was open for "
            f"more than {TRANSACTION_TIMEOUT_MS // 1000} s; this instance stops"
        )

    def _write_once(self, batch: Batch, outcome: Outcome) -> None:
        headers: Headers = [("batch_id", str(batch.batch_id).encode()), ("query_id", batch.query_id.encode())]
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        self._producer.begin_transaction()
        reach(Step.BEGUN)
        for alert in outcome.alerts:
            self._produce(self._topics.fraud_alerts, alert.key, alert.value, headers, delivered)
        for letter in outcome.dead_letters:
            self._produce(self._topics.dead_letters, letter.key, _dead_letter(letter), headers, delivered)
        now = int(time.time() * 1000)
        value = progress.record(batch, outcome, self._topics.transactions, now)
        self._produce(self._topics.job_progress, batch.job_id.encode(), value, headers, delivered)
        reach(Step.SENT)
        self._send_offsets(batch)
        reach(Step.OFFSETS_ADDED)
        self._producer.commit_transaction(CALL_TIMEOUT_S)
        reach(Step.COMMITTED)
        if failures:  # librdkafka fails the commit in that case; this is a second lock on the door
            raise SinkError(
                f"batch {batch.batch_id} was committed without {len(failures)} records; run verify"
            )

    def _send_offsets(self, batch: Batch) -> None:
        """Add the offsets; a call that does not come back is given up.

        After a restart of the group's coordinator librdkafka may wait for ever, whatever its timeout says
        (its issues 5456 and 5511). The lost thread then keeps its producer, which the next one fences.

        Raises:
            KafkaException: the call's, or a timeout.
        """
        answer: Future[None] = Future()
        call = partial(
            self._producer.send_offsets_to_transaction,
            self._offsets(batch),
            self._group.consumer_group_metadata(),
            OFFSETS_TIMEOUT_S,
        )
        threading.Thread(target=_answer, args=(answer, call), name="send-offsets", daemon=True).start()
        try:
            answer.result(OFFSETS_TIMEOUT_S)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer about the offsets")) from None
        finally:
            del answer, call  # an exception would keep them, and with them the producer

    def _produce(
        self, topic: str, key: bytes | None, value: bytes, headers: Headers, delivered: Delivered
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
                return
            except BufferError:  # the local queue is full: let some out
                self._producer.poll(0.1)

    def _offsets(self, batch: Batch) -> list[TopicPartition]:
        metadata = Marker.of(batch).to_metadata()
        return [_position(part, metadata) for part in batch.ranges]


def _answer(answer: Future[None], call: Callable[[], None]) -> None:
    try:
        call()
    except KafkaException as fault:
        answer.set_exception(fault)
    else:
        answer.set_result(None)


def _position(part: OffsetRange, metadata: str) -> TopicPartition:
    return TopicPartition(part.topic, part.partition, part.end, metadata)


def _dead_letter(letter: DeadLetter) -> bytes:
    """A record of contract dead-letter.v1."""
    return orjson.dumps(
        {
            "schema_version": 1,
            "reason": letter.reason.value,
            "detail": letter.detail.encode(errors="replace").decode(),
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "arrival_time": letter.arrival,
            "key_base64": None if letter.key is None else base64.b64encode(letter.key).decode(),
            "value_base64": None if letter.value is None else base64.b64encode(letter.value).decode(),
        }
    )


def _is_fenced(error: KafkaError) -> bool:
    fenced = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    return error.code() in fenced


def _say(error: object) -> str:
    return str(error.str()) if isinstance(error, KafkaError) else str(error)
