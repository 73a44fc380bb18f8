"""Writes a key group's output, one Kafka transaction after another. The order of statements is the guarantee.

Alerts, dead letters, progress record and input offsets become visible together or not at all. Each
transaction has a number; so after a doubt whether it is on the topics (a timeout, a lost answer, a fenced
producer) the brokers can tell. But first they are asked whose the group is: a new producer would fence
whoever has taken it over.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streaming_job.dead_letters.record import DeadLetter
from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import Alert
from streaming_job.runtime.failpoints import Step, reach
from streaming_job.settings import JobSettings
from streaming_job.transaction.producer import FENCED, Headers, SinkError, TransactionalProducer, say
from streaming_job.transaction.written import Mark, Written, WrittenReader

log = logging.getLogger(__name__)

ATTEMPTS = 5
CLAIM_S = 5.0
"""How long whoever has fenced this producer may take to say so in the committed offsets."""
LOOK_S = 0.02


class FencedError(SinkError):
    """Another instance of the job has taken the group over."""

    exit_code = 3


@dataclass(frozen=True)
class Output:
    """What one transaction says."""

    commit_id: int
    """Its number: one more than that of the group's transaction before."""
    alerts: Sequence[Alert]
    dead_letters: Sequence[DeadLetter]
    progress: bytes
    """The progress record."""
    ends: Offsets
    """Positions after it: of the group's transactions partitions, and of the tables' partitions."""
    suppressed: Sequence[Alert] = ()
    """Alerts that a cooldown held back."""
    shadow_alerts: Sequence[Alert] = ()
    """Verdicts of challengers that differ from the champion's."""
    facts: Sequence[bytes] = ()
    """Records of merchant facts."""


class GroupWriter:
    """Writes the output of a key group: `take_over`, then `write` ..."""

    def __init__(
        self, settings: JobSettings, group: int, own: Sequence[int], query_id: str, instance: str
    ) -> None:
        """Say nothing yet.

        Args:
            settings: of the job.
            group: the key group.
            own: its partitions of the transactions.
            query_id: of Spark's checkpoint.
            instance: of the job's process.
        """
        self._settings, self._topics, self._group = settings, settings.topics, group
        self._own = [(settings.topics.transactions, partition) for partition in own]
        self._query_id, self._instance = query_id, instance
        self._owner = f"{instance}/{secrets.token_hex(8)}"
        self._reader = WrittenReader(settings, group, self._own)
        self._producer: TransactionalProducer | None = None
        self._before: tuple[str | None, int] = (None, 0)
        """From whom the group was taken over, and its last commit."""
        self._fenced_early = False
        """The last failure was that somebody else has made a producer of this group."""

    def written(self) -> Written:
        """What the group has said; whoever still writes is left alone.

        Raises:
            SinkError: the brokers do not answer.
        """
        return self._reader.running()

    def take_over(
        self, ends: Offsets, *, from_others: bool = True, known: Mapping[str, Any] | None = None
    ) -> Written:
        """Fence every earlier producer of the group, settle what it left open, and claim the group.

        Args:
            ends: of the group's partitions: where it begins if nothing is committed.
            from_others: whether the group may be another instance's until now. That is so when the job
                starts; later it would mean that this instance has been replaced itself.
            known: the group's last progress record, as far as the state tells; saves reading it.

        Returns:
            What the group has said before, and nobody else can add to any more.

        Raises:
            FencedError: the group is another instance's, and must not be.
            OtherQueryError: the output is of another query.
            SinkError: the brokers do not answer.
        """
        error: KafkaError | None = None
        for _ in range(ATTEMPTS):
            # Step 1. Refuse what must not be, while whoever runs is left alone.
            written = self._reader.running(known)
            written.require_query(self._query_id)
            if not from_others and written.instance not in (None, self._instance):
                raise self._replaced()
            try:
                # Step 2. Fence the earlier producers. What they had open is committed or aborted after this.
                self._renew()
                # Step 3. Ask again: nobody can write any more.
                written = self._reader.settled(known)
                written.require_query(self._query_id)
                # Step 4. Claim the group: its offsets, and whose they are from here on.
                self._before = (written.owner, written.commit_id)
                starts = {
                    place: max(ends.get(place, 0), written.offsets.get(place, 0)) for place in self._own
                }
                self._claim(starts, written.commit_id)
                return Written(starts, written.commit_id, self._owner, self._query_id, written.progress)
            except KafkaException as fault:  # fenced by who had the group before, or a broker is away
                error = fault.args[0]
            log.warning("key group %d: not taken over yet: %s", self._group, say(error))
            self._drop()
        raise SinkError(
            f"key group {self._group} was not taken over in {ATTEMPTS} attempts: {say(error)}; "
            "check the brokers, then start the job again"
        )

    def write(self, output: Output) -> None:
        """Write one transaction, once.

        Raises:
            FencedError: another instance of the job has taken the group over.
            SinkError: the brokers did not take it in several attempts, or a newer attempt of this instance
                has the group.
        """
        for _ in range(ATTEMPTS):
            # Step 1. After a doubt: see whose the group is, get a new producer, and see what is written.
            if self._producer is None or self._producer.disturbed:
                self._require_ownership(self._reader.running, output.commit_id)
                self._renew()
                written = self._require_ownership(self._reader.settled, output.commit_id)
                if written.commit_id >= output.commit_id:
                    return
            try:
                self._write_once(output)
                return
            except KafkaException as fault:
                error = self._doubt(fault.args[0])
            log.warning("key group %d, commit %d failed: %s", self._group, output.commit_id, say(error))
        raise SinkError(
            f"commit {output.commit_id} of key group {self._group} was not taken in {ATTEMPTS} attempts: "
            f"{say(error)}; check the brokers, then start the job again"
        )

    def close(self) -> None:
        """Let the brokers go."""
        self._drop()
        self._reader.close()

    def _write_once(self, output: Output) -> None:
        producer, topics = self._producer, self._topics
        assert producer is not None
        headers: Headers = [
            ("query_id", self._query_id.encode()),
            ("key_group", str(self._group).encode()),
            ("commit_id", str(output.commit_id).encode()),
        ]
        # Step 2. Begin: all that follows is seen by nobody before it is committed.
        producer.begin()
        reach(Step.BEGUN)
        # Step 3. Send what has come of the records, and the account of it.
        for topic, found in (
            (topics.fraud_alerts, output.alerts),
            (topics.suppressed_alerts, output.suppressed),
            (topics.shadow_alerts, output.shadow_alerts),
        ):
            for alert in found:
                producer.produce(topic, alert.key, alert.value, headers)
        for letter in output.dead_letters:
            producer.produce(topics.dead_letters, letter.record_key, letter.encode(), headers)
        for fact in output.facts:
            producer.produce(topics.merchant_facts, str(self._group).encode(), fact, headers)
        producer.produce(topics.job_progress, self._settings.job_id.encode(), output.progress, [])
        # Step 4. Wait until the brokers have all of it.
        producer.flush()
        reach(Step.SENT)
        # Step 5. Add the positions, with the transaction's number and owner.
        producer.send_offsets(self._marked(output.ends, output.commit_id), self._reader.group_metadata())
        reach(Step.OFFSETS_ADDED)
        # Step 6. Commit: all of it is seen, or nothing.
        producer.commit()
        reach(Step.COMMITTED)

    def _claim(self, starts: Offsets, commit_id: int) -> None:
        producer = self._producer
        assert producer is not None
        if starts:
            producer.begin()
            producer.send_offsets(self._marked(starts, commit_id), self._reader.group_metadata())
            producer.commit()

    def _marked(self, ends: Offsets, commit_id: int) -> list[TopicPartition]:
        """What this group commits: its own partitions; group 0 also the tables', for lag tools."""
        mark = Mark(self._query_id, self._owner, commit_id).to_metadata()
        return [
            TopicPartition(topic, partition, end, mark)
            for (topic, partition), end in ends.items()
            if (topic, partition) in self._own or (self._group == 0 and topic in self._settings.tables)
        ]

    def _doubt(self, error: KafkaError) -> KafkaError:
        """Drop the producer after an error; returns what was behind it."""
        producer = self._producer
        assert producer is not None
        error = producer.cause(error)
        fenced = error.code() in FENCED
        self._fenced_early = fenced and producer.open_s < self._settings.transaction_timeout_ms / 1000
        if fenced and not self._fenced_early:
            log.warning(
                "key group %d: the brokers gave up a transaction that was open for more than %d s",
                self._group,
                self._settings.transaction_timeout_ms // 1000,
            )
        self._drop()
        return error

    def _require_ownership(self, ask: Callable[[], Written], commit_id: int) -> Written:
        """What the group has said, if it is still this writer's; `commit_id` is to be written next.

        Raises:
            FencedError: it is another instance's.
            SinkError: it is a newer attempt's of this instance, or the brokers do not answer.
        """
        deadline = time.monotonic() + (CLAIM_S if self._fenced_early else 0.0)
        while True:
            written = ask()
            # the claim is committed, but perhaps not to be seen yet
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
            time.sleep(LOOK_S)  # who fenced this producer is about to say so

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
