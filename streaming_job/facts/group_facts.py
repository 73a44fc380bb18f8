"""The merchant facts of a key group, which folds all groups' facts and writes its own exactly once. Pure.

The group writes three kinds of facts:

    counts    of an arrival hour, once the hour is over in the group's part of the log
    reports   of each label that says fraud or no fraud (some say neither), once the transactions that arrived
              before it are decided
    promise   that all facts of the group that take effect before some time are written

A fact that a group writes after a promise never takes effect before the promised time: if it normally would,
it takes effect later. So a group that has read the promises of all groups up to a time has all facts that
take effect before that time.

A start reads some input before Q again. It skips labels before Q, because their reports have been written. It
counts transactions before Q again, because the counts of hours that were open at Q have not been written; it
drops the counts of earlier hours, because they have been written.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS, HOUR_MS, LEAST_TIME_MS
from feature_store.merchants.catalogue import takes_effect
from feature_store.merchants.facts import REPORT, added_up, hour_counts, merchant_hash
from feature_store.state.card_lookup import find_transactions, label_age_ms, may_drop
from feature_store.state.group_state import GroupState
from feature_store.state.journal import PieceSink, PieceStore
from streaming_job.contracts import Reason
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
from streaming_job.progress.outcome import Outcome, OutputRecord

log = logging.getLogger(__name__)

AUTHOR = "facts_author"
"""Name in `Meta.extra`: id of the job under which the groups write their facts. It stays when another job
continues with the state: its facts continue those on the topic."""


class GroupFacts:
    """The facts of a key group: the table of all groups' facts, and its own facts to be written."""

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
        """Continue from persisted state.

        Args:
            state: state of the group's cards, which keeps the ids of transactions.
            extra: `Meta.extra`, persisted as JSON.
        """
        self._group, self._rules, self._key_groups, self._state = group, rules, key_groups, state
        self._contracts = labels.contracts(topics)
        self._key = str(group).encode()
        self._author = Author(extra.setdefault(AUTHOR, rules.job_id), group)
        self.table = FactTable(rules, key_groups.groups, store, extra)
        self._hours = OpenHours(store, extra)
        # in the order of `labels.Position`, in which the last one counts
        self._labels = LabelQueue([*self._contracts])
        self._last_promise = NEVER_PROMISED
        """The last promise made here, which may not be on the log yet."""

    @property
    def label_topics(self) -> Collection[str]:
        """The topics of labels."""
        return self._contracts.keys()

    @property
    def promised(self) -> int:
        """Greatest time that the group has promised, ms: its facts that take effect before it are written."""
        return max(self._last_promise, self.table.promise(self._group))

    def fold(self, records: Records, silent_before: Offsets) -> int:
        """Fold facts or labels; labels before `silent_before` (Q) are skipped.

        Returns:
            Number of foreign records (see `facts.record`) from Q on.
        """
        contract = self._contracts.get(records.topic)
        if contract is None:
            facts = read(records, self._author.job_id, self._key_groups.groups)
            self.table.fold(facts)
            return self._new_foreign(records.topic, facts.foreign, silent_before)
        decoded = labels.decode(records, contract, self._key_groups, self._group)
        self._labels.add(
            item for item in decoded if item.offset >= silent_before.get((item.topic, item.partition), 0)
        )
        return 0

    def _new_foreign(self, topic: str, foreign: Collection[tuple[int, int]], silent_before: Offsets) -> int:
        """Count and log the foreign records from Q on: all groups skip them, only group 0 reports them."""
        new = [
            f"{topic}-{partition}@{offset}"
            for partition, offset in foreign
            if offset >= silent_before.get((topic, partition), 0)
        ]
        if self._group != 0 or not new:
            return 0
        log.warning(
            "%d records of %s, from %s on, are no merchant facts, and are skipped; find out who writes to "
            "the topic",
            len(new), topic, new[0],
        )  # fmt: skip
        return len(new)

    def positions(self, read: Offsets) -> Offsets:
        """Return for each partition of `read` the offset before which the state includes every record.

        That is the offset of the first waiting label; without one, the offset in `read`.
        """
        return self._labels.positions(read)

    def count(self, batch: NDArray[np.void], outcome: Outcome) -> None:
        """Count accepted transactions.

        Args:
            batch: records of TRANSACTION, shape (n,).
            outcome: receives late facts: counts of transactions that arrived in hours already written.
        """
        merchants, arrivals = batch["merchant"], batch["arrival"]
        is_open = arrivals // HOUR_MS >= hour_of(self.promised)
        self._hours.add(merchants[is_open], arrivals[is_open])
        if outcome.is_silent or is_open.all():
            return
        # the counts of hours that are not open have been written, but lookups use them only once the hour is
        # ripe, `ripe_after_ms` after its end. So a late transaction is still added to its own hour, unless
        # that is ripe before the promised time; then it is added to the first hour that is not
        unseen = -(-(self.promised - self._rules.ripe_after_ms) // HOUR_MS) - 1
        late = hour_counts(merchant_hash(merchants[~is_open]), arrivals[~is_open])
        late["hour"] = np.maximum(late["hour"], unseen)
        self._write(outcome, self._author.counts(added_up(late)))
        outcome.counts["late_facts"] += late.size

    def has_due_facts(self, time: int, seen: int) -> bool:
        """Return whether `settle` has anything to do."""
        return self._labels.is_due(time) or self._next_promise(time, seen) > self.promised

    def barriers(self, passing: Sequence[Records]) -> dict[int, int]:
        """Return the arrival beyond which a partition's transactions wait for a label, by partition, ms.

        A label finds what its card has kept when the label arrives, however the log is divided into
        mini-batches. So transactions that may have the card drop events wait until the label is settled.

        Args:
            passing: the transactions to be decided next; their keys are card ids, or null.
        """
        newest = max((int(records.arrivals.max()) for records in passing), default=BEGUN)
        labels = [(due_at, item) for due_at, item in self._labels.waiting(newest) if isinstance(item, Label)]
        if not labels:
            return {}
        cards = pa.array([item.key for _, item in labels], pa.binary())
        rows: Counter[bytes | None] = Counter()
        for records in passing:
            rows.update(records.keys.filter(pc.is_in(records.keys, value_set=cards)).to_pylist())
            rows[None] += records.keys.null_count
        barriers: dict[int, int] = {}
        for (due_at, item), home in zip(labels, self._key_groups.partitions_of(cards).tolist(), strict=True):
            if may_drop(self._state, item.lo, item.hi, rows[item.key] + rows[None]):
                barriers[home] = min(due_at, barriers.get(home, due_at))
        return barriers

    def settle(self, time: int, seen: int, outcome: Outcome) -> list[Label | DeadLetter]:
        """Write the facts that are due, after all records up to a time have been decided and folded.

        Args:
            time: clock of the group, see `LogClock.time`.
            seen: greatest promise of any group, read before this group was found to be IDLE; an IDLE group
                makes this promise, too.
            outcome: receives facts.

        Returns:
            The labels whose transactions were found, and the dead letters of the others.
        """
        settled = [self._report(item, outcome) for item in self._labels.due(time)]
        promise = self._next_promise(time, seen)
        if promise > self.promised:
            written, over = hour_of(self.promised), hour_of(promise)
            counts = self._hours.close(over)
            # hours that an earlier run has written are left out: their transactions were only decided again
            facts = self._author.counts(counts[counts["hour"] >= written])
            self._write(outcome, (*facts, self._author.promise(promise)))
            outcome.has_promise = True
            self._last_promise = promise
        return settled

    def _write(self, outcome: Outcome, facts: Iterable[bytes]) -> None:
        outcome.records["merchant_facts"] += (OutputRecord(self._key, fact) for fact in facts)

    def _next_promise(self, time: int, seen: int) -> int:
        if time == IDLE:
            return seen
        return NEVER_PROMISED if time == BEGUN else promise_of(hour_to_come(time))

    def _report(self, item: Label | DeadLetter, outcome: Outcome) -> Label | DeadLetter:
        if isinstance(item, DeadLetter):
            return item
        transactions = find_transactions(self._state, item.lo, item.hi, item.transaction, item.arrival)
        if not transactions.size:
            return self._unmatched(item)
        if item.fraud is None:
            return item
        effective_at = int(takes_effect(np.array([item.arrival]))[0])
        outcome.counts["late_facts"] += effective_at < self.promised
        source = {"topic": item.topic, "partition": item.partition, "offset": item.offset}
        for transaction in transactions:
            (report,) = np.zeros(1, dtype=REPORT)
            for name in ("merchant", "arrival", "spike"):
                report[name] = transaction[name]
            report["transaction"], report["fraud"] = item.transaction, item.fraud
            report["effective_at"] = max(effective_at, self.promised)
            self._write(outcome, (self._author.report(report, source),))
        return item

    def _unmatched(self, label: Label) -> DeadLetter:
        """Return the dead letter of a label whose transaction is not in its card's history.

        A time in seconds would always look too old, and so hide that the sender's labels match nothing.
        """
        age_ms = label_age_ms(self._state.lateness_ms)
        if label.event_time is not None and LEAST_TIME_MS <= label.event_time <= label.arrival - age_ms:
            detail = (
                f"the label came {age_ms // DAY_MS} days or more after its transaction; see docs/labels.md"
            )
            return label.dead_letter(Reason.LABEL_TOO_OLD, detail)
        detail = f"the card has no such transaction of the last {age_ms // DAY_MS} days; see docs/labels.md"
        return label.dead_letter(Reason.UNKNOWN_TRANSACTION, detail)

    def persist(self, store: PieceSink) -> None:
        """Write the changes since the last call."""
        self.table.persist(store)
        self._hours.persist(store)
