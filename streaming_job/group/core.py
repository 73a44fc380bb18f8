"""What a key group does to its state: folds tables, decides transactions, writes deltas. Pure.

Knows records in and an outcome out, and a store of pieces; neither Spark nor Kafka. State is a function of
the log and of a position in it: the same records give the same state and the same alerts however they are
cut.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.deltas import Delta
from feature_store.group_state import GroupState
from feature_store.journal import Meta, PieceStore, append, seal
from feature_store.layout import PROFILE, TRANSACTION
from feature_store.merchants.catalogue import computed
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decide.decider import Decider, Deciders, Stopwatch
from streaming_job.decide.model_verdict import ModelJudge
from streaming_job.decide.rollout_history import RolloutHistory, RolloutRecord
from streaming_job.decide.scoring import Challengers, LoadModel
from streaming_job.decode import profiles, snapshots, transactions
from streaming_job.decode.transactions import TimeLimits
from streaming_job.facts.group_facts import GroupFacts
from streaming_job.facts.table import MerchantRules
from streaming_job.group.trial_pieces import TrialPieces
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Offsets, Records
from streaming_job.progress.measures import measure
from streaming_job.progress.outcome import Outcome
from streaming_job.runtime.failpoints import Step, reach

ROLLOUTS = "rollouts"
"""Name of the piece that holds the rollout history."""
POSITIONS, SNAPSHOT_END = "positions", "snapshot_end"
"""Names in `Meta.extra`."""


@dataclass(frozen=True)
class Rules:
    """What decides, beside the log: the same for every start of a job."""

    topics: Topics
    key_groups: KeyGroups
    limits: TimeLimits
    load_model: LoadModel
    """Gives the scorer of a rollout, for rows with the catalogue's columns; has waited before it says that
    the model is unavailable."""
    load_challenger: LoadModel | None = None
    """The same for challengers, for which nothing waits; None: `load_model`."""
    merchants: MerchantRules | None = None
    """Of merchant facts; None: the job keeps none."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The topics that every key group folds."""
        return self.topics.folded(facts=self.merchants is not None)

    @property
    def computed(self) -> tuple[str, ...]:
        """Features that models may ask for, name:version, in column order."""
        return computed(merchants=self.merchants is not None)


class GroupCore:
    """A key group's state, what has come of its records, and what is still to be persisted."""

    def __init__(
        self,
        group: int,
        rules: Rules,
        state: GroupState,
        meta: Meta,
        store: PieceStore,
        quiet: Offsets,
        told: Mapping[int, str] | None = None,
    ) -> None:
        """Go on from persisted state.

        Args:
            group: number of the key group.
            rules: of the job.
            state: as `meta` names it.
            meta: of the persisted pieces; moves on.
            store: the persisted pieces.
            quiet: Q, the offsets up to which an earlier run has said everything: what lies before is decided
                and folded without a word.
            told: by offset of the rollouts before Q that the earlier run has set aside: the reason.
        """
        self._group, self._rules, self._state, self._meta = group, rules, state, meta
        self.quiet = quiet
        self._judge = ModelJudge(rules.load_model, quiet.get((rules.topics.model_rollouts, 0), 0), told or {})
        self.outcome = Outcome()
        """Since the last `take_outcome`."""
        blob = store.get(ROLLOUTS)
        self._rollouts = RolloutHistory.restore(
            orjson.loads(blob) if blob else [], self._judge, rules.computed
        )
        if blob:
            self.outcome.set_aside = self._rollouts.set_aside
        self._new_rollouts = False
        self._trial = TrialPieces(store, self._rollouts.steps)
        if self._rollouts.steps:  # the last record may be of a run from an older checkpoint, cut short
            self.outcome.applied = self._trial.applied.to_json()
        challengers = Challengers(rules.load_challenger or rules.load_model)
        self.facts: GroupFacts | None = None
        """The group's part in merchant facts; None: the job keeps none."""
        if rules.merchants is not None:
            self.facts = GroupFacts(
                group, rules.merchants, rules.topics, rules.key_groups, state, store, meta.extra
            )
        self._deciders = Deciders(
            self._rollouts, rules.load_model, challengers, self._trial.units,
            None if self.facts is None else self.facts.table.features,
        )  # fmt: skip
        self._warm_up()
        self.watch = Stopwatch(self.outcome)
        self._changes: list[tuple[NDArray[np.void], NDArray[np.int32]]] = []
        self._transactions: list[tuple[NDArray[Any], ...]] = []
        self.pending = 0
        """Changes and transactions that no delta holds yet."""

    def take_outcome(self) -> Outcome:
        """What has come since the last call; a new one begins."""
        taken = self.outcome
        taken.sizes = {
            "cards": self._state.card_count,
            "cards_without_profile": self._state.cards_without_profile,
            "events": self._state.event_count,
            "local_bytes": self._state.arena.nbytes,
        }
        self.outcome = Outcome()
        self.watch = Stopwatch(self.outcome)
        return taken

    @property
    def snapshot_end(self) -> int | None:
        """Arrival of the first snapshot's last row of the profiles, ms; None if it has not come."""
        return self._meta.extra.get(SNAPSHOT_END)

    def learn_snapshot_end(self, arrival: int | None) -> None:
        """Take in when a snapshot of the profiles ended, if one did."""
        end = snapshots.first_end(self.snapshot_end, arrival)
        if end is not None:
            self._meta.extra[SNAPSHOT_END] = end

    def fold(self, records: Records) -> None:
        """Take in records of a table, each partition in the order of offsets."""
        if records.topic == self._rules.topics.profiles:
            self._fold_profiles(records)
        elif records.topic == self._rules.topics.model_rollouts:
            self._fold_rollouts(records)
        elif self.facts is not None:
            self.facts.fold(records, self.quiet)
        self.watch.lap("tables")

    def _fold_profiles(self, records: Records) -> None:
        found = profiles.decode(records, self._rules.key_groups, self._group)
        self.learn_snapshot_end(found.snapshot_end)
        changes = found.changes
        snapshots.mark_later_rows(changes, self.snapshot_end)
        self._bury(found.dead_letters)
        if not changes.size:
            return
        cards = self._state.card_numbers(changes)
        loud = changes["offset"] >= self._quiet_of(records.topic, changes["partition"])
        # a card's changes lie in one partition, so those before Q are before the others here, too
        self._state.change_profiles(changes[~loud], cards[~loud])
        late = self._state.change_profiles(changes[loud], cards[loud])
        self.outcome.counts["profile_changes"] += int(loud.sum())
        self.outcome.counts["late_table_changes"] += late
        self._changes.append((changes, cards))
        self.pending += changes.size

    def _fold_rollouts(self, records: Records) -> None:
        rows = zip(
            records.arrivals.tolist(),
            records.offsets.tolist(),
            records.values.to_pylist(),
            records.keys.to_pylist(),
            strict=True,
        )
        new = [RolloutRecord(*row) for row in rows]
        refused = self._rollouts.fold(new, self._rules.topics, self._judge)
        self._new_rollouts = True
        self.outcome.set_aside = self._rollouts.set_aside
        self._trial.folded()
        self.outcome.applied = self._trial.applied.to_json()
        self._warm_up()
        if self._group == 0:  # every group gets every rollout; this one speaks of them
            quiet = self.quiet.get((records.topic, 0), 0)
            self._bury(refused)
            faulty = {letter.offset for letter in refused}
            self.outcome.counts["rollouts"] += sum(
                record.offset >= quiet and record.offset not in faulty for record in new
            )

    def _warm_up(self) -> None:
        """Load the models of the plan in force, so that no transaction waits for them."""
        newest, challengers = self._rollouts.newest, self._deciders.challengers
        self._judge.warm_up(newest)
        challengers.try_again()
        for one in newest.challengers if newest is not None else ():
            challengers.scorer(one.model)

    def decide(self, records: Records, *, silent: bool = False) -> None:
        """Decide transactions, each partition in the order of offsets.

        Every table must have been folded at least as far as it stood when the last of them was taken.

        Args:
            records: of the transactions topic.
            silent: an earlier run has said what comes of them: only the state moves on.

        Raises:
            NoRolloutError: there is no model to decide them.
            ModelError: the model of a rollout cannot be had.
        """
        if silent:
            kept, self.outcome = self.outcome, Outcome()
            self.watch = Stopwatch(self.outcome)
            self._decide(records, silent=True)
            kept.applied = self.outcome.applied or kept.applied
            self.outcome = kept
            self.watch = Stopwatch(self.outcome)
        else:
            self._decide(records, silent=False)

    def _decide(self, records: Records, *, silent: bool) -> None:
        decoded = transactions.decode(records, self._rules.limits, self._rules.key_groups)
        self._bury(
            DeadLetter(
                records.topic,
                int(records.partitions[found.row]),
                int(records.offsets[found.row]),
                int(records.arrivals[found.row]),
                records.keys[found.row].as_py(),
                records.values[found.row].as_py(),
                found.reason,
                found.detail,
            )
            for found in sorted(decoded.rejections, key=lambda found: found.row)
        )
        batch = decoded.records
        self.watch.lap("decode")
        if not batch.size:
            return
        cards = self._state.card_numbers(batch)
        if self._trial.applied.see(batch):
            self._trial.moved()
            self.outcome.applied = self._trial.applied.to_json()
        decider = Decider(self._state, self._deciders, records.topic, self.outcome, self.watch)
        decided = decider.decide(batch, decoded.quotes, cards)
        reach(Step.DECIDED)
        measure(self.outcome, batch, decided, self._state)
        accepted = decided.accepted
        if self.facts is not None:
            self.facts.count(batch[accepted], self.outcome, silent=silent)
        self._transactions.append(
            (batch[accepted], cards[accepted], decided.alerted[accepted], decided.suppressed[accepted])
        )
        self.pending += batch.size
        self.watch.lap("measure")

    def _bury(self, letters: Any) -> None:
        self.outcome.dead_letters += (
            letter
            for letter in letters
            if letter.offset >= self.quiet.get((letter.topic, letter.partition), 0)
        )

    def _quiet_of(self, topic: str, partitions: NDArray[np.int32]) -> NDArray[np.int64]:
        """Q of each row's partition, shape (n,)."""
        known, rows = np.unique(partitions, return_inverse=True)
        quiet = [self.quiet.get((topic, int(partition)), 0) for partition in known]
        return np.array(quiet, dtype=np.int64)[rows]

    def settle(self, time: int, seen: int) -> None:
        """Write the merchant facts that are due; see `GroupFacts.settle`."""
        if self.facts is not None:
            self.facts.settle(time, seen, self.outcome)
            self.watch.lap("facts")

    def taken_in(self, positions: Offsets) -> Offsets:
        """How far tables have been taken in, given how far they have been read."""
        return positions if self.facts is None else self.facts.positions(positions)

    def append(self, store: PieceStore) -> int:
        """Write what is pending as a delta; returns the bytes written."""
        if not self.pending:
            return 0
        changes, change_cards = _joined(self._changes, (PROFILE, np.int32))
        batch, cards, alerted, suppressed = _joined(
            self._transactions, (TRANSACTION, np.int32, np.bool_, np.bool_)
        )
        self._changes, self._transactions, self.pending = [], [], 0
        delta = Delta(changes, change_cards, batch, cards, alerted, suppressed)
        written = append(store, self._meta, self._state, delta)
        self.watch.lap("persist")
        return written

    def seal(self, store: PieceStore, positions: Offsets) -> None:
        """End an epoch: write the rest, and P, the positions up to which all has been taken in and said."""
        self.append(store)
        if self._new_rollouts:
            store.put(ROLLOUTS, orjson.dumps(self._rollouts.records))
            self._new_rollouts = False
        self._trial.seal(store)
        if self.facts is not None:
            self.facts.seal(store)
        save_positions(self._meta, positions)
        seal(store, self._meta)


def _joined(parts: list[Any], dtypes: tuple[Any, ...]) -> list[NDArray[Any]]:
    if not parts:
        return [np.zeros(0, dtype=dtype) for dtype in dtypes]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def save_positions(meta: Meta, positions: Offsets) -> None:
    """Note P in `meta`."""
    told: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        told.setdefault(topic, {})[str(partition)] = offset
    meta.extra[POSITIONS] = told


def positions_of(meta: Meta) -> Offsets:
    """P as `meta` has it; empty before the first epoch has ended."""
    told: Mapping[str, Mapping[str, int]] = meta.extra.get(POSITIONS, {})
    return {(topic, int(part)): offset for topic, parts in told.items() for part, offset in parts.items()}
