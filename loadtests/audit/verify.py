"""The audit behind `fraud verify`: compares all output records with those that the oracle computes.

It is one step of the path that every audit takes (`core`), of all cards, up to the committed ends. It also
compares what only an audit of all cards can: sums in progress records, trials, and breaches.

The order of reads matters while the job runs: first the ends of the progress records; then the offsets that
the key groups have committed, which reach what these records report unless a tool has changed them; then the
outputs, which are complete up to those offsets because one Kafka transaction writes outputs and offsets; then
the inputs up to those offsets. The progress records tell how far each group has read the tables: dead letters
of table records are expected as far as the slowest group has read, and decisions may depend on table records
as far as the furthest group has read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from feature_store.errors import FraudError
from loadtests.audit.breach_audit import Breached
from loadtests.audit.comparison import output_topics
from loadtests.audit.core import AuditCore, Ends, Load, partition_ends, rules_of
from loadtests.audit.findings import Findings
from loadtests.audit.judging import Judge, JudgeError
from loadtests.audit.memory import Memory
from loadtests.audit.moves import Drained, FactsBegun, retired, split, stretches
from loadtests.audit.progress_audit import ProgressAudit
from loadtests.audit.topic_log import Log
from loadtests.audit.trial_audit import nested
from loadtests.oracle import ExpectedOutcome, Kind, Pair, Record, SchemaLog
from loadtests.oracle.decode import RefusedError, read_transaction
from loadtests.oracle.partitions import partition_of_key
from loadtests.oracle.tables import dead_letter
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.log.partitioner import Layout
from streaming_job.log.records import PartitionId
from streaming_job.settings import JobSettings

Progress = Callable[[str, int, int], None]
"""(description, number of records so far, total number; 0: unknown)."""
STEP = 1_000


class VerifyError(FraudError):
    """There is nothing to audit: the job has committed no offsets.

    Start the job, or set `FRAUD_JOB_ID` to the right job.
    """


class Reached(NamedTuple):
    """How far a job is when its audit begins."""

    committed: dict[PartitionId, int]
    """Offsets that the key groups have committed, by input partition."""
    recorded: dict[int, int]
    """Ends of the topic of progress records before these offsets were looked up, by partition."""


@dataclass
class AuditResult:
    """The result of an audit."""

    findings: Findings
    kinds: Counter[Kind] = field(default_factory=Counter)
    """Number of transactions by the oracle's outcome."""
    dead_letters: Counter[str] = field(default_factory=Counter)
    """Number of expected dead letters of all inputs, by reason."""
    records: Counter[str] = field(default_factory=Counter)
    """Number of expected records, except dead letters, by the output's field of `Topics`."""
    trials: dict[Pair, Counter[str]] = field(default_factory=dict)
    """Expected trial counts, by rollout and challenger."""
    topics: Topics = field(default_factory=Topics)
    """Names of the topics."""
    problems: list[str] = field(default_factory=list)
    """Differences between the progress records and the outputs or the oracle."""
    late_table_changes: int = 0
    """Table changes read too late for transactions that they should have affected, as counted by the job."""
    releases: Counter[str] = field(default_factory=Counter)
    """Number of commits by the release that decided."""
    ends: dict[PartitionId, int] = field(default_factory=dict)
    """First offset that was not audited, by input partition."""

    @property
    def events(self) -> int:
        """Number of audited transaction records."""
        return sum(self.kinds.values())

    @property
    def is_clean(self) -> bool:
        """Whether there is no difference."""
        findings = self.findings
        return not (findings.missing or findings.duplicated or findings.unexpected or self.problems)

    def report(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "events": self.events,
            "alerts": self.records["fraud_alerts"],
            "dead_letters": sum(self.dead_letters.values()),
            "missing": self.findings.missing,
            "duplicated": self.findings.duplicated,
            "unexpected": self.findings.unexpected,
            "different": self.findings.different,
            "topics": {name: self.findings.of(name) for name in output_topics(self.topics)},
            "passed": self.kinds[Kind.PASSED],
            "suppressed_alerts": self.records["suppressed_alerts"],
            "shadow_alerts": self.records["shadow_alerts"],
            "trials": nested(self.trials),
            "repeated_transactions": self.kinds[Kind.DUPLICATE],
            "dead_letters_by_reason": dict(sorted(self.dead_letters.items())),
            "late_table_changes": self.late_table_changes,
            "examples": self.findings.examples,
            "progress_problems": self.problems,
            "releases": dict(sorted(self.releases.items())),
            "ends": [[topic, partition, end] for (topic, partition), end in sorted(self.ends.items())],
        }


def verify(
    log: Log,
    settings: JobSettings,
    load: Load,
    *,
    judge: Judge | None = None,
    reached: Reached | None = None,
    progress: Progress = lambda what, done, total: None,
) -> AuditResult:
    """Audit everything that the job has committed.

    The profile topic is compacted, but its records of the last week stay (`min.compaction.lag.ms`). Decisions
    that used a profile version can no longer be checked once compaction has removed that version.

    Args:
        judge: runs the oracle in other processes, see `judging`; default: in this one.
        reached: default: as `reached_by` returns.

    Raises:
        VerifyError: the job has committed nothing.
        JudgeError: there is no champion, or a judging process ended unexpectedly.
    """
    topics = settings.topics
    begun = reached_by(log, settings) if reached is None else reached
    ends = dict(begun.committed)
    transactions = partition_ends(ends, topics.transactions)
    if not transactions:
        raise VerifyError(
            f"job {settings.job_id} has committed no offsets; start it, or set FRAUD_JOB_ID to the right job"
        )
    core = AuditCore(log, settings, load, Memory.empty(settings))
    audit = ProgressAudit(topics, ends, begun.recorded)
    _read(core, audit, progress)
    furthest, settled = audit.table_ends()
    left = audit.retired_ends()
    ends |= {partition: max(end, ends.get(partition, 0)) for partition, end in furthest.items()}
    settled = ends | settled | left
    verdict = AuditResult(core.findings, topics=topics, ends=settled)
    seams = audit.seams
    core.follow_rollouts(seams)
    refused = core.read_tables(ends, seams[-1].losses)
    parts = split(stretches(audit.moves, core.layout, transactions), audit.moves, seams)
    for topic in map(core.line_of, filter(core.is_left, parts)):
        if core.rollouts[topic].plan() is None:
            raise JudgeError(f"there is no champion on {topic}; nothing can have been decided")
    refused += too_late(log, settings, audit.moves, core.layout, left, core.memory.schemas)
    earlier = before_facts(log, audit.facts_begun, core.layout)
    refused = [
        letter
        for letter in refused
        if letter.offset < settled[letter.topic, letter.partition] and not earlier(letter)
    ]
    _compare(refused, core, verdict)
    unavailable = {topic: history.unavailable for topic, history in core.memory.histories.items()}
    for judged in core.judge(parts) if judge is None else judge(unavailable, ends, parts):
        verdict.kinds += judged.kinds
        for pair, counts in judged.trials.items():
            verdict.trials.setdefault(pair, Counter()).update(counts)
        _compare(judged.outcomes, core, verdict)
        progress("recomputing", verdict.events, sum(sum(part.ends.values()) for part in parts))
    core.memory.found.finish(settled)
    core.refuse_absent()
    audit.check_totals(verdict.kinds + Counter({Kind.DEAD_LETTER: len(refused)}), settled, verdict.records)
    audit.trials.check_totals(verdict.trials)
    audit.check_breaches(
        Breached(*breach) for rollouts in core.rollouts.values() for breach in rollouts.breaches()
    )
    verdict.problems, verdict.late_table_changes = audit.problems, audit.late_table_changes
    verdict.releases = audit.releases
    return verdict


def reached_by(log: Log, settings: JobSettings) -> Reached:
    """Return how far a job is."""
    topics = settings.topics
    recorded = log.ends(topics.job_progress)
    return Reached(log.committed(settings.job_id, (topics.transactions, *settings.tables)), recorded)


def _read(core: AuditCore, audit: ProgressAudit, progress: Progress) -> None:
    """Read progress records and outputs, and check the commits."""
    done: Counter[str] = Counter()

    def count(record: Record) -> None:
        done[record.topic] += 1
        if done[record.topic] % STEP == 0:
            progress(f"reading {record.topic}", done[record.topic], 0)

    def add(output: str, record: Record) -> None:
        audit.add(output, record)
        count(record)

    for record in core.read_progress():
        audit.add_progress(record)
        count(record)
    core.read_outputs(add)
    audit.check()


def _compare(outcomes: Iterable[ExpectedOutcome], core: AuditCore, verdict: AuditResult) -> None:
    core.compare(outcomes)
    for outcome in outcomes:
        verdict.records.update(topic for topic, _ in outcome.records)
        if outcome.kind is Kind.DEAD_LETTER:
            verdict.dead_letters[str(outcome.reason)] += 1


def too_late(
    log: Log,
    settings: JobSettings,
    moves: Sequence[Drained],
    layout: Layout,
    ends: Ends,
    schemas: SchemaLog,
) -> list[ExpectedOutcome]:
    """Return the dead letters of records in topics that the transactions have left.

    Args:
        moves: oldest first.
        layout: the newest one.
        ends: the offsets up to which the job has read those topics.
        schemas: the schemas of framed transactions, already read.
    """
    letters = []
    starts = retired(moves, layout)
    for topic in {topic for topic, _ in starts}:
        first = partition_ends(starts, topic)
        last = {p: max(end, first.get(p, 0)) for p, end in partition_ends(ends, topic).items()}
        letters += [
            dead_letter(record, _late_reason(record, settings, layout, schemas))
            for record in log.read(topic, last, first)
        ]
    return letters


def before_facts(log: Log, begun: FactsBegun | None, layout: Layout) -> Callable[[ExpectedOutcome], bool]:
    """Return whether a dead letter's label is from before a takeover that has turned merchant facts on.

    Args:
        begun: that takeover; None: there was none.
    """
    labels = {} if begun is None else begun.labels
    unread = {
        (topic, partition, record.offset)
        for (topic, partition), by_group in labels.items()
        for record in log.read(
            topic, {partition: max(by_group.values())}, {partition: min(by_group.values())}
        )
        if by_group[
            partition_of_key(record.key or b"", layout.partitions, layout.partitioner.value) % len(by_group)
        ]
        > record.offset
    }
    first = {tp: min(by_group.values()) for tp, by_group in labels.items()}
    return lambda letter: (
        letter.offset < first.get((letter.topic, letter.partition), 0)
        or (letter.topic, letter.partition, letter.offset) in unread
    )


def _late_reason(record: Record, settings: JobSettings, layout: Layout, schemas: SchemaLog) -> Reason:
    try:
        read_transaction(record, rules_of(settings, layout, schemas))
    except RefusedError as refused:
        if refused.reason is Reason.CARD_NUMBER:
            return Reason.CARD_NUMBER
    return Reason.RETIRED_TOPIC
