"""The transactional producer of a key group: no request of its transactions is ever sent twice unanswered.

A request without an answer may arrive late. A late copy of an EndTxn would end the *next* transaction while
it is half-written, and a late copy of a TxnOffsetCommit would put older offsets into it (the Jepsen report on
Bufstream 0.1.0 shows the first; librdkafka issue 5423). So this producer sends each request once. If the
answer does not come, it must be replaced: the new one has a higher producer epoch, so the brokers refuse late
requests of the old one (decision 12). It repeats only what a broker has refused.
"""

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable
from functools import partial
from operator import attrgetter
from typing import TypeVar

import zstandard
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from kafka.protocol.producer import InitProducerIdRequest

from feature_store.errors import FraudError
from streaming_job.contracts.topics import WRITTEN
from streaming_job.log.records import PartitionId
from streaming_job.protocol.cluster import Cluster, Kind
from streaming_job.protocol.connection import Connection, UnreachableError, error_of, require
from streaming_job.protocol.fields import Request
from streaming_job.runtime import pauses
from streaming_job.settings import JobSettings
from streaming_job.transaction import requests
from streaming_job.transaction.batches import SEQUENCES, Batch, Headers, Record, batches, partition_of
from streaming_job.transaction.requests import Identity

CALL_TIMEOUT_S = 60.0
"""Limit for calls outside a transaction: brokers may be unreachable for that long before the job ends."""
FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""Errors of a missing permission."""
FENCED = (
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,  # if the epochs of the id were used up
)
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Limit for a record, before its compression."""
REQUEST_BYTES = 16 * 1024 * 1024
"""No further partition is added to a request of so many bytes."""
VERSION = "transaction.version"
IMPLICIT = 2
"""Level of this feature from which brokers register a transaction's partitions by themselves (KIP-890)."""
FIRST_PAUSE_S = 0.0005
"""Time after which a refused request is repeated: brokers refuse some while they finish the previous
transaction."""
LONGEST_PAUSE_S = 0.1
GROWTH = 1.25
"""The time grows by this factor with each repetition, up to its limit."""
ENDING_S = 0.01
"""Time after a commit in which brokers may still write its markers. They then refuse the next transaction's
offsets, but hold its records back for 20 ms (`add.partitions.to.txn.retry.backoff.ms`)."""
BUSY = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.CONCURRENT_TRANSACTIONS,
)
"""A coordinator has not carried out a request, or does not know; to repeat it in the same transaction does no
harm."""
UNSETTLED = (
    *BUSY,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.OPERATION_NOT_ATTEMPTED,
)
"""The same for records, offsets and whatever precedes them: refused, or perhaps not replicated."""
MOVED = (
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.KAFKA_STORAGE_ERROR,
)
"""Of these: another broker may be the one to ask."""
T = TypeVar("T")
UNANSWERED = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


class SinkError(FraudError):
    """A key group's output cannot be committed to Kafka, or what it has written so far cannot be read.

    Check the brokers or, if the message says that a transaction stays open, find out who writes to that
    topic; start again: the job continues after its last commit.
    """


class TransactionalProducer:
    """A producer of transactions: `begin`, `produce` ..., `send`, `flush`, `commit`.

    After any KafkaException it must be closed and replaced by a new one.
    """

    def __init__(self, settings: JobSettings, transactional_id: str) -> None:
        """Fence every earlier producer of this id, and end its open transaction.

        Raises:
            SinkError: the brokers do not answer, or refuse the producer.
            LoginError: the settings of TLS or SASL cannot be used.
        """
        self._settings = settings
        self._who = Identity(transactional_id, -1, -1)
        self._limit_s = settings.transaction_timeout_ms / 1000
        self._begun = 0.0
        self._ended = -math.inf
        """When the last commit was answered."""
        self._records: dict[PartitionId, list[Record]] = {}
        self._batches: dict[PartitionId, deque[Batch]] = {}
        """What the brokers have not accepted yet."""
        self._sequences: defaultdict[PartitionId, int] = defaultdict(int)
        self._asked: dict[Connection, list[PartitionId]] = {}
        """Leaders that have not answered, with the partitions of the records that they were sent."""
        self._unreachable: list[KafkaError] = []
        """For each leader that could not be reached, an error of one of its partitions."""
        self._offsets: list[tuple[PartitionId, int, str]] = []
        self._offsets_unanswered = False
        """Whether the offsets were sent, and no answer was taken."""
        topics = [getattr(settings.topics, field) for field in (*WRITTEN, "job_progress")]
        self._compress = zstandard.ZstdCompressor(level=1).compress
        self._cluster = Cluster(settings.bootstrap_servers, settings.kafka, topics)
        try:
            self._who = self._initialised()
        except KafkaException as fault:
            self.close()
            raise SinkError(
                f"no transactional producer: {describe(fault.args[0])}; check the brokers"
            ) from fault

    def _initialised(self) -> Identity:
        """Return the new identity."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        repetition = Repetition(deadline)
        while True:
            try:
                return self._identified(deadline)
            except KafkaException as fault:
                error = fault.args[0]
                if error.code() not in UNANSWERED:
                    raise
            # repeated although unanswered: a late copy would only have this producer replaced
            repetition.pause(error)

    def _identified(self, deadline: float) -> Identity:
        """Look up whatever a transaction needs; return the new identity."""
        transactional_id = self._who.transactional_id
        self._cluster.partitions(self._settings.topics.job_progress, deadline)
        self._cluster.coordinator(Kind.GROUP, self._settings.job_id, deadline)
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = self._settled(
            f"transactional id {transactional_id}",
            lambda coordinator: coordinator.ask(request, deadline, most=4),
            attrgetter("error_code"),
            UNSETTLED,
            deadline,
        )
        coordinator = self._cluster.coordinator(Kind.TRANSACTIONS, transactional_id, deadline)
        # several brokers would hinder one another, each for 20 ms (decision 216)
        self._implicit = self._cluster.brokers == 1 and coordinator.features.get(VERSION, 0) >= IMPLICIT
        return Identity(transactional_id, answer.producer_id, answer.producer_epoch)

    @property
    def open_s(self) -> float:
        """Seconds since the transaction was begun."""
        return time.monotonic() - self._begun

    def begin(self) -> None:
        """Begin a transaction."""
        self._begun = time.monotonic()
        self._records, self._batches = {}, {}

    def produce_progress(self, group: int, value: bytes, headers: Headers) -> None:
        """Add a progress record of a key group, whose records share a partition; see `produce`."""
        topic = self._settings.topics.job_progress
        partition = group % self._cluster.partitions(topic, self._deadline(1 / 2))
        self._add((topic, partition), Record(self._settings.job_id.encode(), value, headers))

    def produce(self, topic: str, key: bytes | None, value: bytes, headers: Headers) -> None:
        """Add a record, to the partition of its key.

        Raises:
            KafkaException: the record is too large, or the topic is not known.
        """
        record = Record(key, value, headers)
        partition = partition_of(record, self._cluster.partitions(topic, self._deadline(1 / 2)))
        self._add((topic, partition), record)

    def _add(self, partition: PartitionId, record: Record) -> None:
        if record.size > MAX_MESSAGE_BYTES:
            text = (
                f"a record for {partition[0]} is too large: {record.size} bytes, at most {MAX_MESSAGE_BYTES}"
            )
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, text))
        self._records.setdefault(partition, []).append(record)

    def send(self, offsets: list[TopicPartition]) -> None:
        """Send the records, and these offsets with their metadata; `flush` waits for the answers.

        While the brokers may still end the previous transaction, the records follow once the offsets are
        accepted.

        Raises:
            KafkaException: the producer is no longer usable.
        """
        deadline = self._deadline(1 / 2)
        for partition, records in self._records.items():
            first = self._sequences[partition]
            self._batches[partition] = deque(batches(records, first))
            self._sequences[partition] = (first + len(records)) % SEQUENCES
        if self._batches and not self._implicit:
            registration = requests.add_partitions(self._who, self._batches)
            self._requested(registration, partial(_of_partitions, [*self._batches]), UNSETTLED, deadline)
        # confluent-kafka writes the zero that ends a string in C, and reads beyond a string without one
        self._offsets = [
            ((part.topic, part.partition), part.offset, f"{part.metadata}\0") for part in offsets
        ]
        if self._implicit and self._begun < self._ended + ENDING_S:
            self._send_offsets(deadline)
            self._await_offsets(deadline)
            self._send_records(deadline)
            return
        self._send_records(deadline)
        if not self._implicit:
            registration = requests.add_offsets(self._who, self._settings.job_id)
            self._requested(registration, requests.of_all, UNSETTLED, deadline)
        self._send_offsets(deadline)

    def flush(self) -> None:
        """Wait until the brokers have all records and the offsets, at most half of the transaction's timeout.

        Raises:
            KafkaException: they refuse some, or do not answer in time.
        """
        deadline = self._deadline(1 / 2)
        repetition = Repetition(deadline)
        while self._batches:
            if refusals := self._refused_records(deadline):
                repetition.pause(refusals[0])
                if any(refusal.code() in MOVED for refusal in refusals):
                    self._cluster.refresh(deadline)
            self._send_records(deadline)
        self._await_offsets(deadline)

    def commit(self) -> None:
        """Commit within three quarters of the transaction timeout; after all of it the brokers would abort.

        Raises:
            KafkaException: the commit failed, or its outcome is unknown.
        """
        request = requests.end(self._who, implicit=self._implicit)
        answer = self._requested(request, requests.of_all, BUSY, self._deadline(3 / 4))
        if self._implicit:
            self._who = Identity(self._who.transactional_id, *requests.next_owner(answer))
            self._sequences.clear()  # they begin anew with each epoch
        self._ended = time.monotonic()

    def close(self) -> None:
        """Close without a request to the brokers: aborting the open transaction would take time."""
        self._cluster.close()

    def _deadline(self, share: float) -> float:
        return self._begun + share * self._limit_s

    def _send_records(self, deadline: float) -> None:
        """Send the next batch of each partition to its leader."""
        self._unreachable.clear()
        now_ms = int(time.time() * 1000)
        for address, partitions in self._cluster.by_leader(self._batches).items():
            try:
                leader = self._cluster.leader(address, deadline)
            except UnreachableError as fault:
                topic, index = partitions[0]
                reason = f"{topic}-{index}: {fault}"
                self._unreachable.append(error_of(KafkaError.LEADER_NOT_AVAILABLE, reason))
                continue
            encoded: dict[PartitionId, bytes] = {}
            size = 0
            for partition in partitions:
                if size < REQUEST_BYTES:
                    batch = self._batches[partition][0].encode(now_ms, self._who, self._compress)
                    encoded[partition] = batch
                    size += len(batch)
            left_ms = max(1, int(1000 * (deadline - time.monotonic())))
            leader.send(requests.produce(self._who, left_ms, encoded, implicit=self._implicit), deadline)
            self._asked[leader] = list(encoded)

    def _refused_records(self, deadline: float) -> list[KafkaError]:
        """Take the answers about records; return the errors of those that are to be sent again.

        Raises:
            KafkaException: some records can never be written, or there was no answer.
        """
        refusals = list(self._unreachable)
        asked, self._asked = self._asked, {}
        for leader, partitions in asked.items():
            codes = requests.produced(leader.receive(deadline))
            for partition in partitions:
                code = codes.get(partition, KafkaError.UNKNOWN)
                if code == 0:
                    waiting = self._batches[partition]
                    waiting.popleft()
                    if not waiting:
                        del self._batches[partition]
                    continue
                refusals.append(error_of(code, f"records of {partition[0]}-{partition[1]}"))
                if code not in UNSETTLED:
                    raise KafkaException(refusals[-1])
        return refusals

    def _send_offsets(self, deadline: float) -> None:
        group = self._settings.job_id
        self._group = self._cluster.coordinator(Kind.GROUP, group, deadline)
        request = requests.commit_offsets(self._who, group, self._offsets, implicit=self._implicit)
        self._group.send(request, deadline)
        self._offsets_unanswered = True

    def _await_offsets(self, deadline: float) -> None:
        """Wait until the brokers have the offsets that were sent, if they have not answered yet."""
        repetition = Repetition(deadline)
        while self._offsets_unanswered:
            self._offsets_unanswered = False
            if refused := self._refused_offsets(deadline):
                self._wait_for(Kind.GROUP, repetition, refused)
                self._send_offsets(deadline)

    def _refused_offsets(self, deadline: float) -> KafkaError | None:
        """Take the answer about the offsets; return an error if they are to be sent again."""
        refused = None
        codes = requests.by_partition(self._group.receive(deadline))
        for partition, *_ in self._offsets:
            code = codes.get(partition, KafkaError.UNKNOWN)
            if code:
                refused = error_of(code, f"offsets of {partition[0]}-{partition[1]}")
                if code not in UNSETTLED:
                    raise KafkaException(refused)
        return refused

    def _requested(
        self, request: Request, code_of: Callable[[bytes], int], repeated: Container[int], deadline: float
    ) -> bytes:
        """Return the answer to a request of a transaction; see `_settled`."""

        def ask(coordinator: Connection) -> bytes:
            coordinator.send(request, deadline)
            return coordinator.receive(deadline)

        return self._settled(request.name, ask, code_of, repeated, deadline)

    def _settled(
        self,
        what: str,
        ask: Callable[[Connection], T],
        code_of: Callable[[T], int],
        repeated: Container[int],
        deadline: float,
    ) -> T:
        """Return the answer of the transaction's coordinator, asked again while it has one of some codes."""
        repetition = Repetition(deadline)
        while True:
            answer = ask(self._cluster.coordinator(Kind.TRANSACTIONS, self._who.transactional_id, deadline))
            code = code_of(answer)
            if code not in repeated:
                require(code, what)
                return answer
            self._wait_for(Kind.TRANSACTIONS, repetition, error_of(code, what))

    def _wait_for(self, kind: Kind, repetition: "Repetition", refusal: KafkaError) -> None:
        repetition.pause(refusal)
        if refusal.code() in MOVED:
            self._cluster.forget_coordinator(kind)


class Repetition:
    """Growing pauses between the repetitions of a refused request."""

    def __init__(self, deadline: float) -> None:
        self._deadline, self._pause_s = deadline, FIRST_PAUSE_S

    def pause(self, refusal: KafkaError) -> None:
        """Wait; raises the refusal as a KafkaException if the deadline would pass meanwhile."""
        if time.monotonic() + self._pause_s > self._deadline:
            raise KafkaException(refusal)
        pauses.pause(self._pause_s)
        self._pause_s = min(GROWTH * self._pause_s, LONGEST_PAUSE_S)


def _of_partitions(partitions: Iterable[PartitionId], answer: bytes) -> int:
    """Return an error code of a partition that was not registered, 0 if all were."""
    answered = requests.by_partition(answer)
    codes = [answered.get(partition, KafkaError.UNKNOWN) for partition in partitions]
    # because of one partition all others have OPERATION_NOT_ATTEMPTED
    return max(filter(None, codes), key=lambda code: code != KafkaError.OPERATION_NOT_ATTEMPTED, default=0)


def describe(error: object) -> str:
    """Return a Kafka error as text; if a permission is missing, name the command that lists all needed."""
    if not isinstance(error, KafkaError):
        return str(error)
    hint = " (`fraud job permissions` prints what the job needs)" if error.code() in FORBIDDEN else ""
    return f"{error.str()}{hint}"
