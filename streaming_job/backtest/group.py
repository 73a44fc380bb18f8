"""The decisions of a backtest on some partitions, by the job's own decoder, state and decider. Pure.

Transactions that arrived before the window only bring the state forward, with the alerts that the live job
made of them (`recall`). From the window's beginning on the candidate decides, as it would have done live if
it had been promoted then. Cards never share a partition with another group, and a card's decisions depend on
its own partition only, so partitions are decided one after another.
"""

from itertools import pairwise

import numpy as np

from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from streaming_job.backtest.alerts import Before
from streaming_job.backtest.log import ArchiveLog
from streaming_job.backtest.tally import Tally
from streaming_job.decide.decider import Decider, Deciders, Lookup, Stopwatch
from streaming_job.decide.feature_counts import FeatureCounts
from streaming_job.decide.rollout_history import RolloutHistory
from streaming_job.decide.scoring import Challengers
from streaming_job.decide.trial_units import TrialUnits
from streaming_job.decode import profiles, snapshots, transactions
from streaming_job.decode.framed import RecordSchemas
from streaming_job.group.rules import Rules
from streaming_job.log.records import Records
from streaming_job.progress.outcome import Outcome


class BacktestGroup:
    """The state and the decider of a group of partitions."""

    def __init__(
        self,
        number: int,
        rules: Rules,
        rollouts: RolloutHistory,
        since: int,
        before: Before,
        tally: Tally,
        merchants: Lookup | None = None,
        schemas: RecordSchemas | None = None,
    ) -> None:
        """Begin with an empty state.

        Args:
            number: of the group, whose partitions are those of `rules.key_groups`.
            rules: rules of the live job.
            rollouts: the candidate's promotion.
            since: arrival from which the candidate decides, ms.
            before: the live job's alerts before `since`.
            merchants: lookup of merchant label features; None for a job without merchant facts.
            schemas: the schemas of framed transactions; None: there are none.
        """
        self._number, self._rules, self._since = number, rules, since
        self._before, self._tally, self._schemas = before, tally, schemas
        self._state = GroupState(MemoryArena(), rules.limits.lateness_ms)
        self._deciders = Deciders(
            rollouts, rules.load_model, Challengers(rules.load_model), TrialUnits(), FeatureCounts(),
            rules.release, merchants,
        )  # fmt: skip

    def fold_profiles(self, log: ArchiveLog, until: int) -> None:
        """Fold the profile changes that arrived before `until`, ms, before any transaction."""
        topic = self._rules.topics.profiles
        before = log.compacted_before(topic)
        decoded = [
            profiles.decode(records, self._rules.key_groups, self._number)
            for partition in log.partitions(topic)
            for records in log.records(topic, partition, until_ms=until)
        ]
        # which rows are of the first snapshot is known once all have been read
        end = min((each.snapshot_end for each in decoded if each.snapshot_end is not None), default=None)
        for each in decoded:
            snapshots.mark_later_rows(each.changes, end)
            if each.changes.size:
                cards = self._state.card_numbers(each.changes, each.places)
                self._state.change_profiles(*snapshots.with_compacted(each.changes, cards, before))

    def take(self, records: Records) -> Outcome:
        """Decide transactions of one partition, in the order of offsets; return what became of them."""
        outcome = Outcome()
        rules = self._rules
        decoded = transactions.decode(records, rules.limits, rules.key_groups, self._schemas)
        self._tally.refuse(records.arrivals, decoded.rejections)
        batch = decoded.records
        cards = self._state.card_numbers(batch, decoded.places)
        decides = batch["arrival"] >= self._since
        decider = Decider(self._state, self._deciders, records.topic, outcome, Stopwatch(outcome))
        # arrivals may go back a little, so transactions from before the window can follow its first ones
        borders = (0, *(np.flatnonzero(decides[1:] != decides[:-1]) + 1).tolist(), batch.size)
        for start, end in pairwise(borders):
            rows = slice(start, end)
            if not batch[rows].size:
                continue
            if decides[start]:
                decisions = decider.decide(batch[rows], decoded.quotes[rows], cards[rows])
                self._tally.decide(batch[rows], decisions.accepted)
            else:
                self._recall(batch[rows], cards[rows])
                self._tally.recalled += end - start
        self._state.sweep(self._state.take_added().size)
        self._tally.alert(outcome)
        return outcome

    def _recall(self, batch: np.ndarray, cards: np.ndarray) -> None:
        """Bring the state forward by transactions that the live job has decided."""
        applied = self._state.apply(batch, cards)
        alerted, suppressed = self._before.masks(batch)
        arrivals = np.ascontiguousarray(batch["arrival"])
        self._state.count_alerts(cards, arrivals, alerted, applied.restarted, suppressed)
