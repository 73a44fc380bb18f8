"""The continuous audit behind `fraud verify --follow`: audits a sample of the cards, a minute behind the job.

A step reads in the same order as `verify`: progress records, which determine the settled point (`settled`);
all new outputs; the tables as far as the job had read them at that point; the transactions up to that point.
Output records that the oracle expects are compared and removed; the remaining ones are unexpected.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from feature_store.errors import FraudError
from loadtests.audit.commits import TopicPartition, source_in
from loadtests.audit.comparison import OUTPUTS, output_topics
from loadtests.audit.findings import Findings
from loadtests.audit.judging import Load
from loadtests.audit.memory import Memory
from loadtests.audit.sample import Sample
from loadtests.audit.settings_audit import require_settings
from loadtests.audit.settled import MOST_POINTS, Point, reaches
from loadtests.audit.topic_log import Log
from loadtests.oracle import AcceptanceRules, ExpectedOutcome, Kind, Model, Oracle, Record, RolloutLog, Scorer
from loadtests.oracle.decode import RefusedError, read_transaction
from loadtests.oracle.tables import dead_letter
from loadtests.oracle.trials import Trials
from models.registry import ModelRef
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import DIGESTED
from streaming_job.decode.snapshots import ends_snapshot
from streaming_job.settings import JobSettings

CHUNK = 5_000
"""Transactions read between two updates of the metrics."""


class FollowError(FraudError):
    """Transactions that a continuous audit has not read are gone.

    Continue from a `--state` of an audit that has read them, or increase the topic's retention.
    """


class ContinuousAudit:
    """Audits the job's output since the last step; a restarted audit needs only `memory`.

    Args:
        memory: state after the previous steps; updated in place.
        clock: returns the time, seconds since 1970-01-01 UTC; it is noted with each point of the job's
            progress and with the end offsets of the transactions.
    """

    def __init__(
        self,
        log: Log,
        settings: JobSettings,
        load: Load,
        memory: Memory,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._topics, self._clock, self._settings = log, settings.topics, clock, settings
        self.memory = memory
        self._sample = Sample(memory.share)
        self._models: dict[ModelRef, Model] = {}
        self._load_new = load
        ends = log.ends(self._topics.transactions)
        self._rules = AcceptanceRules(
            settings.allowed_lateness_ms,
            settings.allowed_skew_ms,
            len(ends),
            settings.partitioner.value,
            settings.refuse_card_numbers,
        )
        self._oracle: Oracle | None = None
        self.findings = memory.found.findings
        """Findings since this follower was created."""
        self.checked = 0
        """Transactions judged since this follower was created, except refused ones and those that
        arrived before `memory.complete_from_ms`."""
        self.point: Point | None = None
        """Settled point of the last completed step."""
        self.audited_until_s = 0.0
        """Arrivals up to this time were audited, seconds since 1970-01-01 UTC; 0: none yet."""
        self._arrived: list[tuple[float, dict[TopicPartition, int]]] = []
        """(time, ends of the transactions at that time), for the times that the audit has not reached yet."""
        self._require_whole_log()

    def _load(self, scorer: Scorer) -> Model:
        if scorer.model not in self._models:
            self._models[scorer.model] = self._load_new(scorer)
        return self._models[scorer.model]

    def _require_whole_log(self) -> None:
        """Check that no unjudged transaction was deleted; find the arrival from which outputs are complete.

        Raises:
            FollowError: transactions were deleted.
        """
        memory, topics = self.memory, self._topics
        for partition, first in self._log.beginnings(topics.transactions).items():
            position = memory.positions.get((topics.transactions, partition), 0)
            if first > position:
                raise FollowError(
                    f"{topics.transactions}[{partition}] begins at {first}, the audit is at {position}: "
                    "transactions in between were deleted; continue from a --state of an audit that read them"
                )
        if memory.positions:
            return
        for topic in output_topics(topics):
            cut = {p: first for p, first in self._log.beginnings(topic).items() if first}
            ends = {partition: first + 1 for partition, first in cut.items()}
            for record in self._log.read(topic, ends, cut) if cut else ():
                memory.complete_from_ms = max(memory.complete_from_ms, record.timestamp)

    def step(self, after_chunk: Callable[[], None] = lambda: None) -> None:
        """Audit up to the newest settled point.

        Args:
            after_chunk: called after each chunk of transactions.

        Raises:
            FollowError: transactions were deleted before they were judged.
            OtherSettingsError: the job has decided with other settings.
            TopicReadError: a topic cannot be read; the step can be repeated.
        """
        memory, now = self.memory, self._clock()
        self._require_whole_log()
        topic = self._topics.transactions
        self._arrived.append((now, {(topic, p): end for p, end in self._log.ends(topic).items()}))
        if len(self._arrived) > MOST_POINTS:
            del self._arrived[::2]
        for record in self._new(self._topics.job_progress):
            if record.key == self._settings.job_id.encode():
                require_settings(record, self._settings)
            memory.points.add(record)
        memory.points.mark(now)
        point = memory.points.settled(now)
        if point is None:
            return
        self._read_outputs()
        self._fold_tables(point)
        transactions = self._until(topic, point.transactions)
        while records := list(islice(transactions, CHUNK)):
            self._judge(records)
            after_chunk()
        partitions = {(topic, p): 0 for p in range(self._rules.partitions)}
        memory.positions |= point.transactions
        memory.found.finish(partitions | point.furthest | point.transactions)
        memory.forget()
        self.point = point
        while self._arrived and reaches(memory.positions, self._arrived[0][1]):
            self.audited_until_s, _ = self._arrived.pop(0)

    def _new(self, topic: str) -> Iterator[Record]:
        positions = self.memory.positions
        starts = {partition: start for (name, partition), start in positions.items() if name == topic}
        for record in self._log.read(topic, None, starts):
            if record.offset >= starts.get(record.partition, 0):
                yield record
                positions[topic, record.partition] = record.offset + 1

    def _read_outputs(self) -> None:
        for output in OUTPUTS:
            is_audited = self._sample.has_alert if output in DIGESTED else self._has_letter
            for record in self._new(getattr(self._topics, output)):
                if is_audited(record.key, record.value):
                    self.memory.found.add(output, record)

    def _has_letter(self, key: bytes | None, value: bytes | None) -> bool:
        """Return whether a dead letter is audited; a malformed one is. Note the proposals without models."""
        try:
            letter = json.loads(value or b"")
            source, reason = source_in(letter), letter["reason"]
        except (ValueError, KeyError, TypeError):
            return True
        if source[0] == self._topics.model_rollouts and reason == Reason.MODEL_UNAVAILABLE.value:
            self.memory.unavailable.add(source[2])
        return self._is_audited(*source)

    def _is_audited(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether a dead letter of this record would be audited; always True for a rollout event."""
        return topic == self._topics.model_rollouts or self._sample.has_place(topic, partition, offset)

    def _fold_tables(self, point: Point) -> None:
        memory, topics = self.memory, self._topics
        rollouts = list(self._until(topics.model_rollouts, point.furthest))
        letters: list[ExpectedOutcome] = []
        changes: list[Record] = []
        for field, table in memory.tables.items():
            records = list(self._until(getattr(topics, field), point.furthest))
            letters += table.read(record for record in records if self._has_row(record))
            changes += records
        memory.rollouts += rollouts
        memory.positions |= point.furthest
        if self._oracle is None or rollouts:
            log = RolloutLog(self._load, memory.unavailable)
            new = {(record.partition, record.offset) for record in rollouts}
            refused = log.read(memory.rollouts)
            letters += [letter for letter in refused if (letter.partition, letter.offset) in new]
            self._oracle = Oracle(memory.profiles, log, self._load, self._rules, memory.cards)
        arrivals = {record[:3]: record.timestamp for record in (*changes, *rollouts)}
        for letter in letters:
            source = letter.topic, letter.partition, letter.offset
            if self._is_audited(*source):
                self._compare(arrivals[source], letter)

    def _has_row(self, record: Record) -> bool:
        """Return whether to fold a record of a table keyed by card.

        It is folded if its card may be in the sample, if a dead letter of it would be audited, or if it may
        end the first snapshot.
        """
        if self._sample.has_place(record.topic, record.partition, record.offset):
            return True
        if ends_snapshot(record.value):
            return True
        return self._sample.may_have(record.key) or self._sample.may_have(record.value)

    def _until(self, topic: str, ends: dict[TopicPartition, int]) -> Iterator[Record]:
        positions = self.memory.positions
        of_topic = {partition: end for (name, partition), end in ends.items() if name == topic}
        starts = {partition: positions.get((topic, partition), 0) for partition in of_topic}
        if any(end > starts[partition] for partition, end in of_topic.items()):
            yield from self._log.read(topic, of_topic, starts)

    def _judge(self, records: Iterable[Record]) -> None:
        memory, oracle = self.memory, self._oracle
        assert oracle is not None
        in_sample: list[Record] = []
        outcomes: list[tuple[Record, ExpectedOutcome]] = []
        reached: dict[TopicPartition, Record] = {}
        for record in records:
            partition = record.topic, record.partition
            reached[partition] = record
            is_audited = self._sample.has_place(*partition, record.offset)
            if not is_audited and not self._sample.may_have(record.value):
                continue
            try:
                tx = read_transaction(record, self._rules)
            except RefusedError as refusal:
                if is_audited:
                    outcomes.append((record, dead_letter(record, refusal.reason)))
                continue
            if self._sample.has_card(tx.card_id):
                in_sample.append(record)
        outcomes += zip(in_sample, oracle.judge(in_sample), strict=True)
        oracle.trials = Trials()  # dropped: the job's trial counts cover all cards, these only the sample
        for record, outcome in outcomes:
            self.checked += (
                record.timestamp >= memory.complete_from_ms and outcome.kind is not Kind.DEAD_LETTER
            )
            self._compare(record.timestamp, outcome)
        for partition, record in reached.items():
            memory.positions[partition] = record.offset + 1
            memory.arrivals[partition] = max(record.timestamp, memory.arrivals.get(partition, 0))

    def _compare(self, arrival: int, outcome: ExpectedOutcome) -> None:
        outputs = self.memory.found
        if arrival < self.memory.complete_from_ms:
            outputs.findings = Findings()
        outputs.compare(outcome)
        outputs.findings = self.findings
