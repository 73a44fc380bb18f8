"""A key group that processes its log in batches, without the job's loop (`group.loop`)."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, load_meta, rebuild
from loadtests.oracle import Record
from streaming_job.group.core import GroupCore
from streaming_job.group.rules import Rules
from streaming_job.group.silence import Silence
from streaming_job.log.records import Offsets, Records
from streaming_job.progress.measures import measure
from streaming_job.progress.outcome import Outcome


class Group:
    """A key group whose epochs are batches."""

    def __init__(self, number: int, rules: Rules) -> None:
        """Begin with an empty state."""
        self._number, self._rules = number, rules
        self.store = MemoryPieces()
        self._positions: Offsets = {}
        self.core = self._core(self._state(), Meta())

    def _state(self) -> GroupState:
        return GroupState(MemoryArena(), self._rules.limits.lateness_ms)

    def _core(self, state: GroupState, meta: Meta) -> GroupCore:
        return GroupCore(self._number, self._rules, state, meta, self.store, Silence({}))

    def take(self, tables: Iterable[Record], transactions: Iterable[Record]) -> None:
        """Run one epoch: fold records of tables, then decide the group's own transactions."""
        own = self._rules.key_groups.own(self._number)
        mine = [record for record in transactions if record.partition in own]
        changes = list(tables)
        for records in as_records(changes):
            self.core.fold(records)
        for records in as_records(mine):
            self.core.decide(records)
        for record in (*changes, *mine):
            self._positions[record.topic, record.partition] = record.offset + 1
        self.core.seal(self.store, self._positions)

    def rebuild(self) -> None:
        """Rebuild the state from its pieces; the outcome collected so far stays."""
        state, meta = self._state(), load_meta(self.store)
        rebuild(self.store, meta, state)
        outcome, self.core = self.core.outcome, self._core(state, meta)
        self.core.outcome = outcome


def merged(outcomes: Iterable[Outcome]) -> Outcome:
    """Merge the outcomes of several key groups; fields that no test of merged outcomes compares stay empty.

    Alerts and dead letters are sorted by position in the log.
    """
    whole = Outcome()
    for outcome in outcomes:
        measure(outcome)
        whole.feature_counts = outcome.feature_counts  # those of the last group
        for topic, records in outcome.records.items():
            whole.records[topic] += records
        whole.trials.add(outcome.trials)
        whole.counts.update(outcome.counts)
        whole.rules.update(outcome.rules)
        whole.partitions |= outcome.partitions  # no partition belongs to two groups
        whole.scores = whole.scores + outcome.scores
    whole.records["fraud_alerts"].sort(key=lambda alert: (alert.partition, alert.offset))
    whole.dead_letters.sort(key=lambda letter: (letter.topic, letter.partition, letter.offset))
    return whole


def as_records(records: Iterable[Record]) -> Iterator[Records]:
    """Records as read from the log, topic by topic."""
    topics: dict[str, list[Record]] = {}
    for record in records:
        topics.setdefault(record.topic, []).append(record)
    for topic, result in topics.items():
        result.sort(key=lambda record: (record.partition, record.offset))
        yield Records(
            topic,
            np.array([r.partition for r in result], dtype=np.int32),
            np.array([r.offset for r in result], dtype=np.int64),
            np.array([r.timestamp for r in result], dtype=np.int64),
            pa.array([r.key for r in result], pa.binary()),
            pa.array([r.value for r in result], pa.binary()),
        )
