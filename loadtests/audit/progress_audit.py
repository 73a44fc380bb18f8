"""Audits the job's own account: each commit's counts and digest against what its transaction left behind."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from loadtests.audit.commits import Commit, Place, commit_of, source, source_of_letter
from loadtests.audit.trial_audit import Told, TrialAudit, TrialCounts, told_trials
from loadtests.oracle import Kind, Record
from streaming_job.contracts.topics import Topics

Ends = dict[Place, int]


class _Progress(NamedTuple):
    """What is kept of a progress record: there are many."""

    key_groups: int
    counts: Counter[str]
    digests: dict[str, str | None]
    """By name of the count; None where a former release did not tell it."""
    spans: list[tuple[Place, int, int]]
    """Partition, first offset, offset after the last one."""
    since: int
    """Where the running totals begin, ms."""
    commits: int
    total: Counter[str]
    """Running totals of the counts."""
    trials: TrialCounts
    trial_totals: TrialCounts


class ProgressAudit:
    """Collects the output topics by commit, then compares.

    Args:
        topics: names of the topics.
        ends: (topic, partition) of the transactions -> first offset that is not audited; commits beyond it
            are left alone.
    """

    def __init__(self, topics: Topics, ends: Mapping[Place, int]) -> None:
        self._transactions, self._ends = topics.transactions, ends
        self._names = {
            topics.fraud_alerts: "alerts",
            topics.shadow_alerts: "shadow_alerts",
            topics.suppressed_alerts: "suppressed",
        }
        """Of the counts, by topic."""
        self._progress: dict[Commit, _Progress] = {}
        self._alerts: dict[tuple[Commit, str], list[Record]] = defaultdict(list)
        self._dead_letters: dict[Commit, list[tuple[Place, int]]] = defaultdict(list)
        self.problems: list[str] = []
        """What does not agree, in words."""
        self.trials = TrialAudit(self.problems)

    def add_progress(self, record: Record) -> None:
        """Take in a record of job-progress."""
        try:
            told = json.loads(record.value or b"")
            commit = Commit(str(told["query_id"]), int(told["key_group"]), int(told["commit_id"]))
            progress = _progress(told)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.problems.append(f"job-progress offset {record.offset}: not a progress record")
            return
        if any(
            place[0] == self._transactions and end > self._ends.get(place, 0)
            for place, _, end in progress.spans
        ):
            return
        if commit in self._progress:
            self.problems.append(f"{commit} was written twice")
        self._progress[commit] = progress

    def add_alert(self, record: Record) -> None:
        """Take in a record of fraud-alerts, shadow-alerts or suppressed-alerts."""
        self._alerts[commit_of(record), record.topic].append(record)

    def add_dead_letter(self, record: Record) -> None:
        """Take in a record of dead-letters."""
        self._dead_letters[commit_of(record)].append(source_of_letter(record))

    def table_ends(self) -> tuple[Ends, Ends]:
        """How far the tables have been read: by the group that is furthest, and by every group."""
        furthest: dict[Place, dict[int, int]] = defaultdict(dict)
        for commit, progress in self._progress.items():
            for place, _, end in progress.spans:
                if place[0] != self._transactions:
                    groups = furthest[place]
                    groups[commit.key_group] = max(end, groups.get(commit.key_group, 0))
        key_groups = max((progress.key_groups for progress in self._progress.values()), default=1)
        return (
            {place: max(groups.values()) for place, groups in furthest.items()},
            {place: min(groups.get(g, 0) for g in range(key_groups)) for place, groups in furthest.items()},
        )

    def check(self) -> None:
        """Compare commit by commit, then see that those of each group follow each other without a gap."""
        for commit, progress in sorted(self._progress.items()):
            self._check_commit(commit, progress)
        for group in sorted({commit.key_group for commit in self._progress}):
            self._check_sequence(group)
        if len({progress.key_groups for progress in self._progress.values()}) > 1:
            self.problems.append("the number of key groups has changed: it is fixed by a job's first start")
        if len({commit.query_id for commit in self._progress}) > 1:
            self.problems.append("several queries wrote progress: the checkpoint was replaced in between")

    def check_totals(
        self, kinds: Counter[Kind], settled: Mapping[Place, int], shadow_alerts: int = 0
    ) -> None:
        """Compare the sums of all commits with the oracle's counts.

        Args:
            kinds: records that had to become this or that.
            shadow_alerts: that had to be.
            settled: (topic, partition) -> first offset whose dead letters are not among them.
        """
        told: Counter[str] = Counter()
        for commit, progress in self._progress.items():
            told.update(progress.counts)
            told["dead_letters"] -= sum(
                offset >= settled.get(place, 0) for place, offset in self._dead_letters.get(commit, ())
            )
        for name, expected in (
            ("transactions", kinds[Kind.PASSED] + kinds[Kind.ALERT] + kinds[Kind.SUPPRESSED]),
            ("duplicates", kinds[Kind.DUPLICATE]),
            ("alerts", kinds[Kind.ALERT]),
            ("suppressed", kinds[Kind.SUPPRESSED]),
            ("shadow_alerts", shadow_alerts),
            ("dead_letters", kinds[Kind.DEAD_LETTER]),
        ):
            if told[name] != expected:
                self.problems.append(f"progress adds up to {told[name]} {name}, the oracle finds {expected}")

    @property
    def late_table_changes(self) -> int:
        """Changes that turned up behind transactions already decided, as the job counted them."""
        return sum(progress.counts["late_table_changes"] for progress in self._progress.values())

    def _check_commit(self, commit: Commit, progress: _Progress) -> None:
        self._check_count(commit, "dead_letters", len(self._dead_letters.get(commit, ())))
        for topic, name in self._names.items():
            alerts = self._alerts.pop((commit, topic), [])
            self._check_count(commit, name, len(alerts))
            digest = hashlib.sha256()
            for alert in sorted(alerts, key=source):
                digest.update(alert.value or b"")
            told = progress.digests[name]
            if digest.hexdigest() != told and (told is not None or alerts):
                self.problems.append(f"{commit}: the {name} have another digest than progress tells")
        for (topic, partition), _, _ in progress.spans:
            if topic == self._transactions and partition % progress.key_groups != commit.key_group:
                self.problems.append(f"{commit}: {topic}[{partition}] is another group's")

    def _check_count(self, commit: Commit, name: str, found: int) -> None:
        told = self._progress[commit].counts[name]
        if told != found:
            self.problems.append(f"{commit}: progress tells of {told} {name}, {found} found")

    def _check_sequence(self, group: int) -> None:
        commits = sorted(
            (commit for commit in self._progress if commit.key_group == group),
            key=lambda commit: commit.commit_id,
        )
        first, last = commits[0].commit_id, commits[-1].commit_id
        if [commit.commit_id for commit in commits] != list(range(first, last + 1)):
            self.problems.append(f"key group {group}: commits between {first} and {last} are not one of each")
        self._check_running_totals(commits)
        self.trials.check_group(
            Told(str(commit), commit.commit_id == 1, told.since, told.trials, told.trial_totals)
            for commit, told in ((commit, self._progress[commit]) for commit in commits)
        )
        reached: Ends = {}
        for commit in commits:
            for place, start, end in self._progress[commit].spans:
                before = reached.get(place, start)
                if before != start or end < start:
                    self.problems.append(
                        f"{commit}: {place[0]}[{place[1]}] goes from {start} to {end}, "
                        f"the commit before ended at {before}"
                    )
                reached[place] = end

    def _check_running_totals(self, commits: Iterable[Commit]) -> None:
        """Each record's totals are those of the record before it and its own counts."""
        before: _Progress | None = None
        for commit in commits:
            now = self._progress[commit]
            if (
                before is not None
                and before.since == now.since
                and (now.commits != before.commits + 1 or +now.total != before.total + now.counts)
            ):
                self.problems.append(f"{commit}: the totals are not those before it and its own counts")
            before = now


def _progress(told: Mapping[str, Any]) -> _Progress:
    totals = told["totals"]
    return _Progress(
        int(told["key_groups"]),
        Counter(told["counts"]),
        {
            "alerts": str(told["alerts_digest"]),
            "shadow_alerts": told.get("shadow_digest"),
            "suppressed": told.get("suppressed_digest"),
        },
        [
            ((str(part["topic"]), int(part["partition"])), int(part["start_offset"]), int(part["end_offset"]))
            for part in told["partitions"]
        ],
        int(totals["since"]),
        int(totals["commits"]),
        Counter(totals["counts"]),
        told_trials(told.get("trials", {})),
        told_trials(totals.get("trials", {})),
    )
