"""Features, scores and policies: which transactions of a key group become alerts.

What has been taken together is decided in blocks whose features stay in the processor's cache: at 61 columns
of 8 bytes, writing out all of them and reading them again would cost as much as computing them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.group_state import Applied, GroupState
from streaming_job.decide.alerting import alert
from streaming_job.decide.comparison import compare, enter_units
from streaming_job.decide.rollout_history import RolloutHistory
from streaming_job.decide.ruling import Ruling, rule
from streaming_job.decide.scoring import Challengers, LoadModel
from streaming_job.decide.trial_units import TrialUnits
from streaming_job.decide.verdicts import Facts
from streaming_job.progress.outcome import SCORES, Outcome, histogram

Lookup = Callable[[NDArray[np.uint64], NDArray[np.int64]], NDArray[np.float64]]
"""Merchant label features of n transactions, from the hashes of their merchants and their arrivals."""
BLOCK = 1024
"""Transactions decided together: half a megabyte of features."""


class Stopwatch:
    """Milliseconds by phase, for progress records only."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        """End a phase."""
        now = time.perf_counter()
        self._outcome.phases[phase] += 1000 * (now - self._last)  # type: ignore[assignment]
        self._last = now


@dataclass(frozen=True)
class Deciders:
    """Who may decide, as far as it has arrived, and what is known of those on trial."""

    rollouts: RolloutHistory
    load_model: LoadModel
    """Gives a champion's scorer; has waited before it says that the model is unavailable."""
    challengers: Challengers
    units: TrialUnits
    """Moves on."""
    merchants: Lookup | None = None
    """None: features are of cards and profiles only."""


@dataclass(frozen=True)
class Decided:
    """What n transactions came to."""

    accepted: NDArray[np.bool_]
    """Which are no repetitions, shape (n,)."""
    alerted: NDArray[np.bool_]
    """Which became alerts, shape (n,)."""
    suppressed: NDArray[np.bool_]
    """Which of those a cooldown held back, shape (n,)."""
    conflicting: NDArray[np.bool_]
    """Which are accepted although their id stood for another content before, shape (n,)."""
    late: NDArray[np.bool_]
    """Whether a later event of the card had been accepted before, shape (n,)."""
    version: NDArray[np.int32]
    """Profile version in force as an index into `GroupState.profiles`, or -1, shape (n,)."""


class Decider:
    """Decides transactions; alerts and counts go to an outcome."""

    def __init__(
        self, state: GroupState, deciders: Deciders, topic: str, outcome: Outcome, watch: Stopwatch
    ) -> None:
        """For the transactions that were taken together.

        Args:
            state: of the key group.
            deciders: models and policies.
            topic: of the transactions.
            outcome: where everything goes.
            watch: tells the phases apart.
        """
        self._state, self._deciders, self._topic = state, deciders, topic
        self._outcome, self._watch = outcome, watch

    def decide(self, batch: NDArray[np.void], quotes: pa.BinaryArray, cards: NDArray[np.int32]) -> Decided:
        """Accept and decide transactions; state moves on.

        Args:
            batch: records of TRANSACTION in log order, shape (n,).
            quotes: what alerts quote of them, n rows.
            cards: number of each one's card, shape (n,).

        Raises:
            NoRolloutError: there is no model to decide them.
            ModelError: the champion's model cannot be had.
        """
        n = batch.size
        decided = Decided(
            accepted=np.empty(n, dtype=np.bool_),
            alerted=np.empty(n, dtype=np.bool_),
            suppressed=np.empty(n, dtype=np.bool_),
            conflicting=np.empty(n, dtype=np.bool_),
            late=np.empty(n, dtype=np.bool_),
            version=np.empty(n, dtype=np.int32),
        )
        for start in range(0, n, BLOCK):
            rows = slice(start, min(start + BLOCK, n))
            applied = self._state.apply(batch[rows], cards[rows])
            if self._deciders.merchants is not None:
                found = self._deciders.merchants(batch["merchant"][rows], batch["arrival"][rows])
                applied = replace(applied, features=np.hstack([applied.features, found]))
            self._watch.lap("features")
            decided.accepted[rows] = ~applied.duplicate
            decided.conflicting[rows] = applied.conflicting
            decided.late[rows] = applied.late
            decided.version[rows] = applied.version
            rulings = self._rule(batch[rows], applied)
            decided.alerted[rows], decided.suppressed[rows] = alert(
                self._state, self._outcome, self._topic, batch[rows], quotes[rows], cards[rows], applied,
                rulings,
            )  # fmt: skip
            self._watch.lap("decide")
        return decided

    def _rule(self, block: NDArray[np.void], applied: Applied) -> list[Ruling]:
        """Score a block's accepted transactions and count what the models said, plan by plan."""
        deciders, outcome = self._deciders, self._outcome
        plans, numbers = deciders.rollouts.in_force(block["arrival"])
        hashes = np.ascontiguousarray(block["lo"])
        rulings = []
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero((numbers == number) & ~applied.duplicate)
            # nearly always all of them: nothing is copied then
            mine = slice(None) if rows.size == block.size else rows
            features = applied.features[mine]
            ruling = rule(
                plans[number], rows, features,
                Facts(features, applied.standing[mine], applied.version[mine]), hashes[mine],
                deciders.load_model, deciders.challengers,
            )  # fmt: skip
            rulings.append(ruling)
            scores = ruling.scores
            outcome.counts["scoring_failures"] += ruling.failures
            outcome.scores = outcome.scores + histogram(scores, SCORES)
            outcome.sums["scores"] += float(np.nansum(scores))  # type: ignore[assignment]
            compare(outcome.trials, ruling)
            champion = plans[number].champion
            if outcome.rollout is None or number >= outcome.rollout["number"]:
                outcome.rollout = {
                    "number": number, "rollout_id": champion.rollout_id, "model": champion.model
                }  # fmt: skip
        enter_units(deciders.units, outcome.trials, block, plans, numbers, rulings)
        self._watch.lap("score")
        return rulings
