"""Audit of the progress records: each commit's counts and digests against the records it wrote."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from loadtests.audit import breach_audit, settled
from loadtests.audit.breach_audit import Breached
from loadtests.audit.commits import (
    Commit,
    Source,
    commit_of,
    is_seam,
    release_of,
    source_of,
)
from loadtests.audit.content import content_of
from loadtests.audit.moves import Drained, FactsBegun, Seam, Seams, drained_by
from loadtests.audit.trial_audit import CommitTrials, TrialAudit, TrialCounts, trial_counts
from loadtests.oracle import Kind, Record
from streaming_job.contracts.topics import COUNTED, DIGESTED, Topics
from streaming_job.log.records import PartitionId

Ends = dict[PartitionId, int]
NOTHING = hashlib.sha256().hexdigest()
"""The digest of no records."""


class _Progress(NamedTuple):
    """The fields of a progress record that the audit needs: whole records would take too much memory."""

    key_groups: int
    release: str
    counts: Counter[str]
    digests: dict[str, str]
    """Digests of the outputs, by name of their count."""
    spans: list[tuple[PartitionId, int, int]]
    """(partition, first offset, offset after the last) of the input records."""
    since: int
    """Time at which the running totals begin, ms."""
    commits: int
    total: Counter[str]
    """Running totals of `counts`."""
    trials: TrialCounts
    trial_totals: TrialCounts
    predecessor: str | None
    """Query whose output the job has taken over with this record; None: it has not."""


class ProgressAudit:
    """Collects the output records by commit, then compares them with the progress records.

    Args:
        ends: (topic, partition) of the transactions -> first offset that is not audited; commits that end
        beyond it are ignored.
        recorded: ends of the progress records before the job's committed offsets, which are `ends`, were
        looked up, by partition of their topic; default: that is not known.
    """

    def __init__(
        self, topics: Topics, ends: Mapping[PartitionId, int], recorded: Mapping[int, int] | None = None
    ) -> None:
        self._transactions, self._ends, self._recorded = topics.transactions, ends, recorded or {}
        self._newest: dict[int, int] = {}
        """By key group, number of the newest commit whose record is before `recorded`."""
        self._beyond: dict[int, set[int]] = defaultdict(set)
        """By key group, numbers of such commits that are ignored."""
        self._labels = {topics.labels, topics.chargebacks}
        self._progress: dict[Commit, _Progress] = {}
        self._moves: set[Drained] = set()
        self._seams = Seams()
        self._records: dict[tuple[Commit, str], list[tuple[Source, bytes]]] = defaultdict(list)
        """Input and value of the records of each output; without values if the output has no digest."""
        self._releases: dict[Commit, set[str | None]] = defaultdict(set)
        """Releases that the headers of a commit's records name."""
        self.problems: list[str] = []
        """Descriptions of the differences."""
        self.trials = TrialAudit(self.problems)

    def add_progress(self, record: Record) -> None:
        """Add a record of job-progress."""
        try:
            row = content_of(record.value)
            commit = Commit(str(row["query_id"]), int(row["key_group"]), int(row["commit_id"]))
            progress, move = _progress(row), drained_by(row)
            is_beyond = any(
                partition[0] == self._transactions and end > self._ends.get(partition, 0)
                for partition, _, end in progress.spans
            )
            if not is_beyond:
                self._seams.add(row)
            if record.offset < self._recorded.get(record.partition, 0):
                group, number = commit.key_group, commit.commit_id
                self._newest[group] = max(number, self._newest.get(group, number))
                if is_beyond:
                    self._beyond[group].add(number)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.problems.append(
                f"job-progress[{record.partition}] offset {record.offset}: not a progress record"
            )
            return
        if is_beyond:
            return
        self._releases[commit].add(release_of(record))
        if move is not None:
            self._moves.add(move)
        if commit in self._progress:
            self.problems.append(f"{commit} was written twice")
        self._progress[commit] = progress

    def add(self, field: str, record: Record) -> None:
        """Add a record of an output topic, which is named by its field of `Topics`."""
        commit, value = commit_of(record), record.value if field in DIGESTED else None
        self._records[commit, field].append((source_of(record), value or b""))
        self._releases[commit].add(release_of(record))

    @property
    def moves(self) -> list[Drained]:
        """The takeovers that have moved the transactions, oldest first."""
        return sorted(self._moves)

    def retired_ends(self) -> Ends:
        """Return the offsets up to which the job has read topics that its transactions have left."""
        left = {move.layout.topic for move in self._moves} - {self._transactions}
        ends: Ends = {}
        for progress in self._progress.values():
            for partition, _, end in progress.spans:
                if partition[0] in left:
                    ends[partition] = max(end, ends.get(partition, 0))
        return ends

    @property
    def facts_begun(self) -> FactsBegun | None:
        """The takeover that has turned merchant facts on; None if none has."""
        with_labels = [
            commit
            for commit, progress in self._progress.items()
            if any(topic in self._labels for (topic, _), _, _ in progress.spans)
        ]
        first = min((commit.commit_id for commit in with_labels), default=0)
        seams = {commit: self._progress[commit] for commit in with_labels if commit.commit_id == first}
        if not seams or any(progress.predecessor is None for progress in seams.values()):
            return None
        begun = FactsBegun(first, defaultdict(dict))
        for commit, progress in seams.items():
            for (topic, partition), _, end in progress.spans:
                if topic in self._labels:
                    begun.labels[topic, partition][commit.key_group] = end
        return begun

    @property
    def seams(self) -> list[Seam]:
        """The job's beginning, and the takeovers after which transactions are decided otherwise."""
        facts_from = self.facts_begun.commit_id if self.facts_begun is not None else 0
        all_seams = [seam._replace(has_facts=seam.commit_id >= facts_from) for seam in self._seams.in_order()]
        return [next(alike) for _, alike in groupby(all_seams, key=lambda seam: seam[2:])]

    def _is_of_transactions(self, topic: str) -> bool:
        return topic == self._transactions or any(topic == move.layout.topic for move in self._moves)

    def table_ends(self) -> tuple[Ends, Ends]:
        """Return the offsets up to which the furthest and the slowest key group have read the tables."""
        read: dict[PartitionId, dict[int, int]] = {}
        reader: dict[PartitionId, str] = {}
        for commit, progress in sorted(self._progress.items(), key=lambda item: item[0].commit_id):
            for partition, _, end in progress.spans:
                if self._is_of_transactions(partition[0]):
                    continue
                if reader.get(partition) != commit.query_id:  # of an older query only where it was the last
                    reader[partition] = commit.query_id
                    read[partition] = dict.fromkeys(range(progress.key_groups), 0)
                groups = read[partition]
                groups[commit.key_group] = max(end, groups[commit.key_group])
        return settled.table_ends(read)

    def check(self) -> None:
        """Check every commit, each key group's sequence of commits and totals, and each takeover.

        Between two takeovers there must be one query, and the number of key groups must be the same.
        """
        for commit, progress in sorted(self._progress.items()):
            self._check_commit(commit, progress)
        self._check_ends()
        in_order = sorted(self._progress, key=lambda commit: (commit.commit_id, commit.key_group))
        self._check_takeovers(in_order)
        self._check_spans(in_order, self._is_of_transactions)
        for group in sorted({commit.key_group for commit in in_order}):
            stretch: list[Commit] = []
            for commit in in_order:
                if commit.key_group != group:
                    continue
                if self._progress[commit].predecessor is not None and stretch:
                    self._check_sequence(group, stretch)
                    stretch = []
                stretch.append(commit)
            self._check_sequence(group, stretch)

    def _check_ends(self) -> None:
        """Check that the committed offsets hide no commit.

        Of a key group's newest Kafka transaction the record may be visible before the offsets are; but the
        next one begins only once all of it is visible.
        """
        for group, numbers in sorted(self._beyond.items()):
            if hidden := numbers - {self._newest[group]}:
                self.problems.append(
                    f"key group {group}: commit {min(hidden)} and later ones are beyond the committed "
                    "offsets, so they are not audited: a tool has changed the offsets of the job's consumer "
                    "group; start the job, which commits them again, then audit"
                )

    def _check_takeovers(self, in_order: Iterable[Commit]) -> None:
        """Check that only a takeover changes the query, and the number of key groups."""
        owner: tuple[str, int] | None = None
        for commit in in_order:
            progress = self._progress[commit]
            writer = commit.query_id, progress.key_groups
            if owner is not None and writer != owner and progress.predecessor != owner[0]:
                self.problems.append(
                    f"{commit}, of {writer[1]} key groups: query {owner[0]} of {owner[1]} has written "
                    "before, and this one has not taken over from it"
                )
            owner = writer

    def check_totals(
        self, kinds: Counter[Kind], settled: Mapping[PartitionId, int], records: Mapping[str, int]
    ) -> None:
        """Compare the sums of all commits with the oracle's counts.

        Args:
            kinds: number of records by the oracle's outcome.
            settled: (topic, partition) -> offset from which dead letters are not counted in `kinds`.
            records: number of expected records of each output.
        """
        counted: Counter[str] = Counter()
        for commit, progress in self._progress.items():
            counted.update(progress.counts)
            counted["dead_letters"] -= sum(
                offset >= settled.get((topic, partition), 0)
                for (topic, partition, offset), _ in self._records.get((commit, "dead_letters"), ())
            )
        for name, expected in (
            ("transactions", kinds[Kind.PASSED] + kinds[Kind.ALERT] + kinds[Kind.SUPPRESSED]),
            ("duplicates", kinds[Kind.DUPLICATE]),
            *((name, records.get(field, 0)) for field, name in DIGESTED.items()),
            ("dead_letters", kinds[Kind.DEAD_LETTER]),
        ):
            if counted[name] != expected:
                self.problems.append(
                    f"progress adds up to {counted[name]} {name}, the oracle finds {expected}"
                )

    def check_breaches(self, breaches: Iterable[Breached]) -> None:
        """Check that each breach follows from the counts in its evidence, and these from progress records."""
        by_commit = {
            (commit.key_group, commit.commit_id): progress.trial_totals
            for commit, progress in self._progress.items()
        }
        self.problems += breach_audit.problems(breaches, lambda *commit: by_commit.get(commit))

    @property
    def releases(self) -> Counter[str]:
        """Number of commits of each release."""
        return Counter(progress.release for progress in self._progress.values())

    @property
    def late_table_changes(self) -> int:
        """How many table changes the job itself counted as read too late for a transaction they affect."""
        return sum(progress.counts["late_table_changes"] for progress in self._progress.values())

    def _check_commit(self, commit: Commit, progress: _Progress) -> None:
        for field, name in COUNTED.items():
            records = self._records.get((commit, field), [])
            self._check_count(commit, name, len(records))
            self._check_sources(commit, name, records)
            if field in DIGESTED:
                self._check_digest(commit, name, records)
                records.clear()  # their values take much memory
        if others := self._releases[commit] - {progress.release}:
            names = ", ".join(sorted(str(name) for name in others))
            self.problems.append(f"{commit}: release {progress.release}, and headers of records name {names}")
        for (topic, partition), _, _ in progress.spans:
            if topic == self._transactions and partition % progress.key_groups != commit.key_group:
                self.problems.append(f"{commit}: {topic}[{partition}] belongs to another key group")

    def _check_sources(self, commit: Commit, name: str, records: Iterable[tuple[Source, bytes]]) -> None:
        """Check that the outputs about transactions were committed together with the transactions' offsets.

        If an offset had been committed first, a crash before its alert was written would have lost the alert.
        """
        spans = {partition: range(start, end) for partition, start, end in self._progress[commit].spans}
        for (topic, partition, offset), _ in records:
            if topic == self._transactions and offset not in spans.get((topic, partition), ()):
                self.problems.append(
                    f"{commit}: among the {name} is one about {topic}[{partition}]@{offset}, an offset that "
                    "another commit has committed, or none"
                )
                return

    def _check_digest(self, commit: Commit, name: str, records: list[tuple[Source, bytes]]) -> None:
        digest = hashlib.sha256()
        for _, value in sorted(records, key=itemgetter(0)):
            digest.update(value)
        # a release that did not know the topic gave it no digest, and wrote nothing to it
        if digest.hexdigest() != self._progress[commit].digests.get(name, NOTHING):
            self.problems.append(f"{commit}: the {name} have another digest than in the progress record")

    def _check_count(self, commit: Commit, name: str, actual: int) -> None:
        counted = self._progress[commit].counts[name]
        if counted != actual:
            self.problems.append(f"{commit}: progress counts {counted} {name}, {actual} found")

    def _check_sequence(self, group: int, commits: Sequence[Commit]) -> None:
        first, last = commits[0].commit_id, commits[-1].commit_id
        if [commit.commit_id for commit in commits] != list(range(first, last + 1)):
            self.problems.append(f"key group {group}: commits {first} to {last} are not each there once")
        self._check_running_totals(commits)
        self.trials.check_group(
            CommitTrials(
                str(commit), commit.commit_id == 1, progress.since, progress.trials, progress.trial_totals
            )
            for commit, progress in ((commit, self._progress[commit]) for commit in commits)
        )
        self._check_spans(commits, lambda topic: not self._is_of_transactions(topic))

    def _check_spans(self, commits: Iterable[Commit], is_checked: Callable[[str], bool]) -> None:
        """Check that the spans of some topics follow one another."""
        reached: Ends = {}
        for commit in commits:
            for partition, start, end in self._progress[commit].spans:
                if not is_checked(partition[0]):
                    continue
                previous_end = reached.get(partition, start)
                if previous_end != start or end < start:
                    self.problems.append(
                        f"{commit}: {partition[0]}[{partition[1]}] goes from {start} to {end}, "
                        f"the previous commit ended at {previous_end}"
                    )
                reached[partition] = end

    def _check_running_totals(self, commits: Iterable[Commit]) -> None:
        """Check that each record's totals are the previous record's plus its own counts.

        Records between which the totals began anew are not compared.
        """
        previous: _Progress | None = None
        for commit in commits:
            current = self._progress[commit]
            if (
                previous is not None
                and previous.since == current.since
                and (
                    current.commits != previous.commits + 1
                    or +current.total != previous.total + current.counts
                )
            ):
                self.problems.append(f"{commit}: the totals are not the previous ones plus its own counts")
            previous = current


def _progress(row: Mapping[str, Any]) -> _Progress:
    totals = row["totals"]
    return _Progress(
        int(row["key_groups"]),
        str(row["release"]),
        Counter(row["counts"]),
        {name: str(digest) for name, digest in row["digests"].items()},
        [
            ((str(part["topic"]), int(part["partition"])), int(part["start_offset"]), int(part["end_offset"]))
            for part in row["partitions"]
        ],
        int(totals["since"]),
        int(totals["commits"]),
        Counter(totals["counts"]),
        trial_counts(row["trials"]),
        trial_counts(totals["trials"]),
        str(row["takeover"]["query_id"]) if is_seam(row) else None,
    )
