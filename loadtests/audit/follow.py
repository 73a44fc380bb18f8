"""The continuing audit behind `fraud verify --follow`: a sample of the cards, a minute behind the job.

Each step goes the way that `verify` goes at once: progress, which says how far there is something to audit;
the outputs, all that is there; the tables as far as the job had read them; the transactions up to the settled
point. What had to come of those is compared and taken out; what is left of them was not expected.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from feature_store.errors import FraudError
from loadtests.audit.commits import Place
from loadtests.audit.findings import Findings
from loadtests.audit.judging import Load
from loadtests.audit.memory import Memory
from loadtests.audit.sample import Sample
from loadtests.audit.settled import MOST_POINTS, Point, reaches
from loadtests.audit.topic_log import Log, MissingTopicError
from loadtests.oracle import Kind, Model, Oracle, Outcome, Record, RolloutLog, Rules, Scorer
from loadtests.oracle.decode import RefusedError, read_transaction
from loadtests.oracle.tables import dead_letter
from loadtests.oracle.trials import Trials
from models.registry import ModelRef
from streaming_job.contracts import Reason
from streaming_job.settings import JobSettings

CHUNK = 5_000
"""Transactions read between two looks at the clock and the metrics."""


class FollowError(FraudError):
    """The audit cannot go on from where it stands."""


class Follower:
    """Audits what a job has done since the last step; all it knows is in its memory.

    Args:
        log: where the topics are.
        settings: of the job.
        load: gives the model of a rollout.
        memory: of the steps before; moves on.
        clock: seconds since 1970-01-01 UTC: dates what progress says, decides nothing else.
    """

    def __init__(
        self,
        log: Log,
        settings: JobSettings,
        load: Load,
        memory: Memory,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._topics, self._clock = log, settings.topics, clock
        self.memory = memory
        self._sample = Sample(memory.share)
        self._models: dict[ModelRef, Model] = {}
        self._load_new = load
        places = log.ends(self._topics.transactions)
        self._rules = Rules(
            settings.allowed_lateness_ms,
            settings.allowed_skew_ms,
            len(places),
            settings.partitioner.value,
            settings.refuse_card_numbers,
        )
        self._oracle: Oracle | None = None
        self.findings = memory.found.findings
        """Since this follower was made."""
        self.checked = 0
        """Transactions decided again since this follower was made; those that only build up cards apart."""
        self.point: Point | None = None
        """The settled point of the last step that is over."""
        self.audited_until_s = 0.0
        """What had arrived by then was audited, seconds since 1970-01-01 UTC; 0: nothing yet."""
        self._arrived: list[tuple[float, dict[Place, int]]] = []
        """Where the log ended at moments that are not yet audited."""
        self._require_whole_log()

    def _load(self, scorer: Scorer) -> Model:
        if scorer.model not in self._models:
            self._models[scorer.model] = self._load_new(scorer)
        return self._models[scorer.model]

    def _require_whole_log(self) -> None:
        """See that no transaction is gone that has not been judged, and from when on the outputs are there.

        Raises:
            FollowError: transactions are gone.
        """
        memory, topics = self.memory, self._topics
        for partition, first in self._log.beginnings(topics.transactions).items():
            position = memory.positions.get((topics.transactions, partition), 0)
            if first > position:
                raise FollowError(
                    f"{topics.transactions}[{partition}] begins at {first}, the audit stands at {position}: "
                    "what cards did in between is gone; go on from a --state of an audit that has read it"
                )
        if memory.positions:
            return
        for topic in self._outputs:
            try:
                cut = {p: first for p, first in self._log.beginnings(topic).items() if first}
            except MissingTopicError:
                continue
            ends = {partition: first + 1 for partition, first in cut.items()}
            for record in self._log.read(topic, ends, cut) if cut else ():
                memory.told_from_ms = max(memory.told_from_ms, record.timestamp)

    @property
    def _outputs(self) -> tuple[str, ...]:
        topics = self._topics
        return topics.fraud_alerts, topics.shadow_alerts, topics.suppressed_alerts, topics.dead_letters

    def step(self, seen: Callable[[], None] = lambda: None) -> None:
        """Audit up to the newest settled point.

        Args:
            seen: called now and then, while there is much to do.

        Raises:
            FollowError: transactions were deleted before they were judged.
            TopicReadError: a topic cannot be read; the step can be asked for again.
        """
        memory, now = self.memory, self._clock()
        self._require_whole_log()
        topic = self._topics.transactions
        self._arrived.append((now, {(topic, p): end for p, end in self._log.ends(topic).items()}))
        if len(self._arrived) > MOST_POINTS:
            del self._arrived[::2]
        for record in self._new(self._topics.job_progress):
            memory.points.add(record)
        memory.points.mark(now)
        point = memory.points.settled(now)
        if point is None:
            return
        self._take_outputs()
        self._fold_tables(point)
        transactions = self._until(topic, point.transactions)
        while records := list(islice(transactions, CHUNK)):
            self._judge(records)
            seen()
        every = {(topic, p): 0 for p in range(self._rules.partitions)}
        memory.positions |= point.transactions
        memory.found.finish(every | point.furthest | point.transactions)
        memory.forget()
        self.point = point
        while self._arrived and reaches(memory.positions, self._arrived[0][1]):
            self.audited_until_s, _ = self._arrived.pop(0)

    def _new(self, topic: str, *, may_lack: bool = False) -> Iterator[Record]:
        positions = self.memory.positions
        starts = {partition: start for (name, partition), start in positions.items() if name == topic}
        try:
            for record in self._log.read(topic, None, starts):
                if record.offset >= starts.get(record.partition, 0):
                    yield record
                    positions[topic, record.partition] = record.offset + 1
        except MissingTopicError:
            if not may_lack:
                raise

    def _take_outputs(self) -> None:
        memory, topics = self.memory, self._topics
        for topic in (topics.fraud_alerts, topics.shadow_alerts, topics.suppressed_alerts):
            for record in self._new(topic, may_lack=topic != topics.fraud_alerts):
                if self._sample.has_alert(record.key, record.value):
                    memory.found.add_alert(record)
        for record in self._new(topics.dead_letters):
            try:
                letter = json.loads(record.value or b"")
                place = str(letter["topic"]), int(letter["partition"]), int(letter["offset"])
                reason = letter["reason"]
            except (ValueError, KeyError, TypeError):
                memory.found.add_dead_letter(record)  # which says that it is none
                continue
            if place[0] == topics.model_rollouts and reason == Reason.MODEL_UNAVAILABLE.value:
                memory.unavailable.add(place[2])
            if self._is_audited(*place):
                memory.found.add_dead_letter(record)

    def _is_audited(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a dead letter of the record there is: rollouts are few, and audited all."""
        return topic == self._topics.model_rollouts or self._sample.has_place(topic, partition, offset)

    def _fold_tables(self, point: Point) -> None:
        memory, topics = self.memory, self._topics
        profiles = list(self._until(topics.profiles, point.furthest))
        rollouts = list(self._until(topics.model_rollouts, point.furthest))
        letters = memory.profiles.read(record for record in profiles if self._has_row(record))
        memory.rollouts += rollouts
        memory.positions |= point.furthest
        if self._oracle is None or rollouts:
            log = RolloutLog(self._load, memory.unavailable)
            new = {record.offset for record in rollouts}
            letters += [letter for letter in log.read(memory.rollouts) if letter.offset in new]
            self._oracle = Oracle(memory.profiles, log, self._load, self._rules, memory.cards)
        arrivals = {record[:3]: record.timestamp for record in (*profiles, *rollouts)}
        for letter in letters:
            place = letter.topic, letter.partition, letter.offset
            if self._is_audited(*place):
                self._compare(arrivals[place], letter)

    def _has_row(self, record: Record) -> bool:
        """Whether a record of the profiles is worth folding: a row of the sample, or to be audited."""
        if self._sample.has_place(record.topic, record.partition, record.offset):
            return True
        if b'"last"' in (record.value or b""):
            return True  # it may say when the first snapshot ended
        return self._sample.may_have(record.key) or self._sample.may_have(record.value)

    def _until(self, topic: str, ends: dict[Place, int]) -> Iterator[Record]:
        positions = self.memory.positions
        of_topic = {partition: end for (name, partition), end in ends.items() if name == topic}
        starts = {partition: positions.get((topic, partition), 0) for partition in of_topic}
        if any(end > starts[partition] for partition, end in of_topic.items()):
            yield from self._log.read(topic, of_topic, starts)

    def _judge(self, records: Iterable[Record]) -> None:
        memory, oracle = self.memory, self._oracle
        assert oracle is not None
        asked: list[Record] = []
        outcomes: list[tuple[Record, Outcome]] = []
        reached: dict[Place, Record] = {}
        for record in records:
            place = record.topic, record.partition
            reached[place] = record
            is_audited = self._sample.has_place(*place, record.offset)
            if not is_audited and not self._sample.may_have(record.value):
                continue
            try:
                tx = read_transaction(record, self._rules)
            except RefusedError as refusal:
                if is_audited:
                    outcomes.append((record, dead_letter(record, refusal.reason)))
                continue
            if self._sample.has_card(tx.card_id):
                asked.append(record)
        outcomes += zip(asked, oracle.judge(asked), strict=True)
        oracle.trials = Trials()  # counted over all cards, not over a sample
        for record, outcome in outcomes:
            self.checked += record.timestamp >= memory.told_from_ms and outcome.kind is not Kind.DEAD_LETTER
            self._compare(record.timestamp, outcome)
        for place, record in reached.items():
            memory.positions[place] = record.offset + 1
            memory.arrivals[place] = max(record.timestamp, memory.arrivals.get(place, 0))

    def _compare(self, arrival: int, outcome: Outcome) -> None:
        found = self.memory.found
        if arrival < self.memory.told_from_ms:
            found.findings = Findings()
        if outcome.alert:
            found.compare_alert(outcome)
        found.compare_shadows(outcome)
        if outcome.kind is Kind.DEAD_LETTER:
            found.compare_dead_letter(outcome)
        found.findings = self.findings
