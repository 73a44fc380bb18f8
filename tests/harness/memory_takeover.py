"""Takeovers between jobs in memory: each generation is all key groups of a job, over one log."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from feature_store.catalogue import IDENTITIES
from feature_store.state.journal import load_meta
from harness.log_world import TOPICS
from harness.memory_job import MemoryJob, Output
from harness.memory_log import Fate, KilledError, MemoryLog
from loadtests.oracle import Record
from streaming_job.contracts import Reason
from streaming_job.group.rules import Rules
from streaming_job.group.stored_positions import positions_of
from streaming_job.log.records import Offsets
from streaming_job.progress import last_record
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.writer import GroupProgress
from streaming_job.takeover.inheritance import Former, receivers
from streaming_job.takeover.level import Level
from streaming_job.takeover.seam import Predecessor, Successor, first_records

JOB = "job"
KEPT = "rollouts_set_aside", "silent_before"
"""Fields of the abridged progress records of `memory_job` that are those of real ones."""


@dataclass
class MemoryWatch:
    """See `warm.Watch`: looks at the newest progress of a generation."""

    outputs: list[Output]
    rules: Rules
    """Those of the successor."""

    def __post_init__(self) -> None:
        """Begin without records."""
        topics = self.rules.topics
        self.level = Level(topics.transactions, topics.model_rollouts, self.rules.retired)

    def look(self) -> None:
        """See `warm.Watch`."""
        for group, output in enumerate(self.outputs):
            if output.progress is not None:
                self.level.add({"key_group": group, "key_groups": len(self.outputs), **output.progress})


class Generation:
    """The key groups of a job."""

    def __init__(self, query_id: str, rules: Rules, log: MemoryLog, fate: Fate) -> None:
        """Start with empty checkpoints."""
        self.query_id, self.rules, self._fate = query_id, rules, fate
        groups = range(rules.key_groups.groups)
        self.jobs = [MemoryJob(group, rules, log, fate, goes_on=True) for group in groups]

    @property
    def outputs(self) -> list[Output]:
        """The current output of each key group."""
        return [job.output for job in self.jobs]

    def epoch(self, group: int, looks: int, last_call: int | None, watch: MemoryWatch | None = None) -> None:
        """Run one epoch of a group, which may be killed.

        Args:
            group: number, modulo the number of groups.
            looks: turns of the loop before the request for a cut.
            last_call: number of calls before the one that kills the process; None: no kill.
            watch: given, the group decides in silence, up to the output that it watches.
        """
        job = self.jobs[group % len(self.jobs)]
        self._fate.left = last_call
        try:
            if watch is None:
                job.epoch(looks)
            else:
                job.warm_epoch(looks, watch)
        except KilledError:
            return
        finally:
            self._fate.left = None

    def inherit(self, predecessor: "Generation") -> None:
        """Begin with the predecessor's newest checkpoints."""
        groups, layout = len(predecessor.jobs), self.rules.layout
        former = Former(predecessor.rules.layout, groups)
        takers = receivers(former, layout, len(self.jobs))
        for job in predecessor.jobs:
            while not positions_of(load_meta(job.pieces)):
                job.epoch(looks=0)
        for number, job in enumerate(self.jobs):
            stores = {g: predecessor.jobs[g].pieces for g in range(groups) if number in takers[g]}
            job.inherit(stores, former)

    def begin(self) -> None:
        """Run the groups until each has written a progress record."""
        for job in self.jobs:
            while job.output.progress is None:
                job.epoch(looks=4)

    def drain(self, log: MemoryLog, epochs: Sequence[tuple[int, int, int | None]]) -> None:
        """Run the groups to the ends of their inputs, each in new processes.

        Args:
            epochs: runs of epochs that may be killed; before each that is, the drain starts anew.
        """
        inputs = [self.rules.topics.transactions, *self.rules.topics.tables, *self.rules.retired]

        def start() -> None:
            ends = log.ends(inputs)
            for job in self.jobs:
                job.drain(ends)

        start()
        for epoch in epochs:
            if epoch[2] is not None:
                start()
            self.epoch(*epoch)
        for _ in range(400):
            if all(job.is_drained for job in self.jobs):
                return
            for job in self.jobs:
                job.epoch(looks=40)
        raise AssertionError("the groups make no progress")

    def finish(self) -> None:
        """Run all groups to the end of the log."""
        for _ in range(400):
            if all(job.is_done for job in self.jobs):
                return
            for job in self.jobs:
                job.epoch(looks=40)
        raise AssertionError("the groups make no progress")

    def record(self, group: int) -> dict[str, Any]:
        """The newest progress record of a group, with all fields."""
        output = self.jobs[group].output
        ends = last_record.positions(output.progress)
        progress = GroupProgress(
            JOB, self.query_id, group, len(self.jobs), None, output.commit_id - 1, IDENTITIES,
            {"layout": self.rules.layout.to_json()},
        )  # fmt: skip
        record = progress.record(
            Outcome(), epoch=0, started_at=0, now=0, starts=ends, ends=ends,
            transactions_topic=self.rules.topics.transactions, table_lag={},
        )  # fmt: skip
        assert output.progress is not None
        kept = {name: output.progress[name] for name in KEPT if name in output.progress}
        whole = {**orjson.loads(record), **kept}
        read = last_record.newest_read(output.progress)
        for part in whole["partitions"]:
            if (tp := (part["topic"], part["partition"])) in read:
                part["newest"] = read[tp]._asdict()
        return whole

    def _facts_from(self) -> dict[int, Offsets]:
        """Where the inherited states end in the topics of labels and facts; see `Handover`."""
        topics = {*self.rules.tables} - {*TOPICS.tables}
        return {
            group: {tp: end for tp, end in job.positions.items() if tp[0] in topics}
            for group, job in enumerate(self.jobs)
            if topics
        }

    def take_over(self, predecessor: "Generation") -> None:
        """Continue the output of a generation, which is not run any more; each group loses its process."""
        offsets: Offsets = {}
        for output in predecessor.outputs:
            offsets |= output.committed
        records = {group: predecessor.record(group) for group in range(len(predecessor.jobs))}
        newest = max(output.commit_id for output in predecessor.outputs)
        before = Predecessor(records, offsets, newest, predecessor.rules.layout)
        after = Successor(
            JOB,
            self.query_id,
            self.rules.key_groups,
            self.rules.layout,
            self.rules.tables,
            (TOPICS.model_rollouts,),
            IDENTITIES,
            self.rules.retired,
            None if self.rules.merchants is None else self.rules.merchants.delay_ms,
            self._facts_from(),
        )
        for group, record in first_records(before, after, "test", 0).items():
            own = {(self.rules.topics.transactions, part) for part in self.rules.key_groups.own(group)}
            job = self.jobs[group]
            job.lose_copy()
            job.output = Output(
                committed={tp: offsets.get(tp, 0) for tp in own}, progress=orjson.loads(record)
            )


@dataclass
class Union:
    """The output of several generations, by the transactions as they were before any move of the cards."""

    alerts: list[tuple[int, int, bytes]]
    """Partition and offset of the transaction, and the alert about it; sorted."""
    letters: list[bytes]
    """Dead letters, without the detail of those of a wrong partition; sorted."""
    late: list[tuple[str, int, int]]
    """Places of the records of retired topics that became dead letters; sorted."""
    counts: Counter[str]


def union(outputs: list[Output], origins: Mapping[tuple[str, int, int], Record] | None = None) -> Union:
    """Return the union of outputs.

    Args:
        origins: as of the log; None: no transaction has moved.
    """
    whole = Union([], [], [], Counter())
    for output in outputs:
        for values in output.records["fraud_alerts"].values():
            of_partition = [orjson.loads(value) for value in values]
            offsets = [alert["source"]["offset"] for alert in of_partition]
            assert offsets == sorted(offsets), "a card's alerts are out of order"
            for alert in of_partition:
                _name_origin(alert["source"], origins or {})
                place = alert["source"]["partition"], alert["source"]["offset"]
                whole.alerts.append((*place, orjson.dumps(alert)))
        for letter in map(orjson.loads, output.values("dead_letters")):
            if letter["reason"] == Reason.RETIRED_TOPIC:
                whole.late.append((letter["topic"], letter["partition"], letter["offset"]))
                continue
            _name_origin(letter, origins or {})
            if letter["reason"] == Reason.WRONG_PARTITION:
                letter["detail"] = ""
            whole.letters.append(orjson.dumps(letter))
        whole.counts.update(output.counts)
    for values in whole.alerts, whole.letters, whole.late:
        values.sort()
    return whole


def _name_origin(source: dict[str, Any], origins: Mapping[tuple[str, int, int], Record]) -> None:
    """Replace the place of a transaction by where it was before any move."""
    if origin := origins.get((source["topic"], source["partition"], source["offset"])):
        source |= {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset}
