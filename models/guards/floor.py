"""The least that guards must be able to do before an operator alone may give a challenger cards. Pure."""

from models.guards.policy import Guards
from models.guards.rules import AlertRate, Rule, ScoreDrift

LEAST_ALPHA = 0.001
"""With a smaller `alpha` a bet needs so much evidence that a breach comes too late."""
LEAST_CARD_HOURS = 10
"""Least `min_card_hours`: fewer card-hours prove nothing that a guard may pass on."""
MOST_DEADLINE_H = 14 * 24
"""Greatest `deadline_h`: a rollout without proof must end some day."""
LEAST_RATIO = 0.1
"""Least `min_ratio` of an `alert_rate` that ends a rollout whose challenger has fallen silent."""
MOST_PSI, MOST_SCORES = 1.0, 100_000
"""Greatest `max_psi` and `min_scores` of a `score_drift` that does so."""


def weaknesses(guards: Guards) -> tuple[str, ...]:
    """List in which respects guards are below the floor; empty if they are not."""
    found = {
        f"alpha {guards.alpha:g} is below {LEAST_ALPHA:g}": guards.alpha < LEAST_ALPHA,
        f"min_card_hours {guards.min_card_hours} is below {LEAST_CARD_HOURS}": (
            guards.min_card_hours < LEAST_CARD_HOURS
        ),
        f"deadline_h {guards.deadline_h:g} is above {MOST_DEADLINE_H}": guards.deadline_h > MOST_DEADLINE_H,
        f"no guard ends a rollout whose challenger has fallen silent (alert_rate with min_ratio "
        f"{LEAST_RATIO:g} or more, or score_drift with max_psi {MOST_PSI:g} or less)": (
            not any(map(_notices_silence, guards.rules))
        ),
    }
    return tuple(text for text, is_so in found.items() if is_so)


def _notices_silence(rule: Rule) -> bool:
    match rule:
        case AlertRate(min_ratio=float(least)):
            return least >= LEAST_RATIO
        case ScoreDrift(max_psi=most, min_scores=scores):
            return most <= MOST_PSI and scores <= MOST_SCORES
    return False
