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
import socket
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from feature_store.merchants.catalogue import computed
from streaming_job.group.positions import require_output
from streaming_job.log import clients
from streaming_job.log.clients import Consumer, describe
from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.losses import Losses
from streaming_job.log.partitioner import KeyGroups, Layout
from streaming_job.log.records import Arrived, Offsets, PartitionId, name_of, text_of
from streaming_job.log.same_records import require_same_records
from streaming_job.progress import last_record
from streaming_job.progress.reader import newest_by_group
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.runtime.failpoints import Failpoint, reach
from streaming_job.runtime.partitioning import require_moved
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.settings import JobSettings
from streaming_job.takeover.level import behind
from streaming_job.takeover.moving import layout_of, retired_after, topic_ends
from streaming_job.takeover.seam import Predecessor, Successor, first_records
from streaming_job.transaction.batches import Headers
from streaming_job.transaction.producer import FENCED, SinkError, TransactionalProducer
from streaming_job.transaction.writer import FencedError, GroupWriter, headers_of
from streaming_job.transaction.written import Mark, OtherQueryError, WrittenReader

log = logging.getLogger(__name__)

TOOK_OVER = "took over from query"
"""What the log says of a takeover, before the predecessor's query."""
NEAR = 2_000
"""Offsets of all inputs by which the successor may be behind in any case when the predecessor is fenced."""
NEAR_S = 0.5
"""Seconds for which the successor may have to decide to the end of the output, by its speed so far."""
MOST_WITHOUT_WARMING = 1_000_000
"""Offsets of all inputs by which a successor with merchant facts may be behind, which does not warm up."""


def newest_records(settings: JobSettings, reader: Consumer | None = None) -> dict[int, dict[str, Any]]:
    """Return the newest progress record of each key group of the query that has written last.

    Args:
        reader: a consumer to use, of a caller that asks repeatedly; default: one that is closed afterwards.

    Raises:
        SinkError: the brokers do not answer.
    """
    if reader is None:
        with closing(clients.reader(settings, settings.job_id)) as own:
            return newest_records(settings, own)
    try:
        return newest_by_group(reader, settings.topics.job_progress, settings.job_id)
    except KafkaException as fault:
        raise SinkError(
            f"the progress of job {settings.job_id} cannot be read: {describe(fault)}; check the brokers"
        ) from fault


class Handover:
    """The takeover of a predecessor's output; made once, between two epochs."""

    def __init__(
        self,
        settings: JobSettings,
        key_groups: KeyGroups,
        query_id: str,
        instance: str,
        losses: Losses,
        rollout_topics: tuple[str, ...],
    ) -> None:
        """Prepare it without writing anything.

        Args:
            settings: of the successor; `predecessor` names the query to take over from.
        """
        self._losses, self._rollout_topics = losses, rollout_topics
        self._settings, self._key_groups = settings, key_groups
        self._query_id, self._instance = query_id, instance
        self._layout = settings.layout(key_groups.partitions)
        self._near: Mapping[str, int] = {}
        """P when the state had come near the output."""
        self._groups: Mapping[int, Mapping[str, int]] = {}
        """The same by key group."""

    def is_due(self) -> bool:
        """Return whether the output is still the predecessor's.

        Raises:
            StartUpError: nothing was written, or the predecessor cannot be taken over.
            OtherQueryError: the output is of a third query.
            LogError: the log is not the one that the predecessor has read.
            SinkError, LogUnavailableError: the brokers do not answer.
        """
        records = self._due()
        self._require_log(records)
        takeover = records[min(records)].get("takeover", {}) if records else {}
        if takeover.get("moved") and not self._settings.predecessor_checkpoint:
            log.warning(
                "the transactions have moved to %s, whose log lacks the cards' history: a state that is read "
                "from it differs in all features of cards that were used before; rather set "
                "FRAUD_PREDECESSOR_CHECKPOINT to a copy of the lost checkpoint",
                self._layout.topic,
            )
        return bool(records)

    def _due(self) -> dict[int, dict[str, Any]]:
        """Return the predecessor's newest records; empty if the output is the successor's already."""
        settings = self._settings
        records = newest_records(settings)
        if not records:
            raise StartUpError(
                f"FRAUD_PREDECESSOR={settings.predecessor}: job {settings.job_id} has written no progress "
                "records, so there is nothing to take over; remove the setting, or correct FRAUD_JOB_ID"
            )
        _require_all(records)
        newest = next(iter(records.values()))
        marks = self._marks(layout_of(records))
        if newest["query_id"] == self._query_id:
            # the output may be claimed by the predecessor; or, to take it back, by an earlier run of this job
            claimed_by = {mark.successor for mark in marks if mark.query_id == self._query_id}
            if not claimed_by & {settings.predecessor, self._query_id}:
                return {}
        elif settings.predecessor not in {newest["query_id"], *(mark.successor for mark in marks)}:
            raise OtherQueryError(
                f"FRAUD_PREDECESSOR={settings.predecessor}, but the output of job {settings.job_id} is of "
                f"query {newest['query_id']}; correct the setting if that is the job to take over from"
            )
        self._require_takeable(records)
        return records

    def is_near(self, groups: Mapping[int, Mapping[str, int]], speed: float) -> bool:
        """Return whether the successor's state has come near the end of the output.

        Args:
            groups: P of each key group, by "topic-partition"; empty before it is known.
            speed: offsets per second by which the positions have advanced in the last epoch.

        Raises:
            CheckpointError: the state is ahead of the output.
            StartUpError, OtherQueryError, SinkError: see `is_due`.
        """
        if not (positions := least(groups)):
            return False
        records = self._due()
        layout = layout_of(records)
        # a successor with other rollouts does not read those of its predecessor
        inputs = {layout.topic, *self._settings.tables}
        output: dict[str, int] = {}
        for record in records.values():
            for (topic, partition), end in last_record.positions(record).items():
                name = name_of((topic, partition))
                if topic in inputs:
                    output[name] = min(end, output.get(name, end))
        if ahead := sorted(name for name, end in output.items() if positions.get(name, 0) > end):
            raise CheckpointError(
                f"the checkpoint is ahead of the output that it takes over, in {', '.join(ahead)}; use an "
                "older copy of it, or an empty one"
            )
        self._near, self._groups = positions, groups
        if self._settings.merchant_facts:
            if (distance := behind(output, positions)) > MOST_WITHOUT_WARMING:  # type: ignore[arg-type]
                raise StartUpError(
                    f"the state is {distance:,} records behind the output, and no alert is written until "
                    "they are decided: let the replay follow (fraud replay start <name> --follow), and begin "
                    "with an empty checkpoint soon after it is stopped"
                )
            return True
        if layout != self._layout:
            ends = {tp: end for each in records.values() for tp, end in last_record.positions(each).items()}
            self._require_drained(records, {tp: end for tp, end in ends.items() if tp[0] == layout.topic})
            return True
        return behind(output, positions) <= max(NEAR, NEAR_S * speed)  # type: ignore[arg-type]

    def _require_drained(self, records: Mapping[int, Mapping[str, Any]], ends: Offsets) -> None:
        """Check, where the cards move, that the state has all that the predecessor has decided."""
        # schemas are not inherited, but read from their beginning before anything is decided
        tables = {*self._settings.tables} - {self._settings.topics.record_schemas}
        output = [tp_end for each in records.values() for tp_end in last_record.positions(each).items()]
        output = [(tp, end) for tp, end in output if tp[0] in tables] + list(ends.items())
        if missing := sorted({name for tp, end in output if self._near.get(name := name_of(tp)) != end}):
            raise StartUpError(
                f"the predecessor has decided more than the state in this checkpoint includes, in "
                f"{', '.join(missing)}; cards move between partitions only at its end: stop the producers, "
                "drain the predecessor (FRAUD_DRAIN=true), then begin with an empty checkpoint"
            )
        require_moved(self._settings, self._layout, ends)

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
            reach(Failpoint.CLAIMED)
            if before.layout != self._layout:
                try:
                    self._require_drained(before.records, before.offsets)
                except StartUpError as fault:
                    raise StartUpError(
                        f"{fault}. The predecessor is fenced already: before it is drained, have it take its "
                        f"output back (FRAUD_PREDECESSOR={self._query_id}, without FRAUD_DRAIN)"
                    ) from fault
            # Step 3
            try:
                self._write(producer, before)
            except KafkaException as fault:
                if fault.args[0].code() in FENCED:
                    raise FencedError(
                        f"another instance takes the output of job {settings.job_id} over; this one stops"
                    ) from fault
                raise SinkError(
                    f"the takeover was not committed: {describe(fault)}; check the brokers, then start again"
                ) from fault
        with self._reader() as reader:
            reader.settled()  # waits until readers see the seam: before that, groups would be refused
        reach(Failpoint.SEAM)
        log.info(
            TOOK_OVER + " %s, of %d key groups, at %s, in %.0f ms",
            before.query_id, len(before.records), text_of(before.offsets), 1000 * (time.monotonic() - begun),
        )  # fmt: skip

    def _claimed(self) -> Predecessor:
        settings = self._settings
        # again, because until step 1 another successor may have taken over
        records = self._due()
        if not records:
            raise FencedError(
                f"another instance has taken the output of job {settings.job_id} over; this one stops"
            )
        self._require_log(records)
        layout = layout_of(records)
        old = layout.key_groups(len(records))
        topics = settings.topics.model_copy(update={"transactions": layout.topic})
        settings = settings.model_copy(update={"topics": topics})
        query_id = str(records[0]["query_id"])
        offsets: Offsets = {}
        last: dict[int, Any] = {}
        commit_id = 0

        def writer_of(group: int) -> closing[GroupWriter]:
            own = old.own(group)
            return closing(
                GroupWriter(settings, group, own, query_id, self._instance, successor=self._query_id)
            )

        for group in range(old.groups):  # before any of them is fenced
            with writer_of(group) as writer:
                seen = writer.written(records[group])
            require_output(0, seen.commit_id, seen.unknown)
        for group in range(old.groups):
            with writer_of(group) as writer:
                written = writer.take_over({}, known=records[group])
            offsets |= written.offsets
            commit_id = max(commit_id, written.commit_id)
            last[group] = written.progress
        return Predecessor(last, offsets, commit_id, layout)

    def _write(self, producer: TransactionalProducer, before: Predecessor) -> None:
        settings = self._settings
        after = Successor(
            settings.job_id, self._query_id, self._key_groups, self._layout, settings.tables,
            self._rollout_topics, computed(merchants=settings.merchant_facts), settings.retired_transactions,
            settings.merchant_delay_ms, self._facts_from(), self._losses,
        )  # fmt: skip
        commit_id = before.commit_id + 1
        mark = Mark(self._query_id, f"{self._instance}/{secrets.token_hex(8)}", commit_id).to_metadata()
        producer.begin()
        asked_by, now = settings.asked_by or socket.gethostname(), int(time.time() * 1000)
        for group, record in first_records(before, after, asked_by, now).items():
            headers = Headers.of(headers_of(self._query_id, group, commit_id))
            producer.produce_progress(group, record, headers)
        new = {(self._layout.topic, partition): 0 for partition in range(self._layout.partitions)}
        offsets = [
            TopicPartition(topic, partition, end, mark)
            for (topic, partition), end in {**new, **before.offsets}.items()
        ]
        producer.send(offsets)
        producer.flush()
        producer.commit()

    def _marks(self, layout: Layout) -> list[Mark]:
        with self._reader(layout) as reader:
            return reader.marks()

    def _reader(self, layout: Layout | None = None) -> closing[WrittenReader]:
        """Return a reader of the committed offsets of all partitions; default: of the successor's."""
        layout = layout or self._layout
        own = [(layout.topic, partition) for partition in range(layout.partitions)]
        return closing(WrittenReader(self._settings, 0, own))

    def _require_log(self, records: Mapping[int, Mapping[str, Any]]) -> None:
        """Check that the log holds what the predecessor has read last, as openings after the seam will."""
        settings = self._settings
        inputs = (self._layout.topic, *settings.tables)
        read: dict[PartitionId, Arrived] = {}
        for record in records.values():
            for tp, newest in last_record.newest_read(record).items():
                if tp[0] in inputs:
                    read[tp] = max(newest, read.get(tp, newest))
        client = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
        with EndOffsets(client, inputs) as bounds:
            require_same_records(
                read, lambda at: with_retries(partial(bounds.arrivals, at)), settings.topics.compacted
            )

    def _require_takeable(self, records: Mapping[int, Mapping[str, Any]]) -> None:
        settings = self._settings
        former = layout_of(records)
        if settings.merchant_facts:
            self._require_facts(former, records)
        if former != self._layout:
            self._require_movable(former, records)
        self._require_retired(former, records)

    def _facts_from(self) -> dict[int, Offsets]:
        """Return for each group from where on it folds labels and facts; empty without merchant facts."""
        tables = self._settings.topics.fact_tables
        if not self._settings.merchant_facts:
            return {}
        return {
            group: {tp: end for tp, end in map(_place, positions.items()) if tp[0] in tables}
            for group, positions in self._groups.items()
        }

    def _require_facts(self, former: Layout, records: Mapping[int, Mapping[str, Any]]) -> None:
        """Check that the successor has facts of its own, which are written while the log is decided."""
        settings, topic = self._settings, self._settings.topics.merchant_facts
        if not settings.predecessor_checkpoint:
            raise StartUpError(
                "a job that keeps merchant facts takes over with a replay's state: the facts are written "
                'while the log is decided (docs/operations.md, "Merchant facts, and the label delay"); or '
                "unset FRAUD_PREDECESSOR"
            )
        if former != self._layout:
            raise StartUpError(
                f"the transactions have been decided by {former}, and cards of a job that keeps merchant "
                f"facts do not move to {self._layout}; first move them without merchant facts"
            )
        if any(tp[0] == topic for record in records.values() for tp in last_record.positions(record)):
            raise StartUpError(
                f"{topic} has the facts of the predecessor, those of the state are on another topic: set "
                "FRAUD_TOPICS__MERCHANT_FACTS to that of the replay"
            )

    def _require_movable(self, former: Layout, records: Mapping[int, Mapping[str, Any]]) -> None:
        settings, topic = self._settings, self._layout.topic
        if topic != former.topic and former.topic not in settings.retired_transactions:
            raise StartUpError(
                f"the predecessor has decided the transactions of {former}, this job reads {self._layout}: "
                "correct FRAUD_TOPICS__TRANSACTIONS; or, if the cards are to move, set "
                f"FRAUD_RETIRED_TRANSACTIONS={','.join(retired_after(records, topic))}, whose later records "
                "become dead letters"
            )
        known = {name for record in records.values() for name, _ in last_record.positions(record)}
        known.update(last_record.left(records[0]))
        # a job that no longer follows a topic has left its offsets there
        if topic != former.topic and (topic in known or self._marks(self._layout)):
            raise StartUpError(
                f"{topic} is a topic that the predecessor's transactions have left, so its offsets are "
                "decided already; create one with another name"
            )
        if not settings.predecessor_checkpoint:
            raise StartUpError(
                f"the cards move from {former} to {self._layout}, whose log does not begin with their "
                "history: set FRAUD_PREDECESSOR_CHECKPOINT to the predecessor's checkpoint"
            )

    def _require_retired(self, former: Layout, records: Mapping[int, Mapping[str, Any]]) -> None:
        """Check that the successor follows the retired topics that the predecessor follows.

        Otherwise records that a forgotten producer writes there would be lost in silence.
        """
        settings = self._settings
        named = set(settings.retired_transactions)
        wanted = [
            name
            for name in retired_after(records, self._layout.topic)
            if name in named or topic_ends(settings, name) is not None  # it has not been deleted
        ]
        if lacking := [name for name in wanted if name not in named]:
            raise StartUpError(
                f"FRAUD_RETIRED_TRANSACTIONS lacks {', '.join(lacking)}, whose later records the predecessor "
                f"refuses: set it to {','.join(wanted)}; or, if nothing is written there any more, first "
                "restart the predecessor without it"
            )
        known = {name for name, _ in last_record.positions(records[0])} | {former.topic}
        if unknown := sorted(named - known):
            raise StartUpError(
                f"FRAUD_RETIRED_TRANSACTIONS names {', '.join(unknown)}, which the predecessor does not "
                "follow, so it is unknown which of its records are decided; remove it there"
            )


def least(groups: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    """Return the least offset of each partition; empty if a group has none."""
    found: dict[str, int] = {}
    for offsets in groups.values():
        if not offsets:
            return {}
        found |= {name: min(offset, found.get(name, offset)) for name, offset in offsets.items()}
    return found


def _place(named: tuple[str, int]) -> tuple[PartitionId, int]:
    """Parse "topic-partition" in a pair with an offset."""
    topic, _, partition = named[0].rpartition("-")
    return (topic, int(partition)), named[1]


def _require_all(records: Mapping[int, Mapping[str, Any]]) -> None:
    """Check that each key group of a job has a progress record."""
    newest = records[min(records)]
    if missing := sorted(set(range(newest["key_groups"])) - records.keys()):
        raise StartUpError(
            f"key groups {', '.join(map(str, missing))} of query {newest['query_id']} have no progress "
            "records, so it is unknown what they have written; restore the progress topic"
        )
