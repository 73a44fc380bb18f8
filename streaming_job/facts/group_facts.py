"""A key group's part in merchant facts: it folds everybody's, and writes its own, each exactly once. Pure.

    counts    of an arrival hour, once the hour is over in the group's part of the log
    reports   of each label, once the transactions that arrived before it are decided
    promise   that what takes effect up to some time is written

A fact never takes effect before a promise that its group has made: one that comes too late for its hour takes
effect later. So whoever has read everybody's promises up to a time has all facts that take effect before it.

What lies before Q has been written: labels there are passed over, and hours there are counted and dropped.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.card_lookup import find_transactions, label_age_ms
from feature_store.catalogue import DAY_MS, HOUR_MS
from feature_store.group_state import GroupState
from feature_store.journal import PieceStore
from feature_store.merchants.catalogue import takes_effect
from feature_store.merchants.facts import REPORT, added_up, hour_counts, merchant_hash
from streaming_job.contracts import Contract, Reason
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decode import labels
from streaming_job.decode.labels import Label
from streaming_job.facts.clock import BEGUN, IDLE, hour_of, hour_to_come, promise_of
from streaming_job.facts.hours import OpenHours
from streaming_job.facts.label_queue import LabelQueue
from streaming_job.facts.record import Author, read
from streaming_job.facts.table import NEVER_PROMISED, FactTable, MerchantRules
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Offsets, Records
from streaming_job.progress.outcome import Outcome


class GroupFacts:
    """Facts of a key group: what it knows, and what it has to say."""

    def __init__(
        self,
        group: int,
        rules: MerchantRules,
        topics: Topics,
        key_groups: KeyGroups,
        state: GroupState,
        store: PieceStore,
        extra: dict[str, Any],
    ) -> None:
        """Go on from persisted state.

        Args:
            group: number of the key group.
            rules: of merchant facts.
            topics: of the job.
            key_groups: which group a card belongs to.
            state: of the group's cards; keeps ids.
            store: the persisted pieces.
            extra: what is kept beside them, as JSON.

        Raises:
            StateDamagedError: a piece is missing or damaged.
        """
        self._group, self._rules, self._key_groups, self._state = group, rules, key_groups, state
        self._contracts = {topics.labels: Contract.LABEL, topics.chargebacks: Contract.CHARGEBACK}
        self._author = Author(rules.job_id, group)
        self.table = FactTable(rules, key_groups.groups, store, extra)
        self._hours = OpenHours(store, extra)
        self._labels = LabelQueue()
        self._said = NEVER_PROMISED
        """The last promise made here, which may not be on the log yet."""

    @property
    def promised(self) -> int:
        """All own facts that take effect before it are written, ms."""
        return max(self._said, self.table.promise(self._group))

    def fold(self, records: Records, quiet: Offsets) -> None:
        """Take in facts, or labels; Q tells which labels are new."""
        contract = self._contracts.get(records.topic)
        if contract is None:
            self.table.fold(read(records, self._rules.job_id))
            return
        found = labels.decode(records, contract, self._key_groups, self._group)
        self._labels.add(item for item in found if item.offset >= quiet.get((item.topic, item.partition), 0))

    def positions(self, read: Offsets) -> Offsets:
        """How far tables have been taken in, labels that wait left out."""
        return self._labels.positions(read)

    def count(self, batch: NDArray[np.void], outcome: Outcome, *, silent: bool) -> None:
        """Count accepted transactions.

        Args:
            batch: records of TRANSACTION, shape (n,).
            outcome: where facts go.
            silent: whether they were counted before.
        """
        merchants, arrivals = batch["merchant"], batch["arrival"]
        is_open = arrivals // HOUR_MS >= hour_of(self.promised)
        self._hours.add(merchants[is_open], arrivals[is_open])
        if silent or is_open.all():
            return
        # behind a promise: in the hour's count as long as nobody has looked at that, else in a later one
        unseen = -(-(self.promised - self._rules.ripe_after_ms) // HOUR_MS) - 1
        late = hour_counts(merchant_hash(merchants[~is_open]), arrivals[~is_open])
        late["hour"] = np.maximum(late["hour"], unseen)
        outcome.facts += self._author.counts(added_up(late))
        outcome.counts["late_facts"] += late.size

    def has_news(self, time: int, seen: int) -> bool:
        """Whether `settle` would say something."""
        return self._labels.is_due(time) or self._next_promise(time, seen) > self.promised

    def settle(self, time: int, seen: int, outcome: Outcome) -> None:
        """Write what is due: everything up to a time has been decided, and the tables read as far.

        Args:
            time: clock of the group, see `LogClock.time`.
            seen: greatest promise of all groups, as known before it was found that this one is IDLE.
            outcome: where facts and dead letters go.
        """
        for item in self._labels.due(time):
            self._take(item, outcome)
        promise = self._next_promise(time, seen)
        if promise > self.promised:
            written, over = hour_of(self.promised), hour_of(promise)
            counts = self._hours.close(over)
            # what a run before this one has written: it is decided again
            outcome.facts += self._author.counts(counts[counts["hour"] >= written])
            outcome.facts.append(self._author.promise(promise))
            self._said = promise

    def _next_promise(self, time: int, seen: int) -> int:
        if time == IDLE:
            return seen
        return NEVER_PROMISED if time == BEGUN else promise_of(hour_to_come(time))

    def _take(self, item: Label | DeadLetter, outcome: Outcome) -> None:
        if isinstance(item, DeadLetter):
            outcome.dead_letters.append(item)
            return
        found = find_transactions(self._state, item.lo, item.hi, item.transaction, item.arrival)
        if not found.size:
            days = label_age_ms(self._state.lateness_ms) // DAY_MS
            detail = f"the card has no such transaction of the last {days} days; see docs/labels.md"
            outcome.dead_letters.append(item.dead_letter(Reason.UNKNOWN_TRANSACTION, detail))
            return
        outcome.counts["labels"] += 1
        if item.fraud is None:
            return
        effective_at = int(takes_effect(np.array([item.arrival]))[0])
        outcome.counts["late_facts"] += effective_at < self.promised
        source = {"topic": item.topic, "partition": item.partition, "offset": item.offset}
        for transaction in found:
            (report,) = np.zeros(1, dtype=REPORT)
            for name in ("merchant", "arrival", "spike"):
                report[name] = transaction[name]
            report["transaction"], report["fraud"] = item.transaction, item.fraud
            report["effective_at"] = max(effective_at, self.promised)
            outcome.facts.append(self._author.report(report, source))

    def seal(self, store: PieceStore) -> None:
        """Write what is new since the last time."""
        self.table.seal(store)
        self._hours.seal(store)
