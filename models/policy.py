"""The decision policy (thresholds and rules that turn a score into a decision) and the ids of alerts.

This scalar form, one transaction at a time, is the definition that documentation and the oracle use. The
stream runs a vectorised form that is tested against this one.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass
from typing import Any

from models.errors import ModelError

ALERT_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "card-fraud/alert")
_NAMESPACE_BYTES = ALERT_NAMESPACE.bytes

SCORE = "score"
VELOCITY_1M = "velocity_1m"
VELOCITY_5M = "velocity_5m"
VELOCITY_1H = "velocity_1h"
BLOCKED_CARD = "blocked_card"
CLOSED_CARD = "closed_card"
MISSING_PROFILE = "missing_profile"
ESCALATED = "escalated"
RULES = (
    SCORE, VELOCITY_1M, VELOCITY_5M, VELOCITY_1H, BLOCKED_CARD, CLOSED_CARD, MISSING_PROFILE, ESCALATED
)  # fmt: skip
"""Names of the rules, in the order in which an alert lists them."""

REVIEW = "review"
DECLINE = "decline"
IGNORE = "ignore"
BLOCKED, CLOSED = "blocked", "closed"
"""Statuses of a profile for which there is a rule."""
MODES = (DECLINE, REVIEW, IGNORE)
"""Actions for blocked and closed cards."""
MOST_COOLDOWN_S = 31 * 86_400


@dataclass(frozen=True)
class Policy:
    """Thresholds and rules that turn a score and a card's recent activity into a decision."""

    threshold: float
    """Least score at which the rule `score` fires, 0 to 1."""
    max_count_5m: int
    """Greatest number of a card's transactions within 5 minutes, the current one included, that raises no
    alert; transactions are counted by event time and by arrival, and the greater count is compared."""
    missing_profile: str = SCORE
    """Action for a card without profile: `score`, decide as for any other card; `review`, alert."""
    max_count_1m: int | None = None
    """As `max_count_5m`, within 1 minute; None: no such rule."""
    max_count_1h: int | None = None
    """As `max_count_5m`, within 1 hour; None: no such rule."""
    blocked: str = DECLINE
    """Action for a blocked card: `decline`; `review`, alert and send to review; `ignore`, no rule."""
    closed: str = DECLINE
    """Action for a closed card, as `blocked`."""
    escalate_after: int | None = None
    """Number of a card's alerts, the current one included, from which alerts are declines; the alerts of the
    clock hour of the current arrival and of the 23 hours before it are counted. None: no such rule."""
    cooldown_s: int = 0
    """Seconds, by arrival, after the card's last alert that was not suppressed, within which a review is
    suppressed; 0: never."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise ModelError(f"threshold {self.threshold} is no probability; give a number from 0 to 1")
        for name in ("max_count_1m", "max_count_5m", "max_count_1h"):
            limit = getattr(self, name)
            if limit is None and name == "max_count_5m":
                raise ModelError("max_count_5m is null, but always applies; give 1 or more")
            if limit is not None and limit < 1:
                raise ModelError(f"{name} {limit} would alert on everything; give 1 or more")
        if self.missing_profile not in (SCORE, REVIEW):
            raise ModelError(f"missing_profile {self.missing_profile!r} is unknown; give {SCORE} or {REVIEW}")
        for name in (BLOCKED, CLOSED):
            if getattr(self, name) not in MODES:
                raise ModelError(
                    f"{name} {getattr(self, name)!r} is unknown; give {', '.join(MODES[:-1])} or {MODES[-1]}"
                )
        if self.escalate_after is not None and self.escalate_after < 1:
            raise ModelError(f"escalate_after {self.escalate_after} is no count; give 1 or more")
        if not 0 <= self.cooldown_s <= MOST_COOLDOWN_S:
            raise ModelError(
                f"cooldown_s {self.cooldown_s} is out of range; give 0 to {MOST_COOLDOWN_S} seconds (a month)"
            )

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Policy":
        """Read a policy from a JSON object; absent fields get their defaults, unknown ones are ignored.

        Raises:
            KeyError: a field without a default is absent.
            ModelError, TypeError, ValueError: a field has a bad value.
        """
        values = {
            name: fields[name]
            for name, field in Policy.__dataclass_fields__.items()
            if name in fields or field.default is MISSING
        }
        numbers = {name: int(values[name]) for name in COUNTS if values.get(name) is not None}
        return Policy(**{**values, **numbers, "threshold": float(values["threshold"])})

    def digest(self) -> str:
        """Return the policy's version: SHA-256 of canonical JSON (sorted names, no blanks), 64 hex digits."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


COUNTS = ("max_count_1m", "max_count_5m", "max_count_1h", "escalate_after", "cooldown_s")
"""Integer fields of a policy; a JSON record may hold them as floats, such as 6.0."""


@dataclass(frozen=True)
class Decision:
    """The decision of an alert."""

    decision: str
    """`decline` if `escalated` fired, or if the card is blocked or closed and the policy's action for such
    cards is `decline`; else `review`."""
    rules: tuple[str, ...]
    """The rules that fired, never empty, in the order of `RULES`."""


@dataclass(frozen=True)
class VelocityCounts:
    """Counts of a card's transactions up to and including the current one, by window."""

    count_1m: int
    """By event time, like the next two fields."""
    count_5m: int
    count_1h: int
    arrivals_1m: int
    """By arrival, like the next two fields."""
    arrivals_5m: int
    arrivals_1h: int


def decide(
    policy: Policy,
    score: float | None,
    counts: VelocityCounts,
    status: str | None,
    has_profile: bool,
    suspicious_day: int,
) -> Decision | None:
    """Decide one transaction.

    Args:
        policy: policy of the champion or canary that decides.
        score: probability of fraud; None or NaN if the model failed: then the other rules decide alone.
        counts: the card's recent activity.
        status: status in the card's profile, kept when the profile is deleted; None if none is known.
        has_profile: whether the card has a profile now.
        suspicious_day: earlier alerts of the card in the clock hour of this transaction's arrival and the 23
            before it.

    Returns:
        None if no rule fires: no alert.

    >>> policy, calm = Policy(threshold=0.5, max_count_5m=6), Counts(1, 1, 1, 1, 1, 1)
    >>> decide(policy, 0.4, calm, "active", True, 0)
    >>> decide(policy, 0.5, calm, "active", True, 0)
    Decision(decision='review', rules=('score',))
    >>> decide(policy, None, calm, "blocked", True, 0)
    Decision(decision='decline', rules=('blocked_card',))
    """
    modes = {BLOCKED_CARD: policy.blocked, CLOSED_CARD: policy.closed}
    fired = {
        SCORE: score is not None and score >= policy.threshold,
        VELOCITY_1M: _exceeds(counts.count_1m, counts.arrivals_1m, policy.max_count_1m),
        VELOCITY_5M: _exceeds(counts.count_5m, counts.arrivals_5m, policy.max_count_5m),
        VELOCITY_1H: _exceeds(counts.count_1h, counts.arrivals_1h, policy.max_count_1h),
        BLOCKED_CARD: status == BLOCKED and policy.blocked != IGNORE,
        CLOSED_CARD: status == CLOSED and policy.closed != IGNORE,
        MISSING_PROFILE: not has_profile and policy.missing_profile == REVIEW,
    }
    if not any(fired.values()):
        return None
    fired[ESCALATED] = policy.escalate_after is not None and suspicious_day + 1 >= policy.escalate_after
    rules = tuple(rule for rule in RULES if fired[rule])
    declines = any(rule == ESCALATED or modes.get(rule) == DECLINE for rule in rules)
    return Decision(DECLINE if declines else REVIEW, rules)


def _exceeds(count: int, arrivals: int, limit: int | None) -> bool:
    return limit is not None and max(count, arrivals) > limit


def alert_id(
    card_id: str,
    transaction_id: str,
    *,
    event_time: int,
    units: int,
    merchant_id: str,
    country: str,
    currency: str,
) -> str:
    """Compute the alert's id, a deterministic UUID of the transaction.

    It covers every field that a repeated transaction must repeat, so two different transactions with the same
    transaction id have two alert ids.

    Args:
        card_id: card of the transaction.
        transaction_id: id of the transaction.
        event_time: ms.
        units: amount in 1/10,000 of the currency unit.
        merchant_id: merchant of the transaction.
        country: ISO 3166-1 alpha-2.
        currency: ISO 4217.
    """
    parts = (card_id, transaction_id, str(event_time), str(units), merchant_id, country, currency)
    # UUID version 5, at a sixth of the time of `uuid.uuid5`
    octets = bytearray(hashlib.sha1(_NAMESPACE_BYTES + "\x00".join(parts).encode()).digest()[:16])
    octets[6] = 0x50 | octets[6] & 0x0F
    octets[8] = 0x80 | octets[8] & 0x3F
    digits = octets.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
