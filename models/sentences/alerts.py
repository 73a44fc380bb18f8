"""Why a transaction was stopped, as sentences: the rules that fired, and what moved the score. Pure."""

from collections.abc import Mapping
from typing import Any

from models.sentences.features import WORDS, of_feature
from models.sentences.quantities import plural


def of_alert(alert: Mapping[str, Any]) -> list[str]:
    """Why a transaction was stopped, strongest first: rules, then what moved the score.

    Args:
        alert: of contract alert.v1.

    Returns:
        Each sentence once; at least one.
    """
    values, currency = alert["features"], alert["currency"]
    said = [of_rule(rule, alert) for rule in alert["rules"] if rule != "score"]
    if alert.get("model_failure"):
        said.append("the model failed; the rules decided alone")
    said += [of_feature(one["feature"], one["value"], values, currency) for one in alert["reasons"]]
    if not said:
        said = [of_rule(rule, alert) for rule in alert["rules"]]
    return list(dict.fromkeys(said))


def of_rule(rule: str, alert: Mapping[str, Any]) -> str:
    """What it means that a rule of the policy fired; of an unknown one its name."""
    values = alert["features"]
    stem, _, window = rule.partition("_")
    if stem == "velocity" and window in WORDS:
        # the policy looks at both, so that no sender's clock hides a burst
        counts = [values.get(f"{kind}_{window}") for kind in ("count", "arrivals")]
        most = max((count for count in counts if count is not None), default=None)
        told = "payments" if most is None else plural(most, "payment")
        return f"{told} in {WORDS[window]}, more than the policy allows"
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
