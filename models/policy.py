"""The decision policy (thresholds and rules that turn a score into a decision) and the ids of alerts.

Each rule is a module of `models.rules`. Its scalar form, one transaction at a time, is the definition that
documentation and the oracle use. The stream runs the vectorised form, which is tested against it.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass
from typing import Annotated, Any, get_type_hints

from models.errors import ModelError
from models.parameters import DECLINE, IGNORE, REVIEW, SCORE, Action, Limit, Parameter, Probability, Seconds
from models.rules.missing_profile import MissingProfile
from models.rules.rule import Known, Rule
from models.rules.score import Score
from models.rules.standing import Standing
from models.rules.velocity import Velocity

ALERT_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "card-fraud/alert")
_NAMESPACE_BYTES = ALERT_NAMESPACE.bytes

RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Score(),
        *map(Velocity, ("1m", "5m", "1h")),
        *map(Standing, ("blocked", "closed")),
        MissingProfile(),
    )
}
"""The rules that find alerts, by name, in the order in which an alert lists them."""
ESCALATED = "escalated"
"""The rule that makes an alert a decline if the card has had too many; it finds none."""
_MOST_COOLDOWN_S = 31 * 86_400


@dataclass(frozen=True)
class Policy:
    """Thresholds and rules that turn a score and a card's recent activity into a decision.

    The table of parameters in docs/rollouts.md is made from the fields.
    """

    threshold: Annotated[float, Probability()]
    """Least score that is an alert, 0 to 1."""
    max_count_5m: Annotated[int, Limit(is_optional=False)]
    """Greatest number of a card's transactions within 5 minutes, the current one included, that is no alert;
    they are counted by event time and by arrival, and the greater count decides."""
    missing_profile: Annotated[str, Action(SCORE, REVIEW)] = SCORE
    """Action for a card without profile: `score`, decide as for any other card; `review`, alert."""
    max_count_1m: Annotated[int | None, Limit()] = None
    """As `max_count_5m`, within a minute."""
    max_count_1h: Annotated[int | None, Limit()] = None
    """As `max_count_5m`, within an hour."""
    blocked: Annotated[str, Action(DECLINE, REVIEW, IGNORE)] = DECLINE
    """Action for a blocked card: `decline`; `review`, alert and send to review; `ignore`, decide as for any
    other card."""
    closed: Annotated[str, Action(DECLINE, REVIEW, IGNORE)] = DECLINE
    """Action for a closed card, as `blocked`."""
    escalate_after: Annotated[int | None, Limit("is no count")] = None
    """Number of a card's alerts, the current one included, from which alerts are declines; counted are those
    of the clock hour of the arrival and of the 23 hours before it."""
    cooldown_s: Annotated[int, Seconds(_MOST_COOLDOWN_S, "a month")] = 0
    """Seconds, by arrival, after the card's last alert that was not suppressed, within which an alert that
    does not decline is suppressed; 0: never."""

    def __post_init__(self) -> None:
        for name, parameter in PARAMETERS.items():
            parameter.check(name, getattr(self, name))

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Policy":
        """Read a policy from a JSON object; absent fields get their defaults, unknown ones are ignored.

        Raises:
            KeyError: a field without a default is absent.
            ModelError, TypeError, OverflowError: a field has a bad value.
        """
        values = {
            name: fields[name]
            for name, field in Policy.__dataclass_fields__.items()
            if name in fields or field.default is MISSING
        }
        given = {name: value for name, value in values.items() if value is not None}
        whole = {name: _whole(name, value) for name, value in given.items() if PARAMETERS[name].is_whole}
        return Policy(**{**values, **whole, "threshold": float(_number("threshold", values["threshold"]))})

    def digest(self) -> str:
        """Return the policy's version: SHA-256 of canonical JSON (sorted names, no blanks), 64 hex digits."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"{name} {value!r} is no number; give one")
    return value


def _whole(name: str, value: Any) -> int:
    # a JSON record may hold whole numbers as floats, such as 6.0
    if _number(name, value) % 1:
        raise ModelError(f"{name} {value!r} is no whole number; give one")
    return int(value)


PARAMETERS: Mapping[str, Parameter] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Policy, include_extras=True).items()
}
"""The parameter of each field of `Policy`, in order."""


@dataclass(frozen=True)
class Decision:
    """The decision of an alert."""

    decision: str
    """`decline` if `escalated` fired, or a rule for which the policy declines; else `review`."""
    rules: tuple[str, ...]
    """The rules that fired, never empty, in the order of `RULES`, `escalated` last."""


def decide(policy: Policy, known: Known, suspicious_day: int) -> Decision | None:
    """Decide one transaction.

    Args:
        known: the transaction. Without a score the other rules decide alone.
        suspicious_day: earlier alerts of the card in the clock hour of this transaction's arrival and the 23
            before it.

    Returns:
        None if no rule fires: no alert.

    >>> policy = Policy(threshold=0.5, max_count_5m=6)
    >>> calm = {"count_5m": 1, "arrivals_5m": 1}
    >>> decide(policy, Known(0.4, calm, "active", True), 0)
    >>> decide(policy, Known(0.5, calm, "active", True), 0)
    Decision(decision='review', rules=('score',))
    >>> decide(policy, Known(None, calm, "blocked", True), 0)
    Decision(decision='decline', rules=('blocked_card',))
    """
    fired = [rule for rule in RULES.values() if rule.fires(policy, known)]
    if not fired:
        return None
    names = tuple(rule.name for rule in fired)
    if policy.escalate_after is not None and suspicious_day + 1 >= policy.escalate_after:
        return Decision(DECLINE, (*names, ESCALATED))
    return Decision(DECLINE if any(rule.declines(policy) for rule in fired) else REVIEW, names)


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
        event_time: ms.
        units: amount in 1/10,000 of the currency unit.
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
