"""From a score to a decision: the rules, their order, and the alert's identity.

This is the definition, one transaction at a time, that documentation and the oracle use; the stream runs a
vectorised form of it that is tested against this one.
"""

import uuid
from dataclasses import dataclass

from models.errors import ModelError

ALERT_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "card-fraud/alert")

SCORE = "score"
VELOCITY_5M = "velocity_5m"
BLOCKED_CARD = "blocked_card"
CLOSED_CARD = "closed_card"
MISSING_PROFILE = "missing_profile"
RULES = (SCORE, VELOCITY_5M, BLOCKED_CARD, CLOSED_CARD, MISSING_PROFILE)
"""Names of the rules, in the order in which an alert lists them."""
DECLINING = {BLOCKED_CARD, CLOSED_CARD}
"""The rules that decline whatever the score says."""

REVIEW = "review"
DECLINE = "decline"
BLOCKED, CLOSED = "blocked", "closed"
"""Statuses of a profile for which there is a rule."""


@dataclass(frozen=True)
class Policy:
    """The numbers that turn a score and a card's recent activity into a decision."""

    threshold: float
    """An alert from this score on, 0 to 1."""
    max_count_5m: int
    """More transactions than this in the 5 minutes up to one, itself included, are an alert; by event time or
    by arrival, whichever are more."""
    missing_profile: str = SCORE
    """What becomes of a card without profile: `score`, decided as any other; `review`, an alert."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise ModelError(f"threshold {self.threshold} is no probability; give a number from 0 to 1")
        if self.max_count_5m < 1:
            raise ModelError(f"max_count_5m {self.max_count_5m} would alert on everything; give 1 or more")
        if self.missing_profile not in (SCORE, REVIEW):
            raise ModelError(f"missing_profile {self.missing_profile!r} is unknown; give {SCORE} or {REVIEW}")


@dataclass(frozen=True)
class Decision:
    """What an alert says about one transaction."""

    decision: str
    """`decline` for a blocked or closed card, else `review`."""
    rules: tuple[str, ...]
    """The rules that fired, never empty, in the order of `RULES`."""


def decide(
    policy: Policy,
    score: float | None,
    count_5m: int,
    arrivals_5m: int,
    status: str | None,
    has_profile: bool,
) -> Decision | None:
    """Decide one transaction.

    Args:
        policy: the policy of the rollout in force.
        score: probability of fraud; None or NaN when the model failed, then the other rules decide alone.
        count_5m: transactions of the card in the 5 minutes up to this one by event time, itself included.
        arrivals_5m: the same by arrival, which nobody but Kafka can date.
        status: of the card by its profile, which a deleted row leaves as it was; None without any.
        has_profile: whether the row exists.

    Returns:
        None when no rule fires: no alert.
    """
    fired = {
        SCORE: score is not None and score >= policy.threshold,
        VELOCITY_5M: max(count_5m, arrivals_5m) > policy.max_count_5m,
        BLOCKED_CARD: status == BLOCKED,
        CLOSED_CARD: status == CLOSED,
        MISSING_PROFILE: not has_profile and policy.missing_profile == REVIEW,
    }
    rules = tuple(rule for rule in RULES if fired[rule])
    if not rules:
        return None
    return Decision(DECLINE if DECLINING & set(rules) else REVIEW, rules)


def alert_id(
    card_id: str, transaction_id: str, *, event_time: int, units: int, merchant_id: str, country: str
) -> str:
    """The alert's name: the same from any copy of the log, whoever computes it, however often.

    Made of the id and of what a repetition has to repeat: two transactions that share an id have two alerts.

    Args:
        card_id: of the transaction.
        transaction_id: of the transaction.
        event_time: ms.
        units: its amount, 1/10,000 of the currency unit.
        merchant_id: of the transaction.
        country: ISO 3166-1 alpha-2.
    """
    told = (card_id, transaction_id, str(event_time), str(units), merchant_id, country)
    return str(uuid.uuid5(ALERT_NAMESPACE, "\x00".join(told)))
