"""The path of every audit, from where the last step ended: read the outputs, recompute them, compare.

`verify` takes one step up to the committed ends, of all cards; `follow` takes a step for each settled point,
of a sample. A judging process (`judging`) only reads the tables and judges its partitions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from feature_store.merchants.catalogue import computed
from loadtests.audit.commits import source_in
from loadtests.audit.comparison import OUTPUTS
from loadtests.audit.content import content_of
from loadtests.audit.findings import Findings
from loadtests.audit.memory import History, Memory
from loadtests.audit.moves import Seam, Stretch
from loadtests.audit.sample import Sample
from loadtests.audit.settings_audit import require_settings
from loadtests.audit.topic_log import Log, TopicReadError
from loadtests.oracle import (
    CARD_TABLES,
    AcceptanceRules,
    CardTable,
    ExpectedOutcome,
    Kind,
    MerchantLog,
    Model,
    Oracle,
    Pair,
    Record,
    RolloutLog,
    SchemaLog,
    Scorer,
)
from loadtests.oracle.decode import RefusedError, read_transaction
from loadtests.oracle.tables import dead_letter
from loadtests.oracle.trials import Trials
from models.registry import ModelRef
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import DIGESTED
from streaming_job.decode.snapshots import ends_snapshot
from streaming_job.log.losses import NOTHING_LOST, Losses
from streaming_job.log.partitioner import Layout
from streaming_job.log.records import PartitionId
from streaming_job.settings import JobSettings

CHUNK = 5_000
"""Transactions judged between two reports."""

Ends = Mapping[PartitionId, int]
"""(topic, partition) -> first offset that is not audited."""
Load = Callable[[Scorer], Model]
"""Loads the model of a rollout's champion or challenger."""


class Judged(NamedTuple):
    """Outcomes of some transactions."""

    kinds: Counter[Kind]
    """Number of transactions by outcome, without those that only build up cards."""
    outcomes: list[ExpectedOutcome]
    """Outcomes with an output record; the others need no comparison."""
    trials: Mapping[Pair, Counter[str]]
    """Trial counts over all transactions of a judge; in its last report only, empty in earlier ones."""


def rules_of(settings: JobSettings, layout: Layout, schemas: SchemaLog) -> AcceptanceRules:
    """Return by what the oracle accepts transactions of a layout.

    Args:
        schemas: the schemas of framed transactions; they may be read later.
    """
    return AcceptanceRules(
        settings.allowed_lateness_ms,
        settings.allowed_skew_ms,
        layout.partitions,
        layout.partitioner.value,
        settings.refuse_card_numbers,
        schemas.row if settings.topics.record_schemas else None,
    )


def partition_ends(ends: Ends, topic: str) -> dict[int, int]:
    """Return the ends of one topic, by partition."""
    return {partition: end for (name, partition), end in ends.items() if name == topic}


def _ends_of(part: Stretch) -> dict[PartitionId, int]:
    return {(part.layout.topic, partition): end for partition, end in part.ends.items()}


class AuditCore:
    """The steps of an audit. Each continues from `memory`, which it updates; none repeats what it has read.

    An error of a read (TopicReadError) leaves the memory as it was after the last record or chunk that was
    handled, so the step can be repeated.
    """

    def __init__(self, log: Log, settings: JobSettings, load: Load, memory: Memory) -> None:
        self.memory = memory
        self.findings = memory.found.findings
        """Findings since the start of this process."""
        self.rollouts: dict[str, RolloutLog] = {}
        """All rollout events that were read, by topic."""
        self._log, self._settings, self._topics = log, settings, settings.topics
        self.layout = settings.layout(len(log.ends(settings.topics.transactions)))
        """Where the newest transactions are."""
        self._rules = rules_of(settings, self.layout, memory.schemas)
        self._sample = Sample(memory.share)
        self._load_new = load
        self._models: dict[ModelRef, Model] = {}
        self._oracles: dict[str, Oracle] = {}
        """One for each topic of rollouts: it decides the whole log as these rollouts do."""
        self._layouts: dict[str, Layout] = {}
        """Where the transactions are that each of them has judged last."""
        keyed = (getattr(self._topics, field) for field in memory.tables)
        self._sampled = {self._topics.transactions, *keyed}
        """Topics whose refused records are sampled."""

    def read_progress(self) -> Iterator[Record]:
        """Yield the new progress records of the job."""
        for record in self._new(self._topics.job_progress):
            if record.key == self._settings.job_id.encode():
                require_settings(record, self._settings)
                yield record

    def follow_rollouts(self, seams: Iterable[Seam]) -> None:
        """Note whose rollouts decide, before the tables are read."""
        for seam in seams:
            if seam.rollouts is not None:
                self.memory.histories.setdefault(self.line_of(seam), History())

    def line_of(self, decided: Seam | Stretch) -> str:
        """Return the topic of the rollouts that have decided.

        Raises:
            TopicReadError: it is not known yet.
        """
        if decided.rollouts is None:
            raise TopicReadError(
                f"the newest takeover is not yet visible in all of {self._topics.job_progress}, so "
                "it is unknown whose rollouts decide after it; audit again in a moment"
            )
        return decided.rollouts or self._topics.model_rollouts

    def read_outputs(self, also: Callable[[str, Record], object] = lambda field, record: None) -> None:
        """Read the new output records, and keep those of the sample to compare them.

        Args:
            also: called with every record, and the field of `Topics` that names its topic.
        """
        for output in OUTPUTS:
            for record in self._new(getattr(self._topics, output)):
                if self._is_chosen(output, record):
                    self.memory.found.add(output, record)
                also(output, record)

    def read_tables(self, ends: Ends, losses: Losses = NOTHING_LOST) -> list[ExpectedOutcome]:
        """Fold the tables up to some ends; return the dead letters of their new records.

        With merchant facts it also reads the payments of all merchants, so only one such step is taken.

        Args:
            ends: of the tables; with merchant facts also of transactions, labels and chargebacks.
            losses: see `Stretch`; those of the job that writes merchant facts.
        """
        memory, topics = self.memory, self._topics
        names = {field: getattr(topics, field) for field in memory.tables}
        rollouts = {topic: list(self._until(topic, ends)) for topic in memory.histories}
        schemas = list(self._until(topics.record_schemas, ends)) if topics.record_schemas else []
        rows = {
            field: [row for row in self._until(topic, ends) if self._has_row(row)]
            for field, topic in names.items()
        }
        # all is read: from here on no error leaves the tables half folded
        letters = [letter for field, table in memory.tables.items() for letter in table.read(rows[field])]
        letters += memory.schemas.read(schemas)
        for topic, events in rollouts.items():
            memory.histories[topic].events += events
        folded = {*rollouts, *names.values(), topics.record_schemas}
        memory.positions |= {partition: end for partition, end in ends.items() if partition[0] in folded}
        if any(rollouts.values()) or self._oracles.keys() != memory.histories.keys():
            known = computed(merchants=self._settings.merchant_facts)
            memory.profiles.compacted_before = losses.profiles_before or 0
            payments, of_labels = self._payments(ends)
            letters += of_labels
            self._layouts.clear()
            for topic, history in memory.histories.items():
                log = self.rollouts[topic] = RolloutLog(self._load, history.unavailable, known)
                new = {(record.partition, record.offset) for record in rollouts[topic]}
                refused = log.read(history.events)
                letters += [letter for letter in refused if (letter.partition, letter.offset) in new]
                self._oracles[topic] = Oracle(
                    memory.profiles, log, self._load, self._rules, history.cards, payments
                )
        return [
            letter for letter in letters if self._is_audited(letter.topic, letter.partition, letter.offset)
        ]

    def _payments(self, ends: Ends) -> tuple[MerchantLog | None, list[ExpectedOutcome]]:
        """Return all merchants' payments (None without merchant facts) and the dead letters of the labels."""
        delay_ms, topics = self._settings.merchant_delay_ms, self._topics
        if delay_ms is None:
            return None, []
        payments = MerchantLog(self._rules, delay_ms, self.memory.profiles)
        records = (
            self._log.read(topic, partition_ends(ends, topic))
            for topic in (topics.transactions, topics.labels, topics.chargebacks)
        )
        return payments, payments.read(*records)

    def judge(self, parts: Sequence[Stretch]) -> Iterator[Judged]:
        """Judge the transactions of some stretches, by the tables that were read, in chunks.

        A stretch is judged by the rollouts of the job that has decided it aloud. Before, this job has decided
        in silence what others have decided aloud, and so do its rollouts here: their alerts count, too.

        Args:
            parts: all stretches of the log, oldest first; what was judged before is not repeated.
        """
        trials: dict[Pair, Counter[str]] = {}
        for number, part in enumerate(parts):
            if not self.is_left(part):
                continue
            line, topic = self.line_of(part), part.layout.topic
            history, oracle = self.memory.histories[line], self._oracles[line]
            oracle.has_facts = part.has_facts
            oracle.lost(part.losses.profiles_before, part.losses.windows_before)
            reached = partition_ends(self.memory.positions, topic)
            passed = part._replace(ends={p: min(end, reached.get(p, 0)) for p, end in part.ends.items()})
            for silent in (*parts[:number], passed):
                for _ in self._outcomes(silent, line):
                    yield Judged(Counter(), [], {})
            before = oracle.trials.counts()
            for records, outcomes in self._outcomes(part, line):
                yield self._judged(records, outcomes)
            self.memory.positions |= {place: history.positions[place] for place in _ends_of(part)}
            for pair, counts in oracle.trials.counts().items():
                aloud = trials.setdefault(pair, Counter())
                aloud.update(counts)
                aloud.subtract(before.get(pair, Counter()))
        yield Judged(Counter(), [], {pair: counts for pair, counts in trials.items() if any(counts.values())})

    def is_left(self, part: Stretch) -> bool:
        """Return whether a stretch has transactions that are not judged aloud yet."""
        reached = partition_ends(self.memory.positions, part.layout.topic)
        return any(end > max(reached.get(p, 0), part.starts.get(p, 0)) for p, end in part.ends.items())

    def begin_again(self) -> None:
        """Read the tables again, as far as they were read: transactions of the beginning are to be judged."""
        memory, tables = self.memory, dict[str, CardTable]()
        for field in memory.tables:
            topic = getattr(self._topics, field)
            rows = self._log.read(topic, partition_ends(memory.positions, topic))
            tables[field] = CARD_TABLES[field]()
            tables[field].read([row for row in rows if self._has_row(row)])
        memory.tables = tables
        self._oracles.clear()

    def drop_trials(self) -> None:
        """Drop the trial counts so far: the job's cover all cards, those of a sample cannot be compared."""
        for oracle in self._oracles.values():
            oracle.trials = Trials()

    def compare(self, outcomes: Iterable[ExpectedOutcome]) -> None:
        """Compare outputs with what the oracle expects; what lies before `complete_from_ms` is no finding."""
        found = self.memory.found
        for outcome in outcomes:
            is_complete = outcome.arrival >= self.memory.complete_from_ms
            found.findings = self.findings if is_complete else Findings()
            found.compare(outcome)
        found.findings = self.findings

    def refuse_absent(self) -> None:
        """Report outputs about inputs that do not exist; call it after `read_outputs` and all comparisons.

        Topics that the job has left may be gone, so their records' inputs are not looked for.
        """
        found = self.memory.found
        topics = found.inputs() & {self._topics.transactions, *self._settings.tables}
        found.refuse_absent({(t, part): end for t in topics for part, end in self._log.ends(t).items()})

    def _new(self, topic: str) -> Iterator[Record]:
        positions = self.memory.positions
        starts = partition_ends(positions, topic)
        for record in self._log.read(topic, None, starts):
            if record.offset >= starts.get(record.partition, 0):
                yield record
                positions[topic, record.partition] = record.offset + 1

    def _until(self, topic: str, ends: Ends, positions: Ends | None = None) -> Iterator[Record]:
        """Yield the records from some positions on, of the partitions with an end; default: the new ones."""
        wanted = partition_ends(ends, topic)
        firsts = partition_ends(self.memory.positions if positions is None else positions, topic)
        if any(end > firsts.get(partition, 0) for partition, end in wanted.items()):
            yield from self._log.read(topic, wanted, firsts)

    def _outcomes(self, part: Stretch, line: str) -> Iterator[tuple[list[Record], list[ExpectedOutcome]]]:
        """Judge what the rollouts of a topic have not decided yet; yield records with their outcomes."""
        history, oracle, topic = self.memory.histories[line], self._oracles[line], part.layout.topic
        ends, reached = _ends_of(part), history.positions
        firsts = {(topic, p): first for p, first in part.starts.items()}
        if all(end <= max(reached.get(place, 0), firsts.get(place, 0)) for place, end in ends.items()):
            return
        if part.layout != self._layouts.setdefault(line, self.layout):
            self._layouts[line] = part.layout
            oracle.move(rules_of(self._settings, part.layout, self.memory.schemas))
        records = self._until(topic, ends, {**firsts, **reached})
        while chunk := list(islice(records, CHUNK)):
            chosen, outcomes = (chunk, []) if self._sample.is_everything else self._chosen(chunk)
            outcomes += oracle.judge(chosen)
            reached |= {(topic, record.partition): record.offset + 1 for record in chunk}
            yield chunk, outcomes
        # the last offsets may be markers of Kafka's transactions
        reached |= {place: max(end, reached.get(place, 0)) for place, end in ends.items()}

    def _judged(self, records: list[Record], outcomes: list[ExpectedOutcome]) -> Judged:
        memory = self.memory
        for partition, record in {(record.topic, record.partition): record for record in records}.items():
            memory.positions[partition] = record.offset + 1
            memory.arrivals[partition] = max(record.timestamp, memory.arrivals.get(partition, 0))
        return Judged(
            Counter(outcome.kind for outcome in outcomes if outcome.arrival >= memory.complete_from_ms),
            [outcome for outcome in outcomes if outcome.records or outcome.kind is Kind.DEAD_LETTER],
            {},
        )

    def _chosen(self, records: Iterable[Record]) -> tuple[list[Record], list[ExpectedOutcome]]:
        """Return the transactions of the sample's cards, and the outcomes of its refused records."""
        chosen: list[Record] = []
        refused: list[ExpectedOutcome] = []
        for record in records:
            is_audited = self._sample.has_place(record.topic, record.partition, record.offset)
            if not is_audited and not self._sample.may_have(record.value):
                continue
            try:
                tx = read_transaction(record, self._rules)
            except RefusedError as refusal:
                if is_audited:
                    refused.append(dead_letter(record, refusal.reason))
                continue
            if self._sample.has_card(tx.card_id):
                chosen.append(record)
        return chosen, refused

    def _is_chosen(self, output: str, record: Record) -> bool:
        """Return whether an output record is audited; a malformed one is. Note proposals without models."""
        if output in DIGESTED:
            return self._sample.has_alert(record.key, record.value)
        try:
            letter = content_of(record.value)
            source, reason = source_in(letter), letter["reason"]
        except (ValueError, KeyError, TypeError):
            return True
        if reason == Reason.MODEL_UNAVAILABLE.value:
            self.memory.histories[source[0]].unavailable.add(source[2])
        return self._is_audited(*source)

    def _is_audited(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether a dead letter of this record would be audited; always True if it is of no card."""
        return topic not in self._sampled or self._sample.has_place(topic, partition, offset)

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

    def _load(self, scorer: Scorer) -> Model:
        if scorer.model not in self._models:
            self._models[scorer.model] = self._load_new(scorer)
        return self._models[scorer.model]
