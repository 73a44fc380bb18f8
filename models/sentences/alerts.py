"""Reasons of an alert as sentences: the rules that fired, and the features that raised the score. Pure."""

from collections.abc import Mapping
from typing import Any

from models.policy import ESCALATED, RULES
from models.sentences.features import NO_PROFILE, of_feature
from models.sentences.quantities import plural

UNKNOWN_PROFILE = "the profile of the card is not known any more"
"""What stands for NO_PROFILE if compaction may have removed the profile."""


def of_alert(alert: Mapping[str, Any]) -> list[str]:
    """List the reasons of an alert: rules that fired, a failed model, features that raised the score most.

    The rule `score` is listed only if there is no other reason.

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
    if alert.get("profile_unknown"):
        sentences = [UNKNOWN_PROFILE if sentence == NO_PROFILE else sentence for sentence in sentences]
    return list(dict.fromkeys(sentences))


def of_rule(rule: str, alert: Mapping[str, Any]) -> str:
    """Return a sentence that explains why a rule of the policy fired; for an unknown rule, its name."""
    if rule == ESCALATED:
        return f"{plural(alert['suspicious_count']['day'], 'alert')} of the card within 24 hours"
    known = RULES.get(rule)
    return rule if known is None else known.sentence(alert)
