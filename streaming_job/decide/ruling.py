"""The ruling of a plan: verdicts of its champion and challengers, and which of them decides a transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from models import guarded
from models.policy import Policy
from models.rollouts import membership
from models.rollouts.state import Decides, Plan
from models.rules.rule import KnownBlock
from streaming_job.decide.scoring import UNAVAILABLE, Answer, Challengers, LoadModel, explain, score_batch
from streaming_job.decide.verdicts import Verdicts, verdicts

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True)
class ModelResult:
    """Scores and verdicts of one model and its policy on m transactions."""

    decider: Decides
    answer: Answer
    verdicts: Verdicts

    def score(self, row: int) -> float | None:
        """Return the score of a row; None where the model failed."""
        score = float(self.answer.scores[row])
        return None if np.isnan(score) else score

    def percentile(self, row: int) -> float | None:
        """Return the percentile of a row's score; None without a score or without percentiles."""
        score, scorer = self.score(row), self.answer.scorer
        return None if score is None or scorer is None else scorer.percentile(score)


@dataclass(frozen=True)
class Ruling:
    """The decisions of a plan on m transactions of a block."""

    plan: Plan
    rows: NDArray[np.int64]
    """Rows of the transactions in the block, ascending, shape (m,)."""
    features: NDArray[np.float64]
    """Shape (m, c): the features of the catalogue and, with merchant facts, the merchant label features."""
    champion: ModelResult
    challengers: tuple[ModelResult, ...]
    canary: ModelResult | None
    """The challenger that decides for its members."""
    by_canary: NDArray[np.bool_] | None
    """Whether the canary decides, shape (m,): the card is a member, and the canary gave a score. None without
    a canary."""
    buckets: NDArray[np.int64] | None
    """Membership buckets of the cards, shape (m,); None if the plan has no canary with a share."""

    @property
    def alerted(self) -> NDArray[np.bool_]:
        """Whether a transaction is an alert, by the model that decides, shape (m,)."""
        return self._of_decider(lambda result: result.verdicts.alerts)

    @property
    def declined(self) -> NDArray[np.bool_]:
        """Whether a transaction is a decline regardless of the card's earlier alerts, shape (m,)."""
        return self._of_decider(lambda result: result.verdicts.declined)

    @property
    def scores(self) -> NDArray[np.float64]:
        """Scores of the model that decides, shape (m,)."""
        return self._of_decider(lambda result: result.answer.scores)

    def _of_decider(self, get: Callable[[ModelResult], NDArray[T]]) -> NDArray[T]:
        """Return for each row the value of the result that decides it, shape (m,)."""
        champion_values = get(self.champion)
        if self.canary is None or self.by_canary is None:
            return champion_values
        return np.where(self.by_canary, get(self.canary), champion_values)

    def number(self, get: Callable[[Policy], int]) -> NDArray[np.int64]:
        """Return for each row a setting of the policy that decides it, such as its cooldown, shape (m,)."""
        return self._of_decider(
            lambda result: np.full(self.rows.size, get(result.decider.policy), dtype=np.int64)
        )

    @property
    def differs(self) -> NDArray[np.bool_] | None:
        """Whether a challenger's verdict is not the champion's, shape (m,); None without challengers."""
        if not self.challengers:
            return None
        champion_alerts = self.champion.verdicts.alerts
        differs = np.zeros(champion_alerts.size, dtype=np.bool_)
        for result in self.challengers:
            differs |= result.verdicts.alerts != champion_alerts
        return differs

    @property
    def failures(self) -> int:
        """Number of transactions that the champion decided without a score."""
        if self.by_canary is None:
            return len(self.champion.answer.failures)
        return sum(not self.by_canary[row] for row in self.champion.answer.failures)

    def deciding_result(self, row: int) -> ModelResult:
        """Return the result that decides a row."""
        if self.canary is not None and self.by_canary is not None and self.by_canary[row]:
            return self.canary
        return self.champion

    def challenger_failure(self, row: int) -> str | None:
        """Return why the champion decides a row although its card is a member; None for all other rows."""
        if self.buckets is None or self.buckets[row] >= self.plan.share_bp:
            return None
        return UNAVAILABLE if self.canary is None else self.canary.answer.failures.get(row)

    def member(self, row: int) -> dict[str, Any] | None:
        """Return the alert's field `membership`."""
        if self.buckets is None:
            return None
        bucket = int(self.buckets[row])
        return {
            "rollout_id": self.plan.trial,
            "challenger": self.plan.canary,
            "bucket": bucket,
            "share_bp": self.plan.share_bp,
            "is_member": bucket < self.plan.share_bp,
        }

    def explained(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], dict[int, str]]:
        """Explain the scores that decided.

        Args:
            rows: rows of the ruling, shape (k,).

        Returns:
            Contributions of the features, shape (k, c), 0 where there is no explanation; and
            row -> how the deciding model failed: to score, or to explain its score (`guarded.UNEXPLAINED`).
        """
        contributions = np.zeros((rows.size, self.features.shape[1]))
        failures: dict[int, str] = {}
        scored = ~np.isnan(self.scores[rows])
        by_canary = np.zeros(rows.size, np.bool_) if self.by_canary is None else self.by_canary[rows]
        for result, decided in ((self.champion, ~by_canary), (self.canary, by_canary)):
            if result is None or not decided.any():
                continue
            scored_rows = np.flatnonzero(decided & scored)
            contributions[scored_rows], unexplained = explain(
                result.answer, self.features[rows[scored_rows]], may_stop=result is self.champion
            )
            failures |= {
                row: result.answer.failures[row]
                for row in rows[decided].tolist()
                if row in result.answer.failures
            }
            failures |= {int(rows[scored_rows[index]]): guarded.UNEXPLAINED for index in unexplained}
        return contributions, failures


def rule(
    plan: Plan,
    rows: NDArray[np.int64],
    features: NDArray[np.float64],
    known: KnownBlock,
    card_hashes: NDArray[np.uint64],
    load_model: LoadModel,
    challengers: Challengers,
) -> Ruling:
    """Score m transactions with every model of their plan, and determine which model decides each.

    Args:
        plan: the plan that was in force when they arrived.
        rows: rows of the transactions in the block, ascending, shape (m,).
        features: features of the transactions, shape (m, c).
        known: other inputs of the rules, m rows.
        card_hashes: low halves of the cards' hashes, shape (m,).
        load_model: returns the champion's scorer.
    """
    champion = _evaluate(plan.champion, score_batch(load_model(plan.champion.model), features), known)
    others = tuple(
        _evaluate(challenger, challengers.score_batch(challenger.model, features), known)
        for challenger in plan.challengers
    )
    canary = by_canary = buckets = None
    if plan.canary and plan.share_bp:
        buckets = membership.bucket(card_hashes, plan.salt)
        # a canary whose features this release does not compute is not in the plan's challengers
        canary = next((result for result in others if result.decider.challenger == plan.canary), None)
    if canary is not None and buckets is not None:
        by_canary = (buckets < plan.share_bp) & ~np.isnan(canary.answer.scores)
    return Ruling(plan, rows, features, champion, others, canary, by_canary, buckets)


def _evaluate(decider: Decides, answer: Answer, known: KnownBlock) -> ModelResult:
    return ModelResult(decider, answer, verdicts(decider.policy, answer.scores, known))


@lru_cache(maxsize=256)
def digest_of(policy: Policy) -> str:
    """Return the policy's digest; cached, because all alerts are decided by few policies."""
    return policy.digest()
