"""The core of a key group: folds tables, decides transactions and writes deltas of the state. Pure.

It knows records, outcomes and a store of pieces, but neither Spark nor Kafka. The state is a function of the
log and of a position in it: the same records give the same state and the same alerts, however they are
divided into mini-batches.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat

import numpy as np
import orjson
import pyarrow as pa

from feature_store.layout import rows_of
from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta, PieceSink, PieceStore, append, seal
from streaming_job.contracts import Reason
from streaming_job.dead_letters.record import DeadLetter, LogRecord
from streaming_job.decide.decider import Decider, Deciders, Stopwatch
from streaming_job.decide.model_verdict import ModelJudge
from streaming_job.decide.rollout_history import RolloutHistory, RolloutRecord
from streaming_job.decide.scoring import Challengers
from streaming_job.decode import profiles, snapshots, transactions
from streaming_job.decode.framed import RecordSchemas
from streaming_job.decode.transactions import DecodedTransactions
from streaming_job.facts.group_facts import GroupFacts
from streaming_job.group.pending_delta import PendingDelta
from streaming_job.group.rules import Rules
from streaming_job.group.silence import Silence
from streaming_job.group.stored_positions import inherited_positions, save_positions
from streaming_job.group.trial_pieces import TrialPieces
from streaming_job.log.records import Offsets, Records
from streaming_job.progress.measures import keep, measure
from streaming_job.progress.outcome import Outcome
from streaming_job.runtime.failpoints import Failpoint, reach

log = logging.getLogger(__name__)

ROLLOUTS = "rollouts"
"""Name of the piece that holds the rollout history."""
SCHEMAS = "schemas"
"""Name of the piece that holds the schemas of framed transactions, their topic, and P in it."""
MISPLACED = "only rollouts in partition 0 count, in its order; write this one to partition 0"
"""Detail of the dead letter for a rollout outside partition 0."""
SNAPSHOT_END = "snapshot_end"
"""Name in `Meta.extra`: the arrival that `GroupCore.snapshot_end` returns."""


class GroupCore:
    """A key group's state, the outcome of its records, and the changes that are not persisted yet."""

    def __init__(
        self,
        group: int,
        rules: Rules,
        state: GroupState,
        meta: Meta,
        store: PieceStore,
        silence: Silence,
        set_aside: Mapping[int, str] | None = None,
    ) -> None:
        """Continue from persisted state.

        Args:
            state: the group's state, as of `meta.token`.
            meta: metadata of the persisted pieces; updated in place.
            silence: Q: an earlier run has written the output of the records before Q, so they only update
                the state.
            set_aside: offset -> reason, for each proposal before Q that the earlier run set aside,
                because its models cannot decide.
        """
        self._group, self._rules, self._state, self._meta = group, rules, state, meta
        self.decisive_tables: tuple[str, ...] = rules.topics.tables
        """The tables that must be read to their ends before transactions are decided."""
        self.silence = silence
        """Q: records before it only update the state."""
        self._folded = inherited_positions(meta)
        """Up to where the state includes the tables, of cards for which this is further than P."""
        self._judge = ModelJudge(
            rules.load_model, silence.before((rules.topics.model_rollouts, 0)), set_aside or {}
        )
        self.outcome = Outcome()
        """The outcome since the last `take_outcome`."""
        blob = store.get(ROLLOUTS)
        self._rollouts = RolloutHistory.restore(
            orjson.loads(blob) if blob else [], self._judge, rules.computed
        )
        if blob:
            self.outcome.set_aside = self._rollouts.set_aside
        self._new_rollouts = False
        self._prepared: list[tuple[Records, DecodedTransactions]] = []
        """The transactions of this turn, if they could be decoded already."""
        self._schemas: RecordSchemas | None = None
        """The schemas of framed transactions; None: the job does not read such."""
        if rules.topics.record_schemas:
            blob = store.get(SCHEMAS)
            topic, stored, ends = orjson.loads(blob) if blob else ("", (), {})
            # another topic is read from its beginning
            if topic != rules.topics.record_schemas:
                stored, ends = (), {}
            self._schemas = RecordSchemas(stored)
            # a start that has not read the topic leaves neither P nor Q of it
            self.silence = silence.raised_to({(topic, int(part)): end for part, end in ends.items()})
        self._new_schemas = False
        self._trial = TrialPieces(store, self._rollouts.events)
        # the state's `applied` replaces that of the last progress record: the record may be outdated, because
        # an aborted run that started from an older checkpoint may have written it
        if self._rollouts.events:
            self.outcome.applied = self._trial.applied.to_json()
        challengers = Challengers(rules.load_challenger or rules.load_model)
        self.facts: GroupFacts | None = None
        """The group's merchant facts; None: the job keeps none."""
        if rules.merchants is not None:
            self.facts = GroupFacts(
                group, rules.merchants, rules.topics, rules.key_groups, state, store, meta.extra
            )
            self.decisive_tables = (*self.decisive_tables, *self.facts.label_topics)
        self._deciders = Deciders(
            self._rollouts, rules.load_model, challengers, self._trial.units, self._trial.features,
            rules.release, None if self.facts is None else self.facts.table.features, rules.losses,
        )  # fmt: skip
        self._warm_up()
        self.watch = Stopwatch(self.outcome)
        self._pending = PendingDelta()

    @property
    def pending(self) -> int:
        """Number of profile changes and decided transactions that are in no delta yet."""
        return self._pending.rows

    def take_outcome(self) -> Outcome:
        """Return the outcome since the last call, and begin a new one."""
        outcome = self.outcome
        measure(outcome)
        self.watch.lap("measure")
        outcome.sizes = {
            "cards": self._state.card_count,
            "cards_without_profile": self._state.cards_without_profile,
            "events": self._state.event_count,
            "local_bytes": self._state.arena.nbytes,
        }
        outcome.feature_counts = self._trial.features.to_json
        self.outcome = Outcome()
        self.watch = Stopwatch(self.outcome)
        return outcome

    @property
    def snapshot_end(self) -> int | None:
        """Arrival of the last row of the profiles' first snapshot, ms; None if it has not been read yet."""
        return self._meta.extra.get(SNAPSHOT_END)

    def note_snapshot_end(self, arrival: int | None) -> None:
        """Record the arrival of a snapshot's last row, if there is one; the earliest is kept."""
        end = snapshots.first_end(self.snapshot_end, arrival)
        if end is not None:
            self._meta.extra[SNAPSHOT_END] = end

    def fold(self, records: Records) -> None:
        """Fold records of a table, each partition in the order of offsets."""
        self.outcome.newest |= records.newest()
        if records.topic == self._rules.topics.profiles:
            self._fold_profiles(records)
        elif records.topic == self._rules.topics.model_rollouts:
            self._fold_rollouts(records)
        elif records.topic in self._rules.retired:
            self._refuse_retired(records)
        elif self._schemas is not None and records.topic == self._rules.topics.record_schemas:
            self._fold_schemas(records, self._schemas)
        elif self.facts is not None:
            self.outcome.counts["foreign_facts"] += self.facts.fold(records, self.silence.output)

    def _fold_profiles(self, records: Records) -> None:
        decoded = profiles.decode(records, self._rules.key_groups, self._group)
        self.note_snapshot_end(decoded.snapshot_end)
        self._add_dead_letters(decoded.dead_letters, decoded.letter_homes)
        changes, places, whole = decoded.changes, decoded.places, decoded.whole
        if self._folded.by_home:
            before = self._folded.of_rows(records.topic, changes["partition"], places["home"])
            new = changes["offset"] >= before
            changes, places, whole = changes[new], places[new], whole[new]
        snapshots.mark_later_rows(changes, self.snapshot_end)
        if not changes.size:
            return
        cards = self._state.card_numbers(changes, places)
        before = self.silence.of_rows(records.topic, changes["partition"], places["home"])
        audible = changes["offset"] >= before
        # a card's changes share a partition, so folding those before Q first keeps their order
        with_compacted = partial(snapshots.with_compacted, before=self._rules.losses.profiles_before)
        self._state.change_profiles(*with_compacted(changes[~audible], cards[~audible]))
        late, ignored = self._state.change_profiles(*with_compacted(changes[audible], cards[audible]))
        self.outcome.counts["profile_changes"] += int((audible & whole).sum())
        self.outcome.counts["late_table_changes"] += late
        self.outcome.counts["ignored_profile_changes"] += ignored
        if ignored:
            log.warning(
                "%d of %d profile changes up to %s[%d]@%d are ignored: their cards have newer ones",
                ignored, audible.sum(), records.topic, changes["partition"][-1], changes["offset"][-1],
            )  # fmt: skip
        self._pending.add_changes(*with_compacted(changes, cards))

    def _fold_rollouts(self, records: Records) -> None:
        new = RolloutRecord.of(records.take(np.flatnonzero(records.partitions == 0)))
        refused = self._rollouts.fold(new, self._rules.topics, self._judge)
        self._new_rollouts = True
        self.outcome.set_aside = self._rollouts.set_aside
        self._trial.refresh()
        self.outcome.applied = self._trial.applied.to_json()
        self._warm_up()
        if self._group == 0:  # every group folds every rollout; only group 0 reports them
            silent_before = self.silence.before((records.topic, 0))
            self._add_dead_letters(refused)
            self._add_dead_letters(
                _letter(records, row, Reason.WRONG_PARTITION, MISPLACED)
                for row in np.flatnonzero(records.partitions).tolist()
            )
            faulty = {letter.offset for letter in refused}
            self.outcome.counts["rollouts"] += sum(
                record.offset >= silent_before and record.offset not in faulty for record in new
            )

    def _fold_schemas(self, records: Records, schemas: RecordSchemas) -> None:
        refused, late = schemas.fold(records)
        self._new_schemas = True
        audible = records.offsets >= self.silence.before((records.topic, 0))
        accepted = audible & ~np.isin(np.arange(len(records)), [*refused])
        self.outcome.counts["late_table_changes"] += int(audible[sorted(late)].sum())
        if self._group == 0:  # every group folds every schema; only group 0 reports them
            self.outcome.counts["schemas"] += int(accepted.sum())
            self._add_dead_letters(
                _letter(records, row, fault.reason, fault.detail) for row, fault in refused.items()
            )

    def _refuse_retired(self, records: Records) -> None:
        """Report records of a topic that the transactions have left."""
        detail = f"the transactions have moved to {self._rules.topics.transactions}; write this one there"
        reasons = dict.fromkeys(range(len(records)), (Reason.RETIRED_TOPIC, detail))
        for refused in transactions.with_card_numbers(records, self._rules.limits, self._schemas):
            reasons[refused.row] = refused.reason, refused.detail
        self._add_dead_letters(_letter(records, row, *reason) for row, reason in reasons.items())

    def _warm_up(self) -> None:
        """Load the champion and the challengers in force, so that no transaction waits for them."""
        newest, challengers = self._rollouts.newest, self._deciders.challengers
        self._judge.warm_up(newest)
        challengers.try_again()
        for challenger in newest.challengers if newest is not None else ():
            challengers.scorer(challenger.model)

    def prepare(self, batches: Sequence[Records]) -> None:
        """Decode transactions that are decided next, while the ends of the tables are being looked up."""
        if self._schemas is None:  # else the tables may have new schemas of them
            self._prepared = [(records, self._decode(records)) for records in batches]
            self.watch.lap("decode")

    def _decode(self, records: Records) -> DecodedTransactions:
        rules = self._rules
        for number, (prepared, decoded) in enumerate(self._prepared):
            if prepared is records:
                del self._prepared[number]
                return decoded
        return transactions.decode(records, rules.limits, rules.key_groups, self._schemas)

    def decide(self, records: Records, *, silent: bool = False) -> None:
        """Decide transactions, each partition in the order of offsets.

        The decisive tables must have been folded at least up to the ends that they had when the last
        transaction was read.

        Args:
            records: records of the transactions topic.
            silent: whether an earlier run has written their output, so that only the state is updated.

        Raises:
            NoRolloutError: no model that can decide has been rolled out.
        """
        if silent:
            outcome, self.outcome = self.outcome, Outcome(is_silent=True)
            self.watch = Stopwatch(self.outcome)
            self._decide(records)
            outcome.applied = self.outcome.applied or outcome.applied
            self.outcome = outcome
            self.watch = Stopwatch(self.outcome)
        else:
            self._decide(records)
        self.outcome.newest |= records.newest()

    def _decide(self, records: Records) -> None:
        decoded = self._decode(records)
        self._add_dead_letters(
            _letter(records, rejection.row, rejection.reason, rejection.detail)
            for rejection in sorted(decoded.rejections, key=lambda rejection: rejection.row)
        )
        batch = decoded.records
        self.watch.lap("decode")
        if not batch.size:
            return
        cards = self._state.card_numbers(batch, decoded.places)
        if self._trial.applied.observe(batch):
            self._trial.mark_changed()
            self.outcome.applied = self._trial.applied.to_json()
        decider = Decider(self._state, self._deciders, records.topic, self.outcome, self.watch)
        decisions = decider.decide(batch, decoded.quotes, cards)
        reach(Failpoint.DECIDED)
        keep(self.outcome, batch, decisions, self._state)
        accepted = decisions.accepted
        kept = rows_of(batch, accepted)
        if self.facts is not None:
            self.facts.count(kept, self.outcome)
        self._pending.add_transactions(
            batch.size,
            kept,
            cards[accepted],
            decisions.alerted[accepted],
            decisions.suppressed[accepted],
        )
        self.watch.lap("measure")

    def _add_dead_letters(self, letters: Iterable[DeadLetter], homes: Iterable[int] = repeat(0)) -> None:
        self.outcome.dead_letters.extend(
            letter for letter, home in zip(letters, homes, strict=False) if self._is_new(letter, home)
        )

    def _is_new(self, record: LogRecord, home: int) -> bool:
        return record.offset >= self.silence.before((record.topic, record.partition), home)

    def settle(self, time: int, seen: int) -> None:
        """Write the merchant facts that are due; see `GroupFacts.settle`."""
        if self.facts is not None:
            settled = self.facts.settle(time, seen, self.outcome)
            keys = pa.array([item.key for item in settled], pa.binary())
            homes = self._rules.key_groups.partitions_of(keys).tolist()
            # the first labels were counted and refused by a predecessor that had facts of its own
            new = [item for item, home in zip(settled, homes, strict=True) if self._is_new(item, home)]
            refused = [item for item in new if isinstance(item, DeadLetter)]
            self.outcome.dead_letters.extend(refused)
            self.outcome.counts["labels"] += len(new) - len(refused)
            self.watch.lap("facts")

    def folded_positions(self, positions: Offsets) -> Offsets:
        """Return the offsets up to which the state includes the tables.

        Args:
            positions: the offsets up to which the tables have been read. A label that has been read may still
                wait until the transactions that arrived before it are decided; the state does not include it.
        """
        return positions if self.facts is None else self.facts.positions(positions)

    def append(self, store: PieceSink) -> None:
        """Persist new facts, and pending rows as a delta."""
        if self.facts is not None:
            self.facts.persist(store)
        if not self.pending:
            return
        append(store, self._meta, self._state, self._pending.take())
        self.watch.lap("persist")

    def seal(self, store: PieceSink, positions: Offsets) -> None:
        """End an epoch: write the last delta and P, the positions up to which everything is committed."""
        self.append(store)
        if self._new_rollouts:
            store.put(ROLLOUTS, orjson.dumps(self._rollouts.records))
            self._new_rollouts = False
        if self._new_schemas and self._schemas is not None:
            topic = self._rules.topics.record_schemas
            ends = {str(part): end for (name, part), end in positions.items() if name == topic}
            store.put(SCHEMAS, orjson.dumps((topic, self._schemas.records, ends)))
            self._new_schemas = False
        self._trial.seal(store)
        save_positions(self._meta, positions)
        seal(store, self._meta)
        self.watch.lap("persist")


def _letter(records: Records, row: int, reason: Reason, detail: str) -> DeadLetter:
    return DeadLetter(
        records.topic,
        int(records.partitions[row]),
        int(records.offsets[row]),
        int(records.arrivals[row]),
        records.keys[row].as_py(),
        records.values[row].as_py(),
        reason,
        detail,
    )
