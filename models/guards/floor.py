"""The least that guards must be able to do before an operator alone may give a challenger cards. Pure."""

from models.guards.policy import Guards
from models.guards.rules import AlertRate

LEAST_ALPHA = 0.001
"""With a smaller `alpha` a bet needs so much evidence that a breach comes too late."""
LEAST_CARD_HOURS = 10
"""Least `min_card_hours`: fewer card-hours prove nothing that a guard may pass on."""
MOST_DEADLINE_H = 14 * 24
"""Greatest `deadline_h`: a rollout without proof must end some day."""
LEAST_RATIO = 0.1
"""Least `min_ratio` of an `alert_rate` that ends a rollout whose challenger has fallen silent. No other guard
does: so few scores are above a threshold that `score_drift` hardly notices when none is."""


def weaknesses(guards: Guards) -> tuple[str, ...]:
    """List in which respects guards are below the floor; empty if they are not."""
    found = {
        f"alpha {guards.alpha:g} is below {LEAST_ALPHA:g}": guards.alpha < LEAST_ALPHA,
        f"min_card_hours {guards.min_card_hours} is below {LEAST_CARD_HOURS}": (
            guards.min_card_hours < LEAST_CARD_HOURS
        ),
        f"deadline_h {guards.deadline_h:g} is above {MOST_DEADLINE_H}": guards.deadline_h > MOST_DEADLINE_H,
        f"no alert_rate with a min_ratio of {LEAST_RATIO:g} or more would end a rollout whose challenger has "
        "fallen silent": not any(
            isinstance(rule, AlertRate) and (rule.min_ratio or 0.0) >= LEAST_RATIO for rule in guards.rules
        ),
    }
    return tuple(text for text, is_so in found.items() if is_so)
