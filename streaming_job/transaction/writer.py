"""The writer of a key group's output in Kafka transactions; the order of its steps ensures exactly once.

Alerts, dead letters, progress record and input offsets become visible together or not at all. Each
transaction has a number, which its offsets and its progress record contain. So offsets and progress record
show whether a doubtful transaction (after a timeout, a lost answer, or fencing) was committed. Before the
producer is renewed, the owner of the group is checked, because a new producer would fence an instance that
has taken the group over.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from feature_store.errors import ExitCode
from feature_store.release import RELEASE
from streaming_job.contracts.topics import WRITTEN
from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import Writable
from streaming_job.runtime.failpoints import Failpoint, reach
from streaming_job.runtime.pauses import pause
from streaming_job.settings import JobSettings
from streaming_job.transaction.batches import Headers
from streaming_job.transaction.producer import FENCED, SinkError, TransactionalProducer, describe
from streaming_job.transaction.written import GroupOutput, Mark, WrittenReader

log = logging.getLogger(__name__)

ATTEMPTS = 5
CLAIM_S = 5.0
"""Time within which an instance that fenced this producer claims the group in the committed offsets."""
LOOK_S = 0.02


class FencedError(SinkError):
    """Another instance of the job has taken over, or has written to the checkpoint meanwhile.

    Nothing, if that was intended; otherwise stop one instance.
    """

    exit_code = ExitCode.FENCED


@dataclass(frozen=True)
class Output:
    """The contents of one Kafka transaction."""

    commit_id: int
    """Number of the Kafka transaction: one more than that of the group's previous one."""
    records: Mapping[str, Sequence[Writable]]
    """Records by topic, as in `Outcome`."""
    progress: bytes
    """The progress record."""
    ends: Offsets
    """Positions after this commit: of the group's partitions of `transactions`, and of the tables."""


def headers_of(query_id: str, group: int, commit_id: int) -> list[tuple[str, bytes]]:
    """Return the headers of all records of a Kafka transaction."""
    return [
        ("query_id", query_id.encode()),
        ("key_group", str(group).encode()),
        ("commit_id", str(commit_id).encode()),
        ("release", RELEASE.encode()),
    ]


class GroupWriter:
    """The writer of a key group: call `take_over` once, then `write` for each transaction."""

    def __init__(
        self,
        settings: JobSettings,
        group: int,
        own: Sequence[int],
        query_id: str,
        instance: str,
        successor: str = "",
    ) -> None:
        """Create the writer without writing anything.

        Args:
            own: the group's partitions of the transactions.
            query_id: id of the query in Spark's checkpoint.
            instance: id of the job's process.
            successor: the query for which a driver claims the group of the query `query_id`; see
                `takeover.handover`.
        """
        self._settings, self._group = settings, group
        self._outputs = [(field, getattr(settings.topics, field)) for field in WRITTEN]
        self._own = [(settings.topics.transactions, partition) for partition in own]
        self._tables = frozenset((*settings.tables, *settings.retired_transactions))
        self._query_id, self._instance, self._successor = query_id, instance, successor
        self._owner = f"{instance}/{secrets.token_hex(8)}"
        self._reader = WrittenReader(settings, group, self._own)
        self._producer: TransactionalProducer | None = None
        self._before: tuple[str | None, int] = (None, 0)
        """Owner and commit_id of the last commit before this writer took the group over."""
        self._fenced_early = False
        """Whether the last transaction failed because a newer producer fenced this one. False if it was open
        for longer than its timeout: the brokers then report the same error."""

    def written(self, known: Mapping[str, Any] | None = None, *, stable: bool = False) -> GroupOutput:
        """Return what the group has written, without fencing a running writer.

        Args:
            known: as for `take_over`.
            stable: whether to wait in any case until no open transaction hides a progress record. If False,
                it waits only if the committed offsets are incomplete.

        Raises:
            SinkError: the brokers do not answer, or a transaction stays open.
        """
        if not stable:
            written = self._reader.running(known)
            if written.owner is not None and not written.unknown:
                return written
        # without complete committed offsets the newest progress record is needed, which another group's open
        # transaction may hide
        return self._reader.running(known, stable=True)

    def take_over(
        self, ends: Offsets, *, from_others: bool = True, known: Mapping[str, Any] | None = None
    ) -> GroupOutput:
        """Fence every earlier producer of the group, end its open transaction, and claim the group.

        Args:
            ends: by partition of the group: the offset at which to begin if no greater one is committed.
            from_others: whether the group may belong to another instance. True when the job starts; later,
                another owner means that this instance has been replaced.
            known: the group's last progress record according to the state; if it is the newest, the progress
                topic is not read.

        Returns:
            What the group has written so far; no other process can add to it.

        Raises:
            FencedError: the group belongs to another instance although `from_others` is False.
            SinkError: several attempts failed, the brokers do not answer, or a transaction stays open.
        """
        error: KafkaError | None = None
        for _ in range(ATTEMPTS):
            # Step 1. Check query and owner, without fencing a running writer.
            written = self._reader.running(known)
            self._require_query(written)
            if not from_others and written.instance not in (None, self._instance):
                raise self._replaced()
            try:
                # Step 2. Fence the earlier producers. Their open transactions are committed or aborted then.
                self._renew()
                # Step 3. Read again: the earlier producers cannot write any more.
                written = self._reader.settled(known)
                self._require_query(written)
                # Step 4. Claim the group: commit its offsets with this writer as owner.
                self._before = (written.owner, written.commit_id)
                starts = {tp: max(ends.get(tp, 0), written.offsets.get(tp, 0)) for tp in self._own}
                self._claim(starts, written.commit_id)
                return GroupOutput(starts, written.commit_id, self._owner, self._query_id, written.progress)
            except KafkaException as fault:
                # a broker is unreachable, or the previous writer renewed its producer before the claim was
                # committed, and so fenced this one
                error = fault.args[0]
            log.warning("key group %d: not taken over yet: %s", self._group, describe(error))
            self._drop()
        raise SinkError(
            f"key group {self._group} was not taken over in {ATTEMPTS} attempts: {describe(error)}; "
            "check the brokers, then start the job again"
        )

    def write(self, output: Output) -> None:
        """Write one transaction exactly once.

        Raises:
            FencedError: another instance of the job has taken the group over.
            SinkError: the transaction failed in several attempts; or a newer task attempt of this instance
                has the group; or the brokers do not answer, or another transaction stays open.
        """
        for _ in range(ATTEMPTS):
            # Step 1. After a doubtful transaction: check the owner, renew the producer, read what is written.
            if self._producer is None:
                self._require_ownership(self._reader.running, output.commit_id)
                self._renew()
                written = self._require_ownership(self._reader.settled, output.commit_id)
                if written.commit_id >= output.commit_id:
                    return
            try:
                self._write_once(output)
                return
            except KafkaException as fault:
                error = fault.args[0]
                self._doubt(error)
            log.warning("key group %d, commit %d failed: %s", self._group, output.commit_id, describe(error))
        raise SinkError(
            f"commit {output.commit_id} of key group {self._group} failed in {ATTEMPTS} attempts: "
            f"{describe(error)}; check the brokers, then start the job again"
        )

    def close(self) -> None:
        """Close all clients."""
        self._drop()
        self._reader.close()

    def _write_once(self, output: Output) -> None:
        producer = self._producer
        assert producer is not None
        headers = Headers.of(headers_of(self._query_id, self._group, output.commit_id))
        # Step 2. Begin: readers see none of the following before the commit.
        producer.begin()
        reach(Failpoint.BEGUN)
        # Step 3. Produce the records of the outputs and the progress record.
        for field, topic in self._outputs:
            for record in output.records[field]:
                producer.produce(topic, record.record_key, record.encode(), headers)
        producer.produce_progress(self._group, output.progress, headers)
        # Step 4. Add the offsets, with the transaction's number and owner.
        producer.send(self._marked(output.ends, output.commit_id))
        reach(Failpoint.SENDING)
        # Step 5. Wait until the brokers have all of it.
        producer.flush()
        reach(Failpoint.SENT)
        # Step 6. Commit: readers see all of it, or nothing.
        producer.commit()
        reach(Failpoint.COMMITTED)

    def _require_query(self, written: GroupOutput) -> None:
        if self._successor:  # a takeover that another one has begun is no obstacle
            written = replace(written, successor="")
        written.require_query(self._query_id)

    def _claim(self, starts: Offsets, commit_id: int) -> None:
        producer = self._producer
        assert producer is not None
        if starts:
            producer.begin()
            producer.send(self._marked(starts, commit_id))
            producer.flush()
            producer.commit()

    def _marked(self, ends: Offsets, commit_id: int) -> list[TopicPartition]:
        """Return the offsets to commit: the group's own; in group 0 the tables', too, for lag tools."""
        mark = Mark(self._query_id, self._owner, commit_id, self._successor).to_metadata()
        return [
            TopicPartition(topic, partition, end, mark)
            for (topic, partition), end in ends.items()
            if (topic, partition) in self._own or (self._group == 0 and topic in self._tables)
        ]

    def _doubt(self, error: KafkaError) -> None:
        """Drop the producer after an error."""
        producer = self._producer
        assert producer is not None
        fenced = error.code() in FENCED
        self._fenced_early = fenced and producer.open_s < self._settings.transaction_timeout_ms / 1000
        if fenced and not self._fenced_early:
            log.warning(
                "key group %d: the brokers aborted a transaction that was open for more than %d s",
                self._group,
                self._settings.transaction_timeout_ms // 1000,
            )
        self._drop()

    def _require_ownership(self, ask: Callable[[], GroupOutput], commit_id: int) -> GroupOutput:
        """Return what the group has written, if this writer still owns the group.

        Args:
            ask: reads what is written.
            commit_id: number of the transaction to be written next.

        Raises:
            FencedError: another instance owns the group.
            SinkError: a newer task attempt of this instance owns it, the brokers do not answer, or another
                transaction stays open.
        """
        deadline = time.monotonic() + (CLAIM_S if self._fenced_early else 0.0)
        while True:
            written = ask()
            # while this writer's claim is committed but not visible yet, the commit before it is still shown
            unclaimed = written.owner == self._before[0] and written.commit_id <= self._before[1]
            others = written.owner is None and written.commit_id > commit_id
            if others or (written.instance not in (None, self._instance) and not unclaimed):
                raise self._replaced()
            if written.owner not in (None, self._owner) and not unclaimed:
                raise SinkError(
                    f"a newer attempt of this instance has key group {self._group} of job "
                    f"{self._settings.job_id}; this attempt ends"
                )
            if time.monotonic() >= deadline:
                self._fenced_early = False
                return written
            pause(LOOK_S)  # the instance that fenced this producer is about to claim the group

    def _replaced(self) -> FencedError:
        return FencedError(
            f"another instance of job {self._settings.job_id} has taken over key group {self._group}; this "
            "instance stops"
        )

    def _renew(self) -> None:
        self._drop()
        self._producer = TransactionalProducer(self._settings, f"{self._settings.job_id}-{self._group}")

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
