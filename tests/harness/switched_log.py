"""The log of a job that is switched between rollouts of two topics, in memory, decided by the job's own core.

    transactions   |---------------|---------------|---------------|
    first job      aloud            in silence      aloud (the way back)
    second job     in silence       aloud

Each job decides all transactions by its own rollouts; only the one that has the output writes.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from feature_store.catalogue import IDENTITIES
from harness import settings_of_nowhere
from harness.group_batches import Group
from harness.job_world import World
from harness.log_world import START, TOPICS
from harness.random_trials import load_any
from loadtests.audit.topic_log import TopicReadError
from loadtests.oracle import Record
from streaming_job.contracts.topics import DIGESTED
from streaming_job.log.records import Offsets
from streaming_job.progress import last_record
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.writer import GroupProgress
from streaming_job.settings import JobSettings
from streaming_job.takeover.seam import Predecessor, Successor, first_records
from streaming_job.transaction.writer import headers_of

GROUPS = 2
SECOND = "model-rollouts-replay-better"


class _Job:
    """All key groups of a job, with rollouts of their own."""

    def __init__(self, query: str, world: World, rollouts: Sequence[Record], settings: JobSettings) -> None:
        self.query, self.topic = query, rollouts[0].topic
        topics = TOPICS.model_copy(update={"model_rollouts": self.topic})
        self.rules = replace(world.rules(GROUPS, load_any), topics=topics)
        self.groups = [Group(number, self.rules) for number in range(GROUPS)]
        self._settings = settings
        self.tables: Offsets = {(TOPICS.profiles, 0): 0, (self.topic, 0): 0}
        self._left = {TOPICS.profiles: [*world.profiles], self.topic: [*rollouts]}
        self._progress: dict[int, GroupProgress] = {}
        self._starts: dict[int, Offsets] = {}
        self.last: dict[int, dict[str, Any]] = {}
        """The newest progress record of each group."""

    def decide(self, transactions: Sequence[Record], *, aloud: bool) -> list[Outcome]:
        """Fold the tables, decide transactions, and return what is to be written, by group."""
        known = max(record.timestamp for record in transactions)
        changes: list[Record] = []
        for topic, records in self._left.items():
            # the job does not start without a rollout
            is_first = topic == self.topic and not self.tables[topic, 0]
            while records and (records[0].timestamp <= known or (is_first and len(changes) < 2)):
                changes.append(records.pop(0))
                self.tables[topic, 0] += 1
        outcomes = []
        for group in self.groups:
            group.take(changes, transactions)
            if aloud:
                outcomes.append(group.core.take_outcome())
                continue
            silent = group.core.take_outcome()
            # dead letters of this topic have no other writer, so they are written with the next output
            letters = [letter for letter in silent.dead_letters if letter.topic == self.topic]
            group.core.outcome.dead_letters.extend(letters)
        return outcomes

    def begin(self, group: int, last: Mapping[str, Any] | None) -> None:
        """Continue the output after a progress record; None: begin it."""
        self._progress[group] = GroupProgress(
            "job", self.query, group, GROUPS, last, computed=IDENTITIES, fixed=self.rules.fixed,
            settings=self._settings.decisive,
        )  # fmt: skip
        self._starts[group] = {**self.tables, **last_record.positions(last)}

    def commit(self, group: int, outcome: Outcome, ends: Offsets) -> bytes:
        """Return the next progress record."""
        for topic in DIGESTED:
            outcome.records[topic].sort(key=lambda record: (record.partition, record.offset))
        record = self._progress[group].record(
            outcome, epoch=0, started_at=START, now=START + 1, starts=self._starts[group], ends=ends,
            transactions_topic=TOPICS.transactions, table_lag={},
        )  # fmt: skip
        self._starts[group], self.last[group] = ends, json.loads(record)
        return record


class SwitchedLog:
    """See `audit.topic_log.Log`; a job fills it commit by commit, while it is switched."""

    def __init__(self, world: World, others: World, script: Sequence[tuple[int, int]]) -> None:
        """Begin with all inputs and no output.

        Args:
            world: transactions, profiles, and the rollouts of the first job.
            others: rollouts of the second job.
            script: for each commit of all groups the number of transactions up to which it decides, and which
                job (0 or 1) does it.
        """
        self.world, self._script, self._done = world, list(script), 0
        rollouts = [[*world.rollouts], [record._replace(topic=SECOND) for record in others.rollouts]]
        self.settings = settings_of_nowhere.settings(job_id="job", topics=TOPICS, key_groups=GROUPS)
        """Those of the job that decides at the end."""
        last = script[-1][1]
        if last:
            topics = TOPICS.model_copy(update={"model_rollouts": SECOND})
            self.settings = self.settings.model_copy(update={"topics": topics})
        self.topics: dict[str, list[Record]] = {name: [] for name in TOPICS.model_dump().values()}
        self.topics |= {TOPICS.profiles: [*world.profiles], TOPICS.model_rollouts: rollouts[0]}
        self.topics |= {SECOND: rollouts[1], TOPICS.transactions: [*world.transactions]}
        self._jobs = [_Job(f"q{n}", world, each, self.settings) for n, each in enumerate(rollouts)]
        self._speaks, self._commit_id = -1, 0
        self.group: dict[tuple[str, int], int] = {}
        """Committed offsets."""
        self.spoken: dict[tuple[int, int], int] = {}
        """(partition, offset) of a transaction -> the job that has decided it aloud."""

    @property
    def is_over(self) -> bool:
        """Whether all has been committed."""
        return not self._script

    def commit(self) -> None:
        """Decide the next transactions, in both jobs, and write what one of them has decided."""
        (end, number), *self._script = self._script
        transactions = self.world.transactions[self._done : end]
        outcomes: list[Outcome] = []
        if number != self._speaks:
            self.take_over(number)
        for which, job in enumerate(self._jobs):
            outcomes += job.decide(transactions, aloud=which == number)
        self._done = end
        self.spoken |= {(record.partition, record.offset): number for record in transactions}
        decided = Counter(record.partition for record in self.world.transactions[:end])
        job, partitions = self._jobs[number], range(self.world.partitions)
        self._commit_id += 1
        for group, outcome in enumerate(outcomes):
            own = {(TOPICS.transactions, p): decided[p] for p in partitions if p % GROUPS == group}
            value = job.commit(group, outcome, {**own, **job.tables})
            self.group |= own
            for field, records in outcome.records.items():
                for record in records:
                    self._write(getattr(TOPICS, field), record.record_key, record.encode(), job.query, group)
            self._write(TOPICS.job_progress, b"job", value, job.query, group)

    def play(self) -> "SwitchedLog":
        """Commit everything."""
        while not self.is_over:
            self.commit()
        return self

    def take_over(self, number: int) -> None:
        """Write the seam of a job; `commit` does, where the script changes to another."""
        job = self._jobs[number]
        if self._speaks < 0:
            for group in range(GROUPS):
                job.begin(group, None)
        else:
            before = Predecessor(
                self._jobs[self._speaks].last, dict(self.group), self._commit_id, job.rules.layout
            )
            after = Successor(
                "job", job.query, job.rules.key_groups, job.rules.layout, (TOPICS.profiles, job.topic),
                (job.topic,), IDENTITIES,
            )  # fmt: skip
            self._commit_id += 1
            for group, record in first_records(before, after, "test", START).items():
                self._write(TOPICS.job_progress, b"job", record, job.query, group)
                job.last[group] = json.loads(record)
                job.begin(group, job.last[group])
        self._speaks = number

    def _write(self, topic: str, key: bytes | None, value: bytes | None, query: str, group: int) -> None:
        headers = tuple(headers_of(query, group, self._commit_id))
        records = self.topics[topic]
        records.append(Record(topic, 0, len(records), START, key, value, headers))

    def committed(self, group: str, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
        """See `Log`."""
        return dict(self.group)

    def ends(self, topic: str) -> dict[int, int]:
        """See `Log`."""
        ends = dict.fromkeys(range(self.world.partitions if topic == TOPICS.transactions else 1), 0)
        return ends | {record.partition: record.offset + 1 for record in self._records(topic)}

    def beginnings(self, topic: str) -> dict[int, int]:
        """See `Log`."""
        firsts = {record.partition: record.offset for record in reversed(self._records(topic))}
        return {partition: firsts.get(partition, 0) for partition in self.ends(topic)}

    def read(
        self, topic: str, ends: Mapping[int, int] | None = None, starts: Mapping[int, int] | None = None
    ) -> Iterator[Record]:
        """See `Log`."""
        for record in list(self._records(topic)):
            first, end = (starts or {}).get(record.partition, 0), (ends or {}).get(record.partition, 0)
            if record.offset >= first and (ends is None or record.offset < end):
                yield record

    def _records(self, topic: str) -> list[Record]:
        if topic not in self.topics:
            raise TopicReadError(f"no topic {topic}")
        return self.topics[topic]
