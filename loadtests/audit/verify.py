"""The audit behind `fraud verify`: which alerts, shadow alerts and dead letters had to come of the log.

Order matters on a job that runs: first the offsets that its key groups have committed, then the outputs
(which hold everything of those offsets, because both come in one transaction), then the inputs up to those
offsets. How far each group has read the tables stands in its progress: dead letters of their records are
expected up to where every group has come; decisions may rest on what the furthest one has read.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from feature_store.errors import FraudError
from loadtests.audit.comparison import Found
from loadtests.audit.findings import Findings
from loadtests.audit.judging import Ends, Judge, Load, here, merchants, partition_ends, tables
from loadtests.audit.progress_audit import ProgressAudit
from loadtests.audit.topic_log import Log, MissingTopicError
from loadtests.audit.trial_audit import nested
from loadtests.oracle import Kind, Outcome, Pair, Record
from streaming_job.contracts.topics import Topics
from streaming_job.settings import JobSettings

Progress = Callable[[str, int, int], None]
"""(what is read, records so far, records in all or 0 if unknown)."""
STEP = 1_000


class VerifyError(FraudError):
    """The audit cannot be made."""


@dataclass
class Verdict:
    """What an audit found."""

    findings: Findings
    kinds: Counter[Kind] = field(default_factory=Counter)
    """Transactions by what had to become of them."""
    dead_letters: Counter[str] = field(default_factory=Counter)
    """Dead letters that had to be, of all inputs, by reason."""
    shadow_alerts: int = 0
    """Shadow alerts that had to be."""
    trials: dict[Pair, Counter[str]] = field(default_factory=dict)
    """What trials had to count, by rollout and challenger."""
    topics: Topics = field(default_factory=Topics)
    """Names of the topics."""
    problems: list[str] = field(default_factory=list)
    """Where the job's own account in job-progress does not agree."""
    late_table_changes: int = 0
    """Table changes behind transactions already decided, as the job counted them."""
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """First offset of each input partition whose alerts and dead letters were not audited."""

    @property
    def events(self) -> int:
        """Transaction records audited."""
        return sum(self.kinds.values())

    @property
    def _outputs(self) -> tuple[str, ...]:
        topics = self.topics
        return topics.fraud_alerts, topics.shadow_alerts, topics.suppressed_alerts, topics.dead_letters

    @property
    def is_clean(self) -> bool:
        """Whether everything agrees."""
        found = self.findings
        return not (found.missing or found.duplicated or found.unexpected or self.problems)

    def report(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "events": self.events,
            "alerts": self.kinds[Kind.ALERT],
            "dead_letters": sum(self.dead_letters.values()),
            "missing": self.findings.missing,
            "duplicated": self.findings.duplicated,
            "unexpected": self.findings.unexpected,
            "different": self.findings.different,
            "topics": {name: self.findings.of(name) for name in self._outputs},
            "passed": self.kinds[Kind.PASSED],
            "suppressed_alerts": self.kinds[Kind.SUPPRESSED],
            "shadow_alerts": self.shadow_alerts,
            "trials": nested(self.trials),
            "repeated_transactions": self.kinds[Kind.DUPLICATE],
            "dead_letters_by_reason": dict(sorted(self.dead_letters.items())),
            "late_table_changes": self.late_table_changes,
            "examples": self.findings.examples,
            "progress_problems": self.problems,
            "ends": [[topic, partition, end] for (topic, partition), end in sorted(self.ends.items())],
        }


def verify(
    log: Log,
    settings: JobSettings,
    load: Load,
    *,
    judge: Judge | None = None,
    committed: Ends | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Verdict:
    """Audit everything that the job has committed.

    The profile topic is compacted: after a compaction (not before a segment of it is a week old or full)
    older versions are gone and decisions that used them can no longer be checked.

    Args:
        log: where the topics are.
        settings: of the job.
        load: gives the model of a rollout.
        judge: runs the oracle, see `judging`; default: here.
        committed: what the job has committed, see `committed_by`; default: asked for.
        progress: told how far it is.

    Raises:
        VerifyError: the job has committed nothing.
        JudgeError: there is no rollout.
        TopicReadError: a topic cannot be read.
    """
    topics = settings.topics
    reach = dict(committed_by(log, settings) if committed is None else committed)
    transactions = partition_ends(reach, topics.transactions)
    if not transactions:
        raise VerifyError(
            f"job {settings.job_id} has committed no offsets; start it, or give its FRAUD_JOB_ID"
        )
    findings = Findings()
    found, audit = Found(findings, topics), ProgressAudit(topics, reach)
    _read_outputs(log, settings, found, audit, progress)
    furthest, settled = audit.table_ends()
    reach |= {place: max(end, reach.get(place, 0)) for place, end in furthest.items()}
    settled = reach | settled
    verdict = Verdict(findings, topics=topics, ends=settled)
    profiles, _, refused = tables(log, settings, reach, load)
    refused += merchants(log, settings, reach, profiles)[1]
    refused = [letter for letter in refused if letter.offset < settled[letter.topic, letter.partition]]
    _compare(refused, found, verdict)
    for judged in (judge or here(log, settings, load))(reach):
        verdict.kinds += judged.kinds
        for pair, counts in judged.trials.items():
            verdict.trials[pair] = verdict.trials.get(pair, Counter()) + counts
        _compare(judged.outcomes, found, verdict)
        progress("recomputing", verdict.events, sum(transactions.values()))
    found.finish(settled)
    audit.check_totals(
        verdict.kinds + Counter({Kind.DEAD_LETTER: len(refused)}), settled, verdict.shadow_alerts
    )
    audit.trials.check_totals(verdict.trials)
    verdict.problems, verdict.late_table_changes = audit.problems, audit.late_table_changes
    return verdict


def committed_by(log: Log, settings: JobSettings) -> dict[tuple[str, int], int]:
    """The offsets that the job's key groups have committed, by input partition.

    Raises:
        TopicReadError: no answer.
    """
    topics = settings.topics
    return log.committed(settings.job_id, (topics.transactions, *settings.tables))


def _compare(outcomes: list[Outcome], found: Found, verdict: Verdict) -> None:
    for outcome in outcomes:
        if outcome.kind is Kind.DEAD_LETTER:
            found.compare_dead_letter(outcome)
            verdict.dead_letters[str(outcome.reason)] += 1
        if outcome.alert:
            found.compare_alert(outcome)
        found.compare_shadows(outcome)
        verdict.shadow_alerts += len(outcome.shadows)


def _read_outputs(
    log: Log, settings: JobSettings, found: Found, audit: ProgressAudit, progress: Progress
) -> None:
    topics = settings.topics
    for record in _counted(log, topics.job_progress, progress):
        if record.key == settings.job_id.encode():
            audit.add_progress(record)
    for topic in (topics.fraud_alerts, topics.shadow_alerts, topics.suppressed_alerts):
        for record in _counted(log, topic, progress, may_lack=topic != topics.fraud_alerts):
            found.add_alert(record)
            audit.add_alert(record)
    for record in _counted(log, topics.dead_letters, progress):
        found.add_dead_letter(record)
        audit.add_dead_letter(record)
    audit.check()


def _counted(log: Log, topic: str, progress: Progress, *, may_lack: bool = False) -> Iterator[Record]:
    try:
        for done, record in enumerate(log.read(topic), 1):
            yield record
            if done % STEP == 0:
                progress(f"reading {topic}", done, 0)
    except MissingTopicError:
        if not may_lack:  # former releases did not write them; what had to be there is missing then
            raise
