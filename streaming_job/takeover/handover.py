"""The takeover by a successor's driver: fences the predecessor, and writes the seam.

The order of its steps loses and doubles nothing:

    Step 1  fence the drivers that try the same: all use one transactional id
    Step 2  for each key group of the predecessor: fence its producers, read the end of its output (Q), and
            commit Q as the claim of this successor. The predecessor cannot write any more, not even after a
            restart (`OtherQueryError`)
    Step 3  in one Kafka transaction: a first progress record for each group of the successor, and Q of all
            partitions as output of the successor's query

A driver that is killed before step 3 has changed nothing that decides: the successor, started again, claims
again; or the predecessor takes the output back, which is the same act the other way.
"""

import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from feature_store.catalogue import IDENTITIES
from streaming_job.group import last_record
from streaming_job.log import clients
from streaming_job.log.clients import describe
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Offsets
from streaming_job.progress.reader import newest_by_group
from streaming_job.runtime.checkpoint import CheckpointError
from streaming_job.runtime.failpoints import Step, reach
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.settings import JobSettings
from streaming_job.takeover.level import behind
from streaming_job.takeover.seam import Predecessor, Successor, first_records
from streaming_job.transaction.producer import FENCED, SinkError, TransactionalProducer
from streaming_job.transaction.writer import FencedError, GroupWriter, headers_of
from streaming_job.transaction.written import Mark, OtherQueryError, WrittenReader

log = logging.getLogger(__name__)

NEAR = 2_000
"""Offsets of all inputs by which the successor may be behind in any case when the predecessor is fenced."""
NEAR_S = 0.5
"""Seconds for which the successor may have to decide to the end of the output, by its speed so far."""


class Handover:
    """The takeover of a predecessor's output; made once, between two epochs."""

    def __init__(self, settings: JobSettings, key_groups: KeyGroups, query_id: str, instance: str) -> None:
        """Prepare it without writing anything.

        Args:
            settings: of the successor; `predecessor` names the query to take over from.
            key_groups: of the successor.
            query_id: of the successor's checkpoint.
            instance: id of the successor's run.
        """
        self._settings, self._key_groups = settings, key_groups
        self._query_id, self._instance = query_id, instance

    def is_due(self) -> bool:
        """Return whether the output is still the predecessor's.

        Raises:
            StartUpError: nothing was written, or the predecessor cannot be taken over.
            OtherQueryError: the output is of a third query.
            SinkError: the brokers do not answer.
        """
        return bool(self._due())

    def _due(self) -> dict[int, dict[str, Any]]:
        """Return the predecessor's newest records; empty if the output is the successor's already."""
        settings, records = self._settings, self._records()
        if not records:
            raise StartUpError(
                f"FRAUD_PREDECESSOR={settings.predecessor}: job {settings.job_id} has written no progress "
                "records, so there is nothing to take over; remove the setting, or correct FRAUD_JOB_ID"
            )
        newest = next(iter(records.values()))
        successors = {mark.successor for mark in self._marks()}
        if newest["query_id"] == self._query_id and settings.predecessor not in successors:
            return {}
        if settings.predecessor not in {newest["query_id"], *successors}:
            raise OtherQueryError(
                f"FRAUD_PREDECESSOR={settings.predecessor}, but the output of job {settings.job_id} is of "
                f"query {newest['query_id']}; correct the setting if that is the job to take over from"
            )
        self._require_takeable(records)
        return records

    def is_near(self, positions: Mapping[str, int], speed: float) -> bool:
        """Return whether the successor's state has come near the end of the output.

        Args:
            positions: P by "topic-partition", over all key groups; of the tables the least.
            speed: offsets per second by which the positions have advanced in the last epoch.

        Raises:
            CheckpointError: the state is ahead of the output.
            StartUpError, OtherQueryError, SinkError: see `is_due`.
        """
        output: dict[str, int] = {}
        for record in self._due().values():
            for (topic, partition), end in last_record.positions(record).items():
                name = f"{topic}-{partition}"
                output[name] = min(end, output.get(name, end))
        if ahead := sorted(name for name, end in output.items() if positions.get(name, 0) > end):
            raise CheckpointError(
                f"the checkpoint is ahead of the output that it takes over, in {', '.join(ahead)}; use an "
                "older copy of it, or an empty one"
            )
        return behind(output, positions) <= max(NEAR, NEAR_S * speed)  # type: ignore[arg-type]

    def run(self) -> None:
        """Take the output over; see the steps of this module.

        Raises:
            FencedError: another driver does the same.
            SinkError: the brokers do not answer, or a transaction stays open.
        """
        settings, begun = self._settings, time.monotonic()
        # Step 1
        producer = TransactionalProducer(settings, f"{settings.job_id}-takeover")
        with closing(producer):
            # Step 2
            before = self._claimed()
            reach(Step.CLAIMED)
            # Step 3
            try:
                self._write(producer, before)
            except KafkaException as fault:
                error = producer.cause(fault.args[0])
                if error.code() in FENCED:
                    raise FencedError(
                        f"another instance takes the output of job {settings.job_id} over; this one stops"
                    ) from fault
                raise SinkError(
                    f"the takeover was not committed: {describe(fault)}; check the brokers, then start again"
                ) from fault
        with self._reader() as reader:
            reader.settled()  # waits until readers see the seam: before that, groups would be refused
        reach(Step.SEAM)
        ends = ", ".join(f"{topic}-{part}@{end}" for (topic, part), end in sorted(before.offsets.items()))
        log.info(
            "took over from query %s, of %d key groups, at %s, in %.0f ms",
            before.query_id, len(before.records), ends, 1000 * (time.monotonic() - begun),
        )  # fmt: skip

    def _claimed(self) -> Predecessor:
        settings, records = self._settings, self._records()
        old = KeyGroups(settings.partitioner, self._key_groups.partitions, len(records))
        query_id = str(records[0]["query_id"])
        offsets: Offsets = {}
        last: dict[int, Any] = {}
        commit_id = 0
        for group in range(old.groups):
            writer = GroupWriter(
                settings, group, old.own(group), query_id, self._instance, successor=self._query_id
            )
            with closing(writer):
                written = writer.take_over({})
            offsets |= written.offsets
            commit_id = max(commit_id, written.commit_id)
            last[group] = written.progress
        return Predecessor(last, offsets, commit_id)

    def _write(self, producer: TransactionalProducer, before: Predecessor) -> None:
        settings, topics = self._settings, self._settings.topics
        after = Successor(settings.job_id, self._query_id, self._key_groups, topics.transactions, IDENTITIES)
        commit_id = before.commit_id + 1
        mark = Mark(self._query_id, f"{self._instance}/{secrets.token_hex(8)}", commit_id).to_metadata()
        producer.begin()
        for group, record in first_records(before, after, int(time.time() * 1000)).items():
            headers = headers_of(self._query_id, group, commit_id)
            producer.produce(topics.job_progress, settings.job_id.encode(), record, headers)
        producer.flush()
        offsets = [
            TopicPartition(topic, partition, end, mark) for (topic, partition), end in before.offsets.items()
        ]
        with self._reader() as reader:
            producer.send_offsets(offsets, reader.group_metadata())
        producer.commit()

    def _records(self) -> dict[int, dict[str, Any]]:
        settings = self._settings
        with closing(clients.reader(settings, settings.job_id)) as reader:
            try:
                return newest_by_group(reader, settings.topics.job_progress, settings.job_id)
            except KafkaException as fault:
                raise SinkError(
                    f"the progress of job {settings.job_id} cannot be read: {describe(fault)}; check the "
                    "brokers"
                ) from fault

    def _marks(self) -> list[Mark]:
        with self._reader() as reader:
            return reader.marks()

    def _reader(self) -> closing[WrittenReader]:
        """Return a reader of the committed offsets of all partitions."""
        topic, partitions = self._settings.topics.transactions, range(self._key_groups.partitions)
        return closing(WrittenReader(self._settings, 0, [(topic, part) for part in partitions]))

    def _require_takeable(self, records: Mapping[int, Mapping[str, Any]]) -> None:
        settings, newest = self._settings, records[min(records)]
        if missing := sorted(set(range(newest["key_groups"])) - records.keys()):
            raise StartUpError(
                f"key groups {', '.join(map(str, missing))} of query {newest['query_id']} have no progress "
                "records, so it is unknown what they have written; restore the progress topic"
            )
        if settings.merchant_facts or "label_delay_ms" in records[0]:
            raise StartUpError(
                "a job that keeps merchant facts cannot be taken over, and cannot take over: its facts name "
                "the key groups that wrote them; unset FRAUD_PREDECESSOR"
            )
        topic = settings.topics.transactions
        known = {
            partition
            for record in records.values()
            for name, partition in last_record.positions(record)
            if name == topic
        }
        if known != set(range(self._key_groups.partitions)):
            raise StartUpError(
                f"query {newest['query_id']} has decided {len(known)} partitions of {topic}, which has "
                f"{self._key_groups.partitions}; a takeover needs the same topic and partitions"
            )
