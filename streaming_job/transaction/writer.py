"""The transactional sink: one Kafka transaction per micro-batch. The order of statements is the guarantee.

A batch's alerts, dead letters, progress record and input offsets become visible together or not at all. The
offsets carry a marker (which query, which batch, which offsets) in their metadata, so that a batch that Spark
runs again is recognised as sent. `init_transactions` fences an older instance of the job, but only once this
one is known to be its successor: a start with wrong settings must not stop what runs.
"""

import base64
import logging
import time

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming_job.log import topic_reader
from streaming_job.progress.writer import Account
from streaming_job.runtime.failpoints import Step, reach
from streaming_job.transaction.ownership import Marker, MarkerError, is_written, require_owner
from streaming_job.originals import completed
from streaming_job.progress.outcome import Outcome
from streaming_job.packets import DeadLetter
from streaming_job.transaction.producer import CALL_TIMEOUT_S, Headers, SinkError, TransactionalProducer, say
from streaming_job.progress.record import Batch, OffsetRange
from streaming_job.settings import JobSettings

log = logging.getLogger(__name__)

ATTEMPTS = 5
COMING_BACK = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)
"""What is heard while a broker starts again."""
COMING_BACK_POLL_S = 0.1


class FencedError(SinkError):
    """Another instance of the job has taken over."""

    exit_code = 3


class TransactionalSink:
    """Writes outcomes of micro-batches, each exactly once: `require_owner`, `take_over`, `write` ..."""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._topics = settings.topics
        self._account = Account(settings)
        self._group = self._consumer("read_committed")  # offsets of an open transaction are waited for
        self._partitions: list[int] = []
        self._in_step = False
        """Whether a batch of this instance is the last on the topics; from then on nobody else may write."""

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                "log_level": 2,  # what goes wrong is raised
                **self._settings.kafka,
                "bootstrap.servers": self._settings.bootstrap_servers,
                "group.id": self._settings.job_id,
                "enable.auto.commit": False,
                "isolation.level": isolation,
            }
        )

    def last_marker(self, group: Consumer | None = None) -> Marker | None:
        """What was committed last for this job; None before the first batch.

        Args:
            group: asks; default: one that waits for an open transaction to end.

        Raises:
            MarkerError: the job's consumer group holds offsets that the job did not write.
            SinkError: the brokers do not answer.
        """
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while True:
            try:
                committed = self._committed(self._group if group is None else group)
                break
            except KafkaException as fault:
                error = fault.args[0]
                if error.code() not in COMING_BACK or time.monotonic() > deadline:
                    raise SinkError(
                        f"the committed offsets cannot be read: {say(error)}; check the brokers"
                    ) from fault
            time.sleep(COMING_BACK_POLL_S)
        markers = {
            part.metadata: Marker.from_metadata(part.metadata or "") for part in committed if part.offset >= 0
        }
        if None in markers.values():
            raise MarkerError(
                f"consumer group {self._settings.job_id} holds offsets that this job did not write; "
                "use another job id"
            )
        # a partition that was added later has an older marker, or none
        return max((marker for marker in markers.values() if marker), key=lambda m: m.batch_id, default=None)

    def _committed(self, group: Consumer) -> list[TopicPartition]:
        topic = self._topics.transactions
        if not self._partitions:
            self._partitions = topic_reader.partitions(group, topic, CALL_TIMEOUT_S)
        asked = [TopicPartition(topic, partition) for partition in self._partitions]
        committed: list[TopicPartition] = group.committed(asked, CALL_TIMEOUT_S)
        # an answer about one partition only must not be taken for "nothing committed"
        for part in committed:
            if part.error is not None:
                raise KafkaException(part.error)
        return committed

    def require_owner(self, last: Batch | None) -> None:
        """See that topics and checkpoint belong together, however far an instance that still runs may be.

        Args:
            last: the last batch that the checkpoint knows; None for an empty checkpoint.

        Raises:
            MarkerError: they do not.
        """
        # an open transaction of whoever runs, or was killed, is not waited for: it is not ours to end yet
        group = self._consumer("read_uncommitted")
        marker = self.last_marker(group)
        group.close()
        if last is not None:
            require_owner(marker, last)
        elif marker is not None:
            raise MarkerError(
                f"the checkpoint is empty, but job {self._settings.job_id} has written {marker.batch_id + 1} "
                f"batches (query {marker.query_id}): restore their checkpoint, or use another job id"
            )

    def take_over(self) -> None:
        """Fence every earlier instance and settle what it left open; from here on this one may write.

        Raises:
            SinkError: the brokers do not answer.
        """
        self._producer = TransactionalProducer(self._settings)

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
            LogError: a dead letter's record cannot be read again.
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
                error = self._producer.cause(fault.args[0])
                if _is_fenced(error):
                    raise self._fenced() from fault
            # here, not above: the exception keeps the old producer alive
            log.warning("batch %d: attempt %d failed: %s", batch.batch_id, attempt, say(error))
            self._producer.replace()
        raise SinkError(
            f"batch {batch.batch_id} was not taken in {ATTEMPTS} attempts: {say(error)}; check the brokers, "
            "then start the job again"
        )

    def _fenced(self) -> FencedError:
        return FencedError(
            f"another instance of job {self._settings.job_id} has taken over, or a transaction was open for "
            f"more than {self._settings.transaction_timeout_ms // 1000} s; this instance stops"
        )

    def _write_once(self, batch: Batch, outcome: Outcome) -> None:
        self._account.prepare(batch)
        headers: Headers = [("batch_id", str(batch.batch_id).encode()), ("query_id", batch.query_id.encode())]
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        self._producer.begin()
        reach(Step.BEGUN)
        for alert in outcome.alerts:
            self._producer.produce(self._topics.fraud_alerts, alert.key, alert.value, headers, delivered)
        for letter in completed(outcome.dead_letters, self._settings):
            self._producer.produce(
                self._topics.dead_letters, letter.key, _dead_letter(letter), headers, delivered
            )
        now = int(time.time() * 1000)
        value = self._account.record(batch, outcome, now)
        self._producer.produce(self._topics.job_progress, batch.job_id.encode(), value, headers, delivered)
        reach(Step.SENT)
        self._producer.send_offsets(self._offsets(batch), self._group.consumer_group_metadata())
        reach(Step.OFFSETS_ADDED)
        self._producer.commit()
        reach(Step.COMMITTED)
        if failures:  # librdkafka fails the commit in that case; this is a second lock on the door
            raise SinkError(
                f"batch {batch.batch_id} was committed without {len(failures)} records; run verify"
            )

    def _offsets(self, batch: Batch) -> list[TopicPartition]:
        metadata = Marker.of(batch).to_metadata()
        return [_position(part, metadata) for part in batch.ranges]


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
