"""Rules of approval by two people: naive, written from the documentation, independently of the job's.

An event counts as a promotion by its effect: all cards or too many, a policy that lets more through than the
champion's, or guards that would not end a rollout whose challenger has fallen silent.
"""

from dataclasses import dataclass, replace

from loadtests.oracle.rollout_events import Event
from models.errors import GuardError
from models.guards import policy as guards


@dataclass(frozen=True)
class Demands:
    """What the log demands of those who steer rollouts."""

    four_eyes: bool = False
    most_share_bp: int = 1_000
    """Greatest share of the cards that is no promotion, basis points."""

    def after_proposal(self, event: Event) -> "Demands":
        """Return the demands after a proposal, which can only add to them."""
        both, share_bp = event.demands
        return Demands(
            self.four_eyes or both is True,
            self.most_share_bp if share_bp is None else min(self.most_share_bp, share_bp),
        )

    def after_promotion(self, proposal: Event) -> "Demands":
        """Return the demands after a promotion, from which on the values of its proposal hold."""
        both, share_bp = proposal.demands
        after = self if both is None else replace(self, four_eyes=both)
        return after if share_bp is None else replace(after, most_share_bp=share_bp)


def has_weak_guards(proposal: Event) -> bool:
    """Return whether the guards of a proposal are below the floor, or cannot be read."""
    try:
        given = guards.read(proposal.guards).to_json()
    except GuardError:
        return True
    if given["alpha"] < 0.001 or given["min_card_hours"] < 10 or given["deadline_h"] > 336:
        return True
    for rule in given["rules"]:
        if rule["name"] == "alert_rate" and rule.get("min_ratio", 0) >= 0.1:
            return False
    return True


def is_approved(event: Event, proposal: Event) -> bool:
    """Return whether an event names its actor as the approver, and somebody else has made the proposal."""
    actor, approved_by, _reason = event.attribution
    return bool(actor == approved_by and actor != proposal.attribution[0])
