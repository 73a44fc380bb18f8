"""A backtest over an archive, in one or more processes, each with some of the partitions."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from feature_store.catalogue import HOUR_MS, names_of
from feature_store.merchants.catalogue import computed
from feature_store.state.journal import MemoryPieces
from feature_store.utc import time_of
from models import loading
from models.policy import Policy
from models.registry import ModelRef
from models.scoring import Scorer
from streaming_job.backtest.alerts import Before, LiveAlerts
from streaming_job.backtest.candidate import promoted
from streaming_job.backtest.group import BacktestGroup
from streaming_job.backtest.labels import HashedLabels, Labels
from streaming_job.backtest.log import ArchiveLog, BacktestError
from streaming_job.backtest.tally import Tally
from streaming_job.backtest.window import History, Window
from streaming_job.contracts.topics import Topics
from streaming_job.decide.decider import Lookup
from streaming_job.decode.framed import RecordSchemas
from streaming_job.decode.transactions import TimeLimits
from streaming_job.facts import record
from streaming_job.facts.table import NEVER_PROMISED, FactTable, MerchantRules
from streaming_job.group.rules import Rules
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.progress.outcome import Outcome

Progress = Callable[[int], None]
"""Called with the number of transactions taken since the last call."""


@dataclass(frozen=True)
class Job:
    """What decisions of the live job depend on."""

    topics: Topics
    partitioner: Partitioner
    limits: TimeLimits
    tracking_uri: str
    models: Path
    """Directory of the models' local copies."""
    merchants: MerchantRules | None
    groups: int
    """Number of key groups, which write merchant facts."""

    @property
    def computed(self) -> tuple[str, ...]:
        """Features that models may use, name:version, in column order."""
        return computed(merchants=self.merchants is not None)

    def rules(self, key_groups: KeyGroups) -> Rules:
        """Return the rules for groups of partitions."""
        columns = names_of(self.computed)

        @cache
        def load(ref: ModelRef) -> Scorer:
            return loading.load(ref, self.tracking_uri, self.models).on(columns)

        return Rules(self.topics, key_groups, self.limits, load, merchants=self.merchants)


@dataclass(frozen=True)
class Task:
    """A backtest, as its processes get it."""

    log: ArchiveLog
    job: Job
    model: ModelRef
    policy: Policy
    window: Window
    history: History
    labels: HashedLabels
    before: Before

    def decide(self, group: int, groups: int, progress: Progress = lambda rows: None) -> Tally:
        """Decide the transactions of the partitions p mod groups = group, and count what becomes of them."""
        tally = Tally(self.window, self.labels, self.history.windows_whole_from)
        for rows, _ in self.outcomes(group, groups, tally):
            progress(rows)
        return tally

    def outcomes(self, group: int, groups: int, tally: Tally) -> Iterator[tuple[int, Outcome]]:
        """Yield the number of records of each batch, and what became of them; see `decide`."""
        log, job, topics = self.log, self.job, self.job.topics
        partitions = max(log.partitions(topics.transactions)) + 1
        rules = job.rules(KeyGroups(job.partitioner, partitions, groups))
        rollouts = promoted(self.model, self.policy, self.window.since, topics, job.computed)
        merchants = None if job.merchants is None else merchant_facts(log, job)[0]
        schemas = record_schemas(log, topics)
        decided = BacktestGroup(
            group, rules, rollouts, self.window.since, self.before, tally, merchants, schemas
        )
        decided.fold_profiles(log, self.window.until)
        for partition in rules.key_groups.own(group):
            for records in log.records(
                topics.transactions, partition, self.history.begins, self.window.until, keys=False
            ):
                yield len(records), decided.take(records)


def run(task: Task, processes: int, progress: Progress = lambda rows: None) -> Tally:
    """Run a backtest.

    Args:
        processes: 1: in this process.

    Raises:
        BacktestError: one of several processes was killed.
    """
    if processes == 1:
        return task.decide(0, 1, progress)
    whole = Tally(task.window, task.labels)
    try:
        with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
            for part in [pool.submit(task.decide, group, processes) for group in range(processes)]:
                whole.add(part.result())
    except BrokenProcessPool as fault:
        raise BacktestError(
            "a process of the backtest was killed, perhaps for lack of memory; give fewer --processes, or a "
            "shorter history by --history-days"
        ) from fault
    return whole


def merchant_facts(log: ArchiveLog, job: Job) -> tuple[Lookup, int]:
    """Return the lookup of merchant label features, and the time up to which it has all facts, ms."""
    assert job.merchants is not None
    topic, promises = job.topics.merchant_facts, dict[int, int]()
    table = FactTable(job.merchants, job.groups, MemoryPieces(), {})
    for partition in log.partitions(topic):
        for records in log.records(topic, partition):
            batch = record.read(records, job.merchants.job_id, job.groups)
            for group, until in batch.promises.items():
                promises[group] = max(until, promises.get(group, until))
            # without promises the table drops no fact, and a lookup ignores facts of later than its time
            table.fold(replace(batch, promises={}))
    horizon = min(promises.get(group, NEVER_PROMISED) for group in range(job.groups))
    return table.features, horizon


def record_schemas(log: ArchiveLog, topics: Topics) -> RecordSchemas | None:
    """Return the archived schemas of framed transactions; None: the job does not read such."""
    if not topics.record_schemas:
        return None
    schemas = RecordSchemas()
    for partition in log.partitions(topics.record_schemas):
        for records in log.records(topics.record_schemas, partition):
            schemas.fold(records)
    return schemas


def read_labels(log: ArchiveLog, topics: Topics, window: Window) -> Labels:
    """Read the labels that arrived since the beginning of a window."""
    labels = Labels(topics)
    for topic in labels.contracts:
        for partition in log.partitions(topic):
            for records in log.records(topic, partition, window.since):
                labels.add(records)
    return labels


def read_alerts(log: ArchiveLog, topics: Topics, window: Window, history_from: int) -> LiveAlerts:
    """Read the live job's alerts of a window, and those of the history before it.

    Raises:
        BacktestError: alerts of the window may be lost.
    """
    for topic in (topics.fraud_alerts, topics.suppressed_alerts):
        if log.has_lost(topic, window.since):
            raise BacktestError(
                f"records of {topic} were deleted before they were archived, so the live alerts since "
                f"{time_of(window.since)} are not all known; compare fewer days"
            )
    live = LiveAlerts(topics.transactions, window.since, window.until)
    for topic in (topics.fraud_alerts, topics.suppressed_alerts):
        for partition in log.partitions(topic):
            # an alert is written after its transaction has arrived, by another clock
            for records in log.records(topic, partition, history_from - HOUR_MS, keys=False):
                live.add(records.values.to_pylist(), suppressed=topic == topics.suppressed_alerts)
    return live
