"""What a key group has written, read from the brokers: its owner, its last transaction's number, and Q.

Each transaction commits the group's offsets and one progress record (only offsets, if it claims the group for
a new writer). The offsets' metadata names the owner. But tools may move or delete offsets, and brokers let
them expire. So offsets and progress record are both read, and the greater position of each partition counts.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from feature_store.errors import FraudError
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Consumer
from streaming_job.log.follow import STARTING
from streaming_job.log.records import Offsets, PartitionId
from streaming_job.progress.last_record import positions
from streaming_job.progress.reader import BLIND, newest_by_group
from streaming_job.runtime.pauses import look, pause
from streaming_job.settings import JobSettings
from streaming_job.transaction.producer import CALL_TIMEOUT_S, SinkError, describe

log = logging.getLogger(__name__)

RESTARTING = (
    *STARTING,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)
"""Transient errors while a broker restarts, or a partition's leader moves."""
POLL_S = 0.1
STABLE_POLL_S = 0.01
ASKING_S = 5.0
"""Limit for one request of committed offsets; after it, errors of the client are looked at."""
T = TypeVar("T")


class OtherQueryError(FraudError):
    """The topics were last written from another checkpoint; the right one is lost, or this one is foreign.

    Restore the checkpoint of the first of the two Spark queries that the message names; or have this one take
    its output over ([operations](operations.md#changing-a-running-job)). Never delete offsets.
    """


@dataclass(frozen=True)
class Mark:
    """Metadata of a committed offset: which transaction committed it."""

    query_id: str
    owner: str
    """Instance of the job and its writer: instance/writer."""
    commit_id: int
    successor: str = ""
    """Query that is taking the group over, see `takeover.handover`."""

    def to_metadata(self) -> str:
        """Return the metadata as text."""
        fields = {"query": self.query_id, "owner": self.owner, "commit": self.commit_id}
        return json.dumps({**fields, "successor": self.successor} if self.successor else fields)

    @staticmethod
    def from_metadata(metadata: str | None) -> "Mark | None":
        """Parse what `to_metadata` returned; None for metadata that this job did not write."""
        try:
            fields = json.loads(metadata or "")
            query, owner, commit = str(fields["query"]), str(fields["owner"]), int(fields["commit"])
            return Mark(query, owner, commit, str(fields.get("successor", "")))
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class GroupOutput:
    """What a key group has written so far."""

    offsets: Offsets = field(default_factory=dict)
    """Q of the group's partitions of the transactions; without partitions that were never committed."""
    commit_id: int = 0
    """Number of the group's last Kafka transaction; 0 before the first."""
    owner: str | None = None
    """Writer of the last commit, instance/writer; None if no committed offset names it."""
    query_id: str | None = None
    """Query id of the checkpoint to which the output belongs; None before the first transaction."""
    progress: Mapping[str, Any] | None = None
    """The group's last progress record."""
    successor: str = ""
    """Query that is taking the group over; empty: none is."""
    unknown: frozenset[PartitionId] = frozenset()
    """Partitions for which neither the committed offset nor the progress record is from the last transaction,
    so that their Q may be greater than in `offsets`."""

    @property
    def instance(self) -> str | None:
        """The owner's job instance."""
        return None if self.owner is None else self.owner.partition("/")[0]

    def require_query(self, query_id: str) -> None:
        """Raise OtherQueryError if the output, if any, belongs to another query, or is being taken over."""
        if self.query_id not in (None, query_id):
            raise OtherQueryError(
                f"the topics were last written by query {self.query_id}, but this checkpoint is of query "
                f"{query_id}; restore the former's checkpoint, or have this one take over from it: set "
                f"FRAUD_PREDECESSOR={self.query_id}"
            )
        if self.successor:
            raise OtherQueryError(
                f"query {self.successor} has begun to take over from query {query_id}, which is that of this "
                "checkpoint; start the successor again, or take the output back: set FRAUD_PREDECESSOR="
                f"{self.successor}"
            )


def combined(
    committed: Iterable[TopicPartition], progress: Mapping[str, Any] | None, own: Sequence[PartitionId]
) -> tuple[GroupOutput, list[str]]:
    """Combine committed offsets and progress record; return what is written, and their differences as text.

    Args:
        committed: an entry for each of the key group's partitions; a negative offset means none.
        progress: the group's last progress record.
        own: the key group's partitions.
    """
    marks: list[Mark] = []
    differences: list[str] = []
    ends = positions(progress)
    offsets = {tp: ends[tp] for tp in own if tp in ends}
    # by partition: number of the transaction that its position comes from
    shown = {tp: int(progress["commit_id"]) if progress and tp in ends else 0 for tp in own}
    for part in committed:
        tp, mark = (part.topic, part.partition), Mark.from_metadata(part.metadata)
        difference = None
        if part.offset < 0:
            difference = "none" if tp in offsets else None
        elif mark is None:
            difference = f"{part.offset}, which this job did not commit"
        else:
            difference = str(part.offset) if part.offset < offsets.get(tp, 0) else None
            marks.append(mark)
            shown[tp] = max(mark.commit_id, shown[tp])
            offsets[tp] = max(part.offset, offsets.get(tp, 0))
        if difference is not None:
            reported = ends.get(tp, "none")
            differences.append(
                f"{part.topic}-{part.partition}: {difference}, last progress record: {reported}"
            )
    last = max(marks, key=lambda mark: mark.commit_id, default=None)
    if last is None and progress is None:
        return GroupOutput(offsets), differences
    commit_id = max(last.commit_id if last else 0, int(progress["commit_id"]) if progress else 0)
    written = GroupOutput(
        offsets,
        commit_id,
        last.owner if last else None,
        last.query_id if last else str(progress["query_id"]) if progress else None,
        progress,
        last.successor if last else "",
        frozenset(tp for tp, number in shown.items() if number < commit_id),
    )
    return written, differences


class WrittenReader:
    """A reader of what a key group has written."""

    def __init__(self, settings: JobSettings, group: int, own: Sequence[PartitionId]) -> None:
        """Create the clients; they connect by themselves.

        Args:
            own: the group's partitions of the transactions.
        """
        self._job_id, self._topic = settings.job_id, settings.topics.job_progress
        self._group, self._own = group, own
        self._open_at_most_s = settings.transaction_timeout_ms / 1000 + CALL_TIMEOUT_S
        # reads committed offsets after open transactions have ended
        self._settled = clients.reader(settings, settings.job_id)
        # reads committed offsets at once, without those in an open transaction
        self._running = clients.reader(settings, settings.job_id, committed_only=False)

    def running(self, known: Mapping[str, Any] | None = None, *, stable: bool = False) -> GroupOutput:
        """Return what the group has written; unless `stable`, an open transaction may hide the newest of it.

        Args:
            known: a progress record of the group. The topic is not read if the committed offsets show that
                this record is the newest.
            stable: whether to wait until no open transaction hides a progress record.

        Raises:
            SinkError: the brokers do not answer, or a transaction stays open.
        """
        return self._look(self._running, known, stable=stable)[0]

    def settled(self, known: Mapping[str, Any] | None = None) -> GroupOutput:
        """Return all that the group has written; its earlier producers must have been fenced before.

        Logs a warning about offsets that a tool has changed, or that have expired.

        Args:
            known: as for `running`.

        Raises:
            SinkError: the brokers do not answer, or a transaction stays open.
        """
        written, differences = self._look(self._settled, known, stable=True)
        if differences:
            log.warning(
                "committed offsets of consumer group %s were changed: %s",
                self._job_id,
                "; ".join(differences),
            )
        return written

    def marks(self) -> list[Mark]:
        """Return the marks of the committed offsets, without those of open transactions.

        Raises:
            SinkError: the brokers do not answer.
        """
        try:
            offsets = _patiently(lambda: _committed(self._running, self._own))
        except KafkaException as fault:
            raise self._unreadable(fault) from fault
        return [mark for part in offsets if (mark := Mark.from_metadata(part.metadata)) is not None]

    def close(self) -> None:
        """Close the clients."""
        self._settled.close()
        self._running.close()

    def _look(
        self, client: Consumer, known: Mapping[str, Any] | None, *, stable: bool
    ) -> tuple[GroupOutput, list[str]]:
        try:
            offsets = _patiently(lambda: _committed(client, self._own))
            marks = [Mark.from_metadata(part.metadata) for part in offsets]
            if known and marks and all(mark and mark.commit_id == known["commit_id"] for mark in marks):
                return combined(offsets, known, self._own)
            if stable:
                _patiently(self._await_stable)
            # without a trace in state and offsets, the job is most likely new
            first_within = None if known or any(marks) else BLIND
            records = _patiently(
                lambda: newest_by_group(
                    self._settled, self._topic, self._job_id, {self._group}, first_within=first_within
                )
            )
            self._settled.unassign()
            offsets = _patiently(lambda: _committed(client, self._own))
        except KafkaException as fault:
            raise self._unreadable(fault) from fault
        return combined(offsets, records.get(self._group), self._own)

    def _unreadable(self, fault: KafkaException) -> SinkError:
        return SinkError(
            f"what key group {self._group} has written cannot be read: {describe(fault.args[0])}; "
            "check the brokers"
        )

    def _await_stable(self) -> None:
        """Wait until no open transaction hides a record of the group.

        Groups may share a partition: a transaction of another group that a killed job left open hides all
        records that were committed there after it began. It ends when its group is taken over, or at its
        timeout. All partitions are awaited, because the topic may have got more since the newest record.
        """
        deadline = time.monotonic() + self._open_at_most_s
        for partition in topic_reader.partitions(self._running, self._topic):
            topic_partition = TopicPartition(self._topic, partition)
            _, end = topic_reader.offsets(self._running, topic_partition)
            while topic_reader.offsets(self._settled, topic_partition)[1] < end:
                if time.monotonic() > deadline:
                    raise SinkError(
                        f"a transaction on {self._topic}-{partition} stays open, so it is unknown what key "
                        f"group {self._group} has written; find out who writes to the topic, then start the "
                        "job again"
                    )
                pause(STABLE_POLL_S)


def _committed(group: Consumer, partitions: Iterable[PartitionId]) -> list[TopicPartition]:
    requests = [TopicPartition(topic, partition) for topic, partition in partitions]
    if not requests:
        return []
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        try:
            answers: list[TopicPartition] = group.committed(requests, ASKING_S)
            break
        except KafkaException as fault:
            # without permission for the group, the call itself waits in vain for the group's coordinator
            message = group.poll(0)
            error = message.error() if message is not None else None
            if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaException(error) from fault
            if fault.args[0].code() != KafkaError._TIMED_OUT or time.monotonic() > deadline:
                raise
        look()
    # an error of one partition must not be read as "nothing committed"
    for part in answers:
        if part.error is not None:
            raise KafkaException(part.error)
    return answers


def _patiently(ask: Callable[[], T]) -> T:
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as fault:
            if fault.args[0].code() not in RESTARTING or time.monotonic() > deadline:
                raise
        pause(POLL_S)
