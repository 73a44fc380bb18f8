"""Reasons of an alert as sentences: the rules that fired, and the features that raised the score. Pure."""

from collections.abc import Mapping
from typing import Any

from models.sentences.features import WORDS, of_feature
from models.sentences.quantities import plural


def of_alert(alert: Mapping[str, Any]) -> list[str]:
    """List the reasons of an alert: rules that fired, a failed model, features that raised the score most.

    The rule `score` is listed only if there is no other reason.

    Args:
        alert: an alert of contract alert.v1.

    Returns:
        Each sentence once; at least one.
    """
    values, currency = alert["features"], alert["currency"]
    sentences = [of_rule(rule, alert) for rule in alert["rules"] if rule != "score"]
    if alert.get("model_failure"):
        sentences.append("the model failed; the rules decided alone")
    sentences += [
        of_feature(reason["feature"], reason["value"], values, currency) for reason in alert["reasons"]
    ]
    if not sentences:
        sentences = [of_rule(rule, alert) for rule in alert["rules"]]
    return list(dict.fromkeys(sentences))


def of_rule(rule: str, alert: Mapping[str, Any]) -> str:
    """Return a sentence that explains why a rule of the policy fired; for an unknown rule, its name."""
    values = alert["features"]
    stem, _, window = rule.partition("_")
    if stem == "velocity" and window in WORDS:
        # the policy uses the greater count, so that no sender's clock hides a burst
        counts = [values.get(f"{kind}_{window}") for kind in ("count", "arrivals")]
        count = max((count for count in counts if count is not None), default=None)
        payments = "payments" if count is None else plural(count, "payment")
        return f"{payments} in {WORDS[window]}, more than the policy allows"
    match rule:
        case "score" if alert["score"] is not None:
            share = alert.get("score_percentile")
            rank = "" if share is None else f", which {share:g} % of the payments do not exceed"
            return f"score {alert['score']:.3f}{rank}; the threshold is {alert['threshold']:.3f}"
        case "blocked_card":
            return "the card is blocked"
        case "closed_card":
            return "the card is closed"
        case "missing_profile":
            return "the bank's profile of the card is not known"
        case "escalated":
            return f"{plural(alert['suspicious_count']['day'], 'alert')} of the card within 24 hours"
    return rule
