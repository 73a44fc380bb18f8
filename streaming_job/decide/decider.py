"""The decider of a key group: features, scores and policies turn transactions into alerts.

A mini-batch is decided in blocks whose features stay in the processor's cache: at 66 columns of 8 bytes,
writing all features to memory and reading them again would cost as much as computing them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.catalogue import FEATURES
from feature_store.layout import EMPTY
from feature_store.merchants.catalogue import MERCHANT_FEATURES
from feature_store.state.group_state import BatchFeatures, GroupState
from models.rules.rule import KnownBlock
from streaming_job.decide.alerting import alert
from streaming_job.decide.comparison import compare, count_units
from streaming_job.decide.distinct import distinct
from streaming_job.decide.feature_counts import FeatureCounts
from streaming_job.decide.rollout_history import RolloutHistory
from streaming_job.decide.ruling import Ruling, rule
from streaming_job.decide.scoring import Challengers, LoadModel
from streaming_job.decide.trial_units import TrialUnits
from streaming_job.log.losses import NOTHING_LOST, Losses
from streaming_job.progress.outcome import Outcome

Lookup = Callable[[NDArray[np.uint64], NDArray[np.int64]], NDArray[np.float64]]
"""Function (merchant hashes, arrivals) -> merchant label features of n transactions."""
BLOCK = 1024
"""Number of transactions in a block: half a megabyte of features."""


class Stopwatch:
    """Stopwatch that adds the milliseconds of each phase to an outcome, for progress records only."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        """Add to a phase the time since the previous call."""
        now = time.perf_counter()
        self._outcome.phases[phase] += 1000 * (now - self._last)  # type: ignore[assignment]
        self._last = now


@dataclass(frozen=True)
class Deciders:
    """The rollouts, models and trial units with which a key group decides."""

    rollouts: RolloutHistory
    """The rollout events that have arrived so far."""
    load_model: LoadModel
    """Returns a champion's scorer; retries for a while before it raises ModelUnavailableError."""
    challengers: Challengers
    units: TrialUnits
    """Units of the running trials; updated by the decider."""
    features: FeatureCounts
    """Counts of the champion's features; updated by the decider."""
    release: str
    """The release that alerts name."""
    merchants: Lookup | None = None
    """Lookup of merchant label features; None without merchant facts."""
    losses: Losses = NOTHING_LOST
    """What the log had lost when the state was first read from it."""


@dataclass(frozen=True)
class Decisions:
    """Decisions on n transactions."""

    accepted: NDArray[np.bool_]
    """Whether it is accepted, shape (n,): not if it has the id and the content of one accepted before."""
    alerted: NDArray[np.bool_]
    """Whether it is an alert, shape (n,)."""
    suppressed: NDArray[np.bool_]
    """Whether it is an alert that a cooldown suppresses, shape (n,)."""
    conflicting: NDArray[np.bool_]
    """Whether it is accepted although its id had been used with other content, shape (n,)."""
    late: NDArray[np.bool_]
    """Whether an event of the card with a later event time was accepted before, shape (n,)."""
    version: NDArray[np.int32]
    """Profile version in force, see `BatchFeatures`, shape (n,)."""


class Decider:
    """The decider of a mini-batch's transactions, which writes alerts and counts to an outcome."""

    def __init__(
        self, state: GroupState, deciders: Deciders, topic: str, outcome: Outcome, watch: Stopwatch
    ) -> None:
        """Create the decider of a mini-batch.

        Args:
            outcome: receives alerts, counts and histograms.
        """
        self._state, self._deciders, self._topic = state, deciders, topic
        self._outcome, self._watch = outcome, watch

    def decide(self, batch: NDArray[np.void], quotes: pa.BinaryArray, cards: NDArray[np.int32]) -> Decisions:
        """Accept and decide transactions, and update the state.

        Args:
            batch: records of TRANSACTION in log order, shape (n,).
            quotes: the text fields that an alert copies from its transaction (`transactions.quote`), n rows.
            cards: indices of the transactions' cards in the state (`card_numbers`), shape (n,).
        """
        n = batch.size
        decisions = Decisions(
            accepted=np.empty(n, dtype=np.bool_),
            alerted=np.empty(n, dtype=np.bool_),
            suppressed=np.empty(n, dtype=np.bool_),
            conflicting=np.empty(n, dtype=np.bool_),
            late=np.empty(n, dtype=np.bool_),
            version=np.empty(n, dtype=np.int32),
        )
        for start in range(0, n, BLOCK):
            rows = slice(start, min(start + BLOCK, n))
            applied = self._apply(batch[rows], cards[rows])
            self._watch.lap("features")
            decisions.accepted[rows] = ~applied.duplicate
            decisions.conflicting[rows] = applied.conflicting
            decisions.late[rows] = applied.late
            decisions.version[rows] = applied.version
            rulings = self._rule(batch[rows], applied)
            decisions.alerted[rows], decisions.suppressed[rows] = alert(
                self._state, self._outcome, self._topic, self._deciders.release, self._deciders.losses,
                batch[rows], quotes[rows], cards[rows], applied, rulings,
            )  # fmt: skip
            self._watch.lap("decide")
        return decisions

    def _apply(self, block: NDArray[np.void], cards: NDArray[np.int32]) -> BatchFeatures:
        """Accept a block's transactions and compute their features, merchant label features included."""
        merchants = self._deciders.merchants
        if merchants is None:
            return self._state.apply(block, cards)
        applied = self._state.apply(block, cards, len(MERCHANT_FEATURES))
        kept = ~applied.duplicate
        applied.features[:, len(FEATURES) :] = merchants(block["merchant"][kept], block["arrival"][kept])
        return applied

    def _rule(self, block: NDArray[np.void], applied: BatchFeatures) -> list[Ruling]:
        """Score a block's accepted transactions and count the models' verdicts, plan by plan."""
        deciders, outcome = self._deciders, self._outcome
        plans, numbers = deciders.rollouts.in_force(block["arrival"])
        hashes = np.ascontiguousarray(block["lo"])
        accepted = np.flatnonzero(~applied.duplicate)
        rulings = []
        for number in distinct(numbers):
            own = numbers[accepted] == number
            rows = accepted[own]
            # nearly always all rows: nothing is copied then
            features = applied.features if rows.size == accepted.size else applied.features[own]
            selection = slice(None) if rows.size == block.size else rows
            ruling = rule(
                plans[number], rows, features,
                KnownBlock(features, applied.standing[selection], applied.version[selection] == EMPTY),
                hashes[selection],
                deciders.load_model, deciders.challengers,
            )  # fmt: skip
            rulings.append(ruling)
            outcome.counts["scoring_failures"] += ruling.failures
            outcome.unscored.append(ruling.scores)
            compare(outcome.trials, ruling)
            if (scorer := ruling.champion.answer.scorer) is not None:
                deciders.features.add(plans, number, scorer, features, block[selection])
            champion = plans[number].champion
            if outcome.rollout is None or number >= outcome.rollout["number"]:
                outcome.rollout = {
                    "number": number, "rollout_id": champion.rollout_id, "model": champion.model
                }  # fmt: skip
        count_units(deciders.units, outcome.trials, block, plans, numbers, rulings)
        self._watch.lap("score")
        return rulings
