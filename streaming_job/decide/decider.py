"""Features, scores and policies: which transactions of a key group become alerts.

What has been taken together is decided in blocks whose features stay in the processor's cache: at 61 columns
of 8 bytes, writing out all of them and reading them again would cost as much as computing them.
"""

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.group_state import Applied, GroupState
<<<<<<< HEAD
from streaming_job.decide.alerting import alert
from streaming_job.decide.comparison import compare, enter_units
=======
from feature_store.layout import BLOCKED, CLOSED
from models import guarded
from models.policy import (
    BLOCKED_CARD,
    CLOSED_CARD,
    DECLINE,
    MISSING_PROFILE,
    REVIEW,
    SCORE,
    VELOCITY_5M,
)
from models.registry import ModelRef
from models.rollouts.machine import Decides
from models.scoring import Scorer
from streaming_job.decide import alerts
>>>>>>> 73c8a819db6976f6c24f8508eef9296650bc7b6d
from streaming_job.decide.rollout_history import RolloutHistory
from streaming_job.decide.ruling import Ruling, rule
from streaming_job.decide.scoring import Challengers, LoadModel
from streaming_job.decide.trial_units import TrialUnits
from streaming_job.decide.verdicts import Facts
from streaming_job.progress.outcome import SCORES, Outcome, histogram

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

<<<<<<< HEAD
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
=======
    def _decide(
        self, block: NDArray[np.void], quotes: pa.BinaryArray, cards: NDArray[np.int32], applied: Applied
    ) -> NDArray[np.bool_]:
        plans, deciding = self._rollouts.in_force(block["arrival"])
        known = [plan.champion for plan in plans]
        said = self._score(known, deciding, applied)
        self._outcome.counts["scoring_failures"] += len(said.failures)
        self._watch.lap("score")
        policies = [rollout.policy for rollout in known]
        fired = {
            SCORE: said.scores >= np.array([policy.threshold for policy in policies])[deciding],
            VELOCITY_5M: np.maximum(
                applied.features[:, COLUMN["count_5m"]], applied.features[:, COLUMN["arrivals_5m"]]
            )
            > np.array([float(policy.max_count_5m) for policy in policies])[deciding],
            BLOCKED_CARD: applied.standing == BLOCKED,
            CLOSED_CARD: applied.standing == CLOSED,
            MISSING_PROFILE: (applied.version < 0)
            & np.array([policy.missing_profile == REVIEW for policy in policies])[deciding],
        }
        alerted: NDArray[np.bool_] = np.logical_or.reduce(list(fired.values())) & ~applied.duplicate
        rows = np.flatnonzero(alerted)
        if rows.size or applied.restarted.any():
            day, total = self._state.count_alerts(cards, block["arrival"], alerted, applied.restarted)
        contributions = self._explain(rows, deciding, applied, said)
        for at, row in enumerate(rows.tolist()):
            rules = tuple(rule for rule, rows_fired in fired.items() if rows_fired[row])
            version = int(applied.version[row])
            self._outcome.rules.update(rules)
            self._outcome.alerts.append(
                alerts.build(
                    quotes[row].as_py(),
                    block[row],
                    self._topic,
                    decision=DECLINE if {BLOCKED_CARD, CLOSED_CARD} & set(rules) else REVIEW,
                    rules=rules,
                    score=None if np.isnan(said.scores[row]) else float(said.scores[row]),
                    model_failure=said.failures.get(row),
                    rollout=known[int(deciding[row])],
                    features=applied.features[row],
                    contributions=contributions[at],
                    profile=self._state.profiles[version] if version >= 0 else None,
                    suspicious_day=int(day[at]),
                    suspicious_total=int(total[at]),
                    late=bool(applied.late[row]),
                    conflicting=bool(applied.conflicting[row]),
                )
            )
        self._outcome.scores = self._outcome.scores + histogram(said.scores, SCORES)
        self._outcome.sums["scores"] += float(np.nansum(said.scores))  # type: ignore[assignment]
        number = int(deciding.max())
        if self._outcome.rollout is None or number >= self._outcome.rollout["number"]:
            newest = known[number]
            self._outcome.rollout = {"number": number, "rollout_id": newest.rollout_id, "model": newest.model}
        return alerted

    def _score(self, known: list[Decides], deciding: NDArray[np.int64], applied: Applied) -> Scored:
        scores = np.full(deciding.size, np.nan)
        failures: dict[int, str] = {}
        scorers: dict[int, Scorer] = {}
        for number in np.unique(deciding).tolist():
            scorer = scorers[number] = self._load_model(known[number].model)
            rows = np.flatnonzero((deciding == number) & ~applied.duplicate)
            features = applied.features if rows.size == deciding.size else applied.features[rows]
            scores[rows], failed = guarded.score(scorer, features)
            failures.update((int(rows[at]), why) for at, why in failed.items())
        return Scored(scores, failures, scorers)

    def _explain(
        self, rows: NDArray[np.int64], deciding: NDArray[np.int64], applied: Applied, said: Scored
    ) -> NDArray[np.float64]:
        """What each feature added to the score of some rows, shape (rows, features); failures are noted."""
        contributions = np.zeros((rows.size, applied.features.shape[1]))
        if rows.size:
            for number, scorer in said.scorers.items():
                mine = np.flatnonzero((deciding[rows] == number) & ~np.isnan(said.scores[rows]))
                contributions[mine], unexplained = guarded.explain(scorer, applied.features[rows[mine]])
                said.failures.update((int(rows[mine[at]]), guarded.UNEXPLAINED) for at in unexplained)
        return contributions
>>>>>>> 73c8a819db6976f6c24f8508eef9296650bc7b6d
