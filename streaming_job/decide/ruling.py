"""Which model decides: the verdicts of a plan's champion and challengers, and whose counts for which card."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from models import guarded
from models.policy import Policy
from models.rollouts import membership
from models.rollouts.machine import Decides, Plan
from streaming_job.decide.scoring import UNAVAILABLE, Answer, Challengers, LoadModel, ask, explain
from streaming_job.decide.verdicts import Facts, Verdicts, verdicts

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True)
class Judged:
    """What one model and policy make of m transactions."""

    who: Decides
    answer: Answer
    verdicts: Verdicts

    def score(self, row: int) -> float | None:
        """Of a row; None where the model failed."""
        score = float(self.answer.scores[row])
        return None if np.isnan(score) else score

    def percentile(self, row: int) -> float | None:
        """Of a row's score; None without one, or if the model does not know."""
        score, scorer = self.score(row), self.answer.scorer
        return None if score is None or scorer is None else scorer.percentile(score)


@dataclass(frozen=True)
class Ruling:
    """What a plan made of m transactions."""

    plan: Plan
    rows: NDArray[np.int64]
    """Their rows in the block, ascending, shape (m,)."""
    features: NDArray[np.float64]
    """Shape (m, len(FEATURES))."""
    champion: Judged
    challengers: tuple[Judged, ...]
    canary: Judged | None
    """The challenger that decides for its members."""
    by_canary: NDArray[np.bool_] | None
    """Members for which it gave a score, so that it decides, shape (m,); None without canary."""
    buckets: NDArray[np.int64] | None
    """Of the cards, shape (m,); None if no challenger of the plan decides for some."""

    @property
    def alerted(self) -> NDArray[np.bool_]:
        """Which are alerts, by the model that decides, shape (m,)."""
        return self._of_decider(lambda judged: judged.verdicts.alerts)

    @property
    def declined(self) -> NDArray[np.bool_]:
        """Which are declines whatever the card did before, shape (m,)."""
        return self._of_decider(lambda judged: judged.verdicts.declined)

    @property
    def scores(self) -> NDArray[np.float64]:
        """Of the model that decides, shape (m,)."""
        return self._of_decider(lambda judged: judged.answer.scores)

    def _of_decider(self, of: Callable[[Judged], NDArray[T]]) -> NDArray[T]:
        """What the model and policy that decide have of each row, shape (m,)."""
        champions = of(self.champion)
        if self.canary is None or self.by_canary is None:
            return champions
        return np.where(self.by_canary, of(self.canary), champions)

    def number(self, of: Callable[[Policy], int]) -> NDArray[np.int64]:
        """A number of the policies, by the model that decides, shape (m,).

        Args:
            of: gives a policy's.
        """
        return self._of_decider(lambda judged: np.full(self.rows.size, of(judged.who.policy), dtype=np.int64))

    @property
    def differs(self) -> NDArray[np.bool_] | None:
        """Where a challenger's verdict is not the champion's, shape (m,); None if that is nowhere."""
        if not self.challengers:
            return None
        mine = self.champion.verdicts.alerts
        differs = np.zeros(mine.size, dtype=np.bool_)
        for judged in self.challengers:
            differs |= judged.verdicts.alerts != mine
        return differs

    @property
    def failures(self) -> int:
        """Transactions that the champion decided without a score."""
        if self.by_canary is None:
            return len(self.champion.answer.failures)
        return sum(not self.by_canary[row] for row in self.champion.answer.failures)

    def deciding(self, row: int) -> Judged:
        """Who decides a row."""
        if self.canary is not None and self.by_canary is not None and self.by_canary[row]:
            return self.canary
        return self.champion

    def challenger_failure(self, row: int) -> str | None:
        """Why the champion decides a row whose card is the canary's; None if that is not so."""
        if self.buckets is None or self.buckets[row] >= self.plan.share_bp:
            return None
        return UNAVAILABLE if self.canary is None else self.canary.answer.failures.get(row)

    def member(self, row: int) -> dict[str, Any] | None:
        """The alert's `membership`."""
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
        """What each feature added to the score that decided.

        Args:
            rows: shape (k,).

        Returns:
            Contributions, shape (k, len(FEATURES)), 0 where there are none; and row -> how the deciding model
            failed, UNEXPLAINED included.

        Raises:
            ModelError: not the champion failed but what it runs on.
        """
        contributions = np.zeros((rows.size, self.features.shape[1]))
        failures: dict[int, str] = {}
        scored = ~np.isnan(self.scores[rows])
        by_canary = np.zeros(rows.size, np.bool_) if self.by_canary is None else self.by_canary[rows]
        for judged, mine in ((self.champion, ~by_canary), (self.canary, by_canary)):
            if judged is None or not mine.any():
                continue
            at = np.flatnonzero(mine & scored)
            contributions[at], unexplained = explain(
                judged.answer, self.features[rows[at]], may_stop=judged is self.champion
            )
            failures |= {
                row: judged.answer.failures[row]
                for row in rows[mine].tolist()
                if row in judged.answer.failures
            }
            failures |= {int(rows[at[one]]): guarded.UNEXPLAINED for one in unexplained}
        return contributions, failures


def rule(
    plan: Plan,
    rows: NDArray[np.int64],
    features: NDArray[np.float64],
    facts: Facts,
    card_hashes: NDArray[np.uint64],
    load_model: LoadModel,
    challengers: Challengers,
) -> Ruling:
    """Score m transactions with every model of their plan, and find who decides each.

    Args:
        plan: that was in force when they arrived.
        rows: their rows in the block, ascending, shape (m,).
        features: shape (m, len(FEATURES)).
        facts: of the same.
        card_hashes: low halves of the cards' hashes, shape (m,).
        load_model: gives the champion's scorer.
        challengers: gives theirs.

    Raises:
        ModelError: the champion's model cannot be had, or not be run here.
    """
    champion = _judged(plan.champion, ask(load_model(plan.champion.model), features), facts)
    others = tuple(_judged(one, challengers.ask(one.model, features), facts) for one in plan.challengers)
    canary = by_canary = buckets = None
    if plan.canary and plan.share_bp:
        buckets = membership.bucket(card_hashes, plan.salt)
        # a release that does not compute its features does not score it
        canary = next((judged for judged in others if judged.who.challenger == plan.canary), None)
    if canary is not None and buckets is not None:
        by_canary = (buckets < plan.share_bp) & ~np.isnan(canary.answer.scores)
    return Ruling(plan, rows, features, champion, others, canary, by_canary, buckets)


def _judged(who: Decides, answer: Answer, facts: Facts) -> Judged:
    return Judged(who, answer, verdicts(who.policy, answer.scores, facts))


@lru_cache(maxsize=256)
def digest_of(policy: Policy) -> str:
    """The policy's digest; a few policies make all alerts."""
    return policy.digest()
